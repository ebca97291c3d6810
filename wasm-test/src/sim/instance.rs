//! One life of a server process: what its connections share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use crate::sim::config::SimConfig;
use crate::sim::engines::Engines;
use crate::sim::exposition::without;
use crate::sim::faults::{Faults, MetricsAnswer, Overrides};
use crate::sim::further::ResponseStore;
use crate::sim::log::RequestLog;
use crate::sim::metrics;
use crate::sim::stats::{Counters, Gauges};

/// State of one life. A restart makes a new one; only the request log goes on.
#[derive(Debug)]
pub struct Instance {
    pub config: SimConfig,
    pub address: SocketAddr,
    pub engines: Engines,
    pub faults: Faults,
    pub log: Arc<RequestLog>,
    pub responses: ResponseStore,
    /// Tells this life from others to servers that fetch from it.
    pub engine_id: String,
    /// Unix seconds.
    pub started: f64,
    scrapes: AtomicU64,
    /// The page while it must not change.
    frozen: Mutex<Option<String>>,
}

/// What `GET /sim/state` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct State {
    pub address: SocketAddr,
    /// Unix seconds.
    pub started: f64,
    /// Of all engines together.
    pub counters: Counters,
    /// Of all engines together, whatever the metrics page is made to say.
    pub gauges: Gauges,
    /// Each engine by itself.
    pub engines: Vec<EngineState>,
    /// Metrics pages served or being served.
    pub scrapes: u64,
    pub overrides: Overrides,
}

/// One engine's part of [`State`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EngineState {
    pub counters: Counters,
    pub gauges: Gauges,
}

impl Instance {
    pub fn new(config: SimConfig, address: SocketAddr, log: Arc<RequestLog>) -> Self {
        Self {
            engines: Engines::new(&config),
            faults: Faults::new(config.overrides()),
            config,
            address,
            log,
            responses: ResponseStore::default(),
            engine_id: format!("{:032x}", rand::random::<u128>()),
            started: unix_seconds(),
            scrapes: AtomicU64::new(0),
            frozen: Mutex::new(None),
        }
    }

    pub fn state(&self) -> State {
        let engines: Vec<EngineState> = self
            .engines
            .observe()
            .into_iter()
            .map(|(stats, gauges)| EngineState {
                counters: stats.counters,
                gauges,
            })
            .collect();
        let gauges: Vec<Gauges> = engines.iter().map(|engine| engine.gauges).collect();
        State {
            address: self.address,
            started: self.started,
            counters: engines.iter().map(|engine| engine.counters).sum(),
            gauges: Gauges::total(&gauges),
            engines,
            scrapes: self.scrapes.load(Ordering::Relaxed),
            overrides: self.faults.current(),
        }
    }

    /// Replaces all overrides.
    pub fn set_overrides(&self, overrides: Overrides) {
        let frozen = (overrides.metrics == MetricsAnswer::Frozen).then(|| self.page(&overrides));
        *self.lock_frozen() = frozen;
        self.engines.set_stuck(overrides.stuck);
        self.faults.set(overrides);
    }

    /// The metrics page, after the delay a test may have set, or what is to come in its place.
    pub async fn metrics_page(&self) -> Response {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.faults.metrics_delay()).await;
        let overrides = self.faults.current();
        let content_type = [(CONTENT_TYPE, metrics::CONTENT_TYPE)];
        match overrides.metrics {
            MetricsAnswer::Page => (content_type, self.page(&overrides)).into_response(),
            MetricsAnswer::Frozen => {
                let page = self.lock_frozen().clone();
                (content_type, page.unwrap_or_default()).into_response()
            }
            MetricsAnswer::RandomBytes => {
                let mut bytes = vec![0; self.page(&overrides).len()];
                rand::fill(&mut bytes[..]);
                (content_type, bytes).into_response()
            }
            MetricsAnswer::Html => Html(HTML).into_response(),
            MetricsAnswer::Status(status) => status.code().into_response(),
        }
    }

    fn page(&self, overrides: &Overrides) -> String {
        let page = metrics::page(
            &self.config,
            self.started,
            &self.engines.observe(),
            overrides,
        );
        let mut absent = overrides.metrics_without.clone();
        if self.faults.is_loading() {
            absent.push(VLLM_FAMILIES.to_owned());
        }
        without(&page, &absent)
    }

    fn lock_frozen(&self) -> MutexGuard<'_, Option<String>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the names of vLLM's families begin with.
const VLLM_FAMILIES: &str = "vllm:";

/// What a proxy in the way may answer with.
const HTML: &str = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n\
                    <body><h1>Sign in</h1><p>vllm:num_requests_running 0.0</p></body></html>\n";

/// Now, in Unix seconds.
pub fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

//! One life of a server process: what its connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::sim::config::SimConfig;
use crate::sim::driver::EngineHandle;
use crate::sim::faults::{Faults, Overrides};
use crate::sim::log::RequestLog;
use crate::sim::metrics;
use crate::sim::stats::{Counters, Gauges};

/// State of one life. A restart makes a new one; only the request log goes on.
#[derive(Debug)]
pub struct Instance {
    pub config: SimConfig,
    pub address: SocketAddr,
    pub engine: EngineHandle,
    pub faults: Faults,
    pub log: Arc<RequestLog>,
    /// Unix seconds.
    pub started: f64,
    scrapes: AtomicU64,
}

/// What `GET /sim/state` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct State {
    pub address: SocketAddr,
    /// Unix seconds.
    pub started: f64,
    pub counters: Counters,
    /// The engine's own, whatever the metrics page is made to say.
    pub gauges: Gauges,
    /// Metrics pages served or being served.
    pub scrapes: u64,
    pub overrides: Overrides,
}

impl Instance {
    pub fn new(config: SimConfig, address: SocketAddr, log: Arc<RequestLog>) -> Self {
        Self {
            engine: EngineHandle::new(&config),
            config,
            address,
            faults: Faults::default(),
            log,
            started: unix_seconds(),
            scrapes: AtomicU64::new(0),
        }
    }

    pub fn state(&self) -> State {
        State {
            address: self.address,
            started: self.started,
            counters: self.engine.stats().counters,
            gauges: self.engine.gauges(),
            scrapes: self.scrapes.load(Ordering::Relaxed),
            overrides: self.faults.current(),
        }
    }

    /// The metrics page, after the delay a test may have set.
    pub async fn metrics_page(&self) -> String {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.faults.metrics_delay()).await;
        let (stats, gauges) = (self.engine.stats(), self.engine.gauges());
        metrics::page(
            &self.config,
            self.started,
            &stats,
            gauges,
            &self.faults.current(),
        )
    }
}

/// Now, in Unix seconds.
pub fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

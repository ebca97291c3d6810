//! All that is known of one endpoint.

use core::net::SocketAddr;
use core::time::Duration;

use xxhash_rust::xxh64::xxh64;

use crate::config::{EndpointConfig, PoolConfig};
use crate::datalayer::{
    Condition, Endpoint, EndpointMetrics, EndpointSnapshot, GpuReading, HostStatus, Labels,
    ModelList, Outcomes, Progress, Unusable, freshness,
};
use crate::requestcontrol::Tally;
use crate::time::Timestamp;

/// An unfit endpoint gets one request in this time: how its recovery is noticed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// What health is worth while a GPU reports an error. Such reports stay until the GPU is reset,
/// whatever becomes of the server, so they weigh and never exclude.
const WORTH_WITH_GPU_FAULT: f64 = 0.5;

/// An endpoint with its latest metrics.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) endpoint: Endpoint,
    pub(super) address_hash: u64,
    /// The how-manieth member it is.
    pub(super) joined: u64,
    /// Start of the scrape the metrics come from.
    pub(super) scraped_at: Option<Timestamp>,
    pub(super) metrics: EndpointMetrics,
    pub(super) status: HostStatus,
    /// What the exporter beside it told of its GPUs, and the start of that scrape.
    pub(super) exporter: Option<(Timestamp, GpuReading)>,
    /// The models it lists, where it does.
    pub(super) models: Option<ModelList>,
    /// Its latest health check that told anything failed.
    pub(super) fails_checks: bool,
    /// What its engines did lately, as this VM saw it.
    pub(super) progress: Progress,
    /// The condition the operator was last told of.
    pub(super) told: Condition,
    /// How its latest answers turned out, at whichever VM.
    pub(super) outcomes: Outcomes,
    /// How many there were when they were last looked at.
    pub(super) tally: Tally,
    /// When this VM last chose it although it was unfit.
    pub(super) probed: Option<Timestamp>,
    /// The operator was told that Envoy's cluster does not hold it.
    pub(super) reported_missing: bool,
}

impl Known {
    /// The endpoint at `address`, with what the operator says of it.
    pub(super) fn new(address: SocketAddr, config: &PoolConfig) -> Self {
        let name = address.to_string();
        Self {
            address_hash: xxh64(name.as_bytes(), 0),
            endpoint: Endpoint {
                address,
                name,
                labels: labels(address, 0, config),
                max_running: listed(address, config).and_then(|listed| listed.max_running),
            },
            joined: 0,
            scraped_at: None,
            metrics: EndpointMetrics::default(),
            status: HostStatus::default(),
            exporter: None,
            models: None,
            fails_checks: false,
            progress: Progress::default(),
            told: Condition::USABLE,
            outcomes: Outcomes::default(),
            tally: Tally::default(),
            probed: None,
            reported_missing: false,
        }
    }

    pub(super) fn snapshot(&self) -> EndpointSnapshot {
        EndpointSnapshot {
            address: self.endpoint.address,
            scraped_at: self.scraped_at,
            metrics: self.metrics.clone(),
            models: self.models.clone(),
            status: self.status,
        }
    }

    /// Takes over what Envoy's host list says; what the scraper found out stays.
    pub(super) fn take_hosts_word(&mut self, word: HostStatus, config: &PoolConfig) {
        if word.sources != self.status.sources {
            self.endpoint.labels = labels(self.endpoint.address, word.sources, config);
        }
        let condition = self.status.condition.with_hosts_word(word.condition);
        self.status = HostStatus { condition, ..word };
    }

    /// Takes over what the scraper found out, and Envoy's word as the scraper knew it.
    pub(super) fn take_scrapers_word(&mut self, snapshot: &EndpointSnapshot) {
        self.models.clone_from(&snapshot.models);
        self.status.condition = snapshot.status.condition;
        let mut causes = self.status.condition.causes();
        let is_unready = causes.any(|cause| cause == Unusable::NotReady);
        self.fails_checks = is_unready && !self.lists_nothing();
    }

    /// Draws the conclusion from its health checks and its list of models.
    pub(super) fn judge_readiness(&mut self) {
        let is_unready = self.fails_checks || self.lists_nothing();
        self.set(Unusable::NotReady, is_unready);
    }

    pub(super) fn set(&mut self, cause: Unusable, holds: bool) {
        self.status.condition = self.status.condition.with(cause, holds);
    }

    /// Whether it is known to serve no model at all.
    pub(super) fn lists_nothing(&self) -> bool {
        self.models.as_ref().is_some_and(ModelList::is_empty)
    }

    /// Takes over a newer scrape; `false` when a newer one is known.
    pub(super) fn update(
        &mut self,
        started: Timestamp,
        metrics: &EndpointMetrics,
        config: &PoolConfig,
    ) -> bool {
        if self.scraped_at.is_some_and(|last| last >= started) {
            return false;
        }
        self.scraped_at = Some(started);
        self.metrics = metrics.clone();
        if let Some(exported) = self.exported(started, config) {
            let own = self.metrics.gpu_utilisation;
            self.metrics.gpu_utilisation = own.or(exported.utilisation);
            self.metrics.gpu_fault |= exported.faulty;
        }
        true
    }

    /// How well it does, in [0, 1]; 0 when it must not be used.
    pub(super) fn fitness(&self, now: Timestamp, config: &PoolConfig) -> f64 {
        if self.status.condition.is_usable() {
            self.outcomes.success(now, config.health.error_window)
        } else {
            0.0
        }
    }

    /// How good a choice it is, in [0, 1]: fitness, and what is known of it.
    pub(super) fn health(&self, now: Timestamp, config: &PoolConfig) -> f64 {
        self.health_of(self.fitness(now, config), self.freshness(now, config))
    }

    /// [`Self::health`], given what it is made of.
    pub(super) fn health_of(&self, fitness: f64, freshness: f64) -> f64 {
        let gpus = if self.metrics.gpu_fault {
            WORTH_WITH_GPU_FAULT
        } else {
            1.0
        };
        fitness * freshness * gpus
    }

    /// KV-cache utilisation in [0, 1], with what `own_tokens` tokens that the scrape cannot show will
    /// fill, as far as the cache's size is known.
    pub(super) fn kv_utilisation(&self, own_tokens: u64) -> Option<f64> {
        let scraped = self.metrics.kv_utilisation;
        let Some(size) = self.metrics.cache_tokens.filter(|&size| size > 0) else {
            return scraped;
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a ratio of token counts needs no more"
        )]
        let own = own_tokens as f64 / size as f64;
        Some((scraped.unwrap_or(0.0) + own).min(1.0))
    }

    /// How fresh its metrics are, in [0, 1].
    pub(super) fn freshness(&self, now: Timestamp, config: &PoolConfig) -> f64 {
        let age = self.scraped_at.map(|at| now.since(at));
        let health = &config.health;
        freshness(
            age,
            config.metrics.interval,
            health.stale_after,
            health.stale_floor,
        )
    }

    /// Whether a request may try it although it is unfit; any VM's latest request went there at
    /// `last_sent`. Not where somebody else tries it, or where it must not be tried.
    pub(super) fn probe_is_due(&self, last_sent: Option<Timestamp>, now: Timestamp) -> bool {
        // No clock that went back, and no forged entry, keeps an endpoint from being tried.
        let rested = |last| last > now || now.since(last) >= PROBE_INTERVAL;
        let mut tried = [self.probed, last_sent].into_iter().flatten();
        self.status.condition.is_usable() && tried.all(rested)
    }

    /// Takes in what came to the `tally` of its answers until `now`.
    pub(super) fn take_outcomes(&mut self, tally: Tally, now: Timestamp, window: Duration) {
        if tally != self.tally {
            let Tally { served, failed } = tally.since(self.tally);
            self.tally = tally;
            self.outcomes.record(now, window, served, failed);
        }
    }

    /// What the exporter told, unless that is stale at `now`: what nobody renews would outlive the
    /// endpoint's other numbers.
    fn exported(&self, now: Timestamp, config: &PoolConfig) -> Option<GpuReading> {
        let (at, reading) = self.exporter?;
        let fresh = config
            .metrics
            .interval
            .saturating_mul(config.health.stale_after);
        (now.since(at) <= fresh).then_some(reading)
    }

    /// Whether `model` is a base model it lists.
    pub(super) fn has_base(&self, model: &str) -> bool {
        let models = self.models.as_ref();
        models.is_some_and(|models| models.has_base(model))
    }

    /// Whether nothing is known against its serving `model`.
    pub(super) fn may_serve(&self, model: &str) -> bool {
        let models = self.models.as_ref();
        models.is_none_or(|models| models.contains(model))
    }

    /// Whether `model` is among the adapters it has loaded.
    pub(super) fn has_loaded(&self, model: &str) -> bool {
        let adapters = self.metrics.adapters.as_ref();
        adapters.is_some_and(|adapters| adapters.contains(model))
    }
}

fn listed(address: SocketAddr, config: &PoolConfig) -> Option<&EndpointConfig> {
    config.endpoints.iter().find(|one| one.address == address)
}

/// The labels of the `sources` that list the endpoint, one bit each; of equal names the later
/// source's wins, and the endpoint's own over all.
fn labels(address: SocketAddr, sources: u32, config: &PoolConfig) -> Labels {
    let discovery = config.discovery.as_ref();
    let all = discovery.map_or(&[][..], |discovery| &discovery.sources);
    let listing = all.iter().zip(0..).filter_map(|(source, place)| {
        let bit = 1_u32.checked_shl(place)?;
        (sources & bit != 0).then_some(&source.labels)
    });
    let own = listed(address, config).map(|listed| &listed.labels);
    let labels = listing.chain(own).flatten();
    labels
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

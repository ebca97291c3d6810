//! All that is known of one endpoint.

use core::net::SocketAddr;
use core::time::Duration;

use xxhash_rust::xxh64::xxh64;

use crate::config::{EndpointConfig, PoolConfig};
use crate::datalayer::{
    Endpoint, EndpointMetrics, EndpointSnapshot, HostStatus, Labels, Outcomes, freshness,
};
use crate::time::Timestamp;

/// An unfit endpoint gets one request in this time: how its recovery is noticed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

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
    /// GPU utilisation by the exporter beside it, and the start of that scrape.
    pub(super) exporter: Option<(Timestamp, f64)>,
    /// How its latest answers turned out.
    pub(super) outcomes: Outcomes,
    /// When it last got a request although it was unfit.
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
            outcomes: Outcomes::default(),
            probed: None,
            reported_missing: false,
        }
    }

    pub(super) fn snapshot(&self) -> EndpointSnapshot {
        EndpointSnapshot {
            address: self.endpoint.address,
            scraped_at: self.scraped_at,
            metrics: self.metrics.clone(),
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
        if self.metrics.gpu_utilisation.is_none() {
            self.metrics.gpu_utilisation = self.exported(started, config);
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

    /// Whether a request may try it although it is unfit. Not where somebody else tries it, or
    /// where it must not be tried.
    pub(super) fn probe_is_due(&self, now: Timestamp) -> bool {
        let rested = |last| now.since(last) >= PROBE_INTERVAL;
        self.status.condition.is_usable() && self.probed.is_none_or(rested)
    }

    /// What the exporter told, unless that is stale at `now`: a load nobody renews would outlive
    /// the endpoint's other numbers.
    fn exported(&self, now: Timestamp, config: &PoolConfig) -> Option<f64> {
        let (at, utilisation) = self.exporter?;
        let fresh = config
            .metrics
            .interval
            .saturating_mul(config.health.stale_after);
        (now.since(at) <= fresh).then_some(utilisation)
    }

    /// Whether `model` is among the adapters it has loaded.
    pub(super) fn lists(&self, model: &str) -> bool {
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

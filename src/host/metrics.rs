//! The metrics in Envoy's stats, each defined once for a VM.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::abi::{self, MetricId, MetricKind};
use crate::datalayer::EndpointId;
use crate::flow::{Count, Router};
use crate::requestcontrol::Pool;
use crate::telemetry::metric::{self, Kind, Metric, stat_name};
use crate::telemetry::{Reason, SplitDecision};
use crate::time::Timestamp;

/// How a scrape ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScrapeResult {
    Ok,
    /// Refused, reset, or a status other than 200.
    Error,
    Timeout,
    /// An answer without a metric of a known engine.
    Unreadable,
}

impl ScrapeResult {
    const ALL: [Self; 4] = [Self::Ok, Self::Error, Self::Timeout, Self::Unreadable];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A metric of the host; `None` when the host would not define it.
type Handle = Option<MetricId>;

pub(super) struct Metrics {
    match_ratio: Handle,
    composite_score: Handle,
    scoring_latency: Handle,
    replica_gap: Handle,
    log_untold: Handle,
    foreign_data: Handle,
    prefill_latency: Handle,
    pools: Vec<PoolMetrics>,
    /// How many models, and how many adapters, of a pool may have a label of their own.
    label_values: usize,
}

struct PoolMetrics {
    name: String,
    match_blocks: Handle,
    prompt_blocks: Handle,
    candidates: Handle,
    max_queue: Handle,
    index_entries: Handle,
    fallback: Vec<(Reason, Handle)>,
    scrapes: Vec<(ScrapeResult, Handle)>,
    discovery: Vec<(ScrapeResult, Handle)>,
    /// None where requests are not split.
    split: Vec<(SplitDecision, Handle)>,
    endpoints: EndpointSeries,
    /// Models with a label of their own.
    models: BTreeSet<String>,
    /// By the adapter's label.
    adapter_loads: BTreeMap<String, Handle>,
}

/// The metrics of a pool's endpoints. An endpoint that comes back has the same ones: the host never
/// forgets a metric. Memory: one entry for each address seen, at most [`MAX_SERIES`].
#[derive(Default)]
struct EndpointSeries {
    all: Vec<EndpointMetrics>,
    by_name: BTreeMap<String, usize>,
    /// Indexed by endpoint; one that left keeps its place until another takes it.
    places: Vec<usize>,
    /// How many endpoints had joined when `places` was laid out.
    joined: u64,
}

struct EndpointMetrics {
    name: String,
    in_flight: Handle,
    queue_depth: Handle,
    health: Handle,
    resets: Handle,
    /// Defined once it is known.
    transferred: Option<Handle>,
    decisions: BTreeMap<String, Handle>,
}

/// Addresses of one pool with series of their own: as many as it may have endpoints at a time.
const MAX_SERIES: usize = 4_096;
/// The label of models and adapters beyond `limits.labelValues`, and of pods beyond [`MAX_SERIES`].
const OTHER: &str = "other";
/// The label of requests that name no model.
const NO_MODEL: &str = "none";

impl Metrics {
    /// Defines what does not depend on traffic; all of it is exported as 0 from here on.
    pub(super) fn new(router: &Router) -> Self {
        let config = router.config();
        let build_info = define(&metric::BUILD_INFO, &[env!("CARGO_PKG_VERSION")]);
        record(build_info, 1);
        Self {
            match_ratio: define(&metric::CACHE_MATCH_RATIO, &[]),
            composite_score: define(&metric::COMPOSITE_SCORE, &[]),
            scoring_latency: define(&metric::SCORING_LATENCY, &[]),
            replica_gap: define(&metric::REPLICA_GAP, &[]),
            log_untold: define(&metric::LOG_UNTOLD, &[]),
            foreign_data: define(&metric::FOREIGN_DATA, &[]),
            prefill_latency: router
                .pools()
                .iter()
                .any(|pool| pool.config().disaggregation.mode.is_inline())
                .then(|| define(&metric::DISAGG_PREFILL_LATENCY, &[]))
                .flatten(),
            pools: router.pools().iter().map(PoolMetrics::new).collect(),
            label_values: usize::try_from(config.limits.label_values).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn scoring_latency(&self, took: Duration) {
        record(
            self.scoring_latency,
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        );
    }

    pub(super) fn count(&mut self, count: &Count) {
        match count {
            Count::Decision {
                pool,
                model,
                endpoint,
            } => {
                if let Some(pool) = self.pools.get_mut(*pool) {
                    pool.decision(model, *endpoint, self.label_values);
                }
            }
            Count::Fallback { pool, reason } => {
                let found = self
                    .pools
                    .get(*pool)
                    .and_then(|pool| find(&pool.fallback, *reason));
                add(found, 1);
            }
            Count::Scored {
                pool,
                matched_blocks,
                total_blocks,
                score,
            } => {
                let percent = percent(f64::from(*matched_blocks) / f64::from(*total_blocks));
                record(self.match_ratio, percent);
                record(self.composite_score, self::percent(*score));
                if let Some(pool) = self.pools.get(*pool) {
                    add(pool.match_blocks, i64::from(*matched_blocks));
                    add(pool.prompt_blocks, i64::from(*total_blocks));
                }
            }
            Count::AdapterLoad { pool, adapter } => {
                if let Some(pool) = self.pools.get_mut(*pool) {
                    pool.adapter_load(adapter, self.label_values);
                }
            }
            Count::Split { pool, decision } => {
                let pool = self.pools.get(*pool);
                add(pool.and_then(|pool| find(&pool.split, *decision)), 1);
            }
            Count::Prefilled { took } => {
                let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                record(self.prefill_latency, millis);
            }
            Count::UpstreamReset { pool, endpoint } => {
                add(
                    self.endpoint(*pool, *endpoint).and_then(|one| one.resets),
                    1,
                );
            }
        }
    }

    pub(super) fn discovery(&self, pool: usize, result: ScrapeResult) {
        let pool = self.pools.get(pool);
        add(pool.and_then(|pool| find(&pool.discovery, result)), 1);
    }

    pub(super) fn scrape(&self, pool: usize, result: ScrapeResult) {
        add(
            self.pools
                .get(pool)
                .and_then(|pool| find(&pool.scrapes, result)),
            1,
        );
    }

    /// What the endpoint says of the prompt tokens it took over.
    pub(super) fn transferred(&mut self, pool: usize, endpoint: EndpointId, tokens: u64) {
        let Some(pool) = self.pools.get_mut(pool) else {
            return;
        };
        if let Some(endpoint) = pool.endpoints.get_mut(endpoint) {
            let labels = [pool.name.as_str(), &endpoint.name];
            let define = || define(&metric::DISAGG_TRANSFERRED, &labels);
            record(*endpoint.transferred.get_or_insert_with(define), tokens);
        }
    }

    /// Defines the series of endpoints that have joined.
    pub(super) fn follow_members(&mut self, router: &Router) {
        for (metrics, pool) in self.pools.iter_mut().zip(router.pools()) {
            metrics.endpoints.follow(&metrics.name, pool);
        }
    }

    /// Entries of the decision log that this VM missed, and that it could not tell others.
    pub(super) fn log_trouble(&self, missed: u64, untold: u64) {
        add(self.replica_gap, i64::try_from(missed).unwrap_or(i64::MAX));
        add(self.log_untold, i64::try_from(untold).unwrap_or(i64::MAX));
    }

    /// Values in shared data that are not ours.
    pub(super) fn foreign_data(&self, values: u32) {
        add(self.foreign_data, i64::from(values));
    }

    /// What the scrape leader reports for all.
    pub(super) fn report_pools(&self, router: &Router, now: Timestamp) {
        for (metrics, pool) in self.pools.iter().zip(router.pools()) {
            metrics.endpoints.report(pool, now);
            let candidates = pool.candidate_count(now);
            let entries = pool.indexed_blocks();
            record(
                metrics.index_entries,
                u64::try_from(entries).unwrap_or(u64::MAX),
            );
            record(
                metrics.candidates,
                u64::try_from(candidates).unwrap_or(u64::MAX),
            );
            record(
                metrics.max_queue,
                u64::from(pool.queue_limit().unwrap_or(0)),
            );
        }
    }

    fn endpoint(&self, pool: usize, endpoint: EndpointId) -> Option<&EndpointMetrics> {
        self.pools.get(pool)?.endpoints.get(endpoint)
    }
}

impl PoolMetrics {
    fn new(state: &Pool) -> Self {
        let config = state.config();
        let pool = config.name.as_str();
        let of_pool = |metric: &Metric| define(metric, &[pool]);
        let fallbacks = Reason::ALL
            .into_iter()
            .filter(|reason| reason.is_fallback());
        let fallback = fallbacks
            .map(|reason| (reason, define(&metric::FALLBACK, &[pool, reason.as_str()])))
            .collect();
        let by_result = |metric: &Metric| {
            let results = ScrapeResult::ALL.into_iter();
            results
                .map(|result| (result, define(metric, &[pool, result.as_str()])))
                .collect()
        };
        let decisions = SplitDecision::of_mode(config.disaggregation.mode.is_inline());
        let define_decision = |decision: SplitDecision| {
            let handle = define(&metric::DISAGG_DECISION, &[pool, decision.as_str()]);
            (decision, handle)
        };
        Self {
            split: decisions
                .filter(|_| state.splits())
                .map(define_decision)
                .collect(),
            name: pool.to_owned(),
            match_blocks: of_pool(&metric::CACHE_MATCH_BLOCKS),
            prompt_blocks: of_pool(&metric::PROMPT_BLOCKS),
            candidates: of_pool(&metric::CANDIDATE_PODS),
            max_queue: of_pool(&metric::MAX_QUEUE),
            index_entries: of_pool(&metric::PREFIX_TREE_NODES),
            fallback,
            scrapes: by_result(&metric::SCRAPES),
            discovery: by_result(&metric::DISCOVERY),
            endpoints: EndpointSeries::default(),
            models: BTreeSet::new(),
            adapter_loads: BTreeMap::new(),
        }
    }

    /// Counts a decision under its model's label, or under `other` once there are enough labels.
    fn decision(&mut self, model: &str, endpoint: EndpointId, label_values: usize) {
        let model = if model.is_empty() { NO_MODEL } else { model };
        let Some(endpoint) = self.endpoints.get_mut(endpoint) else {
            return;
        };
        if let Some(&handle) = endpoint.decisions.get(model) {
            add(handle, 1);
            return;
        }
        if !self.models.contains(model) && self.models.len() < label_values {
            self.models.insert(model.to_owned());
        }
        let label = if self.models.contains(model) {
            model
        } else {
            OTHER
        };
        let define = || {
            define(
                &metric::ROUTING_DECISIONS,
                &[&self.name, label, &endpoint.name],
            )
        };
        add(
            *endpoint
                .decisions
                .entry(label.to_owned())
                .or_insert_with(define),
            1,
        );
    }

    /// Counts under the adapter's label, or under `other` once there are enough labels.
    fn adapter_load(&mut self, adapter: &str, label_values: usize) {
        let loads = &mut self.adapter_loads;
        let label = if loads.contains_key(adapter) || loads.len() < label_values {
            adapter
        } else {
            OTHER
        };
        let define = || define(&metric::ADAPTER_LOADS, &[&self.name, label]);
        add(*loads.entry(label.to_owned()).or_insert_with(define), 1);
    }
}

impl EndpointSeries {
    fn get(&self, endpoint: EndpointId) -> Option<&EndpointMetrics> {
        self.all.get(*self.places.get(endpoint.index())?)
    }

    fn get_mut(&mut self, endpoint: EndpointId) -> Option<&mut EndpointMetrics> {
        self.all.get_mut(*self.places.get(endpoint.index())?)
    }

    fn follow(&mut self, pool_name: &str, pool: &Pool) {
        if core::mem::replace(&mut self.joined, pool.joined()) == pool.joined() {
            return;
        }
        for (id, endpoint) in pool.endpoints() {
            let series = self.series(pool_name, &endpoint.name);
            while self.places.len() <= id.index() {
                self.places.push(series);
            }
            if let Some(place) = self.places.get_mut(id.index()) {
                *place = series;
            }
        }
    }

    /// The place of the series of `name` in [`Self::all`].
    fn series(&mut self, pool_name: &str, name: &str) -> usize {
        let has_room = self.by_name.len() < MAX_SERIES;
        let label = if has_room || self.by_name.contains_key(name) {
            name
        } else {
            OTHER
        };
        if let Some(&known) = self.by_name.get(label) {
            return known;
        }
        let next = self.all.len();
        self.all
            .push(EndpointMetrics::new(pool_name, label.to_owned()));
        self.by_name.insert(label.to_owned(), next);
        next
    }

    /// Sets the gauges of all that ever were endpoints; those that left show 0.
    fn report(&self, pool: &Pool, now: Timestamp) {
        let mut here = vec![None; self.all.len()];
        for (id, endpoint) in pool.endpoints() {
            let has_name = |place: &&usize| {
                let series = self.all.get(**place);
                series.is_some_and(|series| series.name == endpoint.name)
            };
            let place = self.places.get(id.index()).filter(has_name);
            if let Some(here) = place.and_then(|&place| here.get_mut(place)) {
                *here = Some(id);
            }
        }
        for (series, id) in self.all.iter().zip(here) {
            let in_flight = id.map_or(0, |id| pool.open_at(id));
            record(series.in_flight, u64::from(in_flight));
            let queue_depth = id.map_or(0, |id| pool.queue_depth(id));
            record(series.queue_depth, u64::from(queue_depth));
            let health = id.map_or(0.0, |id| pool.health(id, now));
            record(series.health, percent(health));
        }
    }
}

impl EndpointMetrics {
    fn new(pool: &str, name: String) -> Self {
        let of_endpoint = |metric: &Metric| define(metric, &[pool, &name]);
        Self {
            in_flight: of_endpoint(&metric::INFLIGHT_REQUESTS),
            queue_depth: of_endpoint(&metric::QUEUE_DEPTH),
            health: of_endpoint(&metric::POD_HEALTH_SCORE),
            resets: of_endpoint(&metric::UPSTREAM_RESET),
            transferred: None,
            decisions: BTreeMap::new(),
            name,
        }
    }
}

fn find<K: Copy + PartialEq>(handles: &[(K, Handle)], key: K) -> Handle {
    handles
        .iter()
        .find(|(of, _)| *of == key)
        .and_then(|&(_, handle)| handle)
}

fn define(metric: &Metric, values: &[&str]) -> Handle {
    let kind = match metric.kind {
        Kind::Counter => MetricKind::Counter,
        Kind::Gauge => MetricKind::Gauge,
        Kind::Histogram => MetricKind::Histogram,
    };
    abi::define_metric(kind, &stat_name(metric, values)).ok()
}

/// Adds to a counter or gauge; a counter takes no 0. A refused call leaves a number too low, which
/// is no reason to disturb a request.
fn add(handle: Handle, by: i64) {
    if let (Some(id), true) = (handle, by != 0) {
        let _ = abi::increment_metric(id, by);
    }
}

fn record(handle: Handle, value: u64) {
    if let Some(id) = handle {
        let _ = abi::record_metric(id, value);
    }
}

/// `share`, in [0, 1], in whole percent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to integer cast saturates, and the value lies in 0 to 100"
)]
fn percent(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u64
}

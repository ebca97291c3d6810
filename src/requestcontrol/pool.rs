//! One pool of model servers: its endpoints and all that is known of them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use xxhash_rust::xxh64::xxh64;

use super::{InFlight, LoadGuard};
use crate::config::{Capacity, PoolConfig, PrefixConfig};
use crate::datalayer::{
    Endpoint, EndpointId, EndpointMetrics, EndpointSnapshot, Outcomes, PoolSnapshot, freshness,
};
use crate::prefix::{Chain, PrefixIndex};
use crate::scheduling::picker::TieKey;
use crate::scheduling::{Candidate, Decision, Profile, Ranked, five_factor};
use crate::time::Timestamp;

/// Blocks an endpoint is thought to have room for while it reports nothing (llm-d's default).
const DEFAULT_CAPACITY: u32 = 31_250;

/// A pool's state in this VM.
#[derive(Debug)]
pub struct Pool {
    pub(super) index: PrefixIndex,
    pub(super) in_flight: InFlight,
    config: PoolConfig,
    endpoints: Vec<Known>,
    by_address: BTreeMap<SocketAddr, EndpointId>,
    profile: Profile,
    /// Reused from request to request.
    matched: Vec<u32>,
}

/// An endpoint with its latest metrics.
#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    address_hash: u64,
    /// Start of the scrape the metrics come from.
    scraped_at: Option<Timestamp>,
    metrics: EndpointMetrics,
    /// GPU utilisation by the exporter beside it, and the start of that scrape.
    exporter: Option<(Timestamp, f64)>,
    /// How its latest answers turned out.
    outcomes: Outcomes,
    /// When it last got a request although it was unfit.
    probed: Option<Timestamp>,
    /// The operator was told that Envoy's cluster does not hold it.
    reported_missing: bool,
}

/// An unfit endpoint gets one request in this time: how its recovery is noticed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A decision with what it was based on.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The ranking.
    pub decision: Decision,
    /// Leading blocks of the prompt the first of the ranking holds.
    pub matched_blocks: u32,
    /// Blocks of the prompt.
    pub total_blocks: u32,
    /// The model is an adapter that the first of the ranking has not loaded.
    pub loads_adapter: bool,
}

impl Pool {
    /// A pool that has sent nothing yet and may index `max_entries` (block, endpoint) pairs.
    pub fn new(config: PoolConfig, max_entries: usize) -> Self {
        let endpoints: Vec<Known> = config.endpoints.iter().map(Known::new).collect();
        let ids = (0_u16..).map(EndpointId::new);
        let addresses = endpoints.iter().map(|known| known.endpoint.address);
        let by_address = addresses.zip(ids).collect();
        let capacity = match config.prefix.capacity_blocks {
            Capacity::Blocks(blocks) => blocks,
            Capacity::Auto => DEFAULT_CAPACITY,
        };
        Self {
            index: PrefixIndex::new(endpoints.len(), capacity, max_entries),
            in_flight: InFlight::new(endpoints.len()),
            profile: five_factor(&config.scoring),
            matched: Vec::new(),
            by_address,
            endpoints,
            config,
        }
    }

    /// What the operator asked for.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The endpoints, in the order of their ids.
    pub fn endpoints(&self) -> impl ExactSizeIterator<Item = &Endpoint> {
        self.endpoints.iter().map(|known| &known.endpoint)
    }

    /// The endpoint `id`.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(id.index()).map(|known| &known.endpoint)
    }

    /// The endpoint that listens at `address`.
    pub fn find(&self, address: SocketAddr) -> Option<EndpointId> {
        self.by_address.get(&address).copied()
    }

    /// Takes over what a newer scrape found out about `endpoint`.
    pub fn update(&mut self, endpoint: EndpointId, started: Timestamp, metrics: &EndpointMetrics) {
        let Some(known) = self.endpoints.get_mut(endpoint.index()) else {
            return;
        };
        if known.scraped_at.is_some_and(|last| last >= started) {
            return;
        }
        known.scraped_at = Some(started);
        known.metrics = metrics.clone();
        if known.metrics.gpu_utilisation.is_none() {
            known.metrics.gpu_utilisation = known.exported(started, &self.config);
        }
        self.in_flight.use_scrape(endpoint, started);
        let reported = metrics
            .cache_tokens
            .and_then(|tokens| blocks(tokens, &self.config.prefix));
        if let Some(capacity) = reported {
            self.index.set_capacity(endpoint, capacity);
        }
    }

    /// Takes over the GPU utilisation, in [0, 1], that the exporter beside `endpoint` told. It
    /// becomes part of the metrics with the endpoint's next scrape, where its own page tells none.
    pub fn update_gpu(&mut self, endpoint: EndpointId, started: Timestamp, utilisation: f64) {
        if let Some(known) = self.endpoints.get_mut(endpoint.index()) {
            known.exporter = Some((started, utilisation));
        }
    }

    /// Takes over a snapshot. Endpoints are told by address; what is unknown, older than what is
    /// known, or from the future (nobody could ever replace it) is passed over.
    pub fn apply(&mut self, snapshot: &PoolSnapshot, now: Timestamp) {
        for one in &snapshot.endpoints {
            let started = one.scraped_at.filter(|&started| started <= now);
            if let (Some(id), Some(started)) = (self.find(one.address), started) {
                self.update(id, started, &one.metrics);
            }
        }
    }

    /// What is known, for other VMs.
    pub fn snapshot(&self) -> PoolSnapshot {
        let endpoints = self.endpoints.iter().map(|known| EndpointSnapshot {
            address: known.endpoint.address,
            scraped_at: known.scraped_at,
            metrics: known.metrics.clone(),
        });
        PoolSnapshot {
            endpoints: endpoints.collect(),
        }
    }

    /// Ranks the endpoints for a prompt to `model`; an empty chain ranks them by load.
    pub fn pick(
        &mut self,
        chain: &Chain,
        model: &str,
        tie: TieKey,
        count: usize,
        now: Timestamp,
    ) -> Pick {
        let candidates = self.candidates(chain, model, now);
        let mut decision = self.profile.run(&candidates, tie, count);
        self.probe(&mut decision, &candidates, count, now);
        let first = decision.ranking.first().map(|ranked| ranked.endpoint);
        let first = candidates
            .iter()
            .find(|candidate| Some(candidate.endpoint) == first);
        Pick {
            matched_blocks: first.map_or(0, |candidate| candidate.matched_blocks),
            total_blocks: block_count(chain),
            loads_adapter: first.is_some_and(|candidate| !candidate.adapter_ready),
            decision,
        }
    }

    /// An answer of `id` came, or failed to: a 5xx, a reset, a time-out.
    pub fn record_outcome(&mut self, id: EndpointId, now: Timestamp, failed: bool) {
        let window = self.config.health.error_window;
        if let Some(known) = self.endpoints.get_mut(id.index()) {
            known.outcomes.record(now, window, failed);
        }
    }

    /// Envoy's cluster does not hold `id`. Returns whether that is news.
    pub fn note_missing(&mut self, id: EndpointId) -> bool {
        let known = self.endpoints.get_mut(id.index());
        known.is_some_and(|known| !core::mem::replace(&mut known.reported_missing, true))
    }

    /// Health of `id` in [0, 1].
    pub fn health(&self, id: EndpointId, now: Timestamp) -> f64 {
        self.endpoints.get(id.index()).map_or(0.0, |known| {
            self.fitness_of(known, now) * self.freshness_of(known, now)
        })
    }

    /// Queue depth of `id` as the queue scorer sees it.
    pub fn queue_depth(&self, id: EndpointId) -> u32 {
        let Some(known) = self.endpoints.get(id.index()) else {
            return 0;
        };
        let EndpointMetrics {
            waiting, running, ..
        } = known.metrics;
        waiting.saturating_add(self.in_flight.own(id, waiting, running))
    }

    /// Whether `id` is healthy and below the queue limit.
    pub fn is_candidate(&self, id: EndpointId, now: Timestamp) -> bool {
        let scoring = &self.config.scoring;
        let Some(known) = self.endpoints.get(id.index()) else {
            return false;
        };
        let candidate = self.candidate(id, known, &Chain::default(), now);
        candidate.fitness >= scoring.min_health && candidate.truly_waiting() < scoring.max_queue
    }

    /// (block, endpoint) pairs in the index.
    pub fn indexed_blocks(&self) -> usize {
        self.index.len()
    }

    /// All endpoints with the attributes scorers read.
    fn candidates(&mut self, chain: &Chain, model: &str, now: Timestamp) -> Vec<Candidate> {
        let mut matched = core::mem::take(&mut self.matched);
        let mut one = Vec::new();
        matched.clear();
        matched.resize(self.endpoints.len(), 0);
        let credit = self.config.prefix.pending_credit;
        for prompt in chain.prompts() {
            self.index.matches(prompt, credit, &mut one);
            for (sum, blocks) in matched.iter_mut().zip(&one) {
                *sum = sum.saturating_add(*blocks);
            }
        }
        // Otherwise, only the endpoints' lists tell adapters from base models.
        let is_adapter = self.config.declares_adapter(model)
            || self.endpoints.iter().any(|known| known.lists(model));
        let mut candidates = Vec::with_capacity(self.endpoints.len());
        for (known, id) in self.endpoints.iter().zip(0_u16..) {
            let id = EndpointId::new(id);
            let mut candidate = self.candidate(id, known, chain, now);
            candidate.matched_blocks = matched.get(id.index()).copied().unwrap_or(0);
            candidate.adapter_ready = !is_adapter || known.lists(model);
            candidates.push(candidate);
        }
        self.matched = matched;
        self.guard(&mut candidates);
        candidates
    }

    fn candidate(&self, id: EndpointId, known: &Known, chain: &Chain, now: Timestamp) -> Candidate {
        let EndpointMetrics {
            waiting, running, ..
        } = known.metrics;
        let slots = known
            .endpoint
            .max_running
            .unwrap_or(self.config.scoring.max_running);
        let fitness = self.fitness_of(known, now);
        Candidate {
            endpoint: id,
            address_hash: known.address_hash,
            matched_blocks: 0,
            total_blocks: block_count(chain),
            guarded: false,
            waiting,
            running,
            own: self.in_flight.own(id, waiting, running),
            max_running: slots.saturating_mul(known.metrics.engines.max(1)).max(1),
            kv_utilisation: known.metrics.kv_utilisation,
            gpu_utilisation: known.metrics.gpu_utilisation,
            health: fitness * self.freshness_of(known, now),
            fitness,
            adapter_ready: true,
        }
    }

    fn fitness_of(&self, known: &Known, now: Timestamp) -> f64 {
        known.outcomes.success(now, self.config.health.error_window)
    }

    fn freshness_of(&self, known: &Known, now: Timestamp) -> f64 {
        let age = known.scraped_at.map(|at| now.since(at));
        let health = &self.config.health;
        freshness(
            age,
            self.config.metrics.interval,
            health.stale_after,
            health.stale_floor,
        )
    }

    /// Puts an unfit endpoint whose turn has come before all others, which then take over if it
    /// fails.
    fn probe(
        &mut self,
        decision: &mut Decision,
        candidates: &[Candidate],
        count: usize,
        now: Timestamp,
    ) {
        let min_health = self.config.scoring.min_health;
        let due = candidates.iter().find(|candidate| {
            let probed = self.endpoints.get(candidate.endpoint.index());
            let probed = probed.and_then(|known| known.probed);
            candidate.fitness < min_health
                && probed.is_none_or(|last| now.since(last) >= PROBE_INTERVAL)
        });
        // Alone it would be no probe but the whole list; and with nobody fit all get requests.
        let (Some(due), None) = (due, decision.exception) else {
            return;
        };
        if count < 2 || decision.ranking.is_empty() {
            return;
        }
        if let Some(known) = self.endpoints.get_mut(due.endpoint.index()) {
            known.probed = Some(now);
        }
        let probe = Ranked {
            endpoint: due.endpoint,
            score: self.profile.composite(due),
        };
        let others = core::mem::take(&mut decision.ranking);
        decision.ranking = core::iter::once(probe).chain(others).take(count).collect();
    }

    /// Closes the load guard where too much is open.
    fn guard(&self, candidates: &mut [Candidate]) {
        let scoring = &self.config.scoring;
        let healthy = || {
            candidates
                .iter()
                .filter(|one| one.fitness >= scoring.min_health)
        };
        let count = u32::try_from(healthy().count()).unwrap_or(u32::MAX);
        let open = healthy()
            .map(|one| self.in_flight.open_at(one.endpoint))
            .fold(0, u32::saturating_add);
        let guard = LoadGuard::new(scoring.guard_floor, scoring.guard_ratio, open, count);
        for candidate in candidates {
            candidate.guarded = guard.holds(self.in_flight.open_at(candidate.endpoint));
        }
    }
}

impl Known {
    fn new(config: &crate::config::EndpointConfig) -> Self {
        let name = config.address.to_string();
        Self {
            address_hash: xxh64(name.as_bytes(), 0),
            endpoint: Endpoint {
                address: config.address,
                name,
                labels: config.labels.clone(),
                max_running: config.max_running,
            },
            scraped_at: None,
            metrics: EndpointMetrics::default(),
            exporter: None,
            outcomes: Outcomes::default(),
            probed: None,
            reported_missing: false,
        }
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
    fn lists(&self, model: &str) -> bool {
        let adapters = self.metrics.adapters.as_ref();
        adapters.is_some_and(|adapters| adapters.contains(model))
    }
}

/// How many of our blocks a cache of `tokens` tokens holds, unless the operator says otherwise.
fn blocks(tokens: u64, prefix: &PrefixConfig) -> Option<u32> {
    if prefix.capacity_blocks != Capacity::Auto || !prefix.auto_tune {
        return None;
    }
    let blocks = tokens.checked_div(u64::from(prefix.block_tokens))?;
    Some(u32::try_from(blocks).unwrap_or(u32::MAX))
}

fn block_count(chain: &Chain) -> u32 {
    u32::try_from(chain.blocks.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

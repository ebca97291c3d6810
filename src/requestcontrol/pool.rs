//! One pool of model servers: its endpoints and all that is known of them.

mod health;
mod known;
mod members;

use core::net::SocketAddr;
use std::collections::BTreeSet;

use self::known::Known;
use self::members::Members;
use super::{InFlight, LoadGuard};
use crate::config::{Capacity, PoolConfig, PrefixConfig};
use crate::datalayer::{Endpoint, EndpointId, EndpointMetrics, Member, PoolSnapshot};
use crate::prefix::{Chain, PrefixIndex};
use crate::scheduling::picker::TieKey;
use crate::scheduling::{Candidate, Decision, Profile, Ranked, Standing, five_factor};
use crate::time::Timestamp;

/// Blocks an endpoint is thought to have room for while it reports nothing (llm-d's default).
const DEFAULT_CAPACITY: u32 = 31_250;

/// Endpoints a pool may have; more are left out. Each is scraped every interval and scored for each
/// request.
const MAX_ENDPOINTS: usize = 4_096;

/// A pool's state in this VM.
#[derive(Debug)]
pub struct Pool {
    pub(super) index: PrefixIndex,
    pub(super) in_flight: InFlight,
    config: PoolConfig,
    members: Members,
    /// Envoy's host list says who the members are.
    follows_host_list: bool,
    profile: Profile,
    /// Reused from request to request.
    matched: Vec<u32>,
}

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

/// What a host list changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Endpoints that are new.
    pub joined: u64,
    /// Endpoints that are no longer there.
    pub left: usize,
    /// Hosts for which there was no room.
    pub left_out: usize,
}

impl Pool {
    /// A pool that has sent nothing yet and may index `max_entries` (block, endpoint) pairs.
    pub fn new(config: PoolConfig, max_entries: usize) -> Self {
        let mut pool = Self {
            index: PrefixIndex::new(0, 0, max_entries),
            in_flight: InFlight::default(),
            profile: five_factor(&config.scoring),
            matched: Vec::new(),
            members: Members::default(),
            follows_host_list: false,
            config,
        };
        let listed: Vec<SocketAddr> = pool
            .config
            .endpoints
            .iter()
            .map(|one| one.address)
            .collect();
        for address in listed {
            pool.join(address);
        }
        pool
    }

    /// What the operator asked for.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The endpoints, in the order of their ids.
    pub fn endpoints(&self) -> impl Iterator<Item = (EndpointId, &Endpoint)> {
        self.members.iter().map(|(id, known)| (id, &known.endpoint))
    }

    /// The endpoint `id`.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.members.get(id).map(|known| &known.endpoint)
    }

    /// The endpoint that listens at `address`.
    pub fn find(&self, address: SocketAddr) -> Option<EndpointId> {
        self.members.find(address)
    }

    /// How many endpoints have joined so far: changes with every new one.
    pub fn joined(&self) -> u64 {
        self.members.joined()
    }

    /// Takes over Envoy's host list: who is not in it leaves with its blocks, who is new joins with
    /// none, the others get its word. Hosts beyond the 4,096th are left out.
    pub fn follow_host_list(&mut self, hosts: &[Member]) -> Followed {
        self.follows_host_list = true;
        let mut followed = Followed::default();
        let listed: BTreeSet<SocketAddr> = hosts.iter().map(|host| host.address).collect();
        for address in self.members.addresses() {
            if !listed.contains(&address)
                && let Some(id) = self.find(address)
            {
                self.leave(id);
                followed.left = followed.left.saturating_add(1);
            }
        }
        let joined = self.members.joined();
        for host in hosts {
            let found = self.find(host.address).or_else(|| self.join(host.address));
            match found.and_then(|id| self.members.get_mut(id)) {
                Some(known) => known.take_hosts_word(host.status, &self.config),
                None => followed.left_out = followed.left_out.saturating_add(1),
            }
        }
        followed.joined = self.members.joined().saturating_sub(joined);
        followed
    }

    /// Takes over what a newer scrape found out about `endpoint`.
    pub fn update(&mut self, endpoint: EndpointId, started: Timestamp, metrics: &EndpointMetrics) {
        let Some(known) = self.members.get_mut(endpoint) else {
            return;
        };
        if !known.update(started, metrics, &self.config) {
            return;
        }
        self.in_flight.use_scrape(endpoint, started);
        let reported = metrics
            .cache_tokens
            .and_then(|tokens| blocks(tokens, &self.config.prefix));
        if let Some(capacity) = reported {
            self.index.set_capacity(endpoint, capacity);
        }
    }

    /// Takes over the scraper's snapshot. Where it is Envoy's host list and the pool is configured
    /// to follow it, it says who the members are; of the others, what is unknown is passed over.
    /// Metrics older than what is known, or from the future (nobody could ever replace them) are
    /// passed over.
    pub fn apply(&mut self, snapshot: &PoolSnapshot, now: Timestamp) {
        if snapshot.is_host_list && self.config.discovery.is_some() {
            let hosts = snapshot.endpoints.iter().map(|one| Member {
                address: one.address,
                status: one.status,
            });
            self.follow_host_list(&hosts.collect::<Vec<_>>());
        }
        for one in &snapshot.endpoints {
            let Some(id) = self.find(one.address) else {
                continue;
            };
            if let Some(known) = self.members.get_mut(id) {
                known.take_scrapers_word(one);
            }
            if let Some(started) = one.scraped_at.filter(|&started| started <= now) {
                self.update(id, started, &one.metrics);
            }
        }
    }

    /// What is known, for other VMs.
    pub fn snapshot(&self) -> PoolSnapshot {
        PoolSnapshot {
            is_host_list: self.follows_host_list,
            endpoints: self
                .members
                .iter()
                .map(|(_, known)| known.snapshot())
                .collect(),
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
        if let Some(known) = self.members.get_mut(id) {
            known.outcomes.record(now, window, failed);
        }
    }

    /// Whether `id` was a member already when `joined` had joined.
    pub(super) fn is_same(&self, id: EndpointId, joined: u64) -> bool {
        self.members
            .get(id)
            .is_some_and(|known| known.joined <= joined)
    }

    /// Envoy's cluster does not hold `id`. Returns whether that is news: it is none where the next
    /// reading of Envoy's host list settles it.
    pub fn note_missing(&mut self, id: EndpointId) -> bool {
        if self.follows_host_list {
            return false;
        }
        let known = self.members.get_mut(id);
        known.is_some_and(|known| !core::mem::replace(&mut known.reported_missing, true))
    }

    /// Health of `id` in [0, 1].
    pub fn health(&self, id: EndpointId, now: Timestamp) -> f64 {
        let health = |known: &Known| known.health(now, &self.config);
        self.members.get(id).map_or(0.0, health)
    }

    /// Queue depth of `id` as the queue scorer sees it.
    pub fn queue_depth(&self, id: EndpointId) -> u32 {
        let Some(known) = self.members.get(id) else {
            return 0;
        };
        let EndpointMetrics {
            waiting, running, ..
        } = known.metrics;
        waiting.saturating_add(self.in_flight.own(id, waiting, running))
    }

    /// The endpoints a request may go to now: fit, not on standby, below the queue limit.
    pub fn candidate_count(&self, now: Timestamp) -> usize {
        let scoring = &self.config.scoring;
        let mut all: Vec<Candidate> = self.bare_candidates(now).collect();
        mark_standby(&mut all, scoring.min_health);
        let is_in = |one: &&Candidate| {
            one.is_fit(scoring.min_health)
                && one.standing == Standing::Active
                && one.truly_waiting() < scoring.max_queue
        };
        all.iter().filter(is_in).count()
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
        let credit = self.config.prefix.pending_credit;
        for prompt in chain.prompts() {
            self.index.matches(prompt, credit, &mut one);
            matched.resize(one.len(), 0);
            for (sum, blocks) in matched.iter_mut().zip(&one) {
                *sum = sum.saturating_add(*blocks);
            }
        }
        // Otherwise, only the endpoints' lists tell adapters from base models.
        let is_adapter = self.config.declares_adapter(model)
            || self
                .members
                .iter()
                .any(|(_, known)| known.has_loaded(model));
        let is_listed = self.members.iter().any(|(_, known)| known.has_base(model));
        let total_blocks = block_count(chain);
        let attach = |mut candidate: Candidate| {
            let id = candidate.endpoint;
            candidate.total_blocks = total_blocks;
            candidate.matched_blocks = matched.get(id.index()).copied().unwrap_or(0);
            let known = self.members.get(id);
            let has_loaded = |known: &Known| known.has_loaded(model);
            candidate.adapter_ready = !is_adapter || known.is_some_and(has_loaded);
            candidate.serves_model = !is_listed || known.is_none_or(|known| known.may_serve(model));
            candidate
        };
        let mut candidates: Vec<Candidate> = self.bare_candidates(now).map(attach).collect();
        self.matched = matched;
        mark_standby(&mut candidates, self.config.scoring.min_health);
        self.guard(&mut candidates);
        candidates
    }

    /// All endpoints, with nothing in their attributes that a prompt decides.
    fn bare_candidates(&self, now: Timestamp) -> impl Iterator<Item = Candidate> {
        let members = self.members.iter();
        members.map(move |(id, known)| self.bare_candidate(id, known, now))
    }

    fn bare_candidate(&self, id: EndpointId, known: &Known, now: Timestamp) -> Candidate {
        let EndpointMetrics {
            waiting, running, ..
        } = known.metrics;
        let slots = known
            .endpoint
            .max_running
            .unwrap_or(self.config.scoring.max_running);
        // Of a server that tells nothing, Envoy's own count is the best there is.
        let tells_nothing = known.scraped_at.is_none() || known.freshness(now, &self.config) < 1.0;
        let running = if tells_nothing {
            running.max(known.status.active)
        } else {
            running
        };
        Candidate {
            endpoint: id,
            address_hash: known.address_hash,
            matched_blocks: 0,
            total_blocks: 0,
            guarded: false,
            waiting,
            running,
            own: self.in_flight.own(id, waiting, running),
            max_running: slots.saturating_mul(known.metrics.engines.max(1)).max(1),
            kv_utilisation: known.metrics.kv_utilisation,
            gpu_utilisation: known.metrics.gpu_utilisation,
            health: known.health(now, &self.config),
            fitness: known.fitness(now, &self.config),
            tier: known.status.tier,
            standing: if known.status.condition.is_usable() {
                Standing::Active
            } else {
                Standing::Excluded
            },
            adapter_ready: true,
            serves_model: true,
        }
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
            let known = self.members.get(candidate.endpoint);
            !candidate.is_fit(min_health)
                && candidate.serves_model
                && known.is_some_and(|known| known.probe_is_due(now))
        });
        // Alone it would be no probe but the whole list; and with nobody fit all get requests.
        let (Some(due), None) = (due, decision.exception) else {
            return;
        };
        if count < 2 || decision.ranking.is_empty() {
            return;
        }
        if let Some(known) = self.members.get_mut(due.endpoint) {
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
        let in_use = |one: &&Candidate| {
            one.can_serve(scoring.min_health) && one.standing == Standing::Active
        };
        let in_use = || candidates.iter().filter(in_use);
        let count = u32::try_from(in_use().count()).unwrap_or(u32::MAX);
        let open = in_use()
            .map(|one| self.in_flight.open_at(one.endpoint))
            .fold(0, u32::saturating_add);
        let guard = LoadGuard::new(scoring.guard_floor, scoring.guard_ratio, open, count);
        for candidate in candidates {
            candidate.guarded = guard.holds(self.in_flight.open_at(candidate.endpoint));
        }
    }

    fn join(&mut self, address: SocketAddr) -> Option<EndpointId> {
        if self.members.len() >= MAX_ENDPOINTS {
            return None;
        }
        let known = Known::new(address, &self.config);
        // Requests may still run at an endpoint that left: until they end, its place is theirs.
        let is_free = |id| self.in_flight.open_at(id) == 0;
        let id = self.members.join(known, is_free)?;
        let capacity = match self.config.prefix.capacity_blocks {
            Capacity::Blocks(blocks) => blocks,
            Capacity::Auto => DEFAULT_CAPACITY,
        };
        self.index.admit(id, capacity);
        self.in_flight.admit(id);
        Some(id)
    }

    fn leave(&mut self, id: EndpointId) {
        if self.members.leave(id).is_some() {
            self.index.drop_endpoint(id);
        }
    }
}

/// Marks those that are not needed while others of a lower tier are fit.
fn mark_standby(candidates: &mut [Candidate], min_health: f64) {
    let fit = candidates.iter().filter(|one| one.can_serve(min_health));
    let Some(active) = fit.map(|one| one.tier).min() else {
        return;
    };
    for candidate in candidates {
        if candidate.standing == Standing::Active && candidate.tier > active {
            candidate.standing = Standing::Standby;
        }
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

//! One pool of model servers: its endpoints and all that is known of them.

mod candidates;
mod health;
mod known;
mod members;
mod split;

use core::net::SocketAddr;
use std::collections::BTreeSet;

use self::known::Known;
use self::members::Members;
use super::token_ratios::TokenRatios;
use super::{InFlight, Ledger, LedgerHandle, ReplicaLimits, RequestId};
use crate::config::{Capacity, ConfigError, PoolConfig, PrefixConfig};
use crate::datalayer::{Endpoint, EndpointId, EndpointMetrics, Member, PoolSnapshot};
use crate::prefix::{BlockHash, Chain};
use crate::replication::{PoolKey, Replica, Weight};
use crate::scheduling::picker::TieKey;
use crate::scheduling::{Decision, Request, Schedule, Scheduler};
use crate::time::Timestamp;

/// Blocks an endpoint is thought to have room for while it reports nothing (llm-d's default).
const DEFAULT_CAPACITY: u32 = 31_250;

/// Endpoints a pool may have; more are left out. Each is scraped every interval and scored for each
/// request.
const MAX_ENDPOINTS: usize = 4_096;

/// A pool's state in this VM.
#[derive(Debug)]
pub struct Pool {
    ledger: LedgerHandle,
    /// What the ledger knows the pool by.
    key: PoolKey,
    config: PoolConfig,
    members: Members,
    /// Envoy's host list says who the members are.
    follows_host_list: bool,
    scheduler: Scheduler,
    /// Picks come with what each scorer said.
    explains: bool,
    ratios: TokenRatios,
    /// Leases of prompts that are computed for nobody any more, and when they end.
    abandoned: Vec<(Timestamp, RequestId)>,
    /// Reused from request to request.
    matched: Vec<u32>,
}

/// A decision with what it was based on.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The ranking.
    pub decision: Decision,
    /// Requests open at the first of the ranking, by which it was chosen; `None` where there is none.
    pub open: Option<u32>,
    /// Leading blocks of the prompt the first of the ranking holds.
    pub matched_blocks: u32,
    /// Blocks of the prompt.
    pub total_blocks: u32,
    /// Where the prompt is computed first, when that is elsewhere.
    pub prefill: Option<EndpointId>,
    /// Computing it elsewhere was worth it, whether or not somebody was there to do it.
    pub wants_prefill: bool,
    /// The model is an adapter that the first of the ranking has not loaded.
    pub loads_adapter: bool,
    /// What the scorers said of those in the ranking, a line each; empty unless the pool
    /// [`explains`](Pool::explain_picks).
    pub explained: Vec<String>,
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
    /// A pool that may index `max_entries` (block, endpoint) pairs, with what `ledger` knows of it.
    ///
    /// # Errors
    /// What is wrong with the plugins it asks for, with its JSON path.
    pub fn new(
        mut config: PoolConfig,
        max_entries: usize,
        ledger: LedgerHandle,
    ) -> Result<Self, ConfigError> {
        let scheduler = Scheduler::new(&mut config)?;
        split::check(&config.disaggregation, &scheduler)?;
        let limits = ReplicaLimits {
            capacity: match config.prefix.capacity_blocks {
                Capacity::Blocks(blocks) => blocks,
                Capacity::Auto => DEFAULT_CAPACITY,
            },
            max_entries,
        };
        let key = key_of(&config, limits);
        ledger.with(|ledger| ledger.admit(key, limits));
        let mut pool = Self {
            ledger,
            key,
            scheduler,
            explains: false,
            ratios: TokenRatios::default(),
            abandoned: Vec::new(),
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
        Ok(pool)
    }

    /// What the operator asked for, with what its plugins set up.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// From now on, picks come with what each scorer said. It costs a pick several times over.
    pub fn explain_picks(&mut self) {
        self.explains = true;
    }

    /// One line for each profile: its scorers and their shares of the composite.
    pub fn profiles(&self) -> Vec<String> {
        self.scheduler.summary()
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

    /// What the ledger knows the pool by: another one where blocks are cut or kept otherwise.
    pub fn key(&self) -> PoolKey {
        self.key
    }

    /// How much work a prompt of `blocks` is.
    pub(super) fn weight_of(&self, blocks: &[BlockHash]) -> Weight {
        let blocks = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        Weight::from_tokens(blocks.saturating_mul(self.config.prefix.block_tokens))
    }

    /// What `f` makes of the ledger.
    pub(super) fn ledger<R>(&self, f: impl FnOnce(&mut Ledger, PoolKey) -> R) -> Option<R> {
        self.ledger.with(|ledger| f(ledger, self.key))
    }

    /// What `f` makes of what all VMs know of this pool.
    fn replica<R>(&self, f: impl FnOnce(&Replica<InFlight>) -> R) -> Option<R> {
        self.ledger(|ledger, key| ledger.replica(key).map(f))
            .flatten()
    }

    /// Tells the other VMs that the snapshot can be read.
    pub fn published(&self) {
        self.ledger(Ledger::published);
    }

    /// Catches up with what other VMs did.
    pub fn catch_up(&self) {
        self.ledger(|ledger, _| ledger.catch_up());
    }

    /// Drops what is known of endpoints that a configuration before this one had: should one come
    /// back, nobody knows what its cache holds. For the VM that leads.
    pub fn forget_strangers(&self) {
        if self.config.discovery.is_some() && !self.follows_host_list {
            // Who the members are is not known yet.
            return;
        }
        let strangers = self.replica(|replica| {
            let endpoints = replica.endpoints();
            let strangers = endpoints.filter(|(address, id)| {
                self.find(*address).is_none() && replica.index().blocks_at(*id) > 0
            });
            strangers.map(|(address, _)| address).collect::<Vec<_>>()
        });
        for address in strangers.unwrap_or_default() {
            self.ledger(|ledger, key| ledger.removed(key, address));
        }
    }

    /// Takes over Envoy's host list, as the one VM that reads it: who is not in it leaves with its
    /// blocks, who is new joins with none, the others get its word. Hosts beyond the 4,096th are left
    /// out.
    pub fn follow_host_list(&mut self, hosts: &[Member]) -> Followed {
        self.follow(hosts, |pool, address| {
            pool.ledger(|ledger, key| ledger.removed(key, address));
        })
    }

    /// Makes `hosts` the members and calls `left` with each address that is none any more.
    fn follow(&mut self, hosts: &[Member], left: impl Fn(&Self, SocketAddr)) -> Followed {
        self.follows_host_list = true;
        let mut followed = Followed::default();
        let listed: BTreeSet<SocketAddr> = hosts.iter().map(|host| host.address).collect();
        for address in self.members.addresses() {
            if !listed.contains(&address) {
                self.leave(address);
                left(self, address);
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

    /// Tells all VMs what this VM's scrape of `endpoint` means for its blocks: how many it has room
    /// for, and whether it started anew.
    fn tell_of_blocks(&self, endpoint: EndpointId, metrics: &EndpointMetrics, restarted: bool) {
        let Some(address) = self.endpoint(endpoint).map(|endpoint| endpoint.address) else {
            return;
        };
        let reported = metrics
            .cache_tokens
            .and_then(|tokens| blocks(tokens, &self.config.prefix));
        let known = self.replica(|replica| replica.index().capacity(endpoint));
        self.ledger(|ledger, key| {
            if restarted {
                ledger.restarted(key, address);
            }
            if let Some(room) = reported.filter(|&room| Some(room) != known) {
                ledger.has_room(key, address, room);
            }
        });
    }

    /// Takes over what a newer scrape found out about `endpoint`.
    pub fn update(&mut self, endpoint: EndpointId, started: Timestamp, metrics: &EndpointMetrics) {
        let Some(known) = self.members.get_mut(endpoint) else {
            return;
        };
        if !known.update(started, metrics, &self.config) {
            return;
        }
        self.ledger(|ledger, key| {
            if let Some(replica) = ledger.replica_mut(key) {
                replica.observer_mut().use_scrape(endpoint, started);
            }
        });
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
            self.follow(&hosts.collect::<Vec<_>>(), |_, _| {});
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
        self.take_outcomes(now);
        let candidates = self.candidates(chain, model, now);
        let request = self.request(chain, model, tie, count);
        let Schedule {
            mut decision,
            prefill,
            wants_prefill,
        } = self.scheduler.schedule(&request, &candidates);
        let picked = decision.ranking.first().map(|ranked| ranked.endpoint);
        self.probe(&mut decision, &request, &candidates, now);
        let first = decision.ranking.first().map(|ranked| ranked.endpoint);
        // A probe may fail, and what was computed for it could not go to another endpoint.
        let is_probe = first != picked;
        let open = first.map(|id| self.open_at(id));
        let first = candidates
            .iter()
            .find(|candidate| Some(candidate.endpoint) == first);
        Pick {
            open,
            matched_blocks: first.map_or(0, |candidate| candidate.matched_blocks),
            total_blocks: block_count(chain),
            prefill: prefill.filter(|_| !is_probe),
            wants_prefill: wants_prefill && !is_probe,
            loads_adapter: first.is_some_and(|candidate| !candidate.adapter_ready),
            explained: if self.explains {
                self.explain(&decision, &request, &candidates)
            } else {
                Vec::new()
            },
            decision,
        }
    }

    /// What the plugins see of a request to `model` for the prompt of `chain`.
    fn request(&self, chain: &Chain, model: &str, tie: TieKey, attempts: usize) -> Request {
        Request {
            // Clients that ask for the same differ in `tie` alone.
            tie: chain.anchor.map_or(tie, |anchor| TieKey(anchor.0)),
            random: tie.0,
            attempts,
            total_blocks: block_count(chain),
            block_tokens: self.config.prefix.block_tokens,
            prompt_tokens: self.tokens_in(model, chain.bytes),
            tokens_per_block: self.tokens_in(model, self.block_bytes()),
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
        let own = self.replica(|replica| replica.observer().own(id, waiting, running));
        waiting.saturating_add(own.unwrap_or(0))
    }

    /// Open requests at `id`, of all VMs.
    pub fn open_at(&self, id: EndpointId) -> u32 {
        let open = self.replica(|replica| replica.observer().open_at(id));
        open.unwrap_or(0)
    }

    /// (block, endpoint) pairs in the index.
    pub fn indexed_blocks(&self) -> usize {
        self.replica(|replica| replica.index().len()).unwrap_or(0)
    }

    fn join(&mut self, address: SocketAddr) -> Option<EndpointId> {
        if self.members.len() >= MAX_ENDPOINTS {
            return None;
        }
        let mut known = Known::new(address, &self.config);
        let id = self.ledger(|ledger, key| {
            let replica = ledger.replica_mut(key)?;
            let id = replica.hold(address)?;
            replica.observer_mut().forget_scrape(id);
            Some((id, replica.observer().turned_out(id)))
        });
        let (id, tally) = id.flatten()?;
        // What is told of those who had the place before it.
        known.tally = tally;
        self.members.join(known, id);
        Some(id)
    }

    fn leave(&mut self, address: SocketAddr) {
        if let Some(id) = self.find(address) {
            self.members.leave(id);
        }
        self.ledger(|ledger, key| {
            if let Some(replica) = ledger.replica_mut(key) {
                replica.release(address);
            }
        });
    }
}

impl Drop for Pool {
    /// The endpoints stay where they are: the next configuration has most of them, too.
    fn drop(&mut self) {
        self.end_abandoned(|_| true);
        self.ledger(Ledger::release);
    }
}

/// Replicas are shared by those that cut and keep blocks alike.
fn key_of(config: &PoolConfig, limits: ReplicaLimits) -> PoolKey {
    let PrefixConfig {
        block_tokens,
        max_tokens,
        ..
    } = config.prefix;
    let capacity = limits.capacity;
    PoolKey::new(&format!(
        "{}|{block_tokens}|{max_tokens}|{capacity}",
        config.name
    ))
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

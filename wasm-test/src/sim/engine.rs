//! One simulated engine: a scheduler over the KV cache, driven by events.
//!
//! Time is an argument. Each event has a nominal time and is processed as if at that time, however
//! late the caller comes, so a coarse timer changes when tokens are seen but not how many there are.
//!
//! The model: the GPU computes one prompt at a time; requests whose prompt is done decode side by
//! side at a fixed rate. A request waits, in order of arrival, while the GPU is busy with another
//! prompt, `max_num_seqs` requests run, or its blocks are not free. One whose adapter finds no slot
//! lets later ones by; loading an adapter is part of the prefill that needs it. Blocks become hits for others
//! once computed. (vLLM registers them when it schedules them; as no second prompt is scheduled
//! meanwhile here, nobody could see the difference, and an aborted prefill leaves nothing behind.)

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use crate::sim::cache::{BlockHash, BlockId, BlockPool, CacheScope, Chain};
use crate::sim::generator::Answer;
use crate::sim::preset::Timing;
use crate::sim::stats::{Gauges, Stats};
use crate::sim::tokenizer::Token;
use crate::sim::transfer::Kept;

use adapters::AdapterSlots;

mod adapters;

/// Number of one request in its engine; a smaller one arrived earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// What a caller wants generated.
#[derive(Debug)]
pub struct Job {
    /// At least one token and at most `SimConfig::context_tokens` minus one.
    pub prompt: Vec<Token>,
    pub scope: CacheScope,
    /// Of the scope's adapter; 0 without one.
    pub lora_rank: u32,
    pub answer: Answer,
    /// At least 1.
    pub max_tokens: usize,
    /// Reported when `max_tokens` is reached.
    pub finish: Finish,
    /// Between servers.
    pub remote: Remote,
    /// Passed through to every output.
    pub choice: usize,
    pub sink: UnboundedSender<Output>,
}

/// What a request has to do with another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    None,
    /// Its blocks are kept for one, under this name.
    Keep(String),
    /// So many tokens of its prompt come from one, which `reported` so many cached ones.
    Fetched {
        tokens: usize,
        reported: usize,
    },
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The client's token limit, or the context's.
    Length,
    /// The model's own end.
    Stop,
}

/// Something that happened to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub choice: usize,
    pub event: OutputEvent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputEvent {
    /// Prefill begins, `cached` prompt tokens need no computing.
    Started { cached: usize },
    /// One token; `finish` with the last.
    Token {
        text: &'static str,
        finish: Option<Finish>,
    },
}

/// Sizes of one engine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub block_size: usize,
    pub num_gpu_blocks: usize,
    pub max_num_seqs: usize,
    pub max_num_queued_reqs: Option<usize>,
    /// Adapters that run at once.
    pub max_loras: usize,
    /// How long blocks are kept for another server.
    pub kv_lease: Duration,
}

#[derive(Debug)]
struct Request {
    job: Job,
    arrived: Instant,
    chain: Chain,
    /// The prompt and every token generated; the KV of the newest one is not computed yet.
    tokens: Vec<Token>,
    generated: usize,
    /// Tokens that looked uncached when it came.
    expected: usize,
    /// Whether it ever had its blocks; a preempted request is not counted again.
    admitted: bool,
    blocks: Vec<BlockId>,
    /// How many of `blocks` are hits for others.
    published: usize,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    timing: Timing,
    pool: BlockPool,
    requests: HashMap<RequestId, Request>,
    waiting: VecDeque<RequestId>,
    /// In order of admission.
    running: Vec<RequestId>,
    /// The prompt on the GPU and when it is done.
    prefill: Option<(Instant, RequestId)>,
    /// When each decoding request has its next token.
    decodes: BTreeSet<(Instant, RequestId)>,
    adapters: AdapterSlots,
    /// Blocks for other servers, by the name of their request, and when they are given up.
    kept: HashMap<String, (Instant, Vec<BlockId>, usize)>,
    /// Since when nothing is computed.
    stuck: Option<Instant>,
    next_id: u64,
    stats: Stats,
}

/// What a prompt would meet that came now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Until its prefill begins, if the requests before it are computed as they look now and there
    /// is room for all.
    pub wait: Duration,
    /// The prefill itself.
    pub prefill: Duration,
}

/// The queue is full; vLLM answers 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Engine {
    pub fn new(limits: Limits, timing: Timing) -> Self {
        Self {
            limits,
            timing,
            pool: BlockPool::new(limits.num_gpu_blocks),
            requests: HashMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefill: None,
            decodes: BTreeSet::new(),
            adapters: AdapterSlots::new(limits.max_loras),
            kept: HashMap::new(),
            stuck: None,
            next_id: 0,
            stats: Stats::default(),
        }
    }

    /// Queues all `jobs` of one HTTP request, or none. The server's other engines have `elsewhere`
    /// requests: the limit is the server's.
    pub fn submit(
        &mut self,
        now: Instant,
        elsewhere: usize,
        jobs: Vec<Job>,
    ) -> Result<Vec<RequestId>, Busy> {
        self.advance(now);
        if self
            .limits
            .max_num_queued_reqs
            .is_some_and(|limit| self.requests.len() + elsewhere >= limit)
        {
            self.stats.counters.rejected += 1;
            return Err(Busy);
        }
        let ids = jobs.into_iter().map(|job| self.enqueue(now, job)).collect();
        self.advance(now);
        Ok(ids)
    }

    /// Drops a request wherever it stands; unknown and finished ones are ignored.
    pub fn abort(&mut self, now: Instant, id: RequestId) {
        self.advance(now);
        if self.requests.contains_key(&id) {
            self.stats.counters.aborted += 1;
            self.remove(id);
            self.note_adapters();
            self.advance(now);
        }
    }

    /// Stops computing at `now`, or goes on with everything where it was. Requests are taken, and
    /// the first of the queue starts, either way.
    pub fn set_stuck(&mut self, now: Instant, stuck: bool) {
        self.advance(now);
        match (self.stuck, stuck) {
            (None, true) => self.stuck = Some(now),
            (Some(since), false) => {
                self.stuck = None;
                self.postpone(now.duration_since(since));
            }
            _ => {}
        }
    }

    /// Processes everything due at `now`.
    pub fn advance(&mut self, now: Instant) {
        if let Some(since) = self.stuck {
            self.schedule(since);
            return;
        }
        self.schedule(now);
        while let Some(time) = self.next_event().filter(|time| *time <= now) {
            self.expire(time);
            if let Some((_, id)) = self.prefill.take_if(|(done, _)| *done == time) {
                self.finish_prefill(time, id);
            } else if let Some(&(due, id)) = self.decodes.first().filter(|(due, _)| *due <= time) {
                self.decodes.remove(&(due, id));
                self.decode(time, id);
            }
            self.schedule(time);
        }
    }

    /// When [`Self::advance`] has something to do next.
    pub fn next_event(&self) -> Option<Instant> {
        if self.stuck.is_some() {
            return None;
        }
        let prefill = self.prefill.map(|(time, _)| time);
        let decode = self.decodes.first().map(|(time, _)| *time);
        let kept = self.kept.values().map(|(expires, ..)| *expires);
        prefill.into_iter().chain(decode).chain(kept).min()
    }

    /// The blocks kept under `name`.
    pub fn kept(&self, name: &str) -> Option<Kept> {
        let (_, blocks, tokens) = self.kept.get(name)?;
        Some(Kept {
            blocks: blocks.iter().map(|block| block.number()).collect(),
            tokens: *tokens,
        })
    }

    /// Another server has the blocks kept under `name`; how many tokens they hold.
    pub fn hand_over(&mut self, now: Instant, name: &str) -> Option<usize> {
        self.advance(now);
        let (_, blocks, tokens) = self.kept.remove(name)?;
        self.pool.release(&blocks);
        self.stats.counters.kv_fetched += 1;
        self.advance(now);
        Some(tokens)
    }

    fn expire(&mut self, time: Instant) {
        let over =
            |(_, (expires, ..)): (&String, &(Instant, Vec<BlockId>, usize))| *expires <= time;
        let names: Vec<String> = self
            .kept
            .iter()
            .filter(|one| over(*one))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            if let Some((_, blocks, _)) = self.kept.remove(&name) {
                self.pool.release(&blocks);
                self.stats.counters.kv_expired += 1;
            }
        }
    }

    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Forgets the prefix cache; `false` while a request holds blocks.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.pool.reset()
    }

    /// What a prompt of `tokens` tokens with these block hashes would meet. What it shares with a
    /// request before it counts as cached: it will be by then.
    pub fn outlook(&mut self, now: Instant, hashes: &[BlockHash], tokens: usize) -> Outlook {
        self.advance(now);
        let waiting = self.waiting.iter().filter_map(|id| self.requests.get(id));
        let ahead = waiting.map(|request| self.timing.prefill(request.expected));
        let current = self
            .prefill
            .map(|(done, _)| done.saturating_duration_since(now));
        Outlook {
            wait: current.into_iter().chain(ahead).sum(),
            prefill: self.timing.prefill(self.expected(hashes, tokens)),
        }
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            num_requests_running: self.running.len() as u64,
            num_requests_waiting: self.waiting.len() as u64,
            num_requests_deferred: self.deferred() as u64,
            kv_cache_usage: self.pool.in_use() as f64 / self.pool.capacity() as f64,
            cached_blocks: self.pool.cached() as u64,
        }
    }

    fn enqueue(&mut self, now: Instant, job: Job) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let mut chain = Chain::new(&job.scope, self.limits.block_size);
        let expected = self.expected(chain.extend(&job.prompt), job.prompt.len());
        let request = Request {
            arrived: now,
            chain,
            tokens: job.prompt.clone(),
            generated: 0,
            expected,
            admitted: false,
            blocks: Vec::new(),
            published: 0,
            job,
        };
        self.requests.insert(id, request);
        self.waiting.push_back(id);
        id
    }

    /// Tokens of a prompt that are neither cached nor about to be, as part of a request before it.
    fn expected(&self, hashes: &[BlockHash], tokens: usize) -> usize {
        let block_size = self.limits.block_size;
        let usable = &hashes[..hashes.len().min(tokens.saturating_sub(1) / block_size)];
        let cached = self.pool.longest_prefix(usable).len();
        let current = self.prefill.iter().map(|(_, id)| id);
        let ahead = current.chain(&self.waiting);
        let shared = ahead.filter_map(|id| self.requests.get(id)).map(|request| {
            let both = usable.iter().zip(request.chain.hashes());
            both.take_while(|(one, other)| one == other).count()
        });
        tokens - shared.max().unwrap_or(0).max(cached) * block_size
    }

    /// Puts the head of the queue on the GPU if it is idle. Later requests overtake only those that
    /// wait for an adapter slot.
    fn schedule(&mut self, time: Instant) {
        if self.prefill.is_some() || self.running.len() >= self.limits.max_num_seqs {
            return;
        }
        let in_use = self.running_adapters();
        let fits = |id: &RequestId| self.adapter_fits(*id, &in_use);
        let Some(position) = self.waiting.iter().position(fits) else {
            return;
        };
        let id = self.waiting[position];
        let Some(uncached) = self.admit(time, id) else {
            return;
        };
        self.waiting.remove(position);
        let load = self.load_adapter(id);
        self.running.push(id);
        let done = time + load + self.timing.prefill(uncached);
        self.prefill = Some((done, id));
        self.note_adapters();
    }

    /// Gives a request its adapter; returns how long loading it takes.
    fn load_adapter(&mut self, id: RequestId) -> Duration {
        let Some(request) = self.requests.get(&id) else {
            return Duration::ZERO;
        };
        let Some(adapter) = request.job.scope.lora.clone() else {
            return Duration::ZERO;
        };
        let rank = request.job.lora_rank;
        let in_use = self.running_adapters();
        if !self.adapters.take(&adapter, &in_use) {
            return Duration::ZERO;
        }
        self.stats.counters.adapter_loads += 1;
        self.timing.lora_load_per_rank * rank
    }

    fn adapter_fits(&self, id: RequestId, in_use: &BTreeSet<String>) -> bool {
        let request = self.requests.get(&id);
        let adapter = request.and_then(|request| request.job.scope.lora.as_deref());
        adapter.is_none_or(|adapter| self.adapters.fits(adapter, in_use))
    }

    /// Requests that wait for an adapter slot.
    fn deferred(&self) -> usize {
        let in_use = self.running_adapters();
        let waiting = self.waiting.iter();
        waiting
            .filter(|id| !self.adapter_fits(**id, &in_use))
            .count()
    }

    fn running_adapters(&self) -> BTreeSet<String> {
        let running = self.running.iter().filter_map(|id| self.requests.get(id));
        running
            .filter_map(|request| request.job.scope.lora.clone())
            .collect()
    }

    /// Takes the blocks of a request's tokens; returns how many tokens must be computed, `None`
    /// when blocks are missing.
    fn admit(&mut self, time: Instant, id: RequestId) -> Option<usize> {
        let block_size = self.limits.block_size;
        let request = self.requests.get_mut(&id)?;
        let length = request.tokens.len();
        // The last token must be computed to sample from it, so its block is never a hit.
        let hashes = request.chain.extend(&request.tokens);
        let hits = self
            .pool
            .longest_prefix(&hashes[..hashes.len().min((length - 1) / block_size)]);
        let fresh = length.div_ceil(block_size) - hits.len();
        request.blocks = self.pool.acquire(&hits, fresh)?;
        request.published = hits.len();
        let cached = hits.len() * block_size;
        let external = match request.job.remote {
            Remote::Fetched { tokens, .. } if !request.admitted => {
                tokens.min(length).saturating_sub(cached)
            }
            _ => 0,
        };
        if !std::mem::replace(&mut request.admitted, true) {
            self.stats.counters.prefix_cache_queries += length as u64;
            self.stats.counters.prefix_cache_hits += cached as u64;
            self.stats
                .queue_time
                .observe(time.duration_since(request.arrived));
            self.stats.counters.external_tokens += external as u64;
            let cached = match request.job.remote {
                Remote::Fetched { reported, .. } => reported,
                _ => cached,
            };
            request.send(OutputEvent::Started { cached });
        }
        Some(length - cached - external)
    }

    fn finish_prefill(&mut self, time: Instant, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.generated == 0 {
            self.stats.counters.prompt_tokens += request.tokens.len() as u64;
            self.stats
                .time_to_first_token
                .observe(time.duration_since(request.arrived));
        }
        request.publish(&mut self.pool);
        self.emit(time, id);
    }

    /// Computes the KV of the newest token and samples the next one.
    fn decode(&mut self, time: Instant, id: RequestId) {
        if !self.make_room(id) {
            return;
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.publish(&mut self.pool);
            self.emit(time, id);
        }
    }

    fn emit(&mut self, time: Instant, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let text = request.job.answer.word(request.generated);
        request.tokens.push(Token::of_piece(text));
        request.generated += 1;
        self.stats.counters.generation_tokens += 1;
        let finished = request.generated >= request.job.max_tokens;
        if let Remote::Keep(name) = &request.job.remote
            && finished
        {
            let (name, tokens) = (name.clone(), request.job.prompt.len());
            let blocks = std::mem::take(&mut request.blocks);
            let expires = time + self.limits.kv_lease;
            self.stats.counters.kv_kept += 1;
            if let Some((_, before, _)) = self.kept.insert(name, (expires, blocks, tokens)) {
                self.pool.release(&before);
            }
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let finish = (request.generated >= request.job.max_tokens).then_some(request.job.finish);
        request.send(OutputEvent::Token { text, finish });
        let Some(finish) = finish else {
            self.decodes
                .insert((time + self.timing.decode_per_token, id));
            return;
        };
        self.stats
            .request_latency
            .observe(time.duration_since(request.arrived));
        match finish {
            Finish::Length => self.stats.counters.finished_length += 1,
            Finish::Stop => self.stats.counters.finished_stop += 1,
        }
        self.remove(id);
        self.note_adapters();
    }

    /// Gets the block of the newest token, if it starts one. Like vLLM, preempts the request
    /// admitted last until there is room; `false` when that is this very request.
    fn make_room(&mut self, id: RequestId) -> bool {
        let block_size = self.limits.block_size;
        loop {
            let Some(request) = self.requests.get_mut(&id) else {
                return false;
            };
            let missing = request.tokens.len().div_ceil(block_size) - request.blocks.len();
            if let Some(fresh) = self.pool.acquire(&[], missing) {
                request.blocks.extend(fresh);
                return true;
            }
            let Some(victim) = self.running.last().copied() else {
                return false;
            };
            self.preempt(victim);
            if victim == id {
                return false;
            }
        }
    }

    /// Sends a running request back to the head of the queue, without its blocks.
    fn preempt(&mut self, id: RequestId) {
        self.stats.counters.preemptions += 1;
        self.unschedule(id);
        self.waiting.push_front(id);
    }

    fn remove(&mut self, id: RequestId) {
        self.unschedule(id);
        self.waiting.retain(|other| *other != id);
        self.requests.remove(&id);
    }

    fn unschedule(&mut self, id: RequestId) {
        self.running.retain(|other| *other != id);
        self.decodes.retain(|(_, other)| *other != id);
        self.prefill.take_if(|(_, other)| *other == id);
        if let Some(request) = self.requests.get_mut(&id) {
            self.pool.release(&std::mem::take(&mut request.blocks));
        }
    }

    /// Moves everything that is due by `delay`.
    fn postpone(&mut self, delay: Duration) {
        if let Some((done, _)) = &mut self.prefill {
            *done += delay;
        }
        let decodes = std::mem::take(&mut self.decodes);
        self.decodes = decodes
            .into_iter()
            .map(|(time, id)| (time + delay, id))
            .collect();
    }

    fn note_adapters(&mut self) {
        let set = self.running_adapters();
        let key = set.into_iter().collect::<Vec<_>>().join(",");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.stats.lora_sets.insert(key, now.as_secs_f64());
    }
}

impl Request {
    /// Publishes every full block; all tokens present are computed when this is called.
    fn publish(&mut self, pool: &mut BlockPool) {
        let hashes = self.chain.extend(&self.tokens);
        for (id, hash) in self.blocks.iter().zip(hashes).skip(self.published) {
            pool.publish(*id, *hash);
        }
        self.published = hashes.len();
    }

    /// A sink nobody reads belongs to a client that is about to be aborted.
    fn send(&self, event: OutputEvent) {
        let _ = self.job.sink.send(Output {
            choice: self.job.choice,
            event,
        });
    }
}

#[cfg(test)]
mod tests;

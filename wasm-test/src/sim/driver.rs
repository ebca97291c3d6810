//! Runs an engine in real time and lets HTTP handlers use it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::sim::cache::BlockHash;
use crate::sim::config::SimConfig;
use crate::sim::engine::{Busy, Engine, Job, Limits, Outlook, Output, RequestId};
use crate::sim::stats::{Counters, Gauges, Stats};
use crate::sim::transfer::Kept;

/// A shared engine. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    engine: Arc<Mutex<Engine>>,
    changed: Arc<Notify>,
}

/// The requests of one HTTP exchange. Dropping it, as a server does when the client disconnects,
/// frees their slots and blocks.
#[derive(Debug)]
pub struct Session {
    handle: EngineHandle,
    ids: Vec<RequestId>,
    outputs: UnboundedReceiver<Output>,
}

impl EngineHandle {
    pub fn new(config: &SimConfig) -> Self {
        let limits = Limits {
            block_size: config.block_size as usize,
            num_gpu_blocks: config.num_gpu_blocks as usize,
            max_num_seqs: config.max_num_seqs as usize,
            max_num_queued_reqs: config.max_num_queued_reqs.map(|limit| limit as usize),
            max_loras: config.max_loras(),
            kv_lease: config.kv_lease(),
        };
        Self {
            engine: Arc::new(Mutex::new(Engine::new(limits, config.timing()))),
            changed: Arc::new(Notify::new()),
        }
    }

    /// Advances the engine for as long as it is polled.
    pub async fn run(self) {
        loop {
            let next = {
                let mut engine = self.lock();
                engine.advance(Instant::now());
                engine.next_event()
            };
            match next {
                Some(time) => tokio::select! {
                    () = tokio::time::sleep_until(time.into()) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// Queues what `jobs` builds around the session's sink. See [`Engine::submit`].
    pub fn submit(
        &self,
        elsewhere: usize,
        jobs: impl FnOnce(&UnboundedSender<Output>) -> Vec<Job>,
    ) -> Result<Session, Busy> {
        let (sink, outputs) = unbounded_channel();
        let ids = self.lock().submit(Instant::now(), elsewhere, jobs(&sink))?;
        self.changed.notify_one();
        Ok(Session {
            handle: self.clone(),
            ids,
            outputs,
        })
    }

    /// See [`Engine::reset_prefix_cache`].
    pub fn reset_prefix_cache(&self) -> bool {
        self.current().reset_prefix_cache()
    }

    /// See [`Engine::hand_over`].
    pub fn hand_over(&self, name: &str) -> Option<usize> {
        let tokens = self.lock().hand_over(Instant::now(), name);
        self.changed.notify_one();
        tokens
    }

    /// Counts what happens outside the engine.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.lock().stats_mut().counters);
    }

    /// See [`Engine::set_stuck`].
    pub fn set_stuck(&self, stuck: bool) {
        self.lock().set_stuck(Instant::now(), stuck);
        self.changed.notify_one();
    }

    /// Counters and load at one moment.
    pub fn observe(&self) -> (Stats, Gauges) {
        let engine = self.current();
        (engine.stats().clone(), engine.gauges())
    }

    /// See [`Engine::outlook`].
    pub fn outlook(&self, hashes: &[BlockHash], tokens: usize) -> Outlook {
        self.lock().outlook(Instant::now(), hashes, tokens)
    }

    pub fn gauges(&self) -> Gauges {
        self.current().gauges()
    }

    fn current(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.lock();
        engine.advance(Instant::now());
        engine
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// The next output of any of its requests; `None` once all have ended.
    pub async fn next(&mut self) -> Option<Output> {
        self.outputs.recv().await
    }

    /// See [`Engine::kept`].
    pub fn kept(&self, name: &str) -> Option<Kept> {
        self.handle.lock().kept(name)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut engine = self.handle.lock();
        let now = Instant::now();
        for id in &self.ids {
            engine.abort(now, *id);
        }
        drop(engine);
        self.handle.changed.notify_one();
    }
}

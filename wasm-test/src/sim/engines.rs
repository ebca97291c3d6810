//! The engines behind one port: one, or several that share the load (data parallel).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use crate::sim::config::SimConfig;
use crate::sim::driver::{EngineHandle, Session};
use crate::sim::engine::{Busy, Job, Output};
use crate::sim::stats::{Counters, Gauges, Stats};

/// Weight of a waiting request against a running one, vLLM's own.
const WAITING_WEIGHT: u64 = 4;

/// All engines of one server, each with a cache of its own.
#[derive(Debug)]
pub struct Engines {
    engines: Vec<EngineHandle>,
    /// Held from the choice of an engine until the request is there, so that the next choice sees it.
    choosing: Mutex<()>,
}

impl Engines {
    pub fn new(config: &SimConfig) -> Self {
        let count = config.data_parallel_size;
        Self {
            engines: (0..count).map(|_| EngineHandle::new(config)).collect(),
            choosing: Mutex::new(()),
        }
    }

    pub fn all(&self) -> &[EngineHandle] {
        &self.engines
    }

    /// Queues a request's jobs at the engine of that `rank`, which must exist, or at the least
    /// loaded one; of equals at the first.
    pub fn submit(
        &self,
        rank: Option<usize>,
        jobs: impl FnOnce(&UnboundedSender<Output>) -> Vec<Job>,
    ) -> Result<Session, Busy> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let loads: Vec<Gauges> = self.engines.iter().map(EngineHandle::gauges).collect();
        let least = || (0..loads.len()).min_by_key(|rank| weight(&loads[*rank]));
        let rank = rank.or_else(least).unwrap_or(0);
        let elsewhere = loads
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != rank)
            .map(|(_, load)| load.num_requests_running + load.num_requests_waiting)
            .sum::<u64>();
        self.engines[rank].submit(elsewhere as usize, jobs)
    }

    /// Stops or continues all computing.
    pub fn set_stuck(&self, stuck: bool) {
        for engine in &self.engines {
            engine.set_stuck(stuck);
        }
    }

    /// Forgets every prefix cache; `false` when one could not, because requests hold its blocks.
    pub fn reset_prefix_cache(&self) -> bool {
        let mut all = true;
        for engine in &self.engines {
            all &= engine.reset_prefix_cache();
        }
        all
    }

    /// Hands over the blocks that one of the engines keeps under `name`; how many tokens they hold.
    pub fn hand_over(&self, name: &str) -> Option<usize> {
        self.engines
            .iter()
            .find_map(|engine| engine.hand_over(name))
    }

    /// Counts what happens before an engine has a request, at the first one.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        if let Some(engine) = self.engines.first() {
            engine.count(change);
        }
    }

    /// What each engine counted, and its load.
    pub fn observe(&self) -> Vec<(Stats, Gauges)> {
        self.engines.iter().map(EngineHandle::observe).collect()
    }
}

fn weight(load: &Gauges) -> u64 {
    WAITING_WEIGHT * load.num_requests_waiting + load.num_requests_running
}

/// Every set of adapters of any engine with its last Unix time: the page does not tell engines
/// apart here.
pub fn lora_sets(engines: &[(Stats, Gauges)]) -> BTreeMap<&str, f64> {
    let mut sets = BTreeMap::new();
    for (stats, _) in engines {
        for (set, time) in &stats.lora_sets {
            let last: &mut f64 = sets.entry(set.as_str()).or_insert(*time);
            *last = last.max(*time);
        }
    }
    sets
}

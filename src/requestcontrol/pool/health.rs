//! What the scraper finds out about the endpoints' health, and how their requests turned out.

use core::net::SocketAddr;

use super::Pool;
use crate::datalayer::{
    Condition, EndpointId, EndpointMetrics, GpuReading, ModelList, Readiness, Unusable,
};
use crate::replication::Replica;
use crate::time::Timestamp;

impl Pool {
    /// Takes over a scrape of this VM's own: tells the others what it means for the endpoint's blocks,
    /// and judges by it whether its engines are stalled.
    pub fn take_scrape(
        &mut self,
        endpoint: EndpointId,
        started: Timestamp,
        metrics: &EndpointMetrics,
    ) {
        let before = self.members.get(endpoint);
        let before = before.filter(|known| known.scraped_at.is_some_and(|last| last < started));
        let restarted = before.is_some_and(|known| known.metrics.is_before_restart(metrics));
        self.update(endpoint, started, metrics);
        self.tell_of_blocks(endpoint, metrics, restarted);
        let interval = self.config.metrics.interval;
        let Some(known) = self.members.get_mut(endpoint) else {
            return;
        };
        if restarted {
            // What another process served.
            known.models = None;
            known.judge_readiness();
        }
        if let Some(stalled) = known.progress.observe(started, metrics, interval) {
            known.set(Unusable::Stalled, stalled);
        }
    }

    /// Takes over what the exporter beside `endpoint` told of its GPUs. It becomes part of the
    /// metrics with the endpoint's next scrape: the load where its own page tells none, a fault in
    /// any case.
    pub fn update_gpu(&mut self, endpoint: EndpointId, started: Timestamp, reading: GpuReading) {
        if let Some(known) = self.members.get_mut(endpoint) {
            known.exporter = Some((started, reading));
        }
    }

    /// Takes over the verdict of a health check of `endpoint`.
    pub fn take_check(&mut self, endpoint: EndpointId, is_ready: bool) {
        if let Some(known) = self.members.get_mut(endpoint) {
            known.fails_checks = !is_ready;
            known.judge_readiness();
        }
    }

    /// Takes over the models that `endpoint` lists; `None` when it has no such list.
    pub fn take_models(&mut self, endpoint: EndpointId, models: Option<ModelList>) {
        if let Some(known) = self.members.get_mut(endpoint) {
            known.models = models;
            known.judge_readiness();
        }
    }

    /// What the scraper knows of the readiness of `endpoint`.
    pub fn readiness(&self, endpoint: EndpointId) -> Readiness {
        let Some(known) = self.members.get(endpoint) else {
            return Readiness::default();
        };
        Readiness {
            fails_checks: known.fails_checks,
            lists_nothing: known.lists_nothing(),
        }
    }

    /// Tells all VMs that `id` failed a request: a 5xx, a reset, a time-out.
    pub fn failed(&self, id: EndpointId) {
        if let Some(address) = self.endpoint(id).map(|endpoint| endpoint.address) {
            self.ledger(|ledger, key| ledger.failed(key, address));
        }
    }

    /// Takes over what other VMs did before this pool was configured. How their requests turned out is
    /// passed over: nobody knows how long ago that was. To be called once all pools are there.
    pub fn begin(&mut self) {
        self.catch_up();
        let (members, key) = (&mut self.members, self.key);
        self.ledger.with(|ledger| {
            let Some(in_flight) = ledger.replica(key).map(Replica::observer) else {
                return;
            };
            for (id, known) in members.iter_mut() {
                known.tally = in_flight.turned_out(id);
            }
        });
    }

    /// Takes in how requests of all VMs turned out until `now`. To be called often: what is new then
    /// counts as of `now`.
    pub fn take_outcomes(&mut self, now: Timestamp) {
        let window = self.config.health.error_window;
        let (members, key) = (&mut self.members, self.key);
        self.ledger.with(|ledger| {
            let Some(in_flight) = ledger.replica(key).map(Replica::observer) else {
                return;
            };
            for (id, known) in members.iter_mut() {
                known.take_outcomes(in_flight.turned_out(id), now, window);
            }
        });
    }

    /// The endpoints that became unusable or usable again since the last call, with their condition.
    /// A further cause for the same is not told.
    pub fn take_changes(&mut self) -> Vec<(SocketAddr, Condition)> {
        let mut changes = Vec::new();
        for (_, known) in self.members.iter_mut() {
            let condition = known.status.condition;
            let before = core::mem::replace(&mut known.told, condition);
            if before.is_usable() != condition.is_usable() {
                changes.push((known.endpoint.address, condition));
            }
        }
        changes
    }
}

//! The endpoints as the plugins see them, for one request.

use super::known::Known;
use super::{Pool, block_count};
use crate::datalayer::{EndpointId, EndpointMetrics};
use crate::prefix::Chain;
use crate::replication::Replica;
use crate::requestcontrol::{InFlight, LoadGuard};
use crate::scheduling::picker::TieKey;
use crate::scheduling::{AdapterFit, Candidate, Decision, Ranked, Request, Standing};
use crate::time::Timestamp;

impl Pool {
    /// The endpoints that a request without a prompt may go to now: those all filters let through.
    pub fn candidate_count(&self, now: Timestamp) -> usize {
        let all = self.replica(|replica| self.bare_candidates(replica, now));
        let mut all = all.unwrap_or_default();
        mark_standby(&mut all, self.config.scoring.min_health);
        let request = self.request(&Chain::default(), "", TieKey(0), 1);
        self.scheduler.passing(&request, &all)
    }

    /// Waiting requests at which an endpoint is no candidate; `None` where no queue is too long.
    pub fn queue_limit(&self) -> Option<u32> {
        self.scheduler.queue_limit()
    }

    /// What the scorers say of those in the ranking of `decision`: a line each.
    pub(super) fn explain(
        &self,
        decision: &Decision,
        request: &Request,
        candidates: &[Candidate],
    ) -> Vec<String> {
        let line = |ranked: &Ranked| {
            let name = &self.endpoint(ranked.endpoint)?.name;
            let explained = self.scheduler.explain(request, candidates, ranked.endpoint);
            let parts: Vec<String> = explained.iter().map(ToString::to_string).collect();
            Some(format!(
                "pod={name} score={:.4}: {}",
                ranked.score,
                parts.join(", ")
            ))
        };
        decision.ranking.iter().filter_map(line).collect()
    }

    /// All endpoints with the attributes scorers read.
    pub(super) fn candidates(
        &mut self,
        chain: &Chain,
        model: &str,
        now: Timestamp,
    ) -> Vec<Candidate> {
        let mut matched = core::mem::take(&mut self.matched);
        // Otherwise, only the endpoints' lists tell adapters from base models.
        let is_adapter = self.config.declares_adapter(model)
            || self
                .members
                .iter()
                .any(|(_, known)| known.has_loaded(model));
        let is_listed = self.members.iter().any(|(_, known)| known.has_base(model));
        let total_blocks = block_count(chain);
        let found = self.replica(|replica| {
            self.match_all(replica, chain, &mut matched);
            let mut candidates = self.bare_candidates(replica, now);
            for (candidate, (id, known)) in candidates.iter_mut().zip(self.members.iter()) {
                candidate.total_blocks = total_blocks;
                candidate.matched_blocks = matched.get(id.index()).copied().unwrap_or(0);
                candidate.adapter_ready = !is_adapter || known.has_loaded(model);
                candidate.serves_model = !is_listed || known.may_serve(model);
                candidate.adapter = AdapterFit::of(known.metrics.adapters.as_ref(), model);
            }
            mark_standby(&mut candidates, self.config.scoring.min_health);
            self.guard(replica.observer(), &mut candidates);
            candidates
        });
        self.matched = matched;
        found.unwrap_or_default()
    }

    /// How many blocks of `chain`'s prompts, each from its start, every endpoint holds.
    fn match_all(&self, replica: &Replica<InFlight>, chain: &Chain, matched: &mut Vec<u32>) {
        let credit = self.config.prefix.pending_credit;
        let mut one = Vec::new();
        matched.clear();
        for prompt in chain.prompts() {
            replica.index().matches(prompt, credit, &mut one);
            matched.resize(one.len(), 0);
            for (sum, blocks) in matched.iter_mut().zip(&one) {
                *sum = sum.saturating_add(*blocks);
            }
        }
    }

    /// All endpoints, with nothing in their attributes that a prompt decides.
    fn bare_candidates(&self, replica: &Replica<InFlight>, now: Timestamp) -> Vec<Candidate> {
        let mut candidates = Vec::with_capacity(self.members.len());
        for (id, known) in self.members.iter() {
            candidates.push(self.bare_candidate(id, known, replica.observer(), now));
        }
        candidates
    }

    fn bare_candidate(
        &self,
        id: EndpointId,
        known: &Known,
        in_flight: &InFlight,
        now: Timestamp,
    ) -> Candidate {
        let EndpointMetrics {
            waiting, running, ..
        } = known.metrics;
        let slots = known
            .endpoint
            .max_running
            .unwrap_or(self.config.scoring.max_running);
        let fitness = known.fitness(now, &self.config);
        let freshness = known.freshness(now, &self.config);
        let health = known.health_of(fitness, freshness);
        // Of a server that tells nothing, Envoy's own count is the best there is.
        let freshness = match known.scraped_at {
            Some(_) => freshness,
            None => self.config.health.stale_floor,
        };
        let tells_nothing = known.scraped_at.is_none() || freshness < 1.0;
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
            own: in_flight.own(id, waiting, running),
            max_running: slots.saturating_mul(known.metrics.engines.max(1)).max(1),
            kv_utilisation: known.kv_utilisation(in_flight.own_tokens(id)),
            gpu_utilisation: known.metrics.gpu_utilisation,
            health,
            fitness,
            freshness,
            tier: known.status.tier,
            standing: if known.status.condition.is_usable() {
                Standing::Active
            } else {
                Standing::Excluded
            },
            adapter_ready: true,
            serves_model: true,
            adapter: AdapterFit::Full,
            labels: known.endpoint.labels.clone(),
            signals: known.metrics.signals.clone(),
        }
    }

    /// Puts an unfit endpoint whose turn has come before all others, which then take over if it
    /// fails.
    pub(super) fn probe(
        &mut self,
        decision: &mut Decision,
        request: &Request,
        candidates: &[Candidate],
        now: Timestamp,
    ) {
        let count = request.attempts;
        let min_health = self.config.scoring.min_health;
        let is_due = |id| {
            let last_sent = self.replica(|replica| replica.observer().last_sent(id));
            let known = self.members.get(id);
            known.is_some_and(|known| known.probe_is_due(last_sent.flatten(), now))
        };
        let due = candidates.iter().find(|candidate| {
            !candidate.is_fit(min_health)
                && is_due(candidate.endpoint)
                && self.scheduler.is_for(request, candidate)
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
        let among: Vec<&Candidate> = candidates.iter().collect();
        let scores = self.scheduler.composites(request, &among);
        let score = candidates.iter().zip(scores).find(|(one, _)| *one == due);
        let probe = Ranked {
            endpoint: due.endpoint,
            score: score.map_or(0.0, |(_, score)| score),
        };
        let others = core::mem::take(&mut decision.ranking);
        decision.ranking = core::iter::once(probe).chain(others).take(count).collect();
    }

    /// Closes the load guard where too much is open.
    fn guard(&self, in_flight: &InFlight, candidates: &mut [Candidate]) {
        let scoring = &self.config.scoring;
        let in_use = |one: &&Candidate| {
            one.can_serve(scoring.min_health) && one.standing == Standing::Active
        };
        let in_use = || candidates.iter().filter(in_use);
        let count = u32::try_from(in_use().count()).unwrap_or(u32::MAX);
        let open = in_use()
            .map(|one| in_flight.open_at(one.endpoint))
            .fold(0, u32::saturating_add);
        let guard = LoadGuard::new(scoring.guard_floor, scoring.guard_ratio, open, count);
        for candidate in candidates {
            candidate.guarded = guard.holds(in_flight.open_at(candidate.endpoint));
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

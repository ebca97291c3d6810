//! The profiles of a pool, and who says which of them run.

use std::rc::Rc;

use super::profile_handler::single::Single;
use super::profile_handler::{ProfileHandler, SoFar};
use super::{Candidate, Decision, Explained, Profile, Request, build, five_factor};
use crate::config::{ConfigError, PoolConfig};
use crate::datalayer::EndpointId;

/// Everything that decides where a pool's requests go.
#[derive(Debug)]
pub struct Scheduler {
    /// At least one.
    profiles: Vec<Profile>,
    handler: Rc<dyn ProfileHandler>,
}

/// What the profiles made of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Where it goes.
    pub decision: Decision,
    /// Where its prompt is computed, when that is elsewhere.
    pub prefill: Option<EndpointId>,
    /// It was worth computing the prompt elsewhere, whether or not somebody was there to do it.
    pub wants_prefill: bool,
}

impl Scheduler {
    /// The scheduler that `pool` asks for: its `endpointPickerConfig`, else the five factors. What
    /// its producers set up is changed in `pool`.
    ///
    /// # Errors
    /// What is wrong with the `endpointPickerConfig`, with its JSON path.
    pub fn new(pool: &mut PoolConfig) -> Result<Self, ConfigError> {
        match pool.endpoint_picker.clone() {
            Some(picker) => build::scheduler(&picker, pool),
            None => Ok(Self {
                profiles: vec![five_factor(&pool.scoring)],
                handler: Rc::new(Single),
            }),
        }
    }

    pub(super) fn of(profiles: Vec<Profile>, handler: Rc<dyn ProfileHandler>) -> Self {
        Self { profiles, handler }
    }

    /// Runs the profiles over `candidates`.
    ///
    /// Time: that of the profiles, each of which runs once at most.
    pub fn schedule(&self, request: &Request, candidates: &[Candidate]) -> Schedule {
        let mut results: Vec<Option<Decision>> = vec![None; self.profiles.len()];
        while let Some(place) = self
            .handler
            .next(request, &self.so_far(&results, candidates))
        {
            match (self.profiles.get(place), results.get_mut(place)) {
                (Some(profile), Some(result @ None)) => {
                    *result = Some(profile.run(request, candidates));
                }
                _ => break,
            }
        }
        let so_far = self.so_far(&results, candidates);
        let places = (self.handler.primary(&so_far), self.handler.prefill(&so_far));
        let mut take = |place: Option<usize>| results.get_mut(place?)?.take();
        let decision = take(places.0).unwrap_or_default();
        let prefill = take(places.1).filter(|prefill| prefill.exception.is_none());
        let first = |decision: &Decision| decision.ranking.first().map(|one| one.endpoint);
        let prefill = prefill.as_ref().and_then(first);
        Schedule {
            wants_prefill: places.1.is_some(),
            prefill: prefill.filter(|_| prefill != first(&decision)),
            decision,
        }
    }

    /// Composite scores of `candidates` under the profile that decides where a request goes.
    pub fn composites(&self, request: &Request, candidates: &[&Candidate]) -> Vec<f64> {
        let primary = self.primary();
        primary.map_or_else(Vec::new, |one| one.composites(request, candidates))
    }

    /// How many of `candidates` requests like `request` may go to.
    pub fn passing(&self, request: &Request, candidates: &[Candidate]) -> usize {
        let primary = self.primary();
        primary.map_or(0, |one| one.passing(request, candidates))
    }

    /// Waiting requests at which an endpoint is no candidate; `None` where no queue is too long.
    pub fn queue_limit(&self) -> Option<u32> {
        self.primary()?.queue_limit()
    }

    /// What the scorers of the profile that decides say of `candidate` beside those of `candidates`
    /// that its filters leave; nothing where they do not leave it.
    pub fn explain(
        &self,
        request: &Request,
        candidates: &[Candidate],
        candidate: EndpointId,
    ) -> Vec<Explained<'_>> {
        let primary = self.primary();
        primary.map_or_else(Vec::new, |one| {
            one.explain(request, &one.kept(request, candidates).0, candidate)
        })
    }

    /// Whether requests are for `candidate`, however it does.
    pub fn is_for(&self, request: &Request, candidate: &Candidate) -> bool {
        let primary = self.primary();
        primary.is_some_and(|one| one.is_for(request, candidate))
    }

    #[cfg(test)]
    pub(super) fn into_profiles(self) -> Vec<Profile> {
        self.profiles
    }

    /// Whether a prompt may be computed at another endpoint than the one its request goes to.
    pub fn splits(&self) -> bool {
        self.handler.splits()
    }

    /// One line for each profile: its scorers and their shares of the composite.
    pub fn summary(&self) -> Vec<String> {
        self.profiles.iter().map(ToString::to_string).collect()
    }

    /// The profiles.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    fn primary(&self) -> Option<&Profile> {
        let place = self.handler.primary(&self.so_far(&[], &[]))?;
        self.profiles.get(place)
    }

    fn so_far<'a>(
        &'a self,
        results: &'a [Option<Decision>],
        candidates: &'a [Candidate],
    ) -> SoFar<'a> {
        SoFar {
            profiles: &self.profiles,
            results,
            candidates,
        }
    }
}

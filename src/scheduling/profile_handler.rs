//! Profile handlers: which profiles run for a request, and what their picks are for.

pub(super) mod always_disagg;
pub(super) mod disagg;
pub(super) mod prefix_based;
pub(super) mod single;

use core::fmt::Debug;

use super::{Attribute, Candidate, Decision, Profile, Request};

/// Says which profiles run.
pub trait ProfileHandler: Debug {
    /// Whether it can do with profiles of these names, at least one; else why not.
    fn check(&self, profiles: &[&str]) -> Result<(), String>;

    /// The place of the profile to run next; `None` when there is nothing left to do. A profile
    /// runs once.
    fn next(&self, request: &Request, so_far: &SoFar<'_>) -> Option<usize>;

    /// The place of the profile whose pick gets the request.
    fn primary(&self, so_far: &SoFar<'_>) -> Option<usize>;

    /// The place of the profile whose pick computes the prompt for the primary's, if one did.
    fn prefill(&self, so_far: &SoFar<'_>) -> Option<usize>;

    /// Whether it may have a prompt computed elsewhere at all.
    fn splits(&self) -> bool {
        false
    }
}

/// Decides whether a second endpoint is worth its while.
pub trait Decider: Debug {
    /// Whether the prompt should be computed elsewhere than at `decode`, which gets the request.
    fn wants_prefill(&self, request: &Request, decode: Option<&Candidate>) -> bool;

    /// What it reads of a candidate.
    fn needs(&self) -> Vec<Attribute> {
        Vec::new()
    }
}

/// What the profiles made of a request so far.
#[derive(Debug)]
pub struct SoFar<'a> {
    pub(super) profiles: &'a [Profile],
    /// By profile; `None` where it did not run.
    pub(super) results: &'a [Option<Decision>],
    pub(super) candidates: &'a [Candidate],
}

impl SoFar<'_> {
    /// The place of the profile `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.profiles.iter().position(|one| one.name() == name)
    }

    /// Whether the profile at `place` has run.
    pub fn has_run(&self, place: usize) -> bool {
        self.results.get(place).is_some_and(Option::is_some)
    }

    /// Whom the profile at `place` picked.
    pub fn pick(&self, place: usize) -> Option<&Candidate> {
        let decision = self.results.get(place)?.as_ref()?;
        let first = decision.ranking.first()?.endpoint;
        self.candidates.iter().find(|one| one.endpoint == first)
    }
}

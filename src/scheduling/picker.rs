//! Pickers: the order in which endpoints are offered.

pub(super) mod max_score;
pub(super) mod random;
pub(super) mod weighted_random;

use core::cmp::Ordering;
use core::fmt::Debug;

pub use max_score::TieKey;

use super::{Ranked, Request, Scored};
use crate::config::{ConfigError, Fields, KeyDoc, Kind, key};

/// Orders scored candidates, best first.
pub trait Picker: Debug {
    /// The best of `scored`, at most `request.attempts`, in the order they should be tried.
    fn pick(&self, request: &Request, scored: &[Scored]) -> Vec<Ranked>;
}

/// Each endpoint is one more `ip:port` in a header.
const MOST: Kind = Kind::Whole { min: 1, max: 9 };

/// What every picker takes.
const PARAMETERS: &[KeyDoc] = &[key(
    "maxNumOfEndpoints",
    MOST,
    "null",
    "Endpoints to name; absent: one, and `overrideHost.fallbacks` more for retries.",
)];

/// How many endpoints a picker was told to name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Most(Option<usize>);

impl Most {
    fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let most = fields.optional_whole("maxNumOfEndpoints")?;
        Ok(Self(most.and_then(|most| usize::try_from(most).ok())))
    }

    /// How many endpoints to name for `request`.
    fn of(self, request: &Request) -> usize {
        self.0.unwrap_or(request.attempts)
    }
}

/// The `count` of `scored` with the highest keys, the highest first. Keys come in the order of
/// `scored`.
///
/// Time: one comparison for most, and a sort of `count`, which is a handful, for those that are
/// among the highest so far: faster than sorting them all.
fn highest<K>(
    scored: &[Scored],
    key: impl FnMut(&Scored) -> K,
    compare: impl Fn(&K, &K) -> Ordering,
    count: usize,
) -> Vec<Ranked> {
    let mut best: Vec<(K, &Scored)> = Vec::with_capacity(count.saturating_add(1));
    for (key, one) in scored.iter().map(key).zip(scored) {
        let is_behind = |(other, _): &(K, &Scored)| compare(&key, other) != Ordering::Greater;
        if best.len() >= count && best.last().is_none_or(is_behind) {
            continue;
        }
        best.push((key, one));
        best.sort_unstable_by(|a, b| compare(&b.0, &a.0));
        best.truncate(count);
    }
    let ranked = best.into_iter().map(|(_, one)| Ranked {
        endpoint: one.endpoint,
        score: one.score,
    });
    ranked.collect()
}

//! The highest score; equals share by rendezvous hashing.

use xxhash_rust::xxh64::xxh64;

use super::Picker;
use crate::scheduling::{Ranked, Scored};

/// What equals are told apart by: the conversation's anchor, or something unique where there is
/// none. Proxies that share nothing still agree on the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieKey(pub u64);

/// Takes the highest score. Scores within `tie_band` of it are equal; among equals the endpoint
/// with the highest hash of (tie key, address) comes first, so that equals share distinct prompts
/// evenly and one prompt stays where it is.
#[derive(Debug)]
pub struct MaxScore {
    /// In [0, 1].
    pub tie_band: f64,
}

impl Picker for MaxScore {
    fn name(&self) -> &'static str {
        "max-score-picker"
    }

    fn pick(&self, scored: &[Scored], tie: TieKey, count: usize) -> Vec<Ranked> {
        let best = scored.iter().map(|one| one.score).fold(0.0, f64::max);
        let mut keyed: Vec<(f64, u64, &Scored)> = scored
            .iter()
            .map(|one| {
                let tied = one.score >= best - self.tie_band;
                (
                    if tied { best } else { one.score },
                    rendezvous(tie, one.address_hash),
                    one,
                )
            })
            .collect();
        keyed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let ranked = keyed.into_iter().take(count);
        ranked
            .map(|(.., one)| Ranked {
                endpoint: one.endpoint,
                score: one.score,
            })
            .collect()
    }
}

fn rendezvous(tie: TieKey, address_hash: u64) -> u64 {
    let joined = u128::from(tie.0) | u128::from(address_hash) << 64;
    xxh64(&joined.to_le_bytes(), 0)
}

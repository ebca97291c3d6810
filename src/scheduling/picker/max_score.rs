//! The highest score; equals share by rendezvous hashing.

use xxhash_rust::xxh64::xxh64;

use super::{Most, PARAMETERS, Picker, highest};
use crate::config::{ConfigError, Fields};
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Ranked, Request, Scored};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "the highest score; scores within `scoring.tieBand` of it are equal, and among equals a \
             hash of conversation and address decides",
    ..PluginType::new("max-score-picker", Role::Picker, Build::Reads(build))
};

/// What equals are told apart by: the conversation's anchor, or something unique where there is
/// none. Proxies that share nothing still agree on the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieKey(pub u64);

/// Takes the highest score. Scores within `tie_band` of it are equal; among equals the endpoint
/// with the highest hash of (tie key, address) comes first, so that equals share distinct prompts
/// evenly and one prompt stays where it is.
#[derive(Debug)]
pub(crate) struct MaxScore {
    /// In [0, 1].
    pub(crate) tie_band: f64,
    pub(crate) most: Most,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    Ok(Plugin::picker(MaxScore {
        tie_band: setup.pool.scoring.tie_band,
        most: Most::read(fields)?,
    }))
}

impl Picker for MaxScore {
    fn pick(&self, request: &Request, scored: &[Scored]) -> Vec<Ranked> {
        let best = scored.iter().map(|one| one.score).fold(0.0, f64::max);
        let key = |one: &Scored| {
            let tied = one.score >= best - self.tie_band;
            (
                if tied { best } else { one.score },
                rendezvous(request.tie, one.address_hash),
            )
        };
        highest(
            scored,
            key,
            |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)),
            self.most.of(request),
        )
    }
}

fn rendezvous(tie: TieKey, address_hash: u64) -> u64 {
    let joined = u128::from(tie.0) | u128::from(address_hash) << 64;
    xxh64(&joined.to_le_bytes(), 0)
}

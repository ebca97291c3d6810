//! Prompt blocks the endpoint holds.

use super::{Score, Scorer};
use crate::config::{ConfigError, Fields, KeyDoc, Kind, SHARE, key};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "w·min(1, tokens matched / scale)² + (1 − w)·(blocks matched / blocks of the prompt), \
             w and scale being the parameters; 0 behind the load guard",
    missing: "no prompt: 0",
    ..PluginType::scorer("prefix-cache-scorer", Build::Reads(build))
};

/// A scale beyond any prompt would be as good as no weight.
const SCALE: Kind = Kind::Whole {
    min: 1,
    max: 16_777_216,
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("prefixMatchInfoProducerName", crate::scheduling::producer::NAME, "null", "The producer of matches, by its name; absent: the only one there can be."),
    key("matchLengthWeight", SHARE, "0", "What the length of the match counts, beside its share of the prompt."),
    key("matchLengthScaleTokens", SCALE, "8192", "Matched tokens that are as good as any more."),
];

/// Matched over total blocks; 0 behind the load guard and without a prompt. The length of the match
/// may count as well.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    /// In [0, 1].
    pub(crate) length_weight: f64,
    /// At least 1.
    pub(crate) length_scale: u32,
}

impl PrefixCache {
    /// The share of the prompt alone.
    pub(crate) const SHARE: Self = Self {
        length_weight: 0.0,
        length_scale: 1,
    };
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    setup.check_prefix_producer(fields, "prefixMatchInfoProducerName")?;
    Ok(Plugin::scorer(PrefixCache {
        length_weight: fields.number("matchLengthWeight")?,
        length_scale: fields.whole("matchLengthScaleTokens")?,
    }))
}

impl Scorer for PrefixCache {
    fn score(&self, request: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        let scale = f64::from(self.length_scale.max(1));
        scores.extend(candidates.iter().map(|one| {
            if one.guarded {
                return Score::none("behind the load guard");
            }
            if one.total_blocks == 0 {
                return Score::default();
            }
            let matched = f64::from(one.matched_blocks);
            let share = matched / f64::from(one.total_blocks);
            let length = (matched * f64::from(request.block_tokens) / scale).min(1.0);
            let length = self.length_weight * length * length;
            Score::from(length + (1.0 - self.length_weight) * share)
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::PrefixMatch]
    }
}

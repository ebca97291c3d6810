//! Any endpoint, the better the likelier.

use super::random::{Numbers, shuffled};
use super::{Most, PARAMETERS, Picker, highest};
use crate::config::{ConfigError, Fields};
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Ranked, Request, Scored};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "any, as likely as its share of all scores; all as likely where no score is above 0",
    ..PluginType::new("weighted-random-picker", Role::Picker, Build::Reads(build))
};

/// Takes any, with the probability of its share of all scores (A-Res; Efraimidis and Spirakis,
/// 2006).
#[derive(Debug)]
struct WeightedRandom {
    most: Most,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let most = Most::read(fields)?;
    Ok(Plugin::picker(WeightedRandom { most }))
}

impl Picker for WeightedRandom {
    fn pick(&self, request: &Request, scored: &[Scored]) -> Vec<Ranked> {
        let count = self.most.of(request);
        if scored.iter().all(|one| one.score <= 0.0) {
            return shuffled(request, scored, count);
        }
        let mut numbers = Numbers::new(request.random);
        let key = |one: &Scored| {
            // ln(U^(1/score)): the powers themselves are all 0 for small scores.
            let logarithm = unit(numbers.next()).ln() / one.score;
            if one.score > 0.0 {
                logarithm
            } else {
                f64::NEG_INFINITY
            }
        };
        highest(scored, key, f64::total_cmp, count)
    }
}

/// A number in (0, 1) of 53 random bits.
fn unit(random: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let bits = (random >> 11) as f64;
    (bits + 0.5) / 9_007_199_254_740_992.0
}

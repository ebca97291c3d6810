//! A series that a producer gave a name.

use super::metric::{NUMBER, score_series};
use super::spread::{Better, Range, Spread, read_range};
use super::{Score, Scorer};
use crate::config::{ConfigError, Fields, KeyDoc, Kind, choice, key, required, section};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::producer::NAME;
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "as `metric-scorer`, of an attribute that `core-metrics-extractor` provides under \
             `customMetrics`",
    missing: "not on the page: 0, and not among the extremes; old metrics: times their freshness",
    ..PluginType::scorer("endpoint-attribute-scorer", Build::Reads(build))
};

const ALGORITHMS: Kind = choice(&["linear_lower_is_better", "linear_higher_is_better"]);

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    required("attributeKey", NAME, "The attribute's name."),
    key("producer", NAME, "null", "Accepted; names of attributes are unique."),
    section("algorithm", "How values become scores."),
    key("algorithm.type", ALGORITHMS, "\"linear_lower_is_better\"", "Which end is better."),
    section("algorithm.normalization", "Between what."),
    section("algorithm.normalization.adaptiveRange", "Between the extremes among the candidates; also what absent ranges mean."),
    section("algorithm.normalization.fixedRange", "Between fixed values."),
    key("algorithm.normalization.fixedRange.min", NUMBER, "null", "The lower end."),
    key("algorithm.normalization.fixedRange.max", NUMBER, "null", "The upper end."),
];

/// Scores one named series.
#[derive(Debug)]
struct EndpointAttribute {
    name: String,
    place: usize,
    spread: Spread,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let name = fields.text("attributeKey")?;
    let place = setup.place_of(&name);
    let spread = fields.section("algorithm", |algorithm| {
        let options = [Better::Lower, Better::Higher];
        let better = algorithm.choice("type", &options)?;
        let range = algorithm.section("normalization", read_normalization)?;
        Ok(Spread { better, range })
    })?;
    Ok(Plugin::scorer(EndpointAttribute {
        name,
        place,
        spread,
    }))
}

fn read_normalization(fields: &Fields<'_>) -> Result<Range, ConfigError> {
    let fixed = fields.section("fixedRange", read_range)?;
    let is_adaptive = fields
        .optional_section("adaptiveRange", |_| Ok(()))?
        .is_some();
    if is_adaptive && fixed != Range::Adaptive {
        let path = fields.path_of("adaptiveRange");
        return Err(ConfigError::expected(&path, "one of the ranges", "both"));
    }
    Ok(fixed)
}

impl Scorer for EndpointAttribute {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        score_series(self.place, self.spread, candidates, scores);
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::Series(self.name.clone())]
    }
}

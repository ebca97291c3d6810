//! Any series of the endpoints' metrics pages.

use super::spread::{Better, Spread, read_range};
use super::{OLD_METRICS, Score, Scorer};
use crate::config::{
    ConfigError, Fields, KeyDoc, Kind, MetricSpec, TextRule, choice, key, required,
};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "(value − min) / (max − min), or 1 less that where lower is better; without `min` and \
             `max`: those among the candidates, 1 where all are equal",
    missing: "not on the page: 0, and not among the extremes; old metrics: times their freshness",
    ..PluginType::own_scorer("metric-scorer", Build::Reads(build))
};

pub(super) const SPEC: TextRule = TextRule {
    what: MetricSpec::WHAT,
    fits: |text| MetricSpec::parse(text).is_some(),
};

/// Any finite number.
pub(super) const NUMBER: Kind = Kind::Number {
    min: f64::MIN,
    max: f64::MAX,
};

pub(super) const DIRECTION: Kind = choice(&["lower", "higher"]);

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    required("metric", Kind::Text(&SPEC), "The series, as `name` or `name{label=value}`; of several the first on the page."),
    key("better", DIRECTION, "\"lower\"", "Which end is better."),
    key("min", NUMBER, "null", "With `max`: a fixed range."),
    key("max", NUMBER, "null", "With `min`: a fixed range."),
];

/// Scores one series.
#[derive(Debug)]
struct Metric {
    name: String,
    place: usize,
    spread: Spread,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let name = fields.text("metric")?;
    let place = setup.series(&fields.path_of("metric"), &name, &name)?;
    let spread = Spread {
        better: fields.choice("better", &[Better::Lower, Better::Higher])?,
        range: read_range(fields)?,
    };
    Ok(Plugin::scorer(Metric {
        name,
        place,
        spread,
    }))
}

impl Scorer for Metric {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        score_series(self.place, self.spread, candidates, scores);
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::Series(self.name.clone())]
    }
}

/// Scores the series at `place`; old numbers are worth less.
pub(super) fn score_series(
    place: usize,
    spread: Spread,
    candidates: &[&Candidate],
    scores: &mut Vec<Score>,
) {
    let start = scores.len();
    let values = candidates.iter().map(|one| one.signals.get(place));
    spread.score(values, "not on the page", scores);
    for (score, candidate) in scores.iter_mut().skip(start).zip(candidates) {
        *score = score.times(candidate.freshness, OLD_METRICS);
    }
}

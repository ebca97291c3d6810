//! What the operator says of an endpoint: its zone, its price, its GPU.

use std::collections::BTreeMap;

use super::metric::{DIRECTION, NUMBER};
use super::spread::{Better, Range, Spread, read_range};
use super::{Score, Scorer};
use crate::config::{ConfigError, Fields, KeyDoc, Kind, LABEL, SHARE, key, quoted, required};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "with `values`: what they say of the label's value; else the label is a number, and \
             scores as `metric-scorer`'s do",
    missing: "no label, or no such value: `otherwise`; no number: 0, and not among the extremes",
    ..PluginType::own_scorer("label-scorer", Build::Reads(build))
};

const SCORES: Kind = Kind::List {
    min: 0,
    max: 64,
    of: "scores, each an object with value and score",
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    required("label", Kind::Text(&LABEL), "The label's name, such as `zone` or `cost-per-hour`."),
    key("values", SCORES, "[]", "Scores of values that are names."),
    required("values[].value", Kind::Text(&LABEL), "A value of the label."),
    required("values[].score", SHARE, "Its score."),
    key("otherwise", SHARE, "0", "The score of all other values."),
    key("better", DIRECTION, "\"lower\"", "Which end is better, of values that are numbers."),
    key("min", NUMBER, "null", "With `max`: a fixed range."),
    key("max", NUMBER, "null", "With `min`: a fixed range."),
];

/// Scores one label.
#[derive(Debug)]
struct Label {
    label: String,
    meaning: Meaning,
}

#[derive(Debug)]
enum Meaning {
    Names {
        scores: BTreeMap<String, f64>,
        otherwise: f64,
    },
    Number(Spread),
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let mut scores = BTreeMap::new();
    fields.list("values", |item| {
        let fields = item.fields("an object with value and score")?;
        let value = fields.text("value")?;
        if scores
            .insert(value.clone(), fields.number("score")?)
            .is_some()
        {
            let found = format!("{} again", quoted(&value));
            let path = fields.path_of("value");
            return Err(ConfigError::expected(
                &path,
                "a value that has no score yet",
                found,
            ));
        }
        Ok(())
    })?;
    let otherwise = fields.number("otherwise")?;
    let better = fields.choice("better", &[Better::Lower, Better::Higher])?;
    let range = read_range(fields)?;
    if !scores.is_empty() && range != Range::Adaptive {
        let path = fields.path_of("max");
        return Err(ConfigError::expected(
            &path,
            "values, or min and max",
            "both",
        ));
    }
    let meaning = if scores.is_empty() {
        Meaning::Number(Spread { better, range })
    } else {
        Meaning::Names { scores, otherwise }
    };
    let label = fields.text("label")?;
    Ok(Plugin::scorer(Label { label, meaning }))
}

impl Scorer for Label {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        let labels = candidates.iter().map(|one| one.labels.get(&self.label));
        match &self.meaning {
            Meaning::Names {
                scores: of,
                otherwise,
            } => scores.extend(labels.map(|label| {
                let score = label.and_then(|label| of.get(label));
                Score::from(score.copied().unwrap_or(*otherwise))
            })),
            Meaning::Number(spread) => spread.score(labels.map(number), "no number", scores),
        }
    }
}

fn number(label: Option<&str>) -> Option<f64> {
    let number: f64 = label?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

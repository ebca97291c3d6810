//! Drops endpoints by their labels, as a Kubernetes `LabelSelector` does.

use std::collections::BTreeMap;

use super::Filter;
use crate::config::{ConfigError, Fields, KeyDoc, Kind, LABEL, choice, key, required};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "keeps endpoints whose labels have all of `matchLabels` and meet all of \
             `matchExpressions`; an empty selector keeps all",
    missing: "no label: dropped, but by `NotIn` and `DoesNotExist`",
    ..PluginType::filter("label-selector-filter", Build::Reads(build))
};

const EXPRESSIONS: Kind = Kind::List {
    min: 0,
    max: 32,
    of: "expressions, each with key, operator and values",
};
const VALUES: Kind = Kind::List {
    min: 0,
    max: 64,
    of: "label values",
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("matchLabels", Kind::Labels, "{}", "Labels and the values they must have."),
    key("matchExpressions", EXPRESSIONS, "[]", "Conditions, all of which must hold."),
    required("matchExpressions[].key", Kind::Text(&LABEL), "A label's name."),
    required("matchExpressions[].operator", choice(&["In", "NotIn", "Exists", "DoesNotExist"]), "What must hold of its value."),
    key("matchExpressions[].values", VALUES, "[]", "For `In` and `NotIn` at least one, else none."),
];

/// Keeps endpoints whose labels fit.
#[derive(Debug)]
struct LabelSelector {
    labels: BTreeMap<String, String>,
    expressions: Vec<Expression>,
}

#[derive(Debug)]
struct Expression {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let expressions = fields.list("matchExpressions", |item| {
        let fields = item.fields("an object with key, operator and values")?;
        Expression::read(&fields)
    })?;
    Ok(Plugin::filter(LabelSelector {
        labels: fields.labels("matchLabels", LABEL.fits, LABEL.what)?,
        expressions,
    }))
}

impl Expression {
    fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let operators = [
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
        ];
        let operator = fields.choice("operator", &operators)?;
        let values = fields.list("values", |item| {
            let text = item.value.text().filter(|text| (LABEL.fits)(text));
            let text = text.ok_or_else(|| item.expected(LABEL.what))?;
            Ok(text.to_owned())
        })?;
        let lists = matches!(operator, Operator::In | Operator::NotIn);
        if lists == values.is_empty() {
            let expected = if lists {
                "at least one value for this operator"
            } else {
                "no values for this operator"
            };
            let found = if lists { "none" } else { "some" };
            return Err(ConfigError::expected(
                &fields.path_of("values"),
                expected,
                found,
            ));
        }
        Ok(Self {
            key: fields.text("key")?,
            operator,
            values,
        })
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Filter for LabelSelector {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| {
            let value = |name: &str| candidate.labels.get(name);
            let mut labels = self.labels.iter();
            labels.all(|(name, wanted)| value(name) == Some(wanted))
                && self
                    .expressions
                    .iter()
                    .all(|one| one.holds(value(&one.key)))
        });
    }
}

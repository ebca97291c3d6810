//! What a demo must show, and whether it did.

use serde::Serialize;

use super::figures::Figures;
use super::workload::Kind;
use super::{Comparison, Options};

/// Hit ratio that conversations with nothing in common must reach at the default shape, where the
/// ideal is about 0.71.
const HIT_RATIO: f64 = 0.68;

/// Share of the ideal that must be reached at any other shape; at the default shape it is 0.68.
const SHARE_OF_IDEAL: f64 = 0.95;

/// How many times round robin's hit ratio it must be, with nothing in common.
const TIMES_ROUND_ROBIN: f64 = 1.8;

/// How far above round robin's it must be, with a system prompt in common.
const ABOVE_ROUND_ROBIN: f64 = 0.10;

/// Share of the turns no server may exceed, of four.
const LARGEST_SHARE: f64 = 0.40;

/// One thing that was to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What, with the figures.
    pub what: String,
    /// Whether it was.
    pub held: bool,
}

/// All checks of all comparisons. Absolute targets hold for the default shape only: with other
/// sizes, ideal and baseline lie elsewhere.
pub fn checks(comparisons: &[Comparison], options: &Options) -> Vec<Check> {
    comparisons
        .iter()
        .flat_map(|comparison| {
            let mut checks = ratios(comparison, options.has_default_shape());
            checks.extend(conduct(comparison));
            if options.has_default_shape() {
                checks.push(at_most(
                    "largest share of the turns on one server",
                    comparison.inline_epp.largest_share(),
                    LARGEST_SHARE,
                ));
            }
            for check in &mut checks {
                check.what = format!("{}: {}", comparison.workload, check.what);
            }
            checks
        })
        .collect()
}

fn ratios(comparison: &Comparison, default_shape: bool) -> Vec<Check> {
    let ours = comparison.inline_epp.hit_ratio;
    let baseline = comparison.round_robin.hit_ratio;
    match (comparison.workload, default_shape) {
        (Kind::Distinct, true) => vec![
            at_least("hit ratio", ours, HIT_RATIO),
            at_least(
                "hit ratio, round robin's × 1.8",
                ours,
                TIMES_ROUND_ROBIN * baseline,
            ),
        ],
        (Kind::SharedSystemPrompt, true) => vec![at_least(
            "hit ratio, round robin's + 0.10",
            ours,
            baseline + ABOVE_ROUND_ROBIN,
        )],
        (Kind::Distinct, false) => vec![
            at_least("hit ratio, round robin's", ours, baseline),
            at_least(
                "hit ratio, 0.95 of the ideal",
                ours,
                SHARE_OF_IDEAL * comparison.ideal_hit_ratio,
            ),
        ],
        (Kind::SharedSystemPrompt, false) => {
            vec![at_least("hit ratio, round robin's", ours, baseline)]
        }
    }
}

/// Nothing may fail, and every turn must be decided by its prompt and served accordingly.
fn conduct(comparison: &Comparison) -> [Check; 4] {
    let none = |what: &str, count: usize| Check {
        what: format!("{what}: {count}"),
        held: count == 0,
    };
    let errors = |who, figures: &Figures| {
        let mut check = none(&format!("errors, {who}"), figures.errors);
        if let Some(error) = &figures.first_error {
            check.what = format!("{} (the first: {error})", check.what);
        }
        check
    };
    let ours = &comparison.inline_epp;
    [
        errors("round robin", &comparison.round_robin),
        errors("inline-epp", ours),
        none("answers whose x-epp-reason is not picked", ours.not_picked),
        none(
            "answers of another server than x-epp-endpoint",
            ours.not_as_picked,
        ),
    ]
}

fn at_least(what: &str, value: f64, bound: f64) -> Check {
    Check {
        what: format!("{what}: {value:.3} ≥ {bound:.3}"),
        held: value >= bound,
    }
}

fn at_most(what: &str, value: f64, bound: f64) -> Check {
    Check {
        what: format!("{what}: {value:.3} ≤ {bound:.3}"),
        held: value <= bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::counters::CacheCounters;

    fn figures(hit_ratio: f64, turns_per_server: [usize; 4]) -> Figures {
        let cache = CacheCounters {
            queries: 0,
            hits: 0,
        };
        let mut figures = Figures::new(&[], (0, 0), &[], cache, None);
        figures.hit_ratio = hit_ratio;
        figures.turns_per_server = turns_per_server.to_vec();
        figures
    }

    fn comparison(workload: Kind, round_robin: f64, inline_epp: f64) -> Comparison {
        Comparison {
            workload,
            ideal_hit_ratio: 0.714,
            round_robin: figures(round_robin, [25; 4]),
            inline_epp: figures(inline_epp, [40, 20, 20, 20]),
        }
    }

    fn failed(comparison: Comparison, options: &Options) -> Vec<String> {
        checks(&[comparison], options)
            .into_iter()
            .filter(|check| !check.held)
            .map(|check| check.what)
            .collect()
    }

    #[test]
    fn the_targets_are_met_at_their_bounds_and_missed_below() {
        let options = Options::default();
        let rows = [
            (Kind::Distinct, 0.33, 0.68, 0),
            (Kind::Distinct, 0.33, 0.679, 1),
            (Kind::Distinct, 0.38, 0.68, 1),
            (Kind::Distinct, 0.38, 0.67, 2),
            (Kind::SharedSystemPrompt, 0.5, 0.601, 0),
            (Kind::SharedSystemPrompt, 0.5, 0.599, 1),
        ];
        for (kind, round_robin, inline_epp, expected) in rows {
            let failed = failed(comparison(kind, round_robin, inline_epp), &options);
            assert_eq!(failed.len(), expected, "{failed:?}");
        }
    }

    #[test]
    fn everything_on_one_server_fails() {
        let mut one_sided = comparison(Kind::Distinct, 0.33, 0.71);
        one_sided.inline_epp.turns_per_server = vec![41, 20, 20, 19];
        assert_eq!(failed(one_sided, &Options::default()).len(), 1);
    }

    #[test]
    fn every_lapse_fails() {
        let lapses: [fn(&mut Comparison); 4] = [
            |one| one.round_robin.errors = 1,
            |one| one.inline_epp.errors = 1,
            |one| one.inline_epp.not_picked = 1,
            |one| one.inline_epp.not_as_picked = 1,
        ];
        for lapse in lapses {
            let mut comparison = comparison(Kind::Distinct, 0.33, 0.71);
            lapse(&mut comparison);
            assert_eq!(failed(comparison, &Options::default()).len(), 1);
        }
    }

    #[test]
    fn another_shape_is_held_to_its_own_ideal() {
        let options = Options {
            servers: 2,
            ..Options::default()
        };
        let distinct = |ours| failed(comparison(Kind::Distinct, 0.5, ours), &options).len();
        assert_eq!((distinct(0.679), distinct(0.67)), (0, 1));
        assert_eq!(distinct(0.4), 2);
    }
}

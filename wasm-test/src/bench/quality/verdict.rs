//! What the figures say about what was to be reached.

use super::figures::{Figure, LoadFigures, RouterFigures};
use super::load::Kind;
use super::router::{Family, Router};

/// Share of the oracle's hit ratio that some preset is to have.
const OF_ORACLE: f64 = 0.9;
/// How much longer than with least request a first token may take where there is nothing to hit.
const OVER_LEAST: f64 = 1.03;

/// One line a target, as far as the figures are there.
pub fn lines(loads: &[LoadFigures]) -> Vec<String> {
    let traces = loads
        .iter()
        .filter(|one| matches!(one.kind, Kind::Conversation | Kind::Synthetic));
    let mut lines: Vec<String> = traces.filter_map(trace).collect();
    lines.extend(
        loads
            .iter()
            .filter(|one| one.kind == Kind::NoReuse)
            .filter_map(no_reuse),
    );
    lines.extend(best_preset(loads));
    lines
}

/// Whether one preset beats all others in hit ratio, mean and p99.
fn trace(load: &LoadFigures) -> Option<String> {
    let figures: [(&str, Figure); 3] = [
        ("hit ratio", |one| -one.hit_ratio),
        ("mean TTFT", |one| one.mean_ttft),
        ("p99 TTFT", |one| one.p99_ttft),
    ];
    let oracle = load.of(Router::Oracle)?.spread(|one| one.hit_ratio).median;
    let ours = load.routers.iter().filter(|one| is(one, Family::InlineEpp));
    // The one that beats the others in most, then by hit ratio.
    let beaten = |one: &RouterFigures| {
        figures.map(|(_, figure)| {
            let best = best_of_others(load, figure);
            best.is_some_and(|best| one.spread(figure).median < best)
        })
    };
    let chosen = ours.max_by(|one, other| {
        let key = |one: &RouterFigures| {
            let count = beaten(one).iter().filter(|won| **won).count();
            (count, one.spread(|round| round.hit_ratio).median)
        };
        key(one)
            .partial_cmp(&key(other))
            .unwrap_or(std::cmp::Ordering::Equal)
    })?;
    let won = beaten(chosen);
    let words = figures.iter().zip(won).map(|((name, _), won)| {
        let word = if won {
            "better than every other router's"
        } else {
            "NOT the best"
        };
        format!("{name} {word}")
    });
    let share = chosen.spread(|one| one.hit_ratio).median / oracle.max(f64::MIN_POSITIVE);
    let met = if share >= OF_ORACLE {
        "reached"
    } else {
        "NOT reached"
    };
    Some(format!(
        "{}, {}: {}; hit ratio {share:.2} of the oracle's ({OF_ORACLE} {met}).",
        load.kind.name(),
        chosen.router,
        words.collect::<Vec<_>>().join(", "),
    ))
}

fn no_reuse(load: &LoadFigures) -> Option<String> {
    let mean: Figure = |one| one.mean_ttft;
    let least = load.of(Router::LeastRequest)?.spread(mean).median;
    let ours = load.routers.iter().filter(|one| is(one, Family::InlineEpp));
    let words = ours.map(|one| {
        let ratio = one.spread(mean).median / least;
        let met = if ratio <= OVER_LEAST {
            ""
        } else {
            ", NOT reached"
        };
        format!("{} {ratio:.3}{met}", one.router)
    });
    Some(format!(
        "{}, mean TTFT ÷ least request's (at most {OVER_LEAST}): {}.",
        load.kind.name(),
        words.collect::<Vec<_>>().join("; "),
    ))
}

/// The preset with the largest share of the oracle's gain in mean TTFT, over all loads.
fn best_preset(loads: &[LoadFigures]) -> Option<String> {
    let routers = loads.first()?.routers.iter();
    let ours = routers
        .filter(|one| is(one, Family::InlineEpp))
        .map(|one| one.router);
    let mean = |router: Router| {
        let gains = loads
            .iter()
            .map(|load| load.gain(load.of(router)?, |one| one.mean_ttft));
        let gains: Option<Vec<f64>> = gains.collect();
        gains.map(|gains| (router, gains.iter().sum::<f64>() / loads.len() as f64))
    };
    let best = ours
        .filter_map(mean)
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let (router, gain) = best?;
    Some(format!(
        "Best over all loads: {router}, with {:.0} % of the oracle's gain in mean TTFT on average.",
        gain * 100.0
    ))
}

fn is(figures: &RouterFigures, family: Family) -> bool {
    figures.router.family() == family && !figures.rounds.is_empty()
}

/// The lowest `figure` of Envoy's policies and other routers. One that lost requests is no rival.
fn best_of_others(load: &LoadFigures, figure: Figure) -> Option<f64> {
    let others = load.routers.iter().filter(|one| {
        (is(one, Family::Envoy) || is(one, Family::Peer))
            && one.rounds.iter().all(|round| round.errors == 0)
    });
    others
        .map(|one| one.spread(figure).median)
        .min_by(f64::total_cmp)
}

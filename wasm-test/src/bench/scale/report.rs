//! The tables, the plots and the growth laws.

use std::fmt::Write;

use super::{BODY, KB, POOL, Point, PointLoad, Replication, ScaleFigures};
use crate::bench::Figures;
use crate::bench::plot::{Caption, Line, PlotError, Scale, lines};
use crate::bench::report::table;

/// The exponent of the power law that fits the p50 of `loads` of these sizes best: 1 is linear, 0 is
/// flat.
fn exponent<'a>(loads: impl Iterator<Item = (usize, &'a PointLoad)>) -> f64 {
    let logs = loads.map(|(size, load)| ((size as f64).ln(), load.p50.median.max(0.1).ln()));
    let logs: Vec<(f64, f64)> = logs.collect();
    let count = logs.len().max(1) as f64;
    let mean_x = logs.iter().map(|one| one.0).sum::<f64>() / count;
    let mean_y = logs.iter().map(|one| one.1).sum::<f64>() / count;
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance.max(f64::MIN_POSITIVE)
}

/// The loads with so many connections, with the points' sizes.
fn with(points: &[Point], connections: u32) -> impl Iterator<Item = (usize, &PointLoad)> {
    let loads = points
        .iter()
        .flat_map(|point| point.loads.iter().map(|load| (point.size, load)));
    loads.filter(move |(_, load)| load.connections == connections)
}

/// The numbers of connections of `points`.
fn connections(points: &[Point]) -> impl Iterator<Item = u32> {
    let first = points.iter().take(1).flat_map(|point| &point.loads);
    first.map(|load| load.connections)
}

/// A row for each of `points`, and the law of each load.
fn points_table(what: &str, points: &[Point]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let mut head = vec![what.to_owned()];
    let mut laws = vec!["fits".to_owned()];
    for connections in connections(points) {
        let s = if connections == 1 { "" } else { "s" };
        head.push(format!("{connections} connection{s}: p50, µs"));
        head.push("p99, µs".to_owned());
        let exponent = exponent(with(points, connections));
        laws.extend([format!("size^{exponent:.2}"), String::new()]);
    }
    let row = |point: &Point| {
        let mut row = vec![point.size.to_string()];
        for load in &point.loads {
            row.extend([format!("{:.1}", load.p50), format!("{:.0}", load.p99)]);
        }
        row
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).chain([laws]).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!("{}\n", table(&head, &rows))
}

fn replication_table(all: &[Replication]) -> String {
    let row = |one: &Replication| {
        vec![
            one.workers.to_string(),
            one.connections.to_string(),
            format!("{:.1}", one.added_cpu),
            format!("{:.1}", one.p50),
            format!("{:.1}", one.added_p50),
            format!("{:.2}", one.rate),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [
        "workers",
        "connections",
        "+ CPU a request, µs",
        "p50 of a decision, unshared, µs",
        "+ p50 of a decision, µs",
        "throughput, shared / unshared",
    ];
    table(&head, &rows)
}

impl Figures for ScaleFigures {
    const NAME: &'static str = "scale";
    const TITLE: &'static str = "How the cost of a decision grows";

    fn markdown(&self) -> String {
        let mut text = format!(
            "From a complete request to its pick, by the module's own histogram: read, parse, hash, match, score, replicate. \
             Median (quartiles) over turns of a second. Where not varied: {} KB of body, {POOL} endpoints, one worker, \
             half of the prompts with a new tail.\n\n{}{}{}",
            BODY / KB,
            points_table("bytes of body", &self.bodies),
            points_table("endpoints", &self.endpoints),
            points_table("indexed blocks", &self.blocks),
        );
        // Writing to a String cannot fail.
        if !self.blocks.is_empty() {
            let _ = write!(
                text,
                "An indexed block takes {:.0} bytes in each VM.\n\n",
                self.bytes_a_block
            );
        }
        if !self.replication.is_empty() {
            let _ = write!(
                text,
                "Sharing state between workers:\n\n{}\n",
                replication_table(&self.replication)
            );
        }
        if self.scrape.0 > 0 {
            let _ = writeln!(
                text,
                "Fetching and reading a metrics page of {:.0} KB takes {:.0} µs of processor time.",
                self.scrape.0 as f64 / KB as f64,
                self.scrape.1,
            );
        }
        text
    }

    fn plots(&self) -> Result<Vec<(&'static str, String)>, PlotError> {
        let plot = |name, x, points: &[Point]| {
            let line = |connections| Line {
                name: format!("p50 with {connections} at a time"),
                points: with(points, connections)
                    .map(|(size, load)| (size as f64, load.p50.median.max(0.1)))
                    .collect(),
            };
            let all: Vec<Line> = connections(points).map(line).collect();
            let caption = Caption {
                title: "Cost of a decision",
                x,
                y: "microseconds",
            };
            Ok((name, lines(caption, Scale::Logarithmic, &all)?))
        };
        let all = [
            ("bodies", "bytes of body", &self.bodies),
            ("endpoints", "endpoints", &self.endpoints),
            ("blocks", "indexed blocks", &self.blocks),
        ];
        let measured = all.into_iter().filter(|(_, _, points)| !points.is_empty());
        measured
            .map(|(name, x, points)| plot(name, x, points))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::spread::Spread;

    #[test]
    fn the_exponent_tells_flat_from_linear_from_quadratic() {
        let of = |law: fn(f64) -> f64| {
            let load = |size: usize| PointLoad {
                connections: 1,
                p50: Spread::of([law(size as f64)]),
                p99: Spread::default(),
            };
            let loads = [10, 100, 1_000].map(|size| (size, load(size)));
            exponent(loads.iter().map(|(size, load)| (*size, load)))
        };
        assert!((of(|_| 7.0)).abs() < 1e-9);
        assert!((of(|size| 3.0 * size) - 1.0).abs() < 1e-9);
        assert!((of(|size| size * size) - 2.0).abs() < 1e-9);
    }
}

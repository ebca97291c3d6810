//! The tables, the plots and the growth laws.

use std::fmt::Write;

use super::{BODY, KB, POOL, Point, Replication, ScaleFigures};
use crate::bench::Figures;
use crate::bench::plot::{Caption, Line, PlotError, Scale, lines};
use crate::bench::report::table;

/// The exponent of the power law that fits `points` best: 1 is linear, 0 is flat.
fn exponent(points: &[Point]) -> f64 {
    let logs = points
        .iter()
        .map(|point| ((point.size as f64).ln(), point.p50.median.max(0.1).ln()));
    let logs: Vec<(f64, f64)> = logs.collect();
    let count = logs.len().max(1) as f64;
    let mean_x = logs.iter().map(|one| one.0).sum::<f64>() / count;
    let mean_y = logs.iter().map(|one| one.1).sum::<f64>() / count;
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance.max(f64::MIN_POSITIVE)
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
        let part = |what: &str, points: &[Point]| {
            if points.is_empty() {
                return String::new();
            }
            let row = |point: &Point| {
                vec![
                    point.size.to_string(),
                    format!("{:.1}", point.p50),
                    format!("{:.0}", point.p99),
                ]
            };
            let rows: Vec<Vec<String>> = points.iter().map(row).collect();
            format!(
                "{}\nFits size^{:.2}.\n\n",
                table(&[what, "p50, µs", "p99, µs"], &rows),
                exponent(points)
            )
        };
        let mut text = format!(
            "From a complete request to its pick, by the module's own histogram: read, parse, hash, match, score, replicate. \
             Median (quartiles) over turns of a second. Where not varied: {} KB of body, {POOL} endpoints, one worker, one \
             connection, half of the prompts with a new tail.\n\n{}{}{}",
            BODY / KB,
            part("bytes of body", &self.bodies),
            part("endpoints", &self.endpoints),
            part("indexed blocks", &self.blocks),
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
            let line = Line {
                name: "p50 of a decision".to_owned(),
                points: points
                    .iter()
                    .map(|point| (point.size as f64, point.p50.median.max(0.1)))
                    .collect(),
            };
            let caption = Caption {
                title: "Cost of a decision",
                x,
                y: "microseconds",
            };
            Ok((name, lines(caption, Scale::Logarithmic, &[line])?))
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
            let point = |size: usize| Point {
                size,
                p50: Spread::of([law(size as f64)]),
                p99: Spread::default(),
            };
            exponent(&[point(10), point(100), point(1_000)])
        };
        assert!((of(|_| 7.0)).abs() < 1e-9);
        assert!((of(|size| 3.0 * size) - 1.0).abs() < 1e-9);
        assert!((of(|size| size * size) - 2.0).abs() < 1e-9);
    }
}

//! Mooncake's public traces: one JSON object a line.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::load::{BLOCK, Kind, Load, Request};
use crate::bench::{BenchError, results};

/// A line. Block numbers stand for all text up to the block's end.
#[derive(Debug, Deserialize)]
struct Line {
    /// Milliseconds since the trace's start.
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// The first `limit` requests of the trace in `folder`.
pub fn read(kind: Kind, file: &str, folder: &Path, limit: usize) -> Result<Load, BenchError> {
    let path = folder.join(file);
    if !path.exists() {
        let problem = "no such trace; name their folder with --traces or BENCH_TRACES".to_owned();
        return Err(BenchError::Content { path, problem });
    }
    let text = fs::read_to_string(&path).map_err(|source| results::file(&path, source))?;
    let lines: Result<Vec<Line>, _> = text.lines().take(limit).map(serde_json::from_str).collect();
    let lines = lines.map_err(|error| BenchError::Content {
        path,
        problem: error.to_string(),
    })?;
    Ok(Load {
        kind,
        requests: requests(lines),
    })
}

/// Times are rounded in one of the traces, to three seconds: requests of one timestamp are spread
/// evenly over the time until the next one.
fn requests(lines: Vec<Line>) -> Vec<Request> {
    let times: Vec<u64> = lines.iter().map(|line| line.timestamp).collect();
    let spread = |at: usize| {
        let time = times[at];
        let first = times.partition_point(|other| *other < time);
        let next = times.partition_point(|other| *other <= time);
        let until = times.get(next).copied().unwrap_or(time + ROUNDED);
        let gap = (until - time).min(ROUNDED) as f64;
        (time as f64 + gap * (at - first) as f64 / (next - first) as f64) / 1e3
    };
    let request = |(at, line): (usize, Line)| Request {
        at: spread(at),
        // A whole number of blocks, for prompts that are longer than their blocks.
        input: line.input_length.min(line.hash_ids.len() as u32 * BLOCK),
        blocks: line.hash_ids,
        system: 1,
        output: line.output_length,
    };
    lines.into_iter().enumerate().map(request).collect()
}

/// Milliseconds to which the conversation trace rounds.
const ROUNDED: u64 = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    fn times(stamps: &[u64]) -> Vec<f64> {
        let line = |timestamp: &u64| Line {
            timestamp: *timestamp,
            input_length: 600,
            output_length: 1,
            hash_ids: vec![1, 2],
        };
        let lines = stamps.iter().map(line).collect();
        requests(lines).iter().map(|one| one.at).collect()
    }

    #[test]
    fn requests_of_one_rounded_time_are_spread_up_to_the_next() {
        assert_eq!(times(&[0, 0, 3000, 3000, 3000]), [0.0, 1.5, 3.0, 4.0, 5.0]);
        assert_eq!(times(&[0, 0, 1000, 9000]), [0.0, 0.5, 1.0, 9.0]);
    }

    #[test]
    fn a_trace_that_is_not_there_is_named() {
        let folder = Path::new("/nowhere");
        let error = read(Kind::Synthetic, "x.jsonl", folder, 1).expect_err("nothing there");
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/x.jsonl") && text.contains("--traces"),
            "{text}"
        );
    }
}

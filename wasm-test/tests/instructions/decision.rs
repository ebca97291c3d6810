//! How the cost of a decision grows: `examples/decision_cost.rs` with a clock that counts instructions.

use std::collections::BTreeMap;

use wasm_test::artifact;
use wasm_test::program::{Clock, Program};

/// Thousands of instructions by step.
type Steps = BTreeMap<String, f64>;

/// Ten of each prompt, half of them with a new tail.
const DECISIONS: usize = 160;

/// Half of the decisions took no more, for an index of `blocks`, `endpoints`, and chats of `bytes`.
fn cost(program: &Program, blocks: usize, endpoints: usize, bytes: usize) -> Steps {
    let arguments = [blocks, DECISIONS, endpoints, bytes].map(|one| one.to_string());
    let arguments = arguments.each_ref().map(String::as_str);
    let printed = program.run(&arguments);
    println!(
        "{blocks} blocks, {endpoints} endpoints, {bytes} bytes, in thousands of instructions:\n{printed}"
    );
    let rows = printed.lines().filter_map(|line| {
        let (name, figure) = line.trim_matches(['|', ' ']).split_once(" | ")?;
        Some((name.to_owned(), figure.parse().ok()?))
    });
    rows.collect()
}

fn growth(step: &str, from: &Steps, to: &Steps) -> f64 {
    to[step] / from[step]
}

#[test]
fn a_decision_grows_with_the_prompt_and_the_endpoints_and_not_with_the_index() {
    let program = artifact::example("decision_cost").expect("built");
    let wasm = std::fs::read(program).expect("readable");
    let program = Program::new(&wasm, Clock::Instructions);
    let usual = cost(&program, 30_000, 64, 16 << 10);
    assert!(usual["together"] > 0.0);

    let longer = cost(&program, 30_000, 64, 64 << 10);
    for step in ["read", "hash", "together"] {
        let times = growth(step, &usual, &longer);
        assert!(
            times < 4.4,
            "{step}: four times the prompt, {times} times the cost"
        );
    }
    let more = cost(&program, 30_000, 256, 16 << 10);
    let times = growth("match and score", &usual, &more);
    assert!(
        times < 4.4,
        "four times the endpoints, {times} times the cost"
    );
    let fuller = cost(&program, 300_000, 64, 16 << 10);
    let times = growth("together", &usual, &fuller);
    assert!(times < 1.2, "ten times the index, {times} times the cost");
}

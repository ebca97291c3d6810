//! What scoring costs where the module runs: in wasm, beside hashing a prompt.

use std::process::Command;

use wasm_test::program::{Clock, Program};
use wasm_test::{artifact, repository};

/// Hashing 17 KB takes 1.6 µs in V8, and scoring may take 10 µs.
const BUDGET: f64 = 10.0 / 1.6;

/// How many times the cost of the hash a decision's is, by what the program printed.
fn ratio(printed: &str) -> f64 {
    let mut words = printed.split_whitespace();
    let found = words.find(|word| *word == "ratio").and(words.next());
    let ratio = found.and_then(|ratio| ratio.parse().ok());
    ratio.unwrap_or_else(|| panic!("no ratio in {printed:?}"))
}

#[test]
fn eight_scorers_of_64_endpoints_cost_a_few_hashes_of_a_prompt() {
    let program = artifact::example("scoring_cost").expect("built");
    let wasm = std::fs::read(program).expect("readable");
    let printed = Program::new(&wasm, Clock::Time).run(&[]);
    let ratio = ratio(&printed);
    assert!(ratio < BUDGET, "{ratio} times the hash, {BUDGET} allowed");
    println!("wasmtime: {printed}");
}

#[test]
fn so_they_do_in_the_engine_that_envoy_uses() {
    artifact::example("scoring_cost").expect("built");
    let output = Command::new("node")
        .args(["--no-warnings", "--no-liftoff"])
        .args(["scripts/in-v8.mjs", "scoring_cost"])
        .current_dir(repository::root())
        .output()
        .expect("node is needed: apt-get install nodejs");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let ratio = ratio(&printed);
    assert!(ratio < BUDGET, "{ratio} times the hash, {BUDGET} allowed");
    println!("V8: {printed}");
}

//! What reading a body costs: `examples/body_cost.rs` with a clock that counts instructions.

use wasm_test::artifact;
use wasm_test::program::{Clock, Program};

/// What the program prints after one turn.
fn run() -> String {
    let path = artifact::example("body_cost").expect("a program");
    let wasm = std::fs::read(path).expect("readable");
    Program::new(&wasm, Clock::Instructions).run(&["1"])
}

#[test]
fn reading_a_chat_costs_a_few_times_what_passing_over_it_does_and_grows_in_a_line() {
    let output = run();
    let rows: Vec<Vec<&str>> = output
        .lines()
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 21, "{output}");
    for row in rows {
        let number = |at: usize| row[at].parse::<f64>().expect("a number");
        let (times, linear) = (number(2), number(3));
        if row[1] == "1024 KiB" {
            assert!(times <= 4.0, "{output}");
        }
        assert!((0.8..1.25).contains(&linear), "{output}");
    }
}

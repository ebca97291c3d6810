//! Whatever bytes come: a configuration or one short line, never a panic.

use serde_json::{Value, json};

use super::{full, minimal};
use crate::config::Config;

/// A path of five segments of 40 characters and a value of 40, each `\u{10ffff}` at the worst, and
/// a list of field names.
const LONGEST_LINE: usize = 3_000;

/// Whether `json` was accepted; checks the line when it was not.
#[track_caller]
fn accepted(json: &[u8]) -> bool {
    match Config::parse(json) {
        Ok(config) => {
            let lines = config.warnings().into_iter().chain([config.summary()]);
            lines.for_each(|line| assert!(!line.chars().any(char::is_control), "{line}"));
            true
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.chars().any(char::is_control), "{line}");
            assert!(line.len() < LONGEST_LINE, "{line}");
            false
        }
    }
}

/// Marsaglia's xorshift64: the same corpus on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

#[test]
fn every_prefix_of_a_configuration_is_refused() {
    let json = full().to_string();
    for end in 0..json.len() {
        assert!(!accepted(&json.as_bytes()[..end]), "{end}");
    }
    assert!(accepted(json.as_bytes()));
}

#[test]
fn mutated_bytes_never_panic() {
    const PIECES: [&[u8]; 16] = [
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"-",
        b"1e308",
        b"\\u0000",
        b"\\ud800",
        b"\xff",
        b"\0",
        b"\n",
        b"99999999999999999999",
    ];
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let seeds = [full().to_string(), minimal().to_string()];
    let mut refused = 0;
    for round in 0..20_000 {
        let mut json = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=random.below(3) {
            let start = random.below(json.len());
            let end = (start + random.below(4)).min(json.len());
            let piece = PIECES[random.below(PIECES.len())];
            json.splice(start..end, piece.iter().copied());
        }
        refused += usize::from(!accepted(&json));
    }
    assert!(
        (10_000..20_000).contains(&refused),
        "{refused} refused: the corpus tells nothing"
    );
}

/// Every place in `value`, as JSON pointers.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(value, &format!("{at}/{name}"), found);
            });
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointers(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn any_value_in_any_place_is_accepted_or_named() {
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1e308),
        json!(5e-324),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{10ffff}".repeat(100)),
        json!("\u{2028}\u{202e}"),
        json!("1e400"),
        json!("9".repeat(1_000)),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"": {"": ""}}),
        json!({"\u{10ffff}\n".repeat(50): 1}),
    ];
    let mut places = Vec::new();
    pointers(&full(), "", &mut places);
    assert!(places.len() > 50);
    for place in &places {
        for value in &odd {
            let mut config = full();
            *config.pointer_mut(place).unwrap() = value.clone();
            accepted(config.to_string().as_bytes());
        }
    }
}

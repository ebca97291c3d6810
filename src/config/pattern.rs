//! Globs for model and host names.

use core::fmt;

/// A text in which every `*` stands for any characters, also none; everything else is itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern written as `text`. Every text is one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether the whole of `text` fits, case included. A middle part may match at its first
    /// occurrence because a later one leaves less for the parts after it: no backtracking, so the
    /// time is linear in `text` for whatever a client sends.
    pub fn matches(&self, text: &str) -> bool {
        let Some((first, others)) = self.0.split_once('*') else {
            return self.0 == text;
        };
        let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
        let Some(mut rest) = text
            .strip_prefix(first)
            .and_then(|rest| rest.strip_suffix(last))
        else {
            return false;
        };
        for part in middle.split('*').filter(|part| !part.is_empty()) {
            let Some((_, after)) = rest.split_once(part) else {
                return false;
            };
            rest = after;
        }
        true
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], fits_not: &[&str]) {
        let pattern = Pattern::new(pattern);
        for text in fits {
            assert!(pattern.matches(text), "{pattern} should match {text}");
        }
        for text in fits_not {
            assert!(!pattern.matches(text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn without_a_star_the_text_must_be_equal() {
        check("llama", &["llama"], &["", "Llama", "llama-3", "xllama"]);
    }

    #[test]
    fn a_star_stands_for_anything_at_either_end() {
        check(
            "llama-3-8b*",
            &["llama-3-8b", "llama-3-8b-it"],
            &["llama-3-7b"],
        );
        check(
            "*.example.com",
            &["a.example.com", ".example.com"],
            &["example.com"],
        );
        check("*", &["", "x", "é"], &[]);
        check("**", &["", "x"], &[]);
    }

    #[test]
    fn parts_between_stars_come_in_order_and_do_not_overlap() {
        check(
            "a*b*c",
            &["abc", "axbxc", "abbc", "abcbc"],
            &["acb", "ac", "abcx"],
        );
        check("*ab*ab*", &["abab", "xabxabx"], &["ab", "aab", "aba"]);
        check("ab*ba", &["abba", "abxba"], &["aba"]);
        check("é*é", &["éé", "éxé"], &["é"]);
    }

    /// The obvious exponential matcher, as an oracle.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => oracle(rest, text),
            (Some((b'*', rest)), Some((_, shorter))) => {
                oracle(rest, text) || oracle(pattern, shorter)
            }
            (Some((p, rest)), Some((t, shorter))) => p == t && oracle(rest, shorter),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// All words over `alphabet` of up to `length` letters.
    fn words(alphabet: &str, length: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..length {
            last = last
                .iter()
                .flat_map(|word| {
                    alphabet
                        .chars()
                        .map(move |letter| format!("{word}{letter}"))
                })
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn every_small_pattern_agrees_with_the_backtracking_matcher() {
        let texts = words("ab", 6);
        for pattern in words("ab*", 5) {
            for text in &texts {
                assert_eq!(
                    Pattern::new(pattern.as_str()).matches(text),
                    oracle(pattern.as_bytes(), text.as_bytes()),
                    "{pattern} on {text}",
                );
            }
        }
    }
}

//! The tests that a Rust source holds, found in its text.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{Group, LexError, TokenStream, TokenTree};

/// A test by what is written of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Test {
    /// It is left out of a run: ignored, or under a condition.
    pub left_out: bool,
}

/// The macro that makes tests of the functions whose names it is given.
const OF_NAMES: &str = "on_both";

/// The tests in `text`, by name: functions with an attribute `test` of any kind, in modules and
/// macros too, and the functions that [`OF_NAMES`] lists.
pub fn tests(text: &str) -> Result<BTreeMap<String, Test>, LexError> {
    let mut found = BTreeMap::new();
    collect(TokenStream::from_str(text)?, false, &mut found);
    Ok(found)
}

fn collect(tokens: TokenStream, conditional: bool, found: &mut BTreeMap<String, Test>) {
    let mut attributes: Vec<Group> = Vec::new();
    let mut latest = String::new();
    let mut conditional_module = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let text = match &token {
            TokenTree::Group(group) => {
                if latest == "#" {
                    attributes.push(group.clone());
                } else if latest == format!("{OF_NAMES}!") {
                    let names = words(group.stream());
                    found.extend(names.into_iter().map(|name| (name, Test::default())));
                } else {
                    let conditional = conditional || conditional_module;
                    collect(group.stream(), conditional, found);
                }
                latest.clear();
                conditional_module = false;
                continue;
            }
            TokenTree::Ident(word) => word.to_string(),
            TokenTree::Punct(sign) => sign.to_string(),
            TokenTree::Literal(_) => String::new(),
        };
        match text.as_str() {
            // What may stand between a function's attributes and its name.
            "#" | "async" | "pub" => {}
            "mod" => conditional_module = left_out(&attributes),
            "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.peek()
                    && attributes.iter().any(names_a_test)
                {
                    let left_out = conditional || left_out(&attributes);
                    found.insert(name.to_string(), Test { left_out });
                }
                attributes.clear();
            }
            _ => attributes.clear(),
        }
        latest = match text.as_str() {
            "!" => format!("{latest}!"),
            _ => text,
        };
    }
}

/// `test` or `…::test`.
fn names_a_test(attribute: &Group) -> bool {
    let path = attribute.stream().into_iter();
    let path = path.take_while(|token| !matches!(token, TokenTree::Group(_)));
    let path = words(path.collect());
    path.last().is_some_and(|last| last == "test")
}

/// Whether an attribute leaves out what it is on. `#[cfg(test)]` is where tests live.
fn left_out(attributes: &[Group]) -> bool {
    let mut all = attributes.iter().map(|one| words(one.stream()));
    all.any(|path| match path.first().map(String::as_str) {
        Some("ignore") => true,
        Some("cfg" | "cfg_attr") => path != ["cfg", "test"],
        _ => false,
    })
}

/// The identifiers of `tokens`, groups included.
fn words(tokens: TokenStream) -> Vec<String> {
    let words = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Ident(word) => vec![word.to_string()],
        TokenTree::Group(group) => words(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => Vec::new(),
    });
    words.collect()
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, bool)> {
        let tests = tests(text).expect("Rust");
        let tests = tests.into_iter();
        tests.map(|(name, test)| (name, test.left_out)).collect()
    }

    fn one(name: &str, left_out: bool) -> Vec<(String, bool)> {
        vec![(name.to_owned(), left_out)]
    }

    #[test]
    fn tests_are_found_wherever_they_are() {
        for text in [
            "#[test] fn a() {}",
            "/// Text.\n#[test]\nfn a() {}",
            "#[tokio::test] async fn a() {}",
            "#[tokio::test(start_paused)] #[should_panic] async fn a() {}",
            "#[cfg(test)] mod tests { use super::*; #[test] fn a() {} fn b() {} }",
            "proptest! { #[test] fn a(x in 0..1) { f(x); } }",
            "macro_rules! on_both { ($($n:ident)*) => {} } on_both! { a } fn b() {}",
        ] {
            assert_eq!(names(text), one("a", false), "{text}");
        }
    }

    #[test]
    fn what_is_no_test_is_not_found() {
        for text in [
            "fn a() {}",
            "#[cfg(test)] fn a() {}",
            "#[test] const A: u8 = 1; fn a() {}",
            "// #[test]\nfn a() {}",
            "const A: &str = \"#[test] fn a() {}\";",
        ] {
            assert_eq!(names(text), [], "{text}");
        }
    }

    #[test]
    fn tests_that_do_not_run_are_told() {
        for text in [
            "#[test] #[ignore] fn a() {}",
            "#[ignore = \"slow\"] #[tokio::test] async fn a() {}",
            "#[cfg(windows)] #[test] fn a() {}",
            "#[cfg(feature = \"x\")] mod tests { #[test] fn a() {} }",
        ] {
            assert_eq!(names(text), one("a", true), "{text}");
        }
    }
}

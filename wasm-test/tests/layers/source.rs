//! A source file as words and paths: comments are gone, text stays text, macros are looked into.

use std::fmt;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// One file.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    /// Names of the modules around the file's code: `prefix::index` for `src/prefix/index.rs`.
    module: Vec<String>,
    tokens: TokenStream,
}

/// A path as written, use-lists multiplied out: `std::time::Duration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedPath {
    pub segments: Vec<String>,
    pub line: usize,
    /// Modules written around it inside the file.
    depth: usize,
}

/// A top-level part of the crate that a file names.
#[derive(Debug, PartialEq, Eq)]
pub struct UsedPart {
    pub name: String,
    pub line: usize,
}

/// An identifier, keyword or sign, with the one that follows.
#[derive(Debug)]
pub struct Word {
    pub text: String,
    pub line: usize,
    next: Option<String>,
}

impl Source {
    /// Reads `text`, the file at `path` (relative to the repository).
    pub fn parse(path: &Path, text: &str) -> Result<Self, LexError> {
        let inside = path.strip_prefix("src").unwrap_or(path).with_extension("");
        let module = inside
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name != "lib");
        Ok(Self {
            path: path.to_owned(),
            module: module.collect(),
            tokens: TokenStream::from_str(text)?,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The top-level module it belongs to; none for `lib.rs`.
    pub fn part(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    /// Whether the whole file is test code.
    pub fn is_test(&self) -> bool {
        self.module.iter().any(|name| name == "tests")
    }

    /// `path:line`, for messages.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// Every path of at least one segment.
    pub fn paths(&self) -> Vec<UsedPath> {
        let mut found = Vec::new();
        collect_paths(self.tokens.clone(), 0, &mut found);
        found
    }

    /// The crate's top-level modules that paths lead to, by `crate::` or by enough `super::`.
    pub fn parts_used(&self) -> Vec<UsedPart> {
        let used = self.paths().into_iter().filter_map(|path| {
            let name = path.part_of_crate(self.module.len())?.to_owned();
            Some(UsedPart {
                name,
                line: path.line,
            })
        });
        used.collect()
    }

    /// Every identifier, keyword and sign, groups opened.
    pub fn words(&self) -> Vec<Word> {
        let mut flat = Vec::new();
        flatten(self.tokens.clone(), &mut flat);
        let next: Vec<String> = flat.iter().skip(1).map(|(text, _)| text.clone()).collect();
        let mut next = next.into_iter();
        let words = flat.into_iter().map(|(text, line)| Word {
            text,
            line,
            next: next.next(),
        });
        words.collect()
    }
}

impl UsedPath {
    /// Whether it names `banned` or something inside, or brings in a module that holds it.
    pub fn touches(&self, banned: &[&str]) -> bool {
        let shorter = self.segments.len().min(banned.len());
        let same = self
            .segments
            .iter()
            .zip(banned)
            .all(|(one, other)| one == other || one == "*");
        // `std` alone, as in a macro or an attribute, brings in nothing.
        same && shorter >= banned.len().min(2)
    }

    /// The top-level module it leads to from a file `file_depth` modules deep.
    fn part_of_crate(&self, file_depth: usize) -> Option<&str> {
        let supers = self
            .segments
            .iter()
            .take_while(|segment| *segment == "super")
            .count();
        let from_root = match self.segments.first()?.as_str() {
            "crate" => 1,
            "super" if supers == file_depth + self.depth => supers,
            _ => return None,
        };
        self.segments.get(from_root).map(String::as_str)
    }
}

impl Word {
    pub fn is_unsafe(&self) -> bool {
        self.text == "unsafe"
    }

    /// Whether it is `name!`.
    pub fn is_macro(&self, name: &str) -> bool {
        self.is_before(name, "!")
    }

    /// Whether it is `word` and `next` comes right after it.
    pub fn is_before(&self, word: &str, next: &str) -> bool {
        self.text == word && self.next.as_deref() == Some(next)
    }
}

impl fmt::Display for UsedPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.segments.join("::"))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} {}",
            self.text,
            self.next.as_deref().unwrap_or_default()
        )
    }
}

fn flatten(tokens: TokenStream, flat: &mut Vec<(String, usize)>) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => flatten(group.stream(), flat),
            TokenTree::Ident(ident) => flat.push((ident.to_string(), line)),
            TokenTree::Punct(punct) => flat.push((punct.to_string(), line)),
            TokenTree::Literal(_) => flat.push(("\"\"".to_owned(), line)),
        }
    }
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

fn collect_paths(tokens: TokenStream, depth: usize, found: &mut Vec<UsedPath>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_module_name = false;
    let mut in_module = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let inside = depth + usize::from(in_module);
                collect_paths(group.stream(), inside, found);
                in_module = false;
            }
            TokenTree::Ident(ident) => {
                in_module = is_module_name;
                is_module_name = ident == "mod";
                let line = ident.span().start().line;
                let start = vec![ident.to_string()];
                continue_path(start, line, depth, &mut tokens, found);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => in_module = false,
        }
    }
}

/// Reads on after `segments`, as long as `::` follows, and notes where that leads.
fn continue_path(
    mut segments: Vec<String>,
    line: usize,
    depth: usize,
    tokens: &mut Tokens,
    found: &mut Vec<UsedPath>,
) {
    while skip_path_separator(tokens) {
        match tokens.peek() {
            Some(TokenTree::Ident(ident)) => segments.push(ident.to_string()),
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => segments.push("*".to_owned()),
            Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
                let list = list.stream();
                tokens.next();
                return collect_use_list(&segments, list, depth, found);
            }
            // Generic arguments: what they name is found on its own.
            _ => break,
        }
        tokens.next();
    }
    found.push(UsedPath {
        segments,
        line,
        depth,
    });
}

/// Each entry of `{a, b::c, d::{e, f}}` after `start`.
fn collect_use_list(start: &[String], list: TokenStream, depth: usize, found: &mut Vec<UsedPath>) {
    let mut tokens = list.into_iter().peekable();
    let mut is_alias = false;
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        let name = match token {
            TokenTree::Ident(ident) => ident.to_string(),
            TokenTree::Punct(star) if star.as_char() == '*' => "*".to_owned(),
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => continue,
        };
        if !std::mem::replace(&mut is_alias, name == "as") && name != "as" {
            let segments = start
                .iter()
                .cloned()
                .chain((name != "self").then_some(name));
            continue_path(segments.collect(), line, depth, &mut tokens, found);
        }
    }
}

fn skip_path_separator(tokens: &mut Tokens) -> bool {
    let mut ahead = tokens.clone();
    let is_colon = |token: Option<TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let is_separator = is_colon(ahead.next()) && is_colon(ahead.next());
    if is_separator {
        *tokens = ahead;
    }
    is_separator
}

mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::parse(Path::new("src/prefix/index.rs"), text).unwrap()
    }

    fn parts(text: &str) -> Vec<String> {
        source(text)
            .parts_used()
            .into_iter()
            .map(|used| used.name)
            .collect()
    }

    fn touches(text: &str, banned: &[&str]) -> bool {
        source(text).paths().iter().any(|path| path.touches(banned))
    }

    #[test]
    fn a_part_is_found_however_it_is_named() {
        assert_eq!(parts("use crate::time::Timestamp;"), ["time"]);
        assert_eq!(
            parts("use crate::{config, flow::{self, Event as E}};"),
            ["config", "flow", "flow"]
        );
        assert_eq!(parts("fn f(x: crate::host::Root) {}"), ["host"]);
        assert_eq!(parts("fn f() { vec![crate::host::X] }"), ["host"]);
        assert_eq!(parts("pub(in crate::flow) fn f() {}"), ["flow"]);
    }

    #[test]
    fn supers_that_reach_the_top_name_a_part() {
        assert_eq!(parts("use super::super::flow::Event;"), ["flow"]);
        assert_eq!(parts("use super::BlockHash;"), [""; 0]);
        assert_eq!(parts("mod tests { use super::super::BlockHash; }"), [""; 0]);
        assert_eq!(
            parts("mod tests { use super::super::super::flow::Event; }"),
            ["flow"]
        );
    }

    #[test]
    fn comments_and_texts_name_nothing() {
        assert_eq!(
            parts("// crate::host\n/// [`crate::host`]\nconst A: &str = \"crate::host\";"),
            [""; 0]
        );
        assert!(
            !source("// unsafe\nconst A: &str = \"unsafe\";")
                .words()
                .iter()
                .any(Word::is_unsafe)
        );
    }

    #[test]
    fn a_line_is_where_the_path_begins() {
        let source = source("\n\nuse crate::\n    time::Timestamp;");
        assert_eq!(
            source.at(source.parts_used()[0].line),
            "src/prefix/index.rs:3"
        );
    }

    #[test]
    fn the_world_is_found_in_every_disguise() {
        let banned = ["std", "time", "Instant"];
        for text in [
            "use std::time::Instant;",
            "use std::time::{Duration, Instant};",
            "use std::{fmt, time::Instant as Clock};",
            "use std::time;",
            "use std::time::*;",
            "use std::{self as s, time::{self}};",
            "fn f() { ::std::time::Instant::now() }",
            "fn f() { log!(std::time::Instant::now()) }",
        ] {
            assert!(touches(text, &banned), "{text}");
        }
        for text in [
            "use std::time::Duration;",
            "use core::time::Duration;",
            "use crate::time::Instant;",
        ] {
            assert!(!touches(text, &banned), "{text}");
        }
        assert!(touches("use proxy_wasm::traits::Context;", &["proxy_wasm"]));
        assert!(touches("use proxy_wasm;", &["proxy_wasm"]));
    }

    #[test]
    fn macros_and_global_state_are_found() {
        let found = |text: &str, test: fn(&Word) -> bool| source(text).words().iter().any(test);
        assert!(found("fn f() { println!(\"x\") }", |word| word
            .is_macro("println")));
        assert!(!found("fn println() {}", |word| word.is_macro("println")));
        assert!(found("static mut X: u8 = 0;", |word| word
            .is_before("static", "mut")));
        assert!(!found("static X: u8 = 0;", |word| word.is_before("static", "mut")));
        assert!(found("fn f() { unsafe { g() } }", Word::is_unsafe));
    }

    #[test]
    fn a_file_knows_its_part() {
        let part = |path: &str| {
            let source = Source::parse(Path::new(path), "").unwrap();
            (source.part().map(str::to_owned), source.is_test())
        };
        assert_eq!(part("src/lib.rs"), (None, false));
        assert_eq!(part("src/flow.rs"), (Some("flow".into()), false));
        assert_eq!(part("src/flow/stream.rs"), (Some("flow".into()), false));
        assert_eq!(
            part("src/flow/stream/tests.rs"),
            (Some("flow".into()), true)
        );
    }
}

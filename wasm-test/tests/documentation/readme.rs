//! A Markdown document taken apart.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A document.
#[derive(Debug)]
pub struct Readme {
    text: String,
}

/// A fenced block of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Fence {
    /// What stands behind the opening fence: language first.
    pub words: Vec<String>,
    pub text: String,
}

const START: &str = "<!-- generated: ";
const START_END: &str = " -->\n";
const END: &str = "<!-- end -->";

impl Readme {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The generated parts: name and text.
    pub fn generated(&self) -> Vec<(String, String)> {
        let parts = self.text.split(START).skip(1);
        let parts = parts.filter_map(|part| {
            let (name, rest) = part.split_once(START_END)?;
            let (text, _) = rest.split_once(END)?;
            Some((name.to_owned(), text.to_owned()))
        });
        parts.collect()
    }

    /// Gives the part `name` the text `new`, set off by blank lines. Whether that changed it.
    pub fn replace_generated(&mut self, name: &str, new: &str) -> bool {
        let new = format!("\n{new}\n");
        let Some((_, old)) = self.generated().into_iter().find(|(part, _)| part == name) else {
            return false;
        };
        let start = format!("{START}{name}{START_END}");
        let replaced = format!("{start}{new}{END}");
        self.text = self
            .text
            .replacen(&format!("{start}{old}{END}"), &replaced, 1);
        old != new
    }

    /// Every fenced block.
    pub fn fences(&self) -> Vec<Fence> {
        let mut fences = Vec::new();
        let mut open: Option<Fence> = None;
        for event in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let words = info.split_whitespace().map(str::to_owned).collect();
                    open = Some(Fence {
                        words,
                        text: String::new(),
                    });
                }
                Event::Text(text) => {
                    if let Some(fence) = &mut open {
                        fence.text.push_str(&text);
                    }
                }
                Event::End(TagEnd::CodeBlock) => fences.extend(open.take()),
                _ => {}
            }
        }
        fences
    }

    /// Where links lead, as written.
    pub fn links(&self) -> Vec<String> {
        let links = self.events().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.to_string())
            }
            _ => None,
        });
        links.collect()
    }

    /// What a link can point to after `#`, as GitHub derives it from headings.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        let mut heading: Option<String> = None;
        for event in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    anchors.extend(heading.take().map(|text| slug(&text)));
                }
                _ => {}
            }
        }
        anchors
    }

    /// Paths into one of `folders`, in text, code and commands.
    pub fn named_paths(&self, folders: &[&str]) -> BTreeSet<PathBuf> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        let words = self.text.split(|c: char| !is_part(c));
        let words = words.map(|word| word.trim_end_matches(['.', '-']));
        let paths = words.filter(|word| folders.iter().any(|folder| word.starts_with(folder)));
        paths.map(PathBuf::from).collect()
    }

    fn events(&self) -> Parser<'_> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES)
    }
}

fn slug(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

mod tests {
    use super::*;

    #[test]
    fn a_generated_part_is_found_and_replaced() {
        let mut readme = Readme::new("a\n<!-- generated: one -->\n\nold\n\n<!-- end -->\nb\n");
        assert_eq!(
            readme.generated(),
            [("one".to_owned(), "\nold\n\n".to_owned())]
        );
        assert!(!readme.replace_generated("one", "old\n"));
        assert!(readme.replace_generated("one", "new\n"));
        assert_eq!(
            readme.text(),
            "a\n<!-- generated: one -->\n\nnew\n\n<!-- end -->\nb\n"
        );
    }

    #[test]
    fn fences_links_and_headings_are_read() {
        let readme = Readme::new(
            "## What `x` is, now\n[a](b.md#c) ![d](e.png)\n```yaml plugin\nk: v\n```\n",
        );
        let fence = Fence {
            words: vec!["yaml".into(), "plugin".into()],
            text: "k: v\n".into(),
        };
        assert_eq!(readme.fences(), [fence]);
        assert_eq!(readme.links(), ["b.md#c", "e.png"]);
        assert!(readme.anchors().contains("what-x-is-now"));
    }

    #[test]
    fn named_paths_end_where_the_name_does() {
        let readme = Readme::new("Run `scripts/a.sh`, then \"$(scripts/b.sh)\" -c (envoy/c.yaml).");
        let paths: Vec<_> = readme
            .named_paths(&["scripts/", "envoy/"])
            .into_iter()
            .collect();
        assert_eq!(
            paths,
            ["envoy/c.yaml", "scripts/a.sh", "scripts/b.sh"].map(PathBuf::from)
        );
    }
}

//! The models an endpoint lists.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Adapters;

/// Names under which an endpoint serves, each once, in order, and which of them are adapters.
/// Bounded, since an answer from the network fills it, and never a part of a longer list: a name
/// left out would read as a model the endpoint lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelList {
    /// Whether each is an adapter.
    names: BTreeMap<String, bool>,
}

impl ModelList {
    /// Names of the longest list.
    pub const MAX: usize = Adapters::MAX;
    /// Bytes of the longest name.
    pub const MAX_NAME_BYTES: usize = Adapters::MAX_NAME_BYTES;
    /// Bytes of the longest answer: 4 KiB for each name. vLLM takes about 450 bytes.
    pub const MAX_ANSWER_BYTES: usize = 4096 * Self::MAX;

    /// Reads the answer to `GET /v1/models`. An entry with a `parent` is an adapter of it, as vLLM
    /// lists them. `None` for anything else, and for a list that breaks the bounds.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        if answer.len() > Self::MAX_ANSWER_BYTES {
            return None;
        }
        let answer: Answer = serde_json::from_slice(answer).ok()?;
        let mut list = Self::default();
        let mut entries = answer.data.into_iter();
        entries
            .all(|entry| list.insert(&entry.id, entry.parent.is_some()))
            .then_some(list)
    }

    /// Adds `name`; a base model, should it be both. `false` when it breaks the bounds, or is empty.
    pub fn insert(&mut self, name: &str, is_adapter: bool) -> bool {
        if let Some(known) = self.names.get_mut(name) {
            *known &= is_adapter;
            return true;
        }
        let fits =
            !name.is_empty() && name.len() <= Self::MAX_NAME_BYTES && self.names.len() < Self::MAX;
        if fits {
            self.names.insert(name.to_owned(), is_adapter);
        }
        fits
    }

    /// Whether it serves nothing.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether `name` is among them, be it an adapter.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Whether `name` is among them and no adapter.
    pub fn has_base(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|is_adapter| !is_adapter)
    }

    /// The names, in order, and whether each is an adapter.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, bool)> {
        let names = self.names.iter();
        names.map(|(name, is_adapter)| (name.as_str(), *is_adapter))
    }
}

/// What an endpoint answers when it is asked for its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAnswer {
    /// These.
    Models(ModelList),
    /// It has no list, or none that can be used.
    None,
    /// Nothing that tells either: the server is busy, or was not reached.
    Unanswered,
}

impl ListAnswer {
    /// Reads an answer of `status`, empty when the connection broke amid it.
    pub fn read(status: &[u8], body: &[u8]) -> Self {
        match status {
            b"200" => ModelList::parse(body).map_or(Self::None, Self::Models),
            // Time-out, too many requests and errors of the server or of Envoy.
            b"" | b"408" | b"429" | [b'5', ..] => Self::Unanswered,
            _ => Self::None,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    parent: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(answer: &str) -> Option<Vec<(String, bool)>> {
        let list = ModelList::parse(answer.as_bytes())?;
        let owned = list
            .iter()
            .map(|(name, adapter)| (name.to_owned(), adapter));
        Some(owned.collect())
    }

    #[test]
    fn a_real_servers_adapters_are_told_from_its_base_model() {
        let exchange = include_str!(
            "../../wasm-test/vectors/vllm/responses-block32-lora/models-with-c.response"
        );
        let (_, answer) = exchange.split_once("\r\n\r\n").expect("a body");
        let expected = [
            ("lora-a", true),
            ("lora-b", true),
            ("lora-c", true),
            ("tiny-llama", false),
        ];
        let expected = expected.map(|(name, adapter)| (name.to_owned(), adapter));
        assert_eq!(listed(answer), Some(expected.to_vec()));
    }

    #[test]
    fn servers_that_say_less_list_base_models() {
        let answer = r#"{"data":[{"id":"b"},{"id":"a","parent":null},{"id":"b"}]}"#;
        let expected = [("a".to_owned(), false), ("b".to_owned(), false)];
        assert_eq!(listed(answer), Some(expected.to_vec()));
        assert_eq!(listed(r#"{"data":[]}"#), Some(Vec::new()));
        let both = r#"{"data":[{"id":"m","parent":"x"},{"id":"m"}]}"#;
        assert_eq!(listed(both), Some(vec![("m".to_owned(), false)]));
    }

    #[test]
    fn what_is_no_list_or_too_long_a_one_is_unknown() {
        for answer in [
            "",
            "{}",
            "[]",
            r#"{"data":[{}]}"#,
            r#"{"data":[{"id":""}]}"#,
        ] {
            assert_eq!(listed(answer), None, "{answer}");
        }
        let list = |count: usize| {
            let entries: Vec<String> = (0..count).map(|n| format!(r#"{{"id":"{n}"}}"#)).collect();
            listed(&format!(r#"{{"data":[{}]}}"#, entries.join(",")))
        };
        assert_eq!(
            list(ModelList::MAX).map(|all| all.len()),
            Some(ModelList::MAX)
        );
        assert_eq!(list(ModelList::MAX + 1), None);
        let name = "n".repeat(ModelList::MAX_NAME_BYTES + 1);
        assert_eq!(listed(&format!(r#"{{"data":[{{"id":"{name}"}}]}}"#)), None);
        let blanks = " ".repeat(ModelList::MAX_ANSWER_BYTES);
        assert_eq!(listed(&format!(r#"{{"data":[]}}{blanks}"#)), None);
    }

    #[test]
    fn only_an_answer_changes_what_is_known() {
        let read = |status: &str, body: &str| ListAnswer::read(status.as_bytes(), body.as_bytes());
        let none = r#"{"data":[]}"#;
        assert_eq!(read("200", none), ListAnswer::Models(ModelList::default()));
        assert_eq!(read("200", "<html>"), ListAnswer::None);
        for status in ["401", "404", "405"] {
            assert_eq!(read(status, none), ListAnswer::None, "{status}");
        }
        for status in ["", "408", "429", "500", "503", "504"] {
            assert_eq!(read(status, none), ListAnswer::Unanswered, "{status}");
        }
    }

    #[test]
    fn an_adapter_is_listed_and_no_base_model() {
        let mut list = ModelList::default();
        assert!(list.is_empty());
        assert!(list.insert("base", false) && list.insert("adapter", true));
        assert!(list.contains("adapter") && !list.has_base("adapter"));
        assert!(list.contains("base") && list.has_base("base"));
        assert!(!list.contains("other") && !list.has_base("other"));
    }
}

//! JSON as it was written: fields in order, repeated ones kept, so that the reader can refuse them
//! by their path.

use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Characters of a user's text that an error repeats.
const ECHOED_CHARS: usize = 40;

/// One JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `null`; stands for an absent field.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A number as text, because a JSON number fits no single Rust type.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl Value {
    /// Reads exactly one value, nested at most 128 deep.
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The value as a whole number. `20.0` and `2e1` are whole too: a protobuf `Struct` holds every
    /// number as a double, and its JSON writes large ones with an exponent.
    pub(super) fn whole(&self) -> Option<u64> {
        let Self::Number(text) = self else {
            return None;
        };
        text.parse().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            let whole = (number.fract() == 0.0).then(|| format!("{number:.0}"))?;
            whole.parse().ok()
        })
    }

    /// The value as a finite number.
    pub(crate) fn number(&self) -> Option<f64> {
        let Self::Number(text) = self else {
            return None;
        };
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The value as text.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }
}

/// What an error says was found: short, on one line, nothing nested.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(out, "null"),
            Self::Flag(flag) => write!(out, "{flag}"),
            Self::Number(text) => write!(out, "{text}"),
            Self::Text(text) => write!(out, "{}", quoted(text)),
            Self::List(items) if items.is_empty() => write!(out, "an empty list"),
            Self::List(_) => write!(out, "a list"),
            Self::Object(_) => write!(out, "an object"),
        }
    }
}

/// `text` in quotes, control characters escaped, cut after [`ECHOED_CHARS`].
pub(crate) fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(ECHOED_CHARS).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{head:?}{more}")
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        // `{:?}` keeps an exponent where `{}` would write hundreds of digits.
        Ok(Value::Number(format!("{number:?}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            object.push(entry);
        }
        Ok(Value::Object(object))
    }
}

//! What a key may hold: type and range. `Display` is the "expected …" of an error and the type
//! column of the documentation.

use core::fmt;
use core::time::Duration;

use super::json::Value;
use super::text::TextRule;
use super::units;

/// Type and range of one key. Ranges include both ends.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An object whose fields are keys of their own.
    Section,
    /// An object of any fields with text values.
    Labels,
    /// An object with a list of keys of its own.
    Object {
        /// What it is.
        of: &'static str,
    },
    /// A list of `min` to `max` entries, each `of` something.
    List {
        /// Fewest entries.
        min: usize,
        /// Most entries.
        max: usize,
        /// What the entries are, in the plural.
        of: &'static str,
    },
    /// Text that a rule restricts.
    Text(&'static TextRule),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole {
        /// Smallest value.
        min: u32,
        /// Largest value; `u32::MAX` when only the type limits it.
        max: u32,
    },
    /// A whole number of at least 1, or `auto`.
    AutoOrWhole,
    /// A number.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// A duration: text with a unit, or a number of seconds.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// A size: bytes, or text with a unit.
    Size {
        /// Fewest bytes.
        min: u32,
        /// Most bytes.
        max: u32,
    },
    /// One of a few names, in any case.
    Choice {
        /// The names.
        names: &'static [&'static str],
    },
}

impl Kind {
    /// A list's entries.
    pub(super) fn list<'a>(&self, value: &'a Value) -> Option<&'a [Value]> {
        let (Self::List { min, max, .. }, Value::List(items)) = (self, value) else {
            return None;
        };
        (*min..=*max).contains(&items.len()).then_some(items)
    }

    /// Text that fits the rule.
    pub(super) fn text(&self, value: &Value) -> Option<String> {
        let Self::Text(rule) = self else { return None };
        let text = value.text()?;
        (rule.fits)(text).then(|| text.to_owned())
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, value: &Value) -> Option<bool> {
        let (Self::Flag, Value::Flag(flag)) = (self, value) else {
            return None;
        };
        Some(*flag)
    }

    /// A whole number inside the range.
    pub(super) fn whole(&self, value: &Value) -> Option<u32> {
        let (min, max) = if let Self::Whole { min, max } = self {
            (*min, *max)
        } else if let Self::AutoOrWhole = self {
            (1, u32::MAX)
        } else {
            return None;
        };
        let number = u32::try_from(value.whole()?).ok()?;
        (min..=max).contains(&number).then_some(number)
    }

    /// A number inside the range.
    pub(super) fn number(&self, value: &Value) -> Option<f64> {
        let Self::Number { min, max } = self else {
            return None;
        };
        value
            .number()
            .filter(|number| (*min..=*max).contains(number))
    }

    /// A duration inside the range.
    pub(super) fn duration(&self, value: &Value) -> Option<Duration> {
        let Self::Duration { min, max } = self else {
            return None;
        };
        units::duration(value).filter(|duration| (*min..=*max).contains(duration))
    }

    /// A size inside the range.
    pub(super) fn size(&self, value: &Value) -> Option<usize> {
        let Self::Size { min, max } = self else {
            return None;
        };
        let size = units::size(value)?;
        (u64::from(*min)..=u64::from(*max))
            .contains(&size)
            .then(|| usize::try_from(size).ok())
            .flatten()
    }

    /// The member of `options` whose name stands at the same place in the names.
    pub(super) fn choice<T: Copy>(&self, value: &Value, options: &[T]) -> Option<T> {
        let Self::Choice { names } = self else {
            return None;
        };
        let text = value.text()?;
        names
            .iter()
            .zip(options)
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, option)| *option)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section => write!(out, "an object"),
            Self::Labels => write!(out, "an object of text values"),
            Self::Object { of } => write!(out, "{of}"),
            Self::List { min: 0, max, of } => write!(out, "a list of up to {max} {of}"),
            Self::List { min, max, of } => write!(out, "a list of {min} to {max} {of}"),
            Self::Text(rule) => write!(out, "{}", rule.what),
            Self::Flag => write!(out, "true or false"),
            Self::Whole { min, max: u32::MAX } => write!(out, "a whole number of at least {min}"),
            Self::Whole { min, max } => write!(out, "a whole number from {min} to {max}"),
            Self::AutoOrWhole => write!(out, "auto or a whole number of at least 1"),
            Self::Number { min, max } if *min <= f64::MIN && *max >= f64::MAX => {
                write!(out, "a number")
            }
            Self::Number { min, max } => write!(out, "a number from {min} to {max}"),
            Self::Duration { min, max } => write!(
                out,
                "a duration from {} to {}, as \"500ms\", \"1s\", \"2m\" or a number of seconds",
                units::write_duration(*min),
                units::write_duration(*max),
            ),
            Self::Size { min, max } => write!(
                out,
                "a size from {} to {}, in bytes or as \"64Mi\"",
                units::write_size(u64::from(*min)),
                units::write_size(u64::from(*max)),
            ),
            Self::Choice { names } if names.len() == 1 => write!(out, "{}", names.concat()),
            Self::Choice { names } => write!(out, "one of {}", names.join(", ")),
        }
    }
}

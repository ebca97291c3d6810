//! A cursor over the fields of one JSON object that knows its path and its rows of the key list.

use core::time::Duration;
use std::collections::BTreeSet;

use super::error::ConfigError;
use super::json::{Value, quoted};
use super::keys::{KeyDoc, ROWS, Rows};
use super::kind::Kind;

/// The fields of one object, already known to be allowed and not repeated. Every getter takes a
/// field's name and checks type and range against its row in the key list; an absent or `null`
/// field reads as its default there, and is an error when it is required.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    /// The object's own path, such as `pools[0].scoring`; empty for the whole configuration.
    path: String,
    /// The same as the key list writes it: `pools[].scoring`.
    section: String,
    rows: Rows,
    entries: &'a [(String, Value)],
}

impl<'a> Fields<'a> {
    /// The fields of the whole configuration.
    pub(crate) fn root(value: &'a Value) -> Result<Self, ConfigError> {
        let expected = "an object with pools";
        let entries = object(value).ok_or_else(|| ConfigError::expected("", expected, value))?;
        Self::open(String::new(), String::new(), ROWS, entries)
    }

    /// The fields of the object `value` at `path`, which has the list `rows` of its own.
    pub(crate) fn of_document(
        path: &str,
        rows: Rows,
        value: &'a Value,
        expected: &str,
    ) -> Result<Self, ConfigError> {
        let entries = if *value == Value::Null {
            &[]
        } else {
            object(value).ok_or_else(|| ConfigError::expected(path, expected, value))?
        };
        Self::open(path.to_owned(), String::new(), rows, entries)
    }

    /// Refuses repeated fields, then those of a later version, then unknown ones.
    fn open(
        path: String,
        section: String,
        rows: Rows,
        entries: &'a [(String, Value)],
    ) -> Result<Self, ConfigError> {
        refuse_repeated(&path, entries)?;
        for (name, value) in entries {
            let at = join(&path, name);
            if let Some((_, later)) = rows
                .later_keys_of(&section)
                .find(|(later, _)| later == name)
            {
                if *value == Value::Null {
                    continue;
                }
                let instead = match section.as_str() {
                    "" => later.instead.to_owned(),
                    section => later.instead.replace(section, &path),
                };
                return Err(ConfigError::later(&at, "", instead));
            }
            if !rows.keys_of(&section).any(|(known, _)| known == name) {
                let allowed = rows.keys_of(&section).map(|(known, _)| known).collect();
                return Err(ConfigError::unknown_field(&at, allowed));
            }
        }
        Ok(Self {
            path,
            section,
            rows,
            entries,
        })
    }

    /// An object read by `read`; absent, it reads as an empty one.
    pub(crate) fn section<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Fields<'_>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let key = self.key(name)?;
        let path = self.path_of(name);
        let entries = match self.given(name) {
            None => &[],
            Some(value) => {
                object(value).ok_or_else(|| ConfigError::expected(&path, key.kind, value))?
            }
        };
        read(&Fields::open(
            path,
            key.path.to_owned(),
            self.rows,
            entries,
        )?)
    }

    /// An object read by `read`, or `None` when absent.
    pub(crate) fn optional_section<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Fields<'_>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        match self.given(name) {
            None => Ok(None),
            Some(_) => self.section(name, read).map(Some),
        }
    }

    /// A list, each entry read by `read`.
    pub(crate) fn list<T>(
        &self,
        name: &str,
        mut read: impl FnMut(Item<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        self.read(name, |kind, value| kind.list(value).map(<[Value]>::to_vec))?
            .iter()
            .enumerate()
            .map(|(at, value)| {
                read(Item {
                    path: format!("{}[{at}]", self.path_of(name)),
                    section: format!("{}[]", join(&self.section, name)),
                    rows: self.rows,
                    value,
                })
            })
            .collect()
    }

    /// Text that fits the row's rule.
    pub(crate) fn text(&self, name: &str) -> Result<String, ConfigError> {
        self.read(name, Kind::text)
    }

    /// Text, or `None` when absent.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.read_optional(name, Kind::text)
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        self.read(name, Kind::flag)
    }

    /// A whole number inside the row's range.
    pub(crate) fn whole(&self, name: &str) -> Result<u32, ConfigError> {
        self.read(name, Kind::whole)
    }

    /// A whole number that is `preset` when absent, or the default without a preset.
    pub(crate) fn whole_or(&self, name: &str, preset: Option<u32>) -> Result<u32, ConfigError> {
        self.read_or(name, preset, Kind::whole)
    }

    /// A whole number, or `None` when absent.
    pub(crate) fn optional_whole(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        self.read_optional(name, Kind::whole)
    }

    /// A whole number, or `None` for `auto`.
    pub(crate) fn auto_or_whole(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        self.read(name, |kind, value| {
            let is_auto = |text: &str| text.eq_ignore_ascii_case("auto");
            if value.text().is_some_and(is_auto) {
                Some(None)
            } else {
                kind.whole(value).map(Some)
            }
        })
    }

    /// A number inside the row's range.
    pub(crate) fn number(&self, name: &str) -> Result<f64, ConfigError> {
        self.read(name, Kind::number)
    }

    /// A number that is `preset` when absent, or the default without a preset.
    pub(crate) fn number_or(&self, name: &str, preset: Option<f64>) -> Result<f64, ConfigError> {
        self.read_or(name, preset, Kind::number)
    }

    /// A duration inside the row's range.
    pub(crate) fn duration(&self, name: &str) -> Result<Duration, ConfigError> {
        self.read(name, Kind::duration)
    }

    /// A size in bytes inside the row's range.
    pub(crate) fn size(&self, name: &str) -> Result<usize, ConfigError> {
        self.read(name, Kind::size)
    }

    /// The option that stands where the row has the given name.
    pub(crate) fn choice<T: Copy>(&self, name: &str, options: &[T]) -> Result<T, ConfigError> {
        self.choice_or(name, None, options)
    }

    /// A choice that is `preset` when absent, or the default without a preset.
    pub(crate) fn choice_or<T: Copy>(
        &self,
        name: &str,
        preset: Option<T>,
        options: &[T],
    ) -> Result<T, ConfigError> {
        self.read_or(name, preset, |kind, value| kind.choice(value, options))
    }

    /// Fields of any name with text values, sorted by name.
    pub(crate) fn labels<T: FromIterator<(String, String)>>(
        &self,
        name: &str,
        rule: fn(&str) -> bool,
        expected: &str,
    ) -> Result<T, ConfigError> {
        let path = self.path_of(name);
        let Some(value) = self.given(name) else {
            return Ok(T::from_iter([]));
        };
        let kind = self.key(name)?.kind;
        let entries = object(value).ok_or_else(|| ConfigError::expected(&path, kind, value))?;
        refuse_repeated(&path, entries)?;
        let label = |(label, value): &(String, Value)| {
            let at = join(&path, label);
            if !rule(label) {
                let found = format!("the name {}", quoted(label));
                return Err(ConfigError::expected(&at, expected, found));
            }
            let text = value.text().filter(|text| rule(text));
            let text = text.ok_or_else(|| ConfigError::expected(&at, expected, value))?;
            Ok((label.clone(), text.to_owned()))
        };
        entries.iter().map(label).collect()
    }

    /// A number, or `None` when absent.
    pub(crate) fn optional_number(&self, name: &str) -> Result<Option<f64>, ConfigError> {
        self.read_optional(name, Kind::number)
    }

    /// The object's own path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of the field `name`, for errors that a single field's range cannot express.
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    fn read<T>(
        &self,
        name: &str,
        convert: impl Fn(&Kind, &Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        self.read_or(name, None, convert)
    }

    fn read_or<T>(
        &self,
        name: &str,
        preset: Option<T>,
        convert: impl Fn(&Kind, &Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let key = self.key(name)?;
        if let Some(value) = self.given(name) {
            return convert(&key.kind, value)
                .ok_or_else(|| ConfigError::expected(&self.path_of(name), key.kind, value));
        }
        preset
            .or_else(|| {
                let default = Value::parse(key.default?.as_bytes()).ok()?;
                convert(&key.kind, &default)
            })
            .ok_or_else(|| ConfigError::expected(&self.path_of(name), key.kind, "nothing"))
    }

    fn read_optional<T>(
        &self,
        name: &str,
        convert: impl Fn(&Kind, &Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.given(name) {
            None => Ok(None),
            Some(_) => self.read(name, convert).map(Some),
        }
    }

    /// The field's value, unless it is absent or `null`.
    pub(crate) fn given(&self, name: &str) -> Option<&'a Value> {
        let (_, value) = self.entries.iter().find(|(field, _)| field == name)?;
        (*value != Value::Null).then_some(value)
    }

    /// The field's row. Code that asks for a field without one fails on every configuration.
    fn key(&self, name: &str) -> Result<&'static KeyDoc, ConfigError> {
        self.rows
            .keys_of(&self.section)
            .find(|(known, _)| *known == name)
            .map(|(_, key)| key)
            .ok_or_else(|| ConfigError::unknown_field(&self.path_of(name), Vec::new()))
    }
}

/// One entry of a list.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// Its path, such as `pools[0]`.
    pub(crate) path: String,
    /// The same as the key list writes it: `pools[]`.
    section: String,
    rows: Rows,
    /// What was written.
    pub(crate) value: &'a Value,
}

impl<'a> Item<'a> {
    /// The entry's fields, or an error that says `expected`.
    pub(crate) fn fields(&self, expected: &str) -> Result<Fields<'a>, ConfigError> {
        let entries = object(self.value).ok_or_else(|| self.expected(expected))?;
        Fields::open(self.path.clone(), self.section.clone(), self.rows, entries)
    }

    /// An error at this entry.
    pub(crate) fn expected(&self, expected: &str) -> ConfigError {
        ConfigError::expected(&self.path, expected, self.value)
    }
}

fn object(value: &Value) -> Option<&[(String, Value)]> {
    if let Value::Object(entries) = value {
        Some(entries)
    } else {
        None
    }
}

fn refuse_repeated(path: &str, entries: &[(String, Value)]) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    match entries.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(ConfigError::given_twice(&join(path, name))),
        None => Ok(()),
    }
}

/// The path of `name` inside `path`; a name that is no plain word stands in brackets and quotes.
fn join(path: &str, name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 40 || !name.chars().all(is_plain) {
        format!("{path}[{}]", quoted(name))
    } else if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

//! Building blocks of the readers: values of any type read as text or passed over, and objects
//! whose last duplicate key wins, as it does in the servers.

use core::fmt;
use core::marker::PhantomData;
use std::borrow::Cow;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// An object read field by field into `Self`.
pub(super) trait Fields<'de>: Default {
    /// Reads the value of `key`, or passes over it.
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// `T`'s fields, when the value is an object; an error of the data category otherwise.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Fields<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = T::default();
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            match key {
                Some(key) => fields.field(&key, &mut map)?,
                None => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(Object(fields))
    }
}

/// Passes over the next value.
pub(super) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// A string, or `None` for a value of any other type.
#[derive(Default)]
pub(super) struct Text<'a>(pub(super) Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(AnyVisitor(TextShape))
            .map(Text)
    }
}

/// What a reader makes of a value, by the value's type.
pub(super) trait Shape<'de>: Sized {
    type Value;

    /// A string.
    fn text(self, text: Cow<'de, str>) -> Self::Value;

    /// A list; the default passes over it.
    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other())
    }

    /// Anything else.
    fn other(self) -> Self::Value;
}

struct TextShape;

impl<'de> Shape<'de> for TextShape {
    type Value = Option<Cow<'de, str>>;

    fn text(self, text: Cow<'de, str>) -> Self::Value {
        Some(text)
    }

    fn other(self) -> Self::Value {
        None
    }
}

/// Reads a value of any type through a [`Shape`].
pub(super) struct AnyVisitor<S>(pub(super) S);

impl<'de, S: Shape<'de>> Visitor<'de> for AnyVisitor<S> {
    type Value = S::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<S::Value, E> {
        Ok(self.0.text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<S::Value, E> {
        Ok(self.0.text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<S::Value, A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<S::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.0.other())
    }

    fn visit_unit<E: de::Error>(self) -> Result<S::Value, E> {
        Ok(self.0.other())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<S::Value, E> {
        Ok(self.0.other())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<S::Value, E> {
        Ok(self.0.other())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<S::Value, E> {
        Ok(self.0.other())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<S::Value, E> {
        Ok(self.0.other())
    }
}

//! A `google.protobuf.Struct` as the JSON it stands for.
//!
//! Envoy's reference says that a `Struct` reaches a plugin as JSON. Envoy does not do so: it unwraps
//! `StringValue` and `BytesValue` and hands every other type over as its serialised message. Users
//! write a `Struct`, because that is YAML like the rest of their file, so its wire form is read here.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// Deepest nesting that is read, in structs and lists: protobuf's own parsers stop at 100 messages,
/// of which each level takes two or three.
const MAX_DEPTH: u32 = 48;

/// JSON text from what Envoy hands over as a plugin's configuration: `configuration` itself, or,
/// when that is a serialised `Struct`, the JSON object it stands for. Bytes that are neither come
/// back as they are, so that the JSON reader reports them.
pub fn json_text(configuration: &[u8]) -> Cow<'_, [u8]> {
    // Every non-empty `Struct` begins with the tag of its first field, which is a line feed and so
    // may begin JSON text too; what follows the tag cannot go on as JSON.
    if configuration.first() != Some(&b'\n') {
        return Cow::Borrowed(configuration);
    }
    read_struct(configuration, MAX_DEPTH)
        .and_then(|object| serde_json::to_vec(&object).ok())
        .map_or(Cow::Borrowed(configuration), Cow::Owned)
}

/// `message Struct { map<string, Value> fields = 1; }`
fn read_struct(message: &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut object = Map::new();
    for field in Fields(message) {
        if let (1, Payload::Bytes(entry)) = field? {
            let (key, value) = read_entry(entry, depth)?;
            object.insert(key, value);
        }
    }
    Some(Value::Object(object))
}

/// `message Entry { string key = 1; Value value = 2; }`
fn read_entry(message: &[u8], depth: u32) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), Value::Null);
    for field in Fields(message) {
        match field? {
            (1, Payload::Bytes(text)) => key = read_text(text)?,
            (2, Payload::Bytes(message)) => value = read_value(message, depth)?,
            _ => {}
        }
    }
    Some((key, value))
}

/// `message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string
/// string_value = 3; bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }`
fn read_value(message: &[u8], depth: u32) -> Option<Value> {
    let mut value = Value::Null;
    for field in Fields(message) {
        value = match field? {
            (1, Payload::Varint(_)) => Value::Null,
            (2, Payload::Fixed64(bits)) => Value::Number(read_number(f64::from_bits(bits))?),
            (3, Payload::Bytes(text)) => Value::String(read_text(text)?),
            (4, Payload::Varint(flag)) => Value::Bool(flag != 0),
            (5, Payload::Bytes(message)) => read_struct(message, depth)?,
            (6, Payload::Bytes(message)) => read_list(message, depth)?,
            _ => value,
        };
    }
    Some(value)
}

/// `message ListValue { repeated Value values = 1; }`
fn read_list(message: &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut list = Vec::new();
    for field in Fields(message) {
        if let (1, Payload::Bytes(value)) = field? {
            list.push(read_value(value, depth)?);
        }
    }
    Some(Value::Array(list))
}

fn read_text(bytes: &[u8]) -> Option<String> {
    core::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Every number of a `Struct` is a double. A whole one becomes a whole JSON number, as the user
/// wrote it; what JSON cannot say is `None`.
fn read_number(number: f64) -> Option<Number> {
    serde_json::from_str(&number.to_string()).ok()
}

/// One field's value on the wire.
enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The fields of a serialised message, in order; `None` where it is malformed, and nothing after.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Payload<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Option<(u64, Payload<'a>)> {
        let tag = self.varint()?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(*self.0.split_off(..8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Payload::Bytes(self.0.split_off(..length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, payload))
    }

    /// Seven bits a byte, the lowest first, at most ten bytes.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.0.split_off_first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;

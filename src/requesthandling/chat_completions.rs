//! `/v1/chat/completions` with string contents and text parts.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess};

use super::json::{AnyVisitor, Fields, Object, Shape, Text, skip};
use super::{InferenceRequest, ParseError, Prompt};

pub(super) fn parse(body: &[u8]) -> Result<InferenceRequest<'_>, ParseError> {
    let Object(body) = serde_json::from_slice::<Object<Body<'_>>>(body)?;
    Ok(InferenceRequest {
        model: body.model,
        cache_salt: body.cache_salt,
        prompt: body.messages.0.ok_or(ParseError::UnknownShape)?,
    })
}

#[derive(Default)]
struct Body<'a> {
    model: Option<Cow<'a, str>>,
    cache_salt: Option<Cow<'a, str>>,
    messages: Messages<'a>,
}

impl<'de> Fields<'de> for Body<'de> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "model" => self.model = map.next_value::<Text<'de>>()?.0,
            "cache_salt" => self.cache_salt = map.next_value::<Text<'de>>()?.0,
            "messages" => self.messages = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// A conversation as the prompt it makes, or `None` where that cannot be told.
///
/// Each message is taken apart as it is read: a list of them all would take many times the space of
/// a body that holds nothing but tiny ones.
#[derive(Default)]
struct Messages<'a>(Option<Prompt<'a>>);

impl<'de> Deserialize<'de> for Messages<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(AnyVisitor(MessagesShape))
            .map(Messages)
    }
}

struct MessagesShape;

impl<'de> Shape<'de> for MessagesShape {
    type Value = Option<Prompt<'de>>;

    fn text(self, _: Cow<'de, str>) -> Self::Value {
        None
    }

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut prompt = Some(Prompt::default());
        while let Some(Object(message)) = list.next_element::<Object<Message<'de>>>()? {
            prompt = prompt.and_then(|prompt| message.append_to(prompt));
        }
        Ok(prompt)
    }

    fn other(self) -> Self::Value {
        None
    }
}

#[derive(Default)]
struct Message<'a> {
    role: Option<Cow<'a, str>>,
    content: Content<'a>,
}

impl<'a> Message<'a> {
    /// `prompt` with this message, `None` when its content is not text.
    fn append_to(self, mut prompt: Prompt<'a>) -> Option<Prompt<'a>> {
        let is_user = self.role.as_deref() == Some("user");
        prompt.pieces.extend(self.role);
        match self.content {
            Content::Text(text) => prompt.pieces.push(text),
            Content::Parts(parts) => prompt.pieces.extend(parts),
            Content::Unknown => return None,
        }
        if is_user && prompt.first_user_end.is_none() {
            prompt.first_user_end = Some(prompt.pieces.len());
        }
        Some(prompt)
    }
}

impl<'de> Fields<'de> for Message<'de> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "role" => self.role = map.next_value::<Text<'de>>()?.0,
            "content" => self.content = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// A message's content. Anything but text decides the prompt in a way this reader cannot follow.
#[derive(Default)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Cow<'a, str>>),
    #[default]
    Unknown,
}

impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor(ContentShape))
    }
}

struct ContentShape;

impl<'de> Shape<'de> for ContentShape {
    type Value = Content<'de>;

    fn text(self, text: Cow<'de, str>) -> Self::Value {
        Content::Text(text)
    }

    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut parts = Some(Vec::new());
        while let Some(Object(part)) = list.next_element::<Object<Part<'de>>>()? {
            match (part.is_text(), part.text, &mut parts) {
                (true, Some(text), Some(parts)) => parts.push(text),
                _ => parts = None,
            }
        }
        Ok(parts.map_or(Content::Unknown, Content::Parts))
    }

    fn other(self) -> Self::Value {
        Content::Unknown
    }
}

#[derive(Default)]
struct Part<'a> {
    kind: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
}

impl Part<'_> {
    fn is_text(&self) -> bool {
        self.kind.as_deref() == Some("text")
    }
}

impl<'de> Fields<'de> for Part<'de> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value::<Text<'de>>()?.0,
            "text" => self.text = map.next_value::<Text<'de>>()?.0,
            _ => skip(map)?,
        }
        Ok(())
    }
}

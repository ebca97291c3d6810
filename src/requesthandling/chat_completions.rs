//! `/v1/chat/completions` with string contents and text parts.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess};

use super::json::{AnyVisitor, Fields, Object, Shape, Text, skip};
use super::{InferenceRequest, ParseError, Prompt};

pub(super) fn parse(body: &[u8]) -> Result<InferenceRequest<'_>, ParseError> {
    let Object(body) = serde_json::from_slice::<Object<Body<'_>>>(body)?;
    let mut prompt = Prompt::default();
    for message in body.messages.ok_or(ParseError::UnknownShape)? {
        let is_user = message.role.as_deref() == Some("user");
        prompt.pieces.extend(message.role);
        match message.content {
            Content::Text(text) => prompt.pieces.push(text),
            Content::Parts(parts) => prompt.pieces.extend(parts),
            Content::Unknown => return Err(ParseError::UnknownShape),
        }
        if is_user && prompt.first_user_end.is_none() {
            prompt.first_user_end = Some(prompt.pieces.len());
        }
    }
    Ok(InferenceRequest {
        model: body.model,
        cache_salt: body.cache_salt,
        prompt,
    })
}

#[derive(Default)]
struct Body<'a> {
    model: Option<Cow<'a, str>>,
    cache_salt: Option<Cow<'a, str>>,
    messages: Option<Vec<Message<'a>>>,
}

impl<'de> Fields<'de> for Body<'de> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "model" => self.model = map.next_value::<Text<'de>>()?.0,
            "cache_salt" => self.cache_salt = map.next_value::<Text<'de>>()?.0,
            "messages" => {
                let messages = map.next_value::<Option<Vec<Object<Message<'de>>>>>()?;
                self.messages = messages.map(|all| all.into_iter().map(|Object(m)| m).collect());
            }
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Message<'a> {
    role: Option<Cow<'a, str>>,
    content: Content<'a>,
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

//! `/v1/completions` with a string prompt.

use std::borrow::Cow;

use serde::de::MapAccess;

use super::json::{Fields, Object, Text, skip};
use super::{InferenceRequest, ParseError, Prompt};

pub(super) fn parse(body: &[u8]) -> Result<InferenceRequest<'_>, ParseError> {
    let Object(body) = serde_json::from_slice::<Object<Body<'_>>>(body)?;
    let text = body.prompt.ok_or(ParseError::UnknownShape)?;
    let prompt = Prompt {
        pieces: vec![text],
        first_user_end: None,
    };
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
    prompt: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for Body<'de> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let field = match key {
            "model" => &mut self.model,
            "cache_salt" => &mut self.cache_salt,
            "prompt" => &mut self.prompt,
            _ => return skip(map),
        };
        *field = map.next_value::<Text<'de>>()?.0;
        Ok(())
    }
}

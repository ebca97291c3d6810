//! Request bodies, checked in the order vLLM checks them.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::sim::adapter::Adapter;
use crate::sim::config::SimConfig;
use crate::sim::openai::error::ApiError;
use crate::sim::template::{Message, render};
use crate::sim::tokenizer::{Token, cut, tokenize};
use crate::sim::transfer::Transfer;

/// The two APIs that generate text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Completions,
    Chat,
}

/// What a request asks for. Sampling settings are accepted and ignored: the text is a function of
/// the prompt, and neither `stop` nor `logprobs` changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub api: Api,
    /// The name the answer carries.
    pub model: String,
    pub lora: Option<Adapter>,
    pub salt: Option<String>,
    /// At least one, none of them empty.
    pub prompts: Vec<Prompt>,
    /// Answers to each prompt, at least 1.
    pub n: usize,
    /// `None` lets the model stop by itself.
    pub max_tokens: Option<usize>,
    pub echo: bool,
    pub return_token_ids: bool,
    pub stream: Option<StreamOptions>,
    /// Between servers.
    pub transfer: Transfer,
    /// The body's own `request_id`, which goes before the header's.
    pub request_id: Option<String>,
}

/// A prompt and, unless it came as token ids, its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub tokens: Vec<Token>,
    pub text: Option<String>,
}

/// When usage is reported within a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamOptions {
    pub include_usage: bool,
    pub continuous_usage_stats: bool,
}

/// Output tokens of a completion that sets no limit.
const DEFAULT_COMPLETION_TOKENS: usize = 16;

impl Ask {
    /// Reads a request body.
    pub fn parse(
        api: Api,
        config: &SimConfig,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, ApiError> {
        let object = parse_object(headers, body)?;
        let fields = Fields { object: &object };
        let max_tokens = fields.max_tokens(api)?;
        if api == Api::Chat && !object.contains_key("messages") {
            let input = fields.describe();
            return Err(ApiError::schema(
                "body.messages",
                "missing",
                "Field required",
                &input,
            ));
        }
        let (model, lora) = fields.model(config)?;
        let stream = fields.stream()?;
        let salt = fields.salt()?;
        let prompts = match api {
            Api::Completions => fields.prompts(config.bytes_per_token)?,
            Api::Chat => vec![fields.conversation(&model)?],
        };
        let context = config.context_tokens();
        if prompts.iter().any(|prompt| prompt.tokens.len() >= context) {
            return Err(ApiError::too_long(context));
        }
        if let Some(limit) = max_tokens.filter(|limit| *limit > context as u64) {
            return Err(ApiError::too_many_tokens(limit, context));
        }
        let default = (api == Api::Completions).then_some(DEFAULT_COMPLETION_TOKENS);
        Ok(Self {
            api,
            model,
            lora,
            salt,
            prompts,
            n: fields.unsigned("n")?.unwrap_or(1).clamp(1, 128) as usize,
            max_tokens: max_tokens.map(|limit| limit as usize).or(default),
            echo: api == Api::Completions && fields.flag("echo"),
            return_token_ids: fields.flag("return_token_ids"),
            stream,
            transfer: Transfer::parse(
                fields
                    .present("kv_transfer_params")
                    .filter(|_| config.kv_transfer),
            ),
            request_id: object
                .get("request_id")
                .and_then(Value::as_str)
                .map(str::to_owned),
        })
    }

    /// Prompt tokens of all prompts together.
    pub fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.tokens.len()).sum()
    }
}

fn parse_object(headers: &HeaderMap, body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let media_type = headers
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    if !media_type.is_some_and(|value| value.trim().starts_with("application/json")) {
        return Err(ApiError::media_type());
    }
    if body.is_empty() {
        return Err(ApiError::schema(
            "body",
            "missing",
            "Field required",
            "None",
        ));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(ApiError::schema(
            "body",
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
            &describe(&other),
        )),
        Err(error) => Err(ApiError::malformed(position(body, &error))),
    }
}

/// Byte offset of a parse error.
fn position(body: &[u8], error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return body.len();
    }
    let lines = body
        .split(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1));
    let start: usize = lines.map(|line| line.len() + 1).sum();
    (start + error.column().saturating_sub(1)).min(body.len())
}

/// How vLLM names a value in an error.
fn describe(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("<list of {} items>", items.len()),
        Value::Object(fields) => format!("<dict of {} items>", fields.len()),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct Fields<'a> {
    object: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn present(&self, name: &str) -> Option<&Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn flag(&self, name: &str) -> bool {
        self.present(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn describe(&self) -> String {
        format!("<dict of {} items>", self.object.len())
    }

    fn unsigned(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.present(name) else {
            return Ok(None);
        };
        value.as_u64().map(Some).ok_or_else(|| {
            let location = format!("body.{name}");
            let message = if value.is_string() {
                "Input should be a valid integer, unable to parse string as an integer"
            } else {
                "Input should be a valid integer"
            };
            ApiError::schema(&location, "int_parsing", message, &describe(value))
        })
    }

    fn max_tokens(&self, api: Api) -> Result<Option<u64>, ApiError> {
        let newer = match api {
            Api::Completions => None,
            Api::Chat => self.unsigned("max_completion_tokens")?,
        };
        let limit = newer.or(self.unsigned("max_tokens")?);
        if limit == Some(0) {
            let message = "max_tokens must be at least 1, got 0.";
            return Err(ApiError::value(message, Some("max_tokens")));
        }
        Ok(limit)
    }

    /// The name to answer with and the adapter. A body without one gets the base model.
    fn model(&self, config: &SimConfig) -> Result<(String, Option<Adapter>), ApiError> {
        let base = config.model_name();
        let Some(name) = self.present("model").and_then(Value::as_str) else {
            return Ok((base.to_owned(), None));
        };
        config
            .resolve_model(name)
            .map(|lora| (name.to_owned(), lora.cloned()))
            .ok_or_else(|| ApiError::unknown_model(name, base))
    }

    fn stream(&self) -> Result<Option<StreamOptions>, ApiError> {
        let options = self.present("stream_options");
        if !self.flag("stream") {
            let message = "Stream options can only be defined when `stream=True`.";
            return match options {
                Some(_) => Err(ApiError::value(message, Some("stream_options"))),
                None => Ok(None),
            };
        }
        let option = |name| {
            options
                .and_then(|value| value.get(name))
                .and_then(Value::as_bool)
        };
        Ok(Some(StreamOptions {
            include_usage: option("include_usage").unwrap_or(false),
            continuous_usage_stats: option("continuous_usage_stats").unwrap_or(false),
        }))
    }

    fn salt(&self) -> Result<Option<String>, ApiError> {
        match self.present("cache_salt") {
            None => Ok(None),
            Some(Value::String(salt)) if !salt.is_empty() => Ok(Some(salt.clone())),
            Some(_) => Err(ApiError::value(
                "Parameter 'cache_salt' must be a non-empty string if provided.",
                Some("cache_salt"),
            )),
        }
    }

    /// A string, a list of strings, a list of token ids or a list of those.
    fn prompts(&self, token_bytes: Option<u32>) -> Result<Vec<Prompt>, ApiError> {
        let prompt = |value| prompt(value, token_bytes);
        let prompts = match self.present("prompt") {
            Some(Value::Array(items)) if items.iter().any(|item| !item.is_number()) => {
                items.iter().map(prompt).collect::<Result<Vec<_>, _>>()?
            }
            Some(value) => vec![prompt(value)?],
            None => Vec::new(),
        };
        if prompts.is_empty() || prompts.iter().any(|prompt| prompt.tokens.is_empty()) {
            let message = "Either prompt or prompt_embeds must be provided and non-empty.";
            return Err(ApiError::value(message, Some("prompt")));
        }
        Ok(prompts)
    }

    /// The messages through the chat template. Tools stand in front as a system message of their
    /// JSON, as templates that know tools put them.
    fn conversation(&self, model: &str) -> Result<Prompt, ApiError> {
        let Some(Value::Array(items)) = self.object.get("messages") else {
            let input = self
                .object
                .get("messages")
                .map(describe)
                .unwrap_or_default();
            let message = "Input should be a valid list";
            return Err(ApiError::schema(
                "body.messages",
                "list_type",
                message,
                &input,
            ));
        };
        let tools = self.present("tools").map(Value::to_string);
        let tools = tools.map(|content| Message {
            role: "system".into(),
            content,
        });
        let messages = items.iter().map(|item| message(item, model));
        let all: Vec<Message> = tools
            .into_iter()
            .map(Ok)
            .chain(messages)
            .collect::<Result<_, ApiError>>()?;
        Ok(Prompt {
            tokens: render(&all),
            text: None,
        })
    }
}

fn prompt(value: &Value, token_bytes: Option<u32>) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) => Ok(Prompt {
            tokens: token_bytes.map_or_else(|| tokenize(text), |bytes| cut(text, bytes)),
            text: Some(text.clone()),
        }),
        Value::Array(ids) => {
            let tokens = ids.iter().map(token).collect::<Result<_, _>>()?;
            Ok(Prompt { tokens, text: None })
        }
        other => Err(ApiError::schema(
            "body.prompt",
            "string_type",
            "Input should be a valid string",
            &describe(other),
        )),
    }
}

fn token(id: &Value) -> Result<Token, ApiError> {
    id.as_u64()
        .and_then(Token::from_id)
        .ok_or_else(|| ApiError::value(&format!("Token id {id} is out of vocabulary"), None))
}

fn message(item: &Value, model: &str) -> Result<Message, ApiError> {
    let role = item.get("role").and_then(Value::as_str).unwrap_or("user");
    let mut content = match item.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| text_of(part, model))
            .collect::<Result<String, _>>()?,
        _ => String::new(),
    };
    if let Some(calls) = item.get("tool_calls").filter(|calls| !calls.is_null()) {
        content.push_str(&calls.to_string());
    }
    Ok(Message {
        role: role.to_owned(),
        content,
    })
}

fn text_of<'a>(part: &'a Value, model: &str) -> Result<&'a str, ApiError> {
    part.as_str()
        .or_else(|| part.get("text").and_then(Value::as_str))
        .ok_or_else(|| ApiError::value(&format!("{model} is not a multimodal model"), None))
}

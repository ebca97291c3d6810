//! vLLM's error answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error as the `OpenAI` endpoints report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    /// `Bad Request` for a body that does not fit the schema, `BadRequestError` for one that does.
    pub kind: &'static str,
    pub message: String,
    pub param: Option<String>,
}

impl ApiError {
    /// The body does not fit the schema at `location` (`body`, `body.messages`).
    pub fn schema(location: &str, kind: &str, message: &str, input: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "Bad Request",
            message: format!(
                "1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', \
                 'msg': '{message}', 'input': '{input}'}}"
            ),
            param: Some(location.to_owned()),
        }
    }

    /// The body is not JSON from byte `position` on.
    pub fn malformed(position: usize) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "Bad Request",
            message: format!(
                "1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{position}', \
                 'msg': 'JSON decode error', 'input': '<dict of 0 items>', \
                 'ctx': {{'error': 'Expecting value'}}}}"
            ),
            param: Some(format!("body.{position}")),
        }
    }

    /// Something went wrong inside.
    pub fn internal() -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "InternalServerError",
            message: "Internal server error".into(),
            param: None,
        }
    }

    /// The body's media type is not JSON.
    pub fn media_type() -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "Bad Request",
            message: "1 validation error:\n  Unsupported Media Type: Only 'application/json' is \
                      allowed"
                .into(),
            param: None,
        }
    }

    /// A well-formed value that makes no sense; `param` is added to the message when named.
    pub fn value(message: &str, param: Option<&str>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: param.map_or_else(
                || message.to_owned(),
                |param| format!("{message} (parameter={param})"),
            ),
            param: param.map(str::to_owned),
        }
    }

    /// No such model or adapter.
    pub fn unknown_model(model: &str, alias: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{model}` does not exist. Valid aliases: {alias}."),
            param: Some("model".into()),
        }
    }

    /// The prompt leaves no room for a single output token.
    pub fn too_long(context: usize) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: format!(
                "This model's maximum context length is {context} tokens. However, your prompt \
                 contains at least {at_least} input tokens, which exceeds this limit even without \
                 any output tokens. Please reduce the length of the input prompt. \
                 (parameter=input_tokens, value={at_least})",
                at_least = context + 1
            ),
            param: Some("input_tokens".into()),
        }
    }

    /// More output than the context holds.
    pub fn too_many_tokens(max_tokens: u64, context: usize) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: format!(
                "max_tokens={max_tokens} cannot be greater than max_model_len={context}. Please \
                 request fewer output tokens. (parameter=max_tokens, value={max_tokens})"
            ),
            param: Some("max_tokens".into()),
        }
    }

    /// `X-data-parallel-rank` names an engine that is not there.
    pub fn rank_out_of_range(rank: i64, engines: usize) -> Self {
        let message = format!("data_parallel_rank {rank} is out of range [0, {engines}).");
        Self::value(&message, None)
    }

    /// An error with no cause but a test's wish. Messages are vLLM's for its own 500 and 503.
    pub fn forced(status: StatusCode) -> Self {
        let (kind, message) = match status {
            StatusCode::INTERNAL_SERVER_ERROR => (
                "InternalServerError",
                "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            ),
            StatusCode::SERVICE_UNAVAILABLE => return Self::busy(),
            StatusCode::NOT_FOUND => ("NotFoundError", "The model does not exist."),
            StatusCode::TOO_MANY_REQUESTS => ("RateLimitError", "Too many requests."),
            other => (
                other.canonical_reason().unwrap_or("Error"),
                "Forced by a test.",
            ),
        };
        Self {
            status,
            kind,
            message: message.to_owned(),
            param: None,
        }
    }

    /// `max-num-queued-reqs` is reached.
    pub fn busy() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "Service Unavailable",
            message: "The engine is currently busy and cannot accept new requests. Please try \
                      again later or on a different instance."
                .into(),
            param: None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: Inner,
        }
        #[derive(Serialize)]
        struct Inner {
            message: String,
            #[serde(rename = "type")]
            kind: &'static str,
            param: Option<String>,
            code: u16,
        }
        let code = self.status.as_u16();
        let error = Inner {
            message: self.message,
            kind: self.kind,
            param: self.param,
            code,
        };
        (self.status, Json(Body { error })).into_response()
    }
}

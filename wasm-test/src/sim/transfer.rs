//! A prompt computed by one server for another, as vLLM's NIXL connector does it: the first keeps the
//! blocks until the second has fetched them or their lease ends.
//!
//! Servers reach each other over HTTP at the address in the parameters, where the real ones have a
//! side channel. What no server may be told, parameters that are not whole, hangs the request, as it
//! was seen to.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::sim::engine::Remote;
use crate::sim::instance::Instance;
use crate::sim::openai::error::ApiError;

/// What becomes of a request whose blocks cannot be fetched: vLLM's `kv_load_failure_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadFailure {
    /// The client gets a 500.
    #[value(name = "fail")]
    Fail,
    /// The server computes the prompt itself.
    #[value(name = "recompute")]
    Recompute,
}

/// What a request's `kv_transfer_params` ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transfer {
    /// Nothing.
    None,
    /// To keep the prompt's blocks for another server.
    Keep,
    /// To fetch them from another server.
    Fetch(Source),
    /// To fetch them from who knows where.
    Partial,
}

/// Where blocks are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(clippy::struct_field_names, reason = "vLLM's names")]
pub struct Source {
    remote_request_id: String,
    remote_engine_id: String,
    remote_host: String,
    remote_port: u16,
    /// As the other server reported it; this one repeats it.
    #[serde(default)]
    remote_prefill_cached_tokens: Option<usize>,
}

/// What a prefill server answers.
#[derive(Debug, Clone, Serialize)]
pub struct Params {
    do_remote_prefill: bool,
    do_remote_decode: bool,
    remote_block_ids: [Vec<usize>; 1],
    remote_engine_id: String,
    remote_request_id: String,
    remote_host: String,
    remote_port: u16,
    tp_size: u8,
    remote_num_tokens: usize,
    transfer_mode: &'static str,
    remote_prefill_cached_tokens: usize,
}

/// Blocks that are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub blocks: Vec<usize>,
    pub tokens: usize,
}

/// A prefill server that says nothing for this long is not there.
const PATIENCE: Duration = Duration::from_secs(5);

impl Transfer {
    /// As the log has it.
    pub fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Keep => Some("keep"),
            Self::Fetch(_) => Some("fetch"),
            Self::Partial => Some("partial"),
        }
    }

    pub fn parse(params: Option<&Value>) -> Self {
        let Some(params) = params else {
            return Self::None;
        };
        let asks = |name: &str| params[name].as_bool().unwrap_or(false);
        match (asks("do_remote_prefill"), asks("do_remote_decode")) {
            (true, _) => Source::deserialize(params).map_or(Self::Partial, Self::Fetch),
            (false, true) => Self::Keep,
            (false, false) => Self::None,
        }
    }
}

impl Params {
    pub fn new(instance: &Instance, id: &str, kept: Kept, cached: usize) -> Self {
        Self {
            do_remote_prefill: true,
            do_remote_decode: false,
            remote_block_ids: [kept.blocks],
            remote_engine_id: instance.engine_id.clone(),
            remote_request_id: id.to_owned(),
            remote_host: instance.address.ip().to_string(),
            remote_port: instance.address.port(),
            tp_size: 1,
            remote_num_tokens: kept.tokens,
            transfer_mode: "pull",
            remote_prefill_cached_tokens: cached,
        }
    }
}

/// Does what `transfer` asks for before the request is queued as `id`.
pub async fn begin(instance: &Instance, transfer: &Transfer, id: &str) -> Result<Remote, ApiError> {
    match transfer {
        Transfer::None => Ok(Remote::None),
        Transfer::Keep => Ok(Remote::Keep(id.to_owned())),
        Transfer::Partial => {
            instance.engines.count(|counters| counters.kv_partial += 1);
            std::future::pending().await
        }
        Transfer::Fetch(source) => {
            if let Some(tokens) = fetch(source).await {
                let reported = source.remote_prefill_cached_tokens.unwrap_or(0);
                return Ok(Remote::Fetched { tokens, reported });
            }
            instance.engines.count(|counters| counters.kv_failed += 1);
            match instance.config.kv_load_failure_policy {
                LoadFailure::Recompute => Ok(Remote::None),
                LoadFailure::Fail => Err(ApiError::internal()),
            }
        }
    }
}

/// Fetches blocks; how many tokens they have, `None` when they are not to be had.
async fn fetch(source: &Source) -> Option<usize> {
    let url = format!("http://{}:{}{PATH}", source.remote_host, source.remote_port);
    let wanted = json!({"engine": source.remote_engine_id, "request": source.remote_request_id});
    let asked = reqwest::Client::new()
        .post(url)
        .timeout(PATIENCE)
        .json(&wanted);
    let answer = asked.send().await.ok()?.error_for_status().ok()?;
    let answer: Value = answer.json().await.ok()?;
    usize::try_from(answer["tokens"].as_u64()?).ok()
}

/// Where servers fetch blocks from each other.
pub const PATH: &str = "/sim/kv/fetch";

/// `POST` [`PATH`]: hands blocks over and lets go of them.
pub async fn hand_over(State(instance): State<Arc<Instance>>, body: Bytes) -> Response {
    let wanted: Value = serde_json::from_slice(&body).unwrap_or_default();
    let of_this_life = wanted["engine"] == instance.engine_id;
    let id = wanted["request"].as_str().filter(|_| of_this_life);
    match id.and_then(|id| instance.engines.hand_over(id)) {
        Some(tokens) => Json(json!({ "tokens": tokens })).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

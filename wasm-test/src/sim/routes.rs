//! The HTTP surface of one server.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::{Value, json};

use crate::sim::faults::Overrides;
use crate::sim::further::Further;
use crate::sim::generate::{chat_completions, completions};
use crate::sim::inject::inject;
use crate::sim::instance::{Instance, unix_seconds};
use crate::sim::observe::{LogSeq, observe};
use crate::sim::openai::request::{Api, Ask};
use crate::sim::transfer;

type Shared = State<Arc<Instance>>;

/// All routes of one server.
pub fn router(instance: Arc<Instance>) -> Router {
    Router::new()
        .merge(generations(&instance))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/ping", get(health).post(health))
        .route(
            "/version",
            get(|| async { Json(json!({"version": "0.32.0"})) }),
        )
        .route("/metrics", get(metrics_page))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .route(
            "/sim/state",
            get(async |State(instance): Shared| Json(instance.state())),
        )
        .route(
            "/sim/log",
            get(async |State(instance): Shared| Json(instance.log.entries())),
        )
        .route(transfer::PATH, post(transfer::hand_over))
        .route("/sim/override", post(set_overrides).delete(clear_overrides))
        .method_not_allowed_fallback(async || detail(StatusCode::METHOD_NOT_ALLOWED))
        .fallback(async || detail(StatusCode::NOT_FOUND))
        .layer(from_fn_with_state(Arc::clone(&instance), observe))
        // A prompt may have megabytes; vLLM's own limit is the context's.
        .layer(DefaultBodyLimit::disable())
        .with_state(instance)
}

/// The routes that generate text, which a test can make fail.
fn generations(instance: &Arc<Instance>) -> Router<Arc<Instance>> {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions/render", render(Api::Completions))
        .route("/v1/chat/completions/render", render(Api::Chat))
        .route("/v1/responses", further(Further::Responses))
        .route("/v1/messages", further(Further::Messages))
        .route("/v1/messages/count_tokens", further(Further::CountTokens))
        .route("/v1/embeddings", further(Further::Embeddings))
        .route("/inference/v1/generate", further(Further::VllmGenerate))
        .route("/generate", further(Further::SglangGenerate))
        .route_layer(from_fn_with_state(Arc::clone(instance), inject))
}

/// A route of an API that is computed as another one.
fn further(api: Further) -> MethodRouter<Arc<Instance>> {
    post(
        async move |State(instance): Shared,
                    Extension(seq): Extension<LogSeq>,
                    headers: HeaderMap,
                    body: Bytes| api.answer(instance, seq, &headers, &body).await,
    )
}

/// A route that tells the tokens of a prompt, as vLLM does with `--enable-scale-out`: one object
/// for a chat, a list for completions.
fn render(api: Api) -> MethodRouter<Arc<Instance>> {
    post(
        async move |State(instance): Shared, headers: HeaderMap, body: Bytes| {
            let ask = match Ask::parse(api, &instance.config, &headers, &body) {
                Ok(ask) => ask,
                Err(error) => return error.into_response(),
            };
            let rendered = ask.prompts.iter().map(|prompt| {
                let ids: Vec<u32> = prompt.tokens.iter().map(|token| token.id()).collect();
                json!({"token_ids": ids, "model": ask.model, "cache_salt": ask.salt})
            });
            let mut rendered: Vec<Value> = rendered.collect();
            match api {
                Api::Completions => Json(Value::Array(rendered)).into_response(),
                Api::Chat => Json(rendered.pop()).into_response(),
            }
        },
    )
}

async fn health(State(instance): Shared) -> StatusCode {
    if instance.faults.is_loading() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    }
}

/// The web framework's own errors.
fn detail(status: StatusCode) -> Response {
    (status, Json(json!({"detail": status.canonical_reason()}))).into_response()
}

async fn models(State(instance): Shared) -> Json<Value> {
    let is_loaded = !instance.faults.is_loading();
    let config = &instance.config;
    let base = config.model_name();
    let context = config.context_tokens();
    let names = config
        .served_model_name
        .iter()
        .map(|name| (name, None, Some(context)));
    let adapters = config
        .lora_modules
        .iter()
        .map(|adapter| (&adapter.name, Some(base), None));
    let created = unix_seconds() as u64;
    let card = |(id, parent, max_model_len): (&String, Option<&str>, Option<usize>)| {
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "vllm",
            "root": format!("/models/{id}"), "parent": parent, "max_model_len": max_model_len,
            "permission": [{
                "id": format!("modelperm-{:016x}", rand::random::<u64>()),
                "object": "model_permission", "created": created, "allow_create_engine": false,
                "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
                "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                "group": null, "is_blocking": false,
            }],
        })
    };
    let present = names.chain(adapters).filter(|_| is_loaded);
    let data: Vec<Value> = present.map(card).collect();
    Json(json!({"object": "list", "data": data}))
}

async fn metrics_page(State(instance): Shared) -> Response {
    instance.metrics_page().await
}

async fn reset_prefix_cache(State(instance): Shared) -> Json<Value> {
    Json(json!({"success": instance.engines.reset_prefix_cache()}))
}

async fn set_overrides(State(instance): Shared, body: Bytes) -> Response {
    match serde_json::from_slice::<Overrides>(&body) {
        Ok(overrides) => {
            instance.set_overrides(overrides);
            Json(instance.state()).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn clear_overrides(State(instance): Shared) -> Response {
    instance.set_overrides(Overrides::default());
    Json(instance.state()).into_response()
}

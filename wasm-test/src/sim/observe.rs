//! What every answer tells about its request, and the request log.

use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::sim::connection::Abort;
use crate::sim::instance::{Instance, unix_seconds};
use crate::sim::log::LogEntry;

/// `ip:port` of the server that answered.
pub const SERVER_HEADER: &str = "x-sim-server";
/// SHA-256 of the request body received, in lower-case hex.
pub const BODY_HEADER: &str = "x-sim-body-sha256";
/// Comma-separated lower-case names of the request headers received.
pub const SEEN_HEADER: &str = "x-sim-headers-seen";

/// Number of a request in its server's log, for handlers that have more to note there.
#[derive(Debug, Clone, Copy)]
pub struct LogSeq(pub u64);

/// Middleware around every route: reads the body, logs the request, marks the answer, and keeps it
/// back while a test wants that.
pub async fn observe(
    State(instance): State<Arc<Instance>>,
    Extension(abort): Extension<Abort>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Control is not traffic.
    let control = parts.uri.path().starts_with("/sim/");
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let entry = entry(&parts, &body);
    let marks = marks(&instance, &entry);
    let logged = !control && !is_upkeep(&parts);
    let seq = logged.then(|| instance.log.push(entry));
    if let Some(seq) = seq {
        parts.extensions.insert(LogSeq(seq));
    }
    let generation = parts.uri.path().ends_with("/completions");
    let mut response = next.run(Request::from_parts(parts, Body::from(body))).await;
    response.headers_mut().extend(marks);
    if !control {
        instance.faults.until_released(generation).await;
    }
    // An answer that nobody gets has no status.
    let answered = !abort.is_aborted();
    if let Some(seq) = seq.filter(|_| answered) {
        let status = response.status().as_u16();
        instance
            .log
            .update(seq, |entry| entry.status = Some(status));
    }
    response
}

/// Whether a scraper or a proxy asks for itself. Scrapes are counted elsewhere; in the log these
/// would push out what tests look for. A proxy gives every client's request an id.
fn is_upkeep(parts: &Parts) -> bool {
    let by_proxy = parts.headers.contains_key("x-envoy-internal")
        && !parts.headers.contains_key("x-request-id");
    match parts.uri.path() {
        "/metrics" => true,
        "/health" | "/v1/models" => by_proxy,
        _ => false,
    }
}

fn entry(parts: &Parts, body: &Bytes) -> LogEntry {
    let request_id = parts.headers.get("x-request-id");
    LogEntry {
        seq: 0,
        arrived_us: (unix_seconds() * 1e6) as u64,
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        request_id: request_id.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        headers: parts.headers.keys().map(ToString::to_string).collect(),
        body_sha256: hex(&Sha256::digest(body)),
        body_bytes: body.len(),
        prompt_tokens: None,
        cached_tokens: None,
        transfer: None,
        status: None,
    }
}

fn marks(instance: &Instance, entry: &LogEntry) -> HeaderMap {
    let marks = [
        (SERVER_HEADER, instance.address.to_string()),
        (BODY_HEADER, entry.body_sha256.clone()),
        (SEEN_HEADER, entry.headers.join(",")),
        ("server", "uvicorn".to_owned()),
    ];
    let valid = |(name, value): (&'static str, String)| {
        Some((
            axum::http::HeaderName::from_static(name),
            HeaderValue::try_from(value).ok()?,
        ))
    };
    marks.into_iter().filter_map(valid).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

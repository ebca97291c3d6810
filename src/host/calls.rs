//! HTTP calls through Envoy's clusters: the root context's own, and those of streams.

use core::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::Status;

use super::abi::{self, Buffer, HeaderMap};
use super::metrics::ScrapeResult;
use crate::flow::{MAX_ANSWER, PrefillCall, PrefillEnd};

/// A `GET`.
pub(super) struct Get<'a> {
    pub(super) cluster: &'a str,
    /// With its query.
    pub(super) path: &'a str,
    pub(super) authority: &'a str,
    pub(super) accept: &'a str,
    /// The header that the cluster chooses its host by, and that host as `ip:port`.
    pub(super) override_host: Option<(&'a str, &'a str)>,
    pub(super) timeout: Duration,
}

impl Get<'_> {
    /// Starts the call and returns the host's token for it. An error says why the host refused.
    pub(super) fn start(&self) -> Result<u32, String> {
        let mut headers = vec![
            (":method", "GET"),
            (":path", self.path),
            (":authority", self.authority),
            ("accept", self.accept),
        ];
        headers.extend(self.override_host);
        let sent = dispatch_http_call(self.cluster, headers, None, Vec::new(), self.timeout);
        sent.map_err(|status| refusal(self.cluster, status))
    }
}

/// The body of the call that just ended, or how it failed. A host answers 504 for a time-out, 503
/// for a refused connection and no header at all for a reset.
pub(super) fn answer(body_size: usize) -> Result<Vec<u8>, (ScrapeResult, String)> {
    let status = abi::header(HeaderMap::HttpCallResponse, ":status").unwrap_or_default();
    match status.as_slice() {
        b"200" => Ok(abi::buffer(Buffer::HttpCallResponseBody, body_size).unwrap_or_default()),
        b"504" => Err((ScrapeResult::Timeout, "no answer in time".to_owned())),
        b"" => Err((ScrapeResult::Error, "the connection broke".to_owned())),
        other => {
            let status = String::from_utf8_lossy(other);
            Err((ScrapeResult::Error, format!("status {status}")))
        }
    }
}

/// Starts the call that a stream waits for. An error says why the host refused.
pub(super) fn prefill(call: &PrefillCall) -> Result<(), String> {
    let headers = call.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
    let body = Some(call.body.as_slice());
    let trailers = Vec::new();
    let sent = dispatch_http_call(
        &call.cluster,
        headers.collect(),
        body,
        trailers,
        call.timeout,
    );
    // The SDK brings the answer to the context that is active, which is the stream's.
    sent.map(drop)
        .map_err(|status| refusal(&call.cluster, status))
}

/// How the call of a prefill endpoint ended.
pub(super) fn prefill_end(body_size: usize) -> PrefillEnd {
    let status = abi::header(HeaderMap::HttpCallResponse, ":status").unwrap_or_default();
    let status = core::str::from_utf8(&status).ok();
    let Some(status) = status.and_then(|status| status.parse().ok()) else {
        return PrefillEnd::Broken;
    };
    let by_server = abi::header(HeaderMap::HttpCallResponse, SERVICE_TIME).is_ok();
    match status {
        504 if !by_server => PrefillEnd::TimedOut,
        503 if !by_server && broke_off(body_size) => PrefillEnd::Broken,
        _ if !by_server => PrefillEnd::Refused,
        _ if body_size > MAX_ANSWER => PrefillEnd::Oversized,
        _ => PrefillEnd::Answered {
            status,
            body: abi::buffer(Buffer::HttpCallResponseBody, body_size).unwrap_or_default(),
        },
    }
}

/// Envoy adds this header to what a server answers, and to nothing that it answers itself.
pub(super) const SERVICE_TIME: &str = "x-envoy-upstream-service-time";

/// Whether Envoy's answer says that a connection ended which had been there.
fn broke_off(body_size: usize) -> bool {
    const CAUSE: &[u8] = b"connection termination";
    let words = body_size.min(1_024);
    let text = abi::buffer(Buffer::HttpCallResponseBody, words).unwrap_or_default();
    text.windows(CAUSE.len()).any(|part| part == CAUSE)
}

fn refusal(cluster: &str, status: Status) -> String {
    if status == Status::BadArgument {
        format!("Envoy knows no cluster {cluster}")
    } else {
        format!("cluster {cluster} has no host or no room for it")
    }
}

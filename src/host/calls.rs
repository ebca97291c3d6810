//! HTTP calls from the root context through Envoy's clusters.

use core::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::Status;

use super::abi::{self, Buffer, HeaderMap};
use super::metrics::ScrapeResult;

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
        sent.map_err(|status| {
            if status == Status::BadArgument {
                format!("Envoy knows no cluster {}", self.cluster)
            } else {
                format!("cluster {} has no host or no room for it", self.cluster)
            }
        })
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

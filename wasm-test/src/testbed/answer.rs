//! What came back, and what its headers tell.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::envoy::Envoy;

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: BytesMut,
    /// From sending the request to the first byte of the body; `None` for an empty body.
    pub time_to_first_token: Option<Duration>,
    /// The body broke off.
    pub broken_off: bool,
}

impl Answer {
    /// Posts `body` on a connection of its own, so that any of Envoy's workers may get it.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn on_a_new_connection(envoy: &Envoy, path: &str, body: &Value) -> Self {
        let client = Client::builder().pool_max_idle_per_host(0).build();
        let request = client
            .expect("a client")
            .post(format!("{}{path}", envoy.url()))
            .header("content-type", "application/json")
            .body(body.to_string());
        Self::to(request).await
    }

    /// Sends `request` and reads the answer.
    ///
    /// # Panics
    /// When there is none.
    pub async fn to(request: RequestBuilder) -> Self {
        let sent = Instant::now();
        let response = request.send().await.expect("an answer");
        Self::read(response, sent).await
    }

    /// Reads the rest of an answer to a request that was sent at `sent`.
    pub async fn read(mut response: Response, sent: Instant) -> Self {
        let mut answer = Self {
            status: response.status(),
            headers: response.headers().clone(),
            body: BytesMut::new(),
            time_to_first_token: None,
            broken_off: false,
        };
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    answer.time_to_first_token.get_or_insert(sent.elapsed());
                    answer.body.extend_from_slice(&bytes);
                }
                Ok(None) => return answer,
                Err(_) => {
                    answer.broken_off = true;
                    return answer;
                }
            }
        }
    }

    /// The value of a header, where it is there and text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Who answered.
    ///
    /// # Panics
    /// When no server did.
    pub fn server(&self) -> SocketAddr {
        self.parsed("x-sim-server")
    }

    /// Whom the module picked first.
    ///
    /// # Panics
    /// When it picked nobody.
    pub fn picked(&self) -> SocketAddr {
        self.parsed("x-epp-endpoint")
    }

    /// The module's reason, empty when it gave none.
    pub fn reason(&self) -> &str {
        self.header("x-epp-reason").unwrap_or_default()
    }

    /// Composite score of the pick as it is written, empty when there is none.
    pub fn score(&self) -> &str {
        self.header("x-epp-score").unwrap_or_default()
    }

    /// Blocks the pick was thought to hold, and blocks of the prompt.
    ///
    /// # Panics
    /// When the module did not say.
    pub fn cache_match(&self) -> (u32, u32) {
        let value = self.header("x-epp-cache-match").unwrap_or_default();
        let parts = value.split_once('/').and_then(|(matched, total)| {
            Some((matched.parse::<u32>().ok()?, total.parse::<u32>().ok()?))
        });
        parts.unwrap_or_else(|| panic!("x-epp-cache-match: {value:?} in {self:?}"))
    }

    /// Names of the request headers the server received.
    pub fn headers_seen(&self) -> Vec<&str> {
        let names = self.header("x-sim-headers-seen").unwrap_or_default();
        names.split(',').collect()
    }

    /// The generated text, of a whole answer or of a stream.
    pub fn text(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let parts: Vec<&str> = events.filter(|event| *event != "[DONE]").collect();
        if parts.is_empty() {
            return text_of(&body);
        }
        parts.into_iter().map(text_of).collect()
    }

    fn parsed(&self, name: &str) -> SocketAddr {
        let value = self.header(name).unwrap_or_default();
        let address = value.parse();
        address.unwrap_or_else(|error| panic!("{name}: {error} in {self:?}"))
    }
}

/// The text of the first choice in one JSON object, whatever its shape.
fn text_of(json: &str) -> String {
    let object: Value = serde_json::from_str(json).unwrap_or_default();
    let choice = &object["choices"][0];
    [
        &choice["text"],
        &choice["message"]["content"],
        &choice["delta"]["content"],
    ]
    .into_iter()
    .find_map(Value::as_str)
    .unwrap_or_default()
    .to_owned()
}

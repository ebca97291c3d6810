//! One turn, as a client sees it.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;
use tokio_util::io::StreamReader;

use super::workload::ANSWER;
use crate::sim::observe::SERVER_HEADER;
use crate::sim::template::Message;

/// How long a turn may take before it counts as an error.
const PATIENCE: Duration = Duration::from_mins(1);

/// Why a turn has no whole answer, for people to read.
pub type TurnError = String;

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the model said.
    pub text: String,
    /// The server that said it, by its own word.
    pub server: Option<SocketAddr>,
    /// What inline-epp says about its choice; `None` from an Envoy without it.
    pub decision: Option<Decision>,
    /// From the request's start to the first piece of text.
    pub time_to_first_token: Duration,
}

/// The debug headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// `x-epp-reason`
    pub reason: String,
    /// `x-epp-endpoint`, absent when the cluster's own policy chose.
    pub endpoint: Option<SocketAddr>,
}

/// Sends the conversation so far and reads the streamed answer to its end.
pub async fn ask(
    http: &reqwest::Client,
    envoy: &str,
    model: &str,
    messages: &[Message],
) -> Result<Answer, TurnError> {
    let body = json!({
        "model": model,
        "messages": messages.iter().map(message).collect::<Vec<_>>(),
        "max_tokens": ANSWER,
        "stream": true,
    });
    let start = Instant::now();
    let response = http
        .post(format!("{envoy}/v1/chat/completions"))
        .json(&body)
        .timeout(PATIENCE)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(|error| error.to_string())?;
    let server = address(response.headers(), SERVER_HEADER);
    let decision = decision(response.headers());
    let bytes = response.bytes_stream().map_err(io::Error::other);
    let mut lines = StreamReader::new(bytes).lines();
    let mut text = String::new();
    let mut first = None;
    while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
        match event(&line)? {
            Event::Text(piece) => {
                first.get_or_insert_with(|| start.elapsed());
                text.push_str(&piece);
            }
            Event::Nothing => {}
            Event::Done => {
                let time_to_first_token = first.ok_or("the answer has no text")?;
                return Ok(Answer {
                    text,
                    server,
                    decision,
                    time_to_first_token,
                });
            }
        }
    }
    Err("the stream ended before [DONE]".to_owned())
}

fn message(message: &Message) -> Value {
    json!({ "role": message.role, "content": message.content })
}

fn decision(headers: &HeaderMap) -> Option<Decision> {
    let reason = headers.get("x-epp-reason")?;
    Some(Decision {
        reason: String::from_utf8_lossy(reason.as_bytes()).into_owned(),
        endpoint: address(headers, "x-epp-endpoint"),
    })
}

fn address(headers: &HeaderMap, name: &str) -> Option<SocketAddr> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

#[derive(Debug, PartialEq)]
enum Event {
    Text(String),
    /// A role, a usage report, an empty line.
    Nothing,
    Done,
}

/// What one line of the stream brings.
fn event(line: &str) -> Result<Event, TurnError> {
    let Some(data) = line.strip_prefix("data:").map(str::trim) else {
        return Ok(Event::Nothing);
    };
    if data == "[DONE]" {
        return Ok(Event::Done);
    }
    let chunk: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
    if let Some(error) = chunk.get("error") {
        return Err(error.to_string());
    }
    match chunk["choices"][0]["delta"]["content"].as_str() {
        None | Some("") => Ok(Event::Nothing),
        Some(text) => Ok(Event::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_chunk_with_content_is_text() {
        let rows = [
            (
                r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
                Event::Nothing,
            ),
            (
                r#"data: {"choices":[{"delta":{"content":" hi"}}]}"#,
                Event::Text(" hi".to_owned()),
            ),
            (
                r#"data: {"choices":[],"usage":{"prompt_tokens":3}}"#,
                Event::Nothing,
            ),
            ("", Event::Nothing),
            ("data: [DONE]", Event::Done),
        ];
        for (line, expected) in rows {
            assert_eq!(event(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn an_error_inside_the_stream_is_an_error() {
        assert!(event(r#"data: {"error":{"message":"engine died"}}"#).is_err());
        assert!(event("data: {").is_err());
    }
}

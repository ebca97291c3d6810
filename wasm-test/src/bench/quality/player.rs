//! Sends a load's requests when they are due, whatever became of those before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::oracle;
use super::router::KEY_HEADER;
use super::text::Prompt;
use crate::sim::Sim;

/// How long after the last request was due answers are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a connection may idle: vLLM closes its end after 5 s, and a request sent into that is lost.
const IDLE: Duration = Duration::from_secs(4);

/// What became of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// From when it was due to the first byte of text, or why there is no whole answer.
    pub first_token: Result<Duration, String>,
    /// How late the load generator was.
    pub late: Duration,
}

/// Where requests go.
#[derive(Debug, Clone)]
pub enum Target {
    /// To a router.
    Url(String),
    /// Each to the server that knows best.
    Best(Arc<Sim>),
}

/// A request and when it is due, after the start.
pub type Due = (Duration, Arc<Prompt>);

/// Sends all of them. Every request is in the result; one that was not answered in time as an error.
pub async fn play(requests: &[Due], target: &Target, mut step: impl FnMut()) -> Vec<Answer> {
    let client = reqwest::Client::builder()
        .pool_idle_timeout(IDLE)
        .no_proxy()
        .build()
        .unwrap_or_default();
    let sender = Arc::new(Sender {
        client,
        target: target.clone(),
        choosing: Mutex::new(()),
    });
    let start = Instant::now();
    let mut running = JoinSet::new();
    let mut answers = Vec::with_capacity(requests.len());
    for (number, (due, prompt)) in requests.iter().enumerate() {
        let due = start + *due;
        tokio::time::sleep_until(due.into()).await;
        let (sender, prompt) = (Arc::clone(&sender), Arc::clone(prompt));
        running.spawn(async move { sender.ask(number, due, &prompt).await });
        step();
        while let Some(done) = running.try_join_next() {
            answers.extend(done);
        }
    }
    let collect = async {
        while let Some(done) = running.join_next().await {
            answers.extend(done);
        }
    };
    // Whoever is not done by then is counted below.
    let _ = tokio::time::timeout(PATIENCE, collect).await;
    let unanswered = requests.len() - answers.len();
    answers.extend((0..unanswered).map(|_| Answer {
        first_token: Err("no answer in time".to_owned()),
        late: Duration::ZERO,
    }));
    answers
}

struct Sender {
    client: reqwest::Client,
    target: Target,
    /// Held from the oracle's choice until the request is at its server, so that the next choice
    /// sees it.
    choosing: Mutex<()>,
}

impl Sender {
    async fn ask(&self, number: usize, due: Instant, prompt: &Prompt) -> Answer {
        let late = due.elapsed();
        let first_token = self.first_token(number, due, prompt).await;
        Answer { first_token, late }
    }

    async fn first_token(
        &self,
        number: usize,
        due: Instant,
        prompt: &Prompt,
    ) -> Result<Duration, String> {
        let response = match &self.target {
            Target::Url(url) => self.send(url, prompt).await,
            Target::Best(sim) => {
                let _choosing = self.choosing.lock().await;
                let best = oracle::best(sim, prompt, number);
                // The answer's head comes as soon as the request is in the queue.
                self.send(&sim[best].url(""), prompt).await
            }
        };
        let response = response.map_err(|error| cause(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        let mut chunks = response.bytes_stream();
        let mut first = None;
        let mut tail = Vec::new();
        while let Some(chunk) = chunks.next().await {
            tail.extend_from_slice(&chunk.map_err(|error| cause(&error))?);
            first.get_or_insert_with(|| due.elapsed());
            // Long enough for the end of a stream, however it was cut.
            tail.drain(..tail.len().saturating_sub(32));
        }
        match first {
            Some(first) if tail.windows(6).any(|part| part == b"[DONE]") => Ok(first),
            _ => Err("the stream ended before [DONE]".to_owned()),
        }
    }

    async fn send(&self, url: &str, prompt: &Prompt) -> reqwest::Result<reqwest::Response> {
        self.client
            .post(format!("{url}/v1/chat/completions"))
            .header("content-type", "application/json")
            .header(KEY_HEADER, &prompt.key)
            .body(prompt.body.clone())
            .send()
            .await
    }
}

/// An error's innermost cause, which does not name this request.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

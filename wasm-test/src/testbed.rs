//! Simulated model servers behind a real Envoy with the module, and a client in front.
//!
//! It starts from the shipped configuration. What differs: scrapes are frequent, debug headers are
//! on, and metrics stay fresh for longer, so that a busy machine does not change scores.

mod answer;
mod hosts;
mod metrics;
mod poll;
mod prompt;
mod setup;
mod slow_server;
mod split;
mod upkeep;

pub use answer::Answer;
pub use hosts::{ADMIN_CLUSTER, AdminRelay, Host, HostFile};
pub use poll::{PATIENCE, eventually};
pub use prompt::{chat, completion, prompt, say};
pub use setup::Setup;
pub use slow_server::SlowServer;
pub use split::{TOKEN_BYTES, split_pool};

use std::net::SocketAddr;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use crate::envoy::Envoy;
use crate::sim::SimServer;

/// The pool's name in the shipped configuration.
pub const POOL: &str = "llama";
/// Where completions are asked for.
pub const COMPLETIONS: &str = "/v1/completions";
/// Where chat completions are asked for.
pub const CHAT: &str = "/v1/chat/completions";

/// Servers, Envoy and client. Dropping it ends them all.
#[derive(Debug)]
pub struct Testbed {
    servers: Vec<SimServer>,
    /// Of the pool.
    endpoints: Vec<SocketAddr>,
    envoy: Envoy,
    client: reqwest::Client,
    /// Virtual machines at the start.
    vms: u64,
}

impl Testbed {
    /// Prepares a run with `count` servers.
    pub fn with_servers(count: usize) -> Setup {
        Setup::new(count)
    }

    pub fn servers(&self) -> &[SimServer] {
        &self.servers
    }

    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// Another Envoy with the plain setup before the same servers, which shares nothing with the
    /// first.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn another_envoy(&self) -> Envoy {
        let setup = Setup::new(0).workers(2).envoy_for(&self.endpoints);
        setup.start().await.expect("a start")
    }

    /// Index of the server at `address`.
    pub fn index_of(&self, address: SocketAddr) -> usize {
        let mut addresses = self.servers.iter().map(SimServer::address);
        addresses
            .position(|one| one == address)
            .expect("an address of the testbed")
    }

    /// A request for `path` through Envoy.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.envoy.url());
        self.client.request(method, url)
    }

    /// A POST of `body` to `path` through Envoy, announced as JSON, which it need not be.
    pub fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .body(body)
    }

    /// Posts a JSON body and reads the whole answer.
    pub async fn ask(&self, path: &str, body: &Value) -> Answer {
        Answer::to(self.post(path, body.to_string())).await
    }

    /// Asks for the completion of `prompt`, the shortest there is.
    pub async fn complete(&self, prompt: &str) -> Answer {
        self.ask(COMPLETIONS, &completion(prompt)).await
    }

    /// The same on a connection of its own, so that any worker may get it.
    pub async fn complete_anew(&self, prompt: &str) -> Answer {
        Answer::on_a_new_connection(&self.envoy, COMPLETIONS, &completion(prompt)).await
    }

    /// Asks for all completions at once.
    pub async fn complete_all(&self, prompts: impl IntoIterator<Item = String>) -> Vec<Answer> {
        let one = async |prompt: String| self.complete(&prompt).await;
        futures_util::future::join_all(prompts.into_iter().map(one)).await
    }

    /// How many of `answers` each server gave.
    pub fn shares(&self, answers: &[Answer]) -> Vec<usize> {
        let mut shares = vec![0; self.servers.len()];
        for answer in answers {
            shares[self.index_of(answer.server())] += 1;
        }
        shares
    }
}

//! One server, real or simulated, by its public interface.

use serde_json::{Value, json};

use super::Tokens;
use crate::bench::BenchError;
use crate::envoy::{Series, prometheus};

/// A server that answers.
#[derive(Debug, Clone)]
pub struct Server {
    http: reqwest::Client,
    url: String,
    /// The first one it serves.
    pub model: String,
    /// Its own word.
    pub version: String,
    /// Tokens in a block of its cache.
    pub block_size: u32,
    /// Blocks of its cache.
    pub num_gpu_blocks: u32,
}

impl Server {
    /// Asks the server at `url` what it is.
    pub async fn at(url: &str) -> Result<Self, BenchError> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let get = async |path: &str| {
            let answer = http.get(format!("{url}{path}")).send().await?;
            answer.error_for_status()?.json::<Value>().await
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let model = text(&get("/v1/models").await?["data"][0]["id"]);
        let version = text(&get("/version").await?["version"]);
        let mut server = Self {
            http,
            url: url.to_owned(),
            model,
            version,
            block_size: 0,
            num_gpu_blocks: 0,
        };
        let info = prometheus::series(&server.page().await?, "vllm:cache_config_info");
        let size = |name: &str| {
            let label = info.first().and_then(|series: &Series| series.label(name));
            label
                .and_then(|label| label.parse().ok())
                .ok_or_else(|| BenchError::Content {
                    path: url.into(),
                    problem: format!("its metrics do not tell {name}"),
                })
        };
        server.block_size = size("block_size")?;
        server.num_gpu_blocks = size("num_gpu_blocks")?;
        Ok(server)
    }

    /// Its metrics page.
    pub async fn page(&self) -> Result<String, BenchError> {
        let answer = self
            .http
            .get(format!("{}/metrics", self.url))
            .send()
            .await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    /// Its prefix-cache counters.
    pub async fn tokens(&self) -> Result<Tokens, BenchError> {
        let page = self.page().await?;
        let value = |name| prometheus::sum(&page, name, &[]).unwrap_or(0.0) as u64;
        Ok(Tokens {
            queries: value("vllm:prefix_cache_queries_total"),
            hits: value("vllm:prefix_cache_hits_total"),
        })
    }

    /// Has `answer` tokens generated; returns how many of the prompt's were cached.
    pub async fn complete(&self, prompt: &[u32], answer: usize) -> Result<u64, BenchError> {
        let body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": answer, "min_tokens": answer,
            "ignore_eos": true, "temperature": 0,
        });
        let url = format!("{}/v1/completions", self.url);
        let response = self.http.post(url).json(&body).send().await?;
        let response: Value = response.error_for_status()?.json().await?;
        let details = &response["usage"]["prompt_tokens_details"];
        // Absent, or null, where nothing was cached.
        Ok(details["cached_tokens"].as_u64().unwrap_or(0))
    }
}

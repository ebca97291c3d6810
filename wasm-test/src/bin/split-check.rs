//! Splits requests between two real vLLM servers, and checks by their own counters that it happened;
//! `scripts/test-real-vllm.sh` starts them.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use wasm_test::envoy::{CANONICAL, Envoy};
use wasm_test::testbed::{Answer, CHAT, COMPLETIONS, POOL, eventually, prompt, say, split_pool};

/// Splits requests between two vLLM servers, and checks that it happened
#[derive(Debug, Parser)]
#[command(name = "split-check")]
struct Arguments {
    /// The server that computes prompts
    #[arg(long)]
    prefill: SocketAddr,
    /// Its process group, which is stopped and killed in the end
    #[arg(long)]
    prefill_group: u32,
    /// The server that answers
    #[arg(long)]
    decode: SocketAddr,
    /// The model they serve
    #[arg(long)]
    model: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let check = Check::start(Arguments::parse()).await;
    check.a_long_new_prompt_is_split().await;
    check.a_repeat_is_not_split().await;
    check.a_stream_is_split().await;
    check.a_message_is_split().await;
    let params = check.params_of_a_prompt().await;
    check.a_server_that_dies_costs_nothing().await;
    check.a_prompt_that_is_gone_is_computed_again(params).await;
    println!("all checks passed");
    ExitCode::SUCCESS
}

/// The servers behind an Envoy.
struct Check {
    arguments: Arguments,
    envoy: Envoy,
    client: reqwest::Client,
}

/// What servers counted, in prompt tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// Computed or found by the prefill server.
    prefill: u64,
    /// Taken over by the decode server.
    taken_over: u64,
    /// Computed by the decode server.
    decode: u64,
}

impl Check {
    async fn start(arguments: Arguments) -> Self {
        let split = split_pool(1, "inline-nixl", 128);
        let envoy = Envoy::builder(CANONICAL)
            .concurrency(1)
            .endpoints(&[arguments.prefill, arguments.decode])
            .plugin(move |plugin| {
                let pool = &mut plugin["pools"][0];
                split(pool);
                // A server's first contact with another has taken half a minute.
                pool["disaggregation"]["prefillTimeout"] = json!("60s");
                pool["metrics"] = json!({"interval": "500ms", "timeout": "10s"});
            })
            .start()
            .await
            .expect("Envoy starts");
        let check = Self {
            arguments,
            envoy,
            client: reqwest::Client::new(),
        };
        eventually("a scrape of each server", async || {
            let scrapes = check
                .of_envoy("epp_scrapes_total", &[("result", "ok")])
                .await;
            (scrapes >= Some(2)).then_some(())
        })
        .await;
        check
    }

    async fn a_long_new_prompt_is_split(&self) {
        let before = self.counted().await;
        let (answer, took) = self.complete("first", 3_000).await;
        let after = self.counted().await;
        let tokens = usage(&answer, "prompt_tokens");
        println!("a new prompt of {tokens} tokens, answered in {took:.2?}:");
        println!(
            "  prefill server   +{} prompt tokens",
            after.prefill - before.prefill
        );
        println!(
            "  decode server    +{} taken over, +{} computed",
            after.taken_over - before.taken_over,
            after.decode - before.decode
        );
        assert_eq!(
            after.prefill - before.prefill,
            tokens,
            "the prefill server has the prompt"
        );
        assert!(
            after.taken_over - before.taken_over > tokens * 9 / 10,
            "it was handed over"
        );
        assert_eq!(self.decisions("prefill-decode").await, 1);
        let exported = eventually("a scrape that shows it", async || {
            self.of_envoy("epp_disagg_transferred_tokens", &[])
                .await
                .filter(|tokens| *tokens > 0)
        })
        .await;
        assert_eq!(exported, after.taken_over);
    }

    async fn a_repeat_is_not_split(&self) {
        let before = self.counted().await;
        let (answer, took) = self.complete("first", 3_000).await;
        let after = self.counted().await;
        println!(
            "the same again, answered in {took:.2?}: {} cached at the decode server",
            cached(&answer)
        );
        assert_eq!(
            (after.prefill, after.taken_over),
            (before.prefill, before.taken_over)
        );
        assert_eq!(self.decisions("decode-only").await, 1);
        assert!(cached(&answer) > 0, "it was there");
    }

    async fn a_stream_is_split(&self) {
        let before = self.counted().await;
        let body = json!({
            "model": self.arguments.model, "messages": [say("user", &prompt("second", 3_000))],
            "max_tokens": 8, "stream": true, "stream_options": {"include_usage": true},
        });
        let (answer, took) = self.ask(CHAT, &body).await;
        let after = self.counted().await;
        let text = String::from_utf8_lossy(&answer.body);
        let events = text
            .lines()
            .filter(|line| line.starts_with("data: "))
            .count();
        println!(
            "a streamed chat, answered in {took:.2?}: {events} events, {} tokens handed over",
            after.taken_over - before.taken_over
        );
        assert!(
            events > 8 && text.contains("\"prompt_tokens\"") && text.contains("[DONE]"),
            "{text}"
        );
        assert!(after.taken_over > before.taken_over);
        assert_eq!(self.decisions("prefill-decode").await, 2);
    }

    async fn a_message_is_split(&self) {
        let before = self.counted().await;
        let body = json!({
            "model": self.arguments.model, "messages": [say("user", &prompt("message", 3_000))],
            "max_tokens": 8,
        });
        let (_, took) = self.ask("/v1/messages", &body).await;
        let taken_over = self.counted().await.taken_over - before.taken_over;
        println!("a message, answered in {took:.2?}: {taken_over} tokens handed over");
        assert!(taken_over > 0);
        assert_eq!(self.decisions("prefill-decode").await, 3);
    }

    /// Has the prefill server compute a prompt that the decode server will ask for too late.
    async fn params_of_a_prompt(&self) -> Value {
        let body = json!({
            "model": self.arguments.model, "prompt": prompt("gone", 3_000), "max_tokens": 1,
            "kv_transfer_params": {"do_remote_decode": true},
        });
        let url = format!("http://{}{COMPLETIONS}", self.arguments.prefill);
        let answer = Answer::to(self.client.post(url).json(&body)).await;
        let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
        answer["kv_transfer_params"].clone()
    }

    /// The decode server's policy is to compute what it cannot fetch.
    async fn a_prompt_that_is_gone_is_computed_again(&self, params: Value) {
        assert!(params["remote_request_id"].is_string(), "{params}");
        let body = json!({
            "model": self.arguments.model, "prompt": prompt("gone", 3_000), "max_tokens": 8,
            "kv_transfer_params": params,
        });
        let before = self.decode_counted().await;
        let begun = Instant::now();
        let url = format!("http://{}{COMPLETIONS}", self.arguments.decode);
        let request = self
            .client
            .post(url)
            .timeout(Duration::from_secs(90))
            .json(&body);
        let answer = Answer::to(request).await;
        let computed = self.decode_counted().await - before;
        println!(
            "handed over by a server that is gone: {} after {:.2?}, {computed} tokens computed",
            answer.status,
            begun.elapsed()
        );
        assert_eq!(answer.status, 200);
    }

    async fn decode_counted(&self) -> u64 {
        let decode = self.page(self.arguments.decode).await;
        sum(
            &decode,
            "vllm:prompt_tokens_by_source_total{",
            "local_compute",
        )
    }

    async fn a_server_that_dies_costs_nothing(&self) {
        self.signal("STOP");
        let asked = self.complete("third", 3_000);
        let dies = async {
            // It has the request by then, and nobody to compute it.
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.signal("KILL");
        };
        let ((_, took), ()) = tokio::join!(asked, dies);
        let reset = self.decisions("prefill-reset").await;
        println!("killed amid a prompt: answered in {took:.2?} by the decode server alone");
        assert_eq!(reset, 1, "the call broke off");
        let (_, took) = self.complete("fourth", 3_000).await;
        let refused = self.decisions("prefill-refused").await;
        let left_out = self.decisions("no-prefill-endpoint").await;
        println!("and the next one in {took:.2?}");
        assert_eq!(refused + left_out, 1, "nobody is there to compute it");
    }

    async fn complete(&self, name: &str, bytes: usize) -> (Answer, Duration) {
        let body = json!({
            "model": self.arguments.model, "prompt": prompt(name, bytes), "max_tokens": 8, "temperature": 0,
        });
        self.ask(COMPLETIONS, &body).await
    }

    /// An answer, which is one.
    async fn ask(&self, path: &str, body: &Value) -> (Answer, Duration) {
        let begun = Instant::now();
        let url = format!("{}{path}", self.envoy.url());
        let answer = Answer::to(self.client.post(url).json(body)).await;
        assert_eq!(
            answer.status,
            200,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
        assert!(!answer.broken_off);
        (answer, begun.elapsed())
    }

    async fn counted(&self) -> Counted {
        let prefill = self.page(self.arguments.prefill).await;
        let decode = self.page(self.arguments.decode).await;
        Counted {
            prefill: sum(&prefill, "vllm:prompt_tokens_total{", ""),
            taken_over: sum(
                &decode,
                "vllm:prompt_tokens_by_source_total{",
                "external_kv_transfer",
            ),
            decode: sum(
                &decode,
                "vllm:prompt_tokens_by_source_total{",
                "local_compute",
            ),
        }
    }

    async fn page(&self, server: SocketAddr) -> String {
        let page = self
            .client
            .get(format!("http://{server}/metrics"))
            .send()
            .await;
        page.expect("a page").text().await.expect("text")
    }

    async fn decisions(&self, decision: &str) -> u64 {
        let labels = [("decision", decision)];
        let count = self.of_envoy("epp_disagg_decision_total", &labels).await;
        count.expect("exported from the start")
    }

    async fn of_envoy(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let labels = [labels, &[("pool", POOL)]].concat();
        let value = self.envoy.prometheus_value(name, &labels).await;
        value.expect("admin answers").map(|value| value as u64)
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.arguments.prefill_group);
        let sent = Command::new("kill")
            .args(["-s", signal, "--", &group])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "kill -s {signal} -- {group}"
        );
    }
}

/// The sum over the lines of a metrics page that begin with `name` and hold `label`.
fn sum(page: &str, name: &str, label: &str) -> u64 {
    let lines = page
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

fn usage(answer: &Answer, name: &str) -> u64 {
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    answer["usage"][name].as_u64().expect("a count")
}

fn cached(answer: &Answer) -> u64 {
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or(0)
}

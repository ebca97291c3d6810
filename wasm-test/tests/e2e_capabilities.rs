//! The shipped list of capabilities: with it everything works, without any one of them something is
//! lost.

use std::collections::BTreeMap;
use std::fs;
use std::future::{Future, ready};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use wasm_test::envoy::StartError;
use wasm_test::testbed::{Answer, COMPLETIONS, POOL, Testbed, completion, prompt};

use client::{Upload, Version};

#[path = "framing/client.rs"]
#[expect(dead_code, reason = "another test needs the rest of it")]
mod client;

const FRAGMENT: &str = "envoy/fragments/capabilities.yaml";

/// How long a sign of life may take that is there.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one is waited for that is not.
const DOUBT: Duration = Duration::from_secs(4);

/// Something a user has of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// Envoy accepts the configuration.
    Starts,
    /// What it says is in the log.
    Logs,
    /// A prompt is read, and its next turn matches where it was answered.
    Matches,
    /// A body that ends with trailers is read as well.
    ReadsTrailers,
    /// The server is asked for another model.
    Rewrites,
    /// Control headers of clients are removed.
    Strips,
    /// A request is refused where nobody is fit.
    Refuses,
    /// Metrics of the servers are read again and again, and that is counted.
    Scrapes,
    /// Gauges show.
    Gauges,
    /// A request that is over does not count as open.
    Closes,
    /// A request whose body does not come is let go.
    Resumes,
    /// What a stream took is given back.
    Frees,
}

const SIGNS: [Sign; 12] = [
    Sign::Starts,
    Sign::Logs,
    Sign::Matches,
    Sign::ReadsTrailers,
    Sign::Rewrites,
    Sign::Strips,
    Sign::Refuses,
    Sign::Scrapes,
    Sign::Gauges,
    Sign::Closes,
    Sign::Resumes,
    Sign::Frees,
];

/// What each capability is for: the sign that is lost with it.
const LOSSES: [(&str, Sign); 30] = [
    ("proxy_on_configure", Sign::Matches),
    ("proxy_on_context_create", Sign::Starts),
    ("proxy_on_delete", Sign::Frees),
    ("proxy_on_http_call_response", Sign::Scrapes),
    ("proxy_on_log", Sign::Closes),
    ("proxy_on_request_body", Sign::Matches),
    ("proxy_on_request_headers", Sign::Matches),
    ("proxy_on_request_trailers", Sign::ReadsTrailers),
    ("proxy_on_response_body", Sign::Matches),
    ("proxy_on_response_headers", Sign::Matches),
    ("proxy_on_tick", Sign::Scrapes),
    ("clock_time_get", Sign::Scrapes),
    ("proxy_continue_stream", Sign::Resumes),
    ("proxy_define_metric", Sign::Gauges),
    ("proxy_get_buffer_bytes", Sign::Starts),
    ("proxy_get_header_map_pairs", Sign::Matches),
    ("proxy_get_header_map_value", Sign::Scrapes),
    ("proxy_get_property", Sign::Matches),
    ("proxy_get_shared_data", Sign::Scrapes),
    ("proxy_http_call", Sign::Scrapes),
    ("proxy_increment_metric", Sign::Scrapes),
    ("proxy_log", Sign::Logs),
    ("proxy_record_metric", Sign::Gauges),
    ("proxy_remove_header_map_value", Sign::Strips),
    ("proxy_replace_header_map_value", Sign::Matches),
    ("proxy_send_local_response", Sign::Refuses),
    ("proxy_set_buffer_bytes", Sign::Rewrites),
    ("proxy_set_effective_context", Sign::Resumes),
    ("proxy_set_shared_data", Sign::Scrapes),
    ("proxy_set_tick_period_milliseconds", Sign::Starts),
];

/// The shipped list.
fn capabilities() -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(FRAGMENT);
    let text = fs::read_to_string(path).expect("readable");
    let tree: Value = serde_saphyr::from_str(&text).expect("YAML");
    let list = &tree["capability_restriction_config"]["allowed_capabilities"];
    serde_json::from_value(list.clone()).expect("a list")
}

/// A testbed that may do what is listed but for `without`.
async fn start(without: Option<&str>) -> Result<Testbed, StartError> {
    let mut allowed = capabilities();
    if let Some(name) = without {
        allowed.remove(name).expect("it is listed");
    }
    let closed = json!({
        "name": "closed", "cluster": "model-servers", "match": { "pathPrefix": "/closed" },
        "discovery": { "adminCluster": "model-servers" },
    });
    let models = json!([{ "name": "alias", "targets": [{ "model": "sim-model" }] }]);
    let setup = Testbed::with_servers(2).workers(1).plugin(move |plugin| {
        plugin["failureMode"] = json!("FailClose");
        let pools = plugin["pools"].as_array_mut().expect("a list");
        // Blocks count only once the answer has begun.
        pools[0]["prefix"] = json!({ "pendingCredit": "none" });
        pools[0]["models"] = models.clone();
        pools.insert(0, closed.clone());
    });
    let setup = setup.connection_manager(move |manager| {
        let settings = &mut manager["http_filters"][0]["typed_config"]["config"];
        settings["vm_config"]["capability_restriction_config"] =
            json!({ "allowed_capabilities": allowed });
    });
    setup.try_start().await
}

/// Whether `ask` says yes before `patience` is over.
async fn comes_true<F: Future<Output = bool>>(patience: Duration, ask: impl Fn() -> F) -> bool {
    let since = Instant::now();
    while since.elapsed() < patience {
        if timeout(patience, ask()).await.unwrap_or(false) {
            return true;
        }
        sleep(Duration::from_millis(50)).await;
    }
    false
}

async fn answer(request: RequestBuilder) -> Option<Answer> {
    let started = Instant::now();
    let response = timeout(DOUBT, request.send()).await.ok()?.ok()?;
    timeout(DOUBT, Answer::read(response, started)).await.ok()
}

fn post(testbed: &Testbed, path: &str, body: &Value) -> RequestBuilder {
    Client::new()
        .post(format!("{}{path}", testbed.envoy().url()))
        .header("content-type", "application/json")
        .body(body.to_string())
}

async fn shows(testbed: &Testbed, sign: Sign, patience: Duration) -> bool {
    match sign {
        Sign::Starts => true,
        Sign::Logs => testbed
            .envoy()
            .log()
            .contains("wasm log inline-epp inline-epp: inline-epp 0"),
        Sign::Matches => matches(testbed).await,
        Sign::ReadsTrailers => reads_trailers(testbed).await,
        Sign::Rewrites => {
            let mut body = completion("another name");
            body["model"] = json!("alias");
            let answer = answer(post(testbed, COMPLETIONS, &body)).await;
            answer.is_some_and(|answer| answer.status == 200)
        }
        Sign::Strips => {
            let request = testbed.request(Method::GET, "/v1/models");
            let answer = answer(request.header("x-slo-ttft-ms", "1")).await;
            answer.is_some_and(|answer| !answer.headers_seen().contains(&"x-slo-ttft-ms"))
        }
        Sign::Refuses => {
            let answer = answer(testbed.request(Method::GET, "/closed")).await;
            let words = b"no model server is available";
            answer.is_some_and(|answer| answer.body.windows(words.len()).any(|part| part == words))
        }
        Sign::Scrapes => {
            let labels = [("pool", POOL), ("result", "ok")];
            // One of each server could be the last.
            let enough = |count: Option<u64>| count.is_some_and(|count| count > 5);
            comes_true(patience, async || {
                enough(testbed.metric("epp_scrapes_total", &labels).await)
            })
            .await
        }
        Sign::Gauges => testbed.metric("epp_build_info", &[]).await == Some(1),
        Sign::Closes => closes(testbed, patience).await,
        Sign::Resumes => resumes(testbed).await,
        Sign::Frees => frees(testbed).await,
    }
}

async fn matches(testbed: &Testbed) -> bool {
    let body = completion(&prompt("two turns", 2_560));
    let request = || answer(post(testbed, COMPLETIONS, &body));
    let (Some(_), Some(second)) = (request().await, request().await) else {
        return false;
    };
    second.header("x-epp-cache-match") == Some("10/10") && second.server() == second.picked()
}

async fn reads_trailers(testbed: &Testbed) -> bool {
    let body = completion(&prompt("with trailers", 2_560)).to_string();
    let address = testbed.envoy().address();
    let upload = Upload::new(Version::H2c).with_trailers();
    let sent = tokio::spawn(async move { upload.send(address, body.as_bytes()).await });
    let answer = timeout(DOUBT, sent).await;
    answer.is_ok_and(|sent| sent.is_ok_and(|answer| answer.reason() == "picked"))
}

/// Whether requests that are over stop counting.
async fn closes(testbed: &Testbed, patience: Duration) -> bool {
    for number in 0..3 {
        let body = completion(&format!("over {number}"));
        answer(post(testbed, COMPLETIONS, &body)).await;
    }
    // Two intervals, so that the gauge has seen them.
    sleep(Duration::from_millis(500)).await;
    comes_true(patience, async || {
        testbed.metric("epp_inflight_requests", &[]).await == Some(0)
    })
    .await
}

/// Whether the first request goes on though its body does not come.
async fn resumes(testbed: &Testbed) -> bool {
    let never = stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let request = testbed.post(COMPLETIONS, reqwest::Body::wrap_stream(never));
    let sent = tokio::spawn(request.send());
    // Scrapes come and go, the request stays.
    let (mut polls, mut open) = (0, 0);
    while polls < 80 && open < 15 {
        sleep(Duration::from_millis(50)).await;
        polls += 1;
        let stat = "cluster.model-servers.upstream_rq_active";
        let active = testbed.envoy().counter(stat).await.unwrap_or(0);
        open = if active > 0 { open + 1 } else { 0 };
    }
    let went = open == 15;
    sent.abort();
    went
}

/// Resident memory of Envoy in bytes.
fn resident(testbed: &Testbed) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", testbed.envoy().pid()));
    let status = status.expect("Envoy runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

/// Whether streams that are over take no memory: each has a context, some hundred bytes.
async fn frees(testbed: &Testbed) -> bool {
    const STREAMS: usize = 12_000;
    const CONTEXT: u64 = 100;
    let ask = async |count: usize| {
        let requests = (0..count).map(|_| answer(testbed.request(Method::GET, "/closed")));
        let requests = stream::iter(requests).buffer_unordered(16);
        let answers = requests.filter(|answer| ready(answer.is_some())).count();
        assert_eq!(answers.await, count);
    };
    ask(STREAMS / 4).await;
    let before = resident(testbed);
    ask(STREAMS).await;
    let grown = resident(testbed).saturating_sub(before);
    println!("{STREAMS} streams: {grown} bytes more");
    grown < CONTEXT * STREAMS as u64
}

#[test]
fn what_each_listed_capability_is_for_is_known() {
    let listed: Vec<String> = capabilities().into_keys().collect();
    let mut known: Vec<&str> = LOSSES.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
    assert!(SIGNS.iter().is_sorted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_listed_capabilities_everything_works() {
    for sign in SIGNS {
        // What is new in a VM shows only in a new one.
        let testbed = start(None).await.expect("a start");
        println!("{sign:?}");
        assert!(shows(&testbed, sign, PATIENCE).await, "{sign:?}");
        testbed.assert_no_vm_lost().await;
        let log = testbed.envoy().log();
        assert!(!log.contains("Attempted call to restricted"), "{log}");
    }
}

/// Four parts, so that they run beside each other.
async fn each_is_needed(part: usize) {
    for (name, sign) in LOSSES.iter().skip(part).step_by(4) {
        let since = Instant::now();
        let shown = match start(Some(name)).await {
            Ok(testbed) => shows(&testbed, *sign, DOUBT).await,
            Err(error) => {
                assert_eq!(*sign, Sign::Starts, "without {name}: {error}");
                false
            }
        };
        println!("without {name}: no {sign:?}, {:?}", since.elapsed());
        assert!(!shown, "without {name} there still is {sign:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_capability_something_is_lost_first_part() {
    each_is_needed(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_capability_something_is_lost_second_part() {
    each_is_needed(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_capability_something_is_lost_third_part() {
    each_is_needed(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_capability_something_is_lost_fourth_part() {
    each_is_needed(3).await;
}

//! The shipped configurations, in a real Envoy: each is valid, starts and serves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wasm_test::envoy::{AdminError, CANONICAL, Envoy, NO_FILTER, StartError};

const PLUGIN_CONFIG: &str = "envoy/plugin-config.yaml";
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Answers every request with its own address and the size of the body it got.
#[derive(Debug)]
struct ModelServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
}

impl ModelServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let record = Arc::clone(&seen);
        let answer = move |headers: HeaderMap, body: Bytes| async move {
            record.lock().expect("no panic holds it").push(headers);
            format!(r#"{{"server": "{address}", "size": {}}}"#, body.len())
        };
        let app = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::disable());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, seen }
    }

    /// The headers of the requests that users sent, scrapes of metrics left out.
    fn requests(&self) -> Vec<HeaderMap> {
        let seen = self.seen.lock().expect("no panic holds it");
        seen.iter()
            .filter(|headers| headers.contains_key("x-user"))
            .cloned()
            .collect()
    }
}

/// An address of this machine on which nobody listens.
async fn dead_endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("bound")
}

async fn ask(envoy: &Envoy, body: Vec<u8>) -> reqwest::Response {
    reqwest::Client::new()
        .post(format!("{}/v1/completions", envoy.url()))
        .header("x-user", "test")
        .body(body)
        .send()
        .await
        .expect("Envoy answers")
}

fn prompt(size: usize) -> Vec<u8> {
    json!({ "model": "llama", "prompt": "x".repeat(size) })
        .to_string()
        .into_bytes()
}

/// The shipped bootstrap files: every YAML file but the plugin configuration alone.
fn bootstraps() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../envoy");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let yaml = files
        .map(|file| file.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        });
    yaml.filter(|path| !path.ends_with(PLUGIN_CONFIG)).collect()
}

#[tokio::test]
async fn every_shipped_bootstrap_is_valid() {
    let files = bootstraps();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        Envoy::builder(&file)
            .validate()
            .await
            .unwrap_or_else(|error| panic!("{file:?}: {error}"));
    }
}

#[tokio::test]
async fn every_key_of_the_spelled_out_plugin_configuration_is_accepted() {
    let envoy = Envoy::builder(CANONICAL).plugin_file(PLUGIN_CONFIG);
    envoy.validate().await.expect("a valid configuration");
}

#[tokio::test]
async fn the_plugin_configuration_may_come_as_text() {
    let envoy = Envoy::builder(CANONICAL).plugin_as_text();
    envoy.validate().await.expect("a valid configuration");
}

#[tokio::test]
async fn the_canonical_configuration_serves_and_keeps_its_headers_inside() {
    let server = ModelServer::start().await;
    let envoy = Envoy::builder(CANONICAL)
        .endpoints(&[server.address])
        .start()
        .await
        .expect("a start");

    // Larger than Envoy's own limit for a held body, which the file raises.
    let response = ask(&envoy, prompt(3_000_000)).await;

    assert_eq!(response.status(), 200);
    let id = response
        .headers()
        .get("x-request-id")
        .expect("a request id")
        .clone();
    let answer: Value = response.json().await.expect("JSON");
    assert_eq!(answer["size"], prompt(3_000_000).len());
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].get("x-request-id"), Some(&id));
    assert_eq!(requests[0].get(DESTINATION), None);
    assert_eq!(
        envoy
            .vm_reloads()
            .await
            .expect("stats of the module")
            .success,
        0
    );
}

#[tokio::test]
async fn a_request_id_of_the_client_reaches_server_and_client() {
    let server = ModelServer::start().await;
    let envoy = Envoy::builder(NO_FILTER)
        .endpoints(&[server.address])
        .start()
        .await
        .expect("a start");
    let client = reqwest::Client::new();
    let request = client
        .get(envoy.url())
        .header("x-user", "test")
        .header("x-request-id", "mine");

    let response = request.send().await.expect("Envoy answers");

    assert_eq!(response.headers()["x-request-id"], "mine");
    assert_eq!(server.requests()[0]["x-request-id"], "mine");
}

#[tokio::test]
async fn a_client_cannot_steer_envoy_by_its_headers() {
    let server = ModelServer::start().await;
    let envoy = Envoy::builder(NO_FILTER)
        .endpoints(&[server.address])
        .start()
        .await
        .expect("a start");
    let request = reqwest::Client::new()
        .get(envoy.url())
        .header("x-user", "test");
    // Envoy obeys this one as it does those for retries and timeouts, and it leaves a trace.
    let request = request.header("x-envoy-upstream-alt-stat-name", "of-the-client");

    let response = request
        .header(DESTINATION, "169.254.169.254:80")
        .send()
        .await;

    assert_eq!(response.expect("Envoy answers").status(), 200);
    assert_eq!(server.requests()[0].get(DESTINATION), None);
    let stat = envoy
        .counter("cluster.model-servers.of-the-client.upstream_rq_200")
        .await;
    assert!(matches!(stat, Err(AdminError::NoSuchStat(_))), "{stat:?}");
}

#[tokio::test]
async fn the_baseline_takes_its_servers_in_turn() {
    let servers = [ModelServer::start().await, ModelServer::start().await];
    let endpoints = servers.each_ref().map(|server| server.address);
    let envoy = Envoy::builder(NO_FILTER)
        .endpoints(&endpoints)
        .concurrency(1)
        .start()
        .await
        .expect("a start");

    for _ in 0..6 {
        assert_eq!(ask(&envoy, prompt(10)).await.status(), 200);
    }

    assert_eq!(
        servers.each_ref().map(|server| server.requests().len()),
        [3, 3]
    );
}

#[tokio::test]
async fn a_server_that_refuses_costs_a_retry_and_no_error() {
    let server = ModelServer::start().await;
    let endpoints = [dead_endpoint().await, server.address];
    let envoy = Envoy::builder(NO_FILTER)
        .endpoints(&endpoints)
        .start()
        .await
        .expect("a start");

    // More at once than Envoy's default of 3 retries in flight.
    let requests = (0..40).map(|_| ask(&envoy, prompt(10)));
    for response in futures_util::future::join_all(requests).await {
        assert_eq!(response.status(), 200);
    }

    let retries = envoy
        .counter("cluster.model-servers.upstream_rq_retry")
        .await;
    assert!(retries.expect("a counter of every cluster") > 0);
    let labels = [("envoy_cluster_name", "model-servers")];
    let retries = envoy
        .prometheus_value("envoy_cluster_upstream_rq_retry", &labels)
        .await;
    assert!(retries.expect("an answer").expect("the same counter") > 0.0);
}

#[tokio::test]
async fn a_configuration_envoy_refuses_is_an_error_with_its_log() {
    let envoy = Envoy::builder(NO_FILTER).bootstrap(|tree| tree["nonsense"] = json!(1));
    let error = envoy.start().await.expect_err("an unknown field");
    assert!(matches!(error, StartError::NotReady { .. }), "{error}");
    assert!(error.log().contains("nonsense"), "{error}");
}

#[tokio::test]
async fn a_dropped_envoy_no_longer_listens() {
    let envoy = Envoy::builder(NO_FILTER).start().await.expect("a start");
    let address = envoy.address();
    drop(envoy);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stat_that_does_not_exist_is_an_error() {
    let envoy = Envoy::builder(NO_FILTER).start().await.expect("a start");
    assert!(
        envoy
            .counter("cluster.model-servers.no_such")
            .await
            .is_err()
    );
}

//! Configuration updates: through the shipped dynamic example (ECDS) streams go on, over LDS they
//! are cut when the drain time is over.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use wasm_test::artifact;
use wasm_test::envoy::{CANONICAL, Envoy, TIMER_SLACK, VmReloads};
use wasm_test::sim::{Preset, SimConfig, SimServer};
use wasm_test::testbed::{Answer, CHAT, chat, eventually, say};

const BOOTSTRAP: &str = "envoy/dynamic.yaml";
const RESOURCE: &str = "envoy/dynamic/inline-epp.yaml";

/// A folder with the one file that Envoy watches.
struct Watched {
    folder: TempDir,
}

impl Watched {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    fn write(&self, content: &Value) {
        let next = self.folder.path().join("next.json");
        fs::write(&next, content.to_string()).expect("a writable folder");
        fs::rename(next, self.path()).expect("the same folder");
    }

    fn read(&self) -> Value {
        let text = fs::read_to_string(self.path()).expect("readable");
        serde_json::from_str(&text).expect("JSON")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("resource.json")
    }

    /// As a `ConfigSource`.
    fn source(&self) -> Value {
        json!({
            "resource_api_version": "V3",
            "path_config_source": {
                "path": self.path(),
                "watched_directory": { "path": self.folder.path() },
            },
        })
    }
}

/// A server that takes 40 ms for a token.
async fn server() -> SimServer {
    let config = SimConfig {
        preset: Preset::A100Llama70b,
        ..SimConfig::default()
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    SimServer::start(config, any).await.expect("a free port")
}

/// A streamed answer of `tokens` tokens, of which the first piece is there.
async fn begin(envoy: &Envoy, tokens: usize) -> Response {
    let mut body = chat(&[say("user", "a long story")]);
    body["stream"] = json!(true);
    body["max_tokens"] = json!(tokens);
    let request = Client::new()
        .post(format!("{}{CHAT}", envoy.url()))
        .header("content-type", "application/json");
    let mut response = request
        .body(body.to_string())
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 200);
    assert!(response.chunk().await.expect("a piece").is_some());
    response
}

/// The module's reason for a short request on a new connection, empty while it does not tell.
async fn reason(envoy: &Envoy) -> String {
    let request = Client::new().get(format!("{}/v1/models", envoy.url()));
    let answer = Answer::to(request).await;
    assert_eq!(answer.status, 200);
    answer.reason().to_owned()
}

async fn in_force(envoy: &Envoy) {
    eventually("the new configuration", async || {
        (reason(envoy).await == "no_body").then_some(())
    })
    .await;
}

/// The plugin configuration of the shipped resource.
fn plugin(content: &mut Value) -> &mut Value {
    &mut content["resources"][0]["typed_config"]["config"]["configuration"]["value"]
}

/// The shipped resource with the module built from this checkout, before `server`.
fn resource(server: &SimServer) -> Value {
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(RESOURCE),
    )
    .expect("readable");
    let mut content: Value = serde_saphyr::from_str(&text).expect("YAML");
    let module: &Path = artifact::module().expect("a module");
    let settings = &mut content["resources"][0]["typed_config"]["config"];
    settings["vm_config"]["code"]["local"]["filename"] = json!(module);
    plugin(&mut content)["pools"][0]["endpoints"] = json!([server.address().to_string()]);
    content
}

/// The shipped bootstrap, with its resource in `watched`.
async fn start_dynamic(server: &SimServer, watched: &Watched) -> Envoy {
    watched.write(&resource(server));
    let source = watched.source();
    let envoy = Envoy::builder(BOOTSTRAP)
        .endpoints(&[server.address()])
        .concurrency(1)
        .bootstrap(move |tree| {
            let chain = &mut tree["static_resources"]["listeners"][0]["filter_chains"][0];
            let manager = &mut chain["filters"][0]["typed_config"];
            let discovery = &mut manager["http_filters"][0]["config_discovery"];
            assert!(discovery["config_source"].is_object(), "{manager}");
            discovery["config_source"] = source.clone();
        });
    envoy.start().await.expect("a start")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_survives_an_update_over_ecds_and_the_new_configuration_is_in_force() {
    let (server, watched) = (server().await, Watched::new());
    let envoy = start_dynamic(&server, &watched).await;
    assert_eq!(reason(&envoy).await, "");
    let stream = begin(&envoy, 200).await;
    let mut content = watched.read();
    plugin(&mut content)["debugHeaders"] = json!(true);
    watched.write(&content);
    in_force(&envoy).await;
    assert_eq!(
        server.state().gauges.num_requests_running,
        1,
        "the stream is over already"
    );
    let rest = Answer::read(stream, Instant::now()).await;
    assert!(!rest.broken_off);
    assert!(String::from_utf8_lossy(&rest.body).contains("data: [DONE]"));
    assert_eq!(envoy.vm_reloads().await.unwrap(), VmReloads::default());
    // What is wrong is refused with a line, and nothing changes.
    plugin(&mut content)["maxBufferedBytes"] = json!("none");
    watched.write(&content);
    eventually("a refusal", async || {
        let line = "inline-epp: maxBufferedBytes: expected a size";
        envoy.log().contains(line).then_some(())
    })
    .await;
    assert_eq!(reason(&envoy).await, "no_body");
    let info: Value =
        serde_json::from_str(&envoy.admin_get("/server_info").await.unwrap()).unwrap();
    let version = info["version"]
        .as_str()
        .and_then(|text| text.split('/').nth(1));
    let line = format!(
        "inline-epp: proxy Envoy {}: requests are held",
        version.expect("a version")
    );
    assert!(envoy.log().contains(&line), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_cut_after_the_drain_time_by_an_update_over_lds() {
    const DRAIN: Duration = Duration::from_secs(2);
    let (server, watched) = (server().await, Watched::new());
    let (file, source) = (watched.path(), watched.source());
    let envoy = Envoy::builder(CANONICAL)
        .endpoints(&[server.address()])
        .concurrency(1)
        .arguments(&["--drain-time-s", "2", "--drain-strategy", "immediate"])
        .bootstrap(move |tree| {
            tree["node"] = json!({ "id": "test", "cluster": "test" });
            let mut listener = tree["static_resources"]["listeners"][0].take();
            listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
            fs::write(&file, json!({ "resources": [listener] }).to_string()).expect("writable");
            tree["static_resources"]["listeners"] = json!([]);
            tree["dynamic_resources"]["lds_config"] = source.clone();
        });
    let envoy = envoy.start().await.expect("a start");
    assert_eq!(reason(&envoy).await, "");
    // Forty seconds, unless it is cut.
    let stream = begin(&envoy, 1_000).await;
    let mut content = watched.read();
    let chain = &mut content["resources"][0]["filter_chains"][0];
    let manager = &mut chain["filters"][0]["typed_config"];
    let settings = &mut manager["http_filters"][0]["typed_config"]["config"];
    settings["configuration"]["value"]["debugHeaders"] = json!(true);
    let changed = Instant::now();
    watched.write(&content);
    in_force(&envoy).await;
    let rest = Answer::read(stream, changed).await;
    let took = changed.elapsed();
    println!("cut after {took:?}");
    assert!(rest.broken_off);
    assert!(!String::from_utf8_lossy(&rest.body).contains("data: [DONE]"));
    assert!(took + TIMER_SLACK >= DRAIN, "{took:?}");
    assert!(took < DRAIN * 8, "{took:?}");
    eventually("nothing in flight", async || {
        let open = envoy.prometheus_value("epp_inflight_requests", &[]).await;
        (open.unwrap() == Some(0.0)).then_some(())
    })
    .await;
}

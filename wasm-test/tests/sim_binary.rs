//! The command `vllm-sim`.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

fn spawn(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts")
}

/// The URL each of `count` servers printed.
async fn urls(child: &mut Child, count: usize) -> Vec<String> {
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut urls = Vec::new();
    while urls.len() < count {
        let line = timeout(DEADLINE, lines.next_line())
            .await
            .expect("in time")
            .expect("readable");
        let line = line.expect("a line for each server");
        let prefix = format!("server {} listening on ", urls.len());
        urls.push(
            line.strip_prefix(&prefix)
                .expect("server and address")
                .to_owned(),
        );
    }
    urls
}

#[tokio::test]
async fn servers_run_until_a_signal() {
    for signal in ["TERM", "INT"] {
        let arguments = ["--servers", "3", "--base-port", "0", "--preset", "instant"];
        let mut child = spawn(&arguments);
        for url in urls(&mut child, 3).await {
            let health = reqwest::get(format!("{url}/health"))
                .await
                .expect("an answer");
            assert!(health.status().is_success());
        }
        let pid = child.id().expect("still running").to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status()
            .await;
        assert!(sent.expect("kill runs").success());
        let status = timeout(DEADLINE, child.wait())
            .await
            .expect("in time")
            .expect("its status");
        assert!(status.success(), "{signal}: {status}");
    }
}

#[tokio::test]
async fn flags_reach_the_servers() {
    let mut child = spawn(&[
        "--servers=1",
        "--base-port=0",
        "--preset=a100-70b",
        "--time-scale=1000",
        "--block-size=32",
        "--num-gpu-blocks=64",
        "--max-num-seqs=4",
        "--served-model-name=base",
        "--data-parallel-size=2",
        "--max-loras=1",
        "--loading-ms=1",
        "--lora-modules",
        "a=64",
        "b",
    ]);
    let url = urls(&mut child, 1).await.remove(0);
    let state = reqwest::get(format!("{url}/sim/state"))
        .await
        .expect("an answer");
    let state: serde_json::Value = state.json().await.expect("JSON");
    assert_eq!(state["engines"].as_array().map(Vec::len), Some(2));
    // A thousand times as fast.
    assert_eq!(
        state["overrides"]["loading"],
        serde_json::json!({"for_ms": 0})
    );
    let page = reqwest::get(format!("{url}/metrics"))
        .await
        .expect("an answer");
    let page = page.text().await.expect("text");
    // The blocks of both engines.
    assert!(page.contains("block_size=\"32\"") && page.contains("num_gpu_blocks=\"128\""));
    assert!(page.contains("model_name=\"base\""));
    let models = reqwest::get(format!("{url}/v1/models"))
        .await
        .expect("an answer");
    let models: serde_json::Value = models.json().await.expect("JSON");
    let ids: Vec<_> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["base", "a", "b"]);
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_itself() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let mut child = spawn(&["--servers=1", "--base-port", &port]);
    let status = timeout(DEADLINE, child.wait())
        .await
        .expect("in time")
        .expect("its status");
    assert_eq!(status.code(), Some(1));
    let mut error = String::new();
    let mut stderr = child.stderr.take().expect("piped");
    stderr.read_to_string(&mut error).await.expect("readable");
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
}

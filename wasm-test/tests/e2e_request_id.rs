//! `x-request-id`: the same at server and client, given or made.

use wasm_test::sim::SimServer;
use wasm_test::testbed::{Answer, COMPLETIONS, Testbed, completion, prompt};

/// Envoy neither makes an id nor returns one: what is there is the module's.
async fn without_envoys_help(servers: usize) -> Testbed {
    Testbed::with_servers(servers)
        .connection_manager(|manager| {
            manager["generate_request_id"] = false.into();
            manager["always_set_request_id_in_response"] = false.into();
        })
        .start()
        .await
}

/// The id in the last request that `server` received.
fn received(server: &SimServer) -> String {
    let log = server.log();
    let last = log.last().expect("a request");
    last.request_id.clone().expect("an id")
}

fn is_uuid_v4(id: &str) -> bool {
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    let digits = id
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    lengths == [8, 4, 4, 4, 12]
        && digits
        && id.as_bytes()[14] == b'4'
        && b"89ab".contains(&id.as_bytes()[19])
}

#[tokio::test]
async fn an_absent_request_id_is_made_and_reaches_server_and_client() {
    let testbed = without_envoys_help(1).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let answer = testbed
            .complete(&prompt(&format!("client {number}"), 600))
            .await;
        let id = answer.header("x-request-id").expect("an id").to_owned();
        assert!(is_uuid_v4(&id), "{id}");
        assert_eq!(received(&testbed.servers()[0]), id);
        ids.push(id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "{ids:?}");
}

#[tokio::test]
async fn a_request_id_of_the_client_reaches_server_and_client() {
    let testbed = without_envoys_help(1).await;
    let body = completion(&prompt("any", 600)).to_string();
    let requests = [
        testbed.post(COMPLETIONS, body),
        testbed.post(COMPLETIONS, "no JSON"),
        testbed.request(reqwest::Method::GET, "/v1/models"),
    ];
    for request in requests {
        let answer = Answer::to(request.header("x-request-id", "of the client")).await;
        assert_eq!(answer.header("x-request-id"), Some("of the client"));
        assert_eq!(received(&testbed.servers()[0]), "of the client");
    }
}

#[tokio::test]
async fn an_empty_request_id_counts_as_absent() {
    let testbed = without_envoys_help(1).await;
    let request = testbed.request(reqwest::Method::GET, "/v1/models");
    let answer = Answer::to(request.header("x-request-id", "")).await;
    let id = answer.header("x-request-id").expect("an id");
    assert!(is_uuid_v4(id), "{id}");
    assert_eq!(received(&testbed.servers()[0]), id);
}

#[tokio::test]
async fn an_answer_of_envoy_itself_carries_the_request_id() {
    let testbed = without_envoys_help(1).await;
    testbed.servers()[0].kill().await;
    let request = testbed.post(COMPLETIONS, completion("anybody?").to_string());
    let answer = Answer::to(request.header("x-request-id", "unlucky")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-request-id"), Some("unlucky"));
}

#[tokio::test]
async fn a_retry_keeps_the_request_id() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.max_num_queued_reqs = Some(0))
        .start()
        .await;
    let request = testbed.post(COMPLETIONS, completion("anybody?").to_string());
    let answer = Answer::to(request.header("x-request-id", "tried twice")).await;
    assert_eq!(answer.header("x-request-id"), Some("tried twice"));
    for server in testbed.servers() {
        assert_eq!(received(server), "tried twice");
    }
}

#[tokio::test]
async fn a_request_that_is_nobodys_gets_no_request_id() {
    let testbed = without_envoys_help(1).await;
    let request = testbed.request(reqwest::Method::GET, "/elsewhere");
    let answer = Answer::to(request).await;
    assert_eq!(answer.header("x-request-id"), None);
    assert_eq!(testbed.servers()[0].log()[0].request_id, None);
}

//! Each rule of the fake host next to a real Envoy: the same probe, the same requests, and the same
//! lines in the log.

use std::collections::BTreeMap;
use std::time::Duration;

use stage::{Calls, Client, Rules, Script, answered, fake_host, head, module, real_host, ticking};
use wasm_test::host::{Host, Progress, Thread};
use wasm_test::sim::{SimConfig, SimServer};
use wasm_test::testbed::eventually;

#[path = "host_model/stage.rs"]
mod stage;

/// Plays `script` on both hosts and holds the probe's lines to `expected`.
async fn shows(script: Script, status: u16, expected: &[&str]) {
    let (lines, answered) = script.play().await;
    assert_eq!(lines, expected);
    assert_eq!(answered, status);
}

#[tokio::test]
async fn shared_data_compares_tokens_only_where_there_is_a_value() {
    let script = Script::new("/shared-data", &[]);
    let (lines, _) = script.play().await;
    let expected = [
        "get missing=1",
        "set missing with a token=0",
        "get=0:first",
        "set without a token=0",
        "set with an old token=8",
        "get=second",
        "set with the token=0",
        "get emptied=0: token is another=true",
    ];
    assert_eq!(lines[1..9], expected);
}

#[tokio::test]
async fn a_metric_has_an_id_for_every_definition_and_a_counter_takes_no_zero() {
    let script = Script::new("/metrics-calls", &[]);
    let (lines, _) = script.play().await;
    let expected = [
        "define=0 again=0 same id=false",
        "define of no kind=2",
        "counter by 0=2 by -1=2 by 2=0",
        "counter by its other id=0 recorded=0",
        "gauge recorded=0 by -2=0 by 0=0",
        "histogram by 1=2 recorded=0",
        "unknown counter by 1=1 recorded=1",
    ];
    assert_eq!(lines[1..8], expected);
}

#[tokio::test]
async fn a_recorded_value_is_added_to_a_counter_and_replaces_a_gauges() {
    let host = fake_host(Rules::Shipped);
    let mut stream = host.stream(0);
    stream.headers(&head("/metrics-calls"), true);
    answered(stream, 0);
    let fake = ["probe_counter", "probe_gauge"].map(|name| host.metric(name, &[]));

    let server = server().await;
    let envoy = real_host(&server, Rules::Shipped)
        .start()
        .await
        .expect("a start");
    let mut client = Client::connect(&envoy).await;
    client.head("/metrics-calls", "").await;
    client.status().await;
    let counter = envoy.counter("wasmcustom.probe_counter").await.ok();
    let gauge = envoy.counter("wasmcustom.probe_gauge").await.ok();
    assert_eq!(fake, [counter, gauge]);
    assert_eq!(fake, [Some(15), Some(5)]);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_or_a_bad_argument() {
    let script = Script::new("/odd-calls", &[]);
    let (lines, _) = script.play().await;
    let expected = [
        "absent header=1",
        "repeated header=(0, \"first\")",
        "response header=2",
        "call's header=2",
        "request body=(0, 0) call's body=(1, 0)",
        "configuration=(1, 0)",
        "unknown property=1",
        "early property=1",
        "unknown context=2",
        "unknown cluster=2",
        "no authority=2",
    ];
    assert_eq!(lines[1..12], expected);
}

#[tokio::test]
async fn a_request_that_went_on_shows_each_piece_and_no_headers() {
    let expected = [
        "request_headers /pass end=0",
        "request_body size=10 end=0 buffer=0:10 path=2:",
        "request_body size=20 end=0 buffer=0:20 path=2:",
        "request_body size=0 end=1 buffer=0:0 path=2:",
        "response_headers 404 details=(0, \"via_upstream\") upstream=0 path=2:",
        "response_body end status=2 path=2:",
        "log details=(0, \"via_upstream\") status=(0, \"404\") path=0:/pass",
        "done path=2:",
        "delete",
    ];
    shows(Script::new("/pass", &[10, 20]), 404, &expected).await;
}

#[tokio::test]
async fn a_held_request_shows_its_headers_and_all_of_its_body() {
    let expected = [
        "request_headers /hold end=0",
        "request_body size=10 end=0 buffer=0:10 path=0:/hold",
        "request_body size=30 end=0 buffer=0:30 path=0:/hold",
        "request_body size=30 end=1 buffer=0:30 path=0:/hold",
        "response_headers 404 details=(0, \"via_upstream\") upstream=0 path=0:/hold",
        "response_body end status=2 path=0:/hold",
        "log details=(0, \"via_upstream\") status=(0, \"404\") path=0:/hold",
        "done path=0:/hold",
        "delete",
    ];
    shows(Script::new("/hold", &[10, 20]), 404, &expected).await;
}

#[tokio::test]
async fn trailers_come_in_place_of_the_end_of_the_body() {
    let script = Script {
        trailers: true,
        ..Script::new("/hold", &[10, 20])
    };
    let (lines, status) = script.play().await;
    let expected = [
        "request_headers /hold end=0",
        "request_body size=10 end=0 buffer=0:10 path=0:/hold",
        "request_body size=30 end=0 buffer=0:30 path=0:/hold",
        "request_trailers buffer=0:30 path=0:/hold",
        "set=0",
    ];
    assert_eq!(lines[..5], expected);
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_held_body_over_the_limit_is_answered_with_413_after_it_was_shown() {
    for (pieces, before) in [(&[10, 20][..], 3), (&[30], 2)] {
        let script = Script {
            rules: Rules::Limit(25),
            cut_short: true,
            ..Script::new("/hold", pieces)
        };
        let (lines, status) = script.play().await;
        let shown = "request_body size=30 end=0 buffer=0:30 path=0:/hold";
        assert_eq!(lines[before - 1], shown);
        let expected = [
            "response_headers 413 details=(0, \"request_payload_too_large\") upstream=1 path=0:/hold",
            "response_body end status=2 path=0:/hold",
            "log details=(0, \"request_payload_too_large\") status=(0, \"413\") path=0:/hold",
            "done path=0:/hold",
            "delete",
        ];
        assert_eq!(lines[before..], expected);
        assert_eq!(status, 413);
    }
}

#[tokio::test]
async fn a_body_over_the_limit_that_is_not_held_passes() {
    let script = Script {
        rules: Rules::Limit(25),
        ..Script::new("/pass", &[30])
    };
    assert_eq!(script.play().await.1, 404);
}

#[tokio::test]
async fn an_answer_of_the_module_stops_the_stream_and_is_shown_to_it() {
    let expected = [
        "request_headers /reply end=1",
        "reply=0",
        "response_headers 418 details=(0, \"of_the_probe\") upstream=1 path=0:/reply",
        "response_body end status=2 path=0:/reply",
        "log details=(0, \"of_the_probe\") status=(0, \"418\") path=0:/reply",
        "done path=0:/reply",
        "delete",
    ];
    shows(Script::new("/reply", &[]), 418, &expected).await;
    let script = Script {
        cut_short: true,
        ..Script::new("/hold-reply", &[10])
    };
    let (lines, status) = script.play().await;
    assert_eq!((lines.len(), status), (7, 418));
}

#[tokio::test]
async fn without_the_flag_the_body_comes_only_after_the_request_was_resumed() {
    let script = Script {
        rules: Rules::WithoutTheFlag,
        ..Script::new("/hold-call-", &[10, 20])
    };
    let (lines, status) = script.play().await;
    let expected = [
        "request_headers /hold-call- end=0",
        "call=0",
        "http_call_response to the stream=false headers=true status=200 body=0:true",
        "request as root=2",
        "act as the stream=0 path=0:/hold-call-",
        "set=0",
        "resume=0 path=2:",
        "request_body size=30 end=1 buffer=0:30 path=2:",
    ];
    assert_eq!(lines[..8], expected);
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_call_of_a_stream_is_answered_to_its_root_which_may_act_for_it() {
    let (lines, status) = Script::new("/hold-call-", &[10, 20]).play().await;
    let expected = [
        "request_headers /hold-call- end=0",
        "call=0",
        "request_body size=10 end=0 buffer=0:10 path=0:/hold-call-",
        "request_body size=30 end=0 buffer=0:30 path=0:/hold-call-",
        "request_body size=30 end=1 buffer=0:30 path=0:/hold-call-",
        "http_call_response to the stream=false headers=true status=200 body=0:true",
        "request as root=2",
        "act as the stream=0 path=0:/hold-call-",
        "set=0",
        "resume=0 path=2:",
    ];
    assert_eq!(lines[..10], expected);
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_call_fails_at_once_or_by_a_status_of_envoys() {
    let failed = |path, calls| Script {
        calls,
        ..Script::new(path, &[])
    };
    for (script, status) in [
        (failed("/hold-call-timeout", Calls::Unanswered), "504"),
        (failed("/hold-call-", Calls::Refused), "503"),
        (failed("/hold-call-", Calls::Broken), "503"),
        (failed("/hold-call-", Calls::Busy), "503"),
    ] {
        let (lines, answered) = script.play().await;
        let response = format!(
            "http_call_response to the stream=false headers=true status={status} body=0:true"
        );
        assert_eq!(lines[2], response);
        assert_eq!(answered, 418);
    }
    let (lines, answered) = failed("/hold-call-", Calls::Exhausted).play().await;
    assert_eq!(lines[1..3], ["call=10", "reply=0"]);
    assert_eq!(answered, 418);
}

#[tokio::test]
async fn a_servers_503_is_told_from_envoys_own_and_these_by_their_cause() {
    let own = "503 by server=false overloaded=false says=upstream connect error or \
               disconnect/reset before headers. reset reason: ";
    for (calls, line) in [
        (Calls::Refused, format!("{own}remote connection failure")),
        (Calls::Broken, format!("{own}connection termination")),
        (
            Calls::Busy,
            "503 by server=true overloaded=false says=".to_owned(),
        ),
    ] {
        let script = Script {
            calls,
            ..Script::new("/hold-call-", &[])
        };
        let (lines, _) = script.play().await;
        assert_eq!(lines[3], line);
    }
}

#[tokio::test]
async fn an_answer_that_comes_after_its_stream_reaches_the_root_alone() {
    let script = Script {
        leaves: true,
        ..Script::new("/hold-call-", &[10])
    };
    let (lines, _) = script.play().await;
    let expected = [
        "log details=(0, \"downstream_remote_disconnect\") status=(1, \"\") path=0:/hold-call-",
        "done path=0:/hold-call-",
        "delete",
        "http_call_response to the stream=false headers=true status=200 body=0:true",
        "request as root=2",
        "act as the stream=2 path=2:",
    ];
    assert_eq!(lines[4..], expected);
}

async fn server() -> SimServer {
    let any = "127.0.0.1:0".parse().expect("an address");
    SimServer::start(SimConfig::default(), any)
        .await
        .expect("a free port")
}

#[tokio::test]
async fn a_trap_ends_every_stream_of_the_vm_without_another_callback() {
    // The held stream learns of it with its next piece.
    let host = fake_host(Rules::Shipped);
    let mut held = host.stream(0);
    held.headers(&head("/hold"), false);
    assert_eq!(held.body(b"begin", false), Progress::Held);
    let mut trapping = host.stream(0);
    trapping.headers(&head("/trap"), true);
    assert_eq!(answered(trapping, 0), 503);
    assert_eq!(held.progress(), Progress::Lost);
    held.body(b"more", false);
    assert_eq!(answered(held, 0), 503);
    assert!(
        host.log()
            .iter()
            .all(|line| !line.text.contains("probe: log"))
    );

    let server = server().await;
    let envoy = real_host(&server, Rules::Shipped)
        .start()
        .await
        .expect("a start");
    let mut held = Client::connect(&envoy).await;
    held.head("/hold", "transfer-encoding: chunked\r\n").await;
    held.chunk(5).await;
    let mut trapping = Client::connect(&envoy).await;
    trapping.head("/trap", "").await;
    assert_eq!(trapping.status().await, 503);
    held.chunk(4).await;
    assert_eq!(held.status().await, 503);
    assert!(!envoy.log().contains("probe: log"));
}

/// Lines "configured" and "tick" of each thread.
fn by_thread<T: Ord>(lines: impl Iterator<Item = (T, String)>) -> BTreeMap<T, (usize, usize)> {
    let mut counts = BTreeMap::new();
    for (thread, text) in lines {
        let (configured, ticks) = counts.entry(thread).or_insert((0, 0));
        *configured += usize::from(text.ends_with("probe: configured"));
        *ticks += usize::from(text.ends_with("probe: tick"));
    }
    counts.retain(|_, count| *count != (0, 0));
    counts
}

#[tokio::test]
async fn every_vm_but_the_canarys_ticks_on_its_thread() {
    let setup = Host::setup().module(module()).workers(3);
    let host = setup.start(&ticking()).expect("a start");
    host.advance(Duration::from_millis(120));
    let lines: Vec<_> = host
        .log()
        .iter()
        .map(|line| (line.thread, line.text.clone()))
        .collect();
    let fake = by_thread(lines.into_iter());
    let expected = [(Thread::Canary, (1, 0)), (Thread::Main, (1, 2))];
    let workers = (0..3).map(|worker| (Thread::Worker(worker), (1, 2)));
    assert_eq!(fake, expected.into_iter().chain(workers).collect());

    let server = server().await;
    let envoy = real_host(&server, Rules::Shipped).concurrency(3);
    let envoy = envoy
        .plugin(|plugin| *plugin = ticking())
        .start()
        .await
        .expect("a start");
    // The canary is on the main thread, so that thread configures twice.
    eventually("two ticks of each thread", async || {
        let log = envoy.log();
        let thread =
            |line: &str| Some((line.split(['[', ']']).nth(3)?.to_owned(), line.to_owned()));
        let real = by_thread(log.lines().filter_map(thread));
        let mut configured: Vec<_> = real.values().map(|(configured, _)| *configured).collect();
        configured.sort_unstable();
        let ticking = real.values().all(|(_, ticks)| *ticks >= 2);
        (configured == [1, 1, 1, 2] && ticking).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_vm_is_replaced_by_a_request_once_its_interval_is_over() {
    const AN_HOUR: Duration = Duration::from_hours(1);
    let host = fake_host(Rules::ReloadInterval(3_600));
    let ask = |path: &str| {
        let mut stream = host.stream(0);
        stream.headers(&head(path), true);
        answered(stream, 0)
    };
    assert_eq!(
        [ask("/pass"), ask("/trap"), ask("/pass"), ask("/pass")],
        [404, 503, 503, 503]
    );
    host.advance(AN_HOUR);
    assert_eq!([ask("/pass"), ask("/trap"), ask("/pass")], [404, 503, 503]);
    host.advance(2 * AN_HOUR);
    assert_eq!([ask("/trap"), ask("/pass")], [503, 503]);

    let server = server().await;
    let ask = async |envoy, path: &str| {
        let mut client = Client::connect(envoy).await;
        client.head(path, "").await;
        client.status().await
    };
    let envoy = real_host(&server, Rules::ReloadInterval(3_600))
        .start()
        .await
        .expect("a start");
    for (path, status) in [
        ("/pass", 404),
        ("/trap", 503),
        ("/pass", 503),
        ("/pass", 503),
    ] {
        assert_eq!(ask(&envoy, path).await, status, "{path}");
    }
    let envoy = real_host(&server, Rules::Shipped)
        .start()
        .await
        .expect("a start");
    assert_eq!(ask(&envoy, "/trap").await, 503);
    eventually("the VM to be replaced", async || {
        (ask(&envoy, "/pass").await == 404).then_some(())
    })
    .await;
}

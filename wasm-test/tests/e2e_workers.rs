//! Several workers, each with a VM of its own, that route from one state.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use wasm_test::sim::{Hold, MetricsAnswer, Overrides, Reset, ResetPoint};
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, completion, eventually, prompt};

const WORKERS: usize = 4;

fn testbed(servers: usize) -> Setup {
    Testbed::with_servers(servers).workers(WORKERS)
}

/// Asks for all at once, each on a connection of its own.
async fn ask_all(testbed: &Testbed, prompts: impl IntoIterator<Item = String>) -> Vec<Answer> {
    let one = async |prompt: String| testbed.complete_anew(&prompt).await;
    join_all(prompts.into_iter().map(one)).await
}

#[tokio::test]
async fn a_conversation_that_changes_worker_is_recognised() {
    let testbed = testbed(4).start().await;
    for number in 0..12 {
        let mut words = prompt(&format!("conversation {number}"), 2_000);
        let first = testbed.complete_anew(&words).await;
        for turn in 0..3 {
            words.push_str(&prompt(&format!("turn {turn}"), 300));
            let next = testbed.complete_anew(&words).await;
            assert_eq!(
                next.server(),
                first.server(),
                "conversation {number}, turn {turn}"
            );
            assert!(next.cache_match().0 >= 7, "{:?}", next.cache_match());
        }
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_burst_of_cold_prompts_spreads_over_idle_servers() {
    let testbed = testbed(16).start().await;
    let mut lowest = usize::MAX;
    let mut highest = 0;
    for round in 0..4 {
        let prompts = (0..48).map(|number| prompt(&format!("cold {round} {number}"), 1_000));
        hold(&testbed);
        let answers = held(&testbed, prompts, 48).await;
        let shares = testbed.shares(&answers);
        lowest = lowest.min(*shares.iter().min().unwrap());
        highest = highest.max(*shares.iter().max().unwrap());
        assert_eq!(shares.iter().sum::<usize>(), 48);
    }
    assert!(lowest >= 2 && highest <= 4, "{lowest} to {highest}");
}

/// Has every server keep its answers.
fn hold(testbed: &Testbed) {
    for server in testbed.servers() {
        server.set_overrides(Overrides {
            hold: Hold::Generations,
            ..Overrides::default()
        });
    }
}

/// Asks for `prompts` while answers are held, until all `count` are at the servers.
async fn held(
    testbed: &Testbed,
    prompts: impl IntoIterator<Item = String>,
    count: usize,
) -> Vec<Answer> {
    let received = || -> usize {
        testbed
            .servers()
            .iter()
            .map(|server| server.log().len())
            .sum()
    };
    let before = received();
    let release = async {
        eventually("all to be sent", async || {
            (received() >= before + count).then_some(())
        })
        .await;
        for server in testbed.servers() {
            server.set_overrides(Overrides::default());
        }
    };
    let (answers, ()) = tokio::join!(ask_all(testbed, prompts), release);
    testbed.nothing_in_flight().await;
    answers
}

#[tokio::test]
async fn a_burst_with_one_known_prefix_leaves_no_server_alone() {
    let testbed = testbed(4).start().await;
    let prefix = prompt("everybody knows this", 6_000);
    let warm = testbed.complete_anew(&prefix).await.server();
    testbed.metrics_taken_over().await;
    hold(&testbed);
    let prompts =
        (0..50).map(|number| format!("{prefix}{}", prompt(&format!("end {number}"), 100)));
    let answers = held(&testbed, prompts, 50).await;
    let shares = testbed.shares(&answers);
    let at = testbed.index_of(warm);
    for (index, share) in shares.iter().enumerate() {
        let expected = if index == at { 18..=22 } else { 8..=12 };
        assert!(expected.contains(share), "{shares:?}, warm is {at}");
    }
}

#[tokio::test]
async fn balanced_spreads_conversations_that_share_an_unseen_beginning() {
    let testbed = testbed(4)
        .pool(|pool| pool["scoring"] = json!({ "preset": "balanced" }))
        .start()
        .await;
    let system = prompt("a long system prompt", 6_000);
    hold(&testbed);
    let prompts =
        (0..12).map(|number| format!("{system}{}", prompt(&format!("user {number}"), 200)));
    let answers = held(&testbed, prompts, 12).await;
    let shares = testbed.shares(&answers);
    assert!(
        shares.iter().all(|share| (2..=4).contains(share)),
        "{shares:?}"
    );
}

#[tokio::test]
async fn one_vm_scrapes_for_all() {
    let testbed = testbed(2).start().await;
    // Every worker has had requests.
    ask_all(
        &testbed,
        (0..40).map(|number| prompt(&format!("hello {number}"), 300)),
    )
    .await;
    let scrapes = || -> Vec<u64> {
        testbed
            .servers()
            .iter()
            .map(|server| server.state().scrapes)
            .collect()
    };
    let before = scrapes();
    let since = std::time::Instant::now();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let intervals = since.elapsed().as_secs_f64() / 0.2;
    for (before, after) in before.iter().zip(scrapes()) {
        let count = (after - before) as f64;
        assert!(count <= intervals + 2.0, "{count} in {intervals}");
        assert!(count >= intervals / 3.0, "{count} in {intervals}");
    }
}

/// The thread of the first line of Envoy's log that holds `text`.
fn thread_of(testbed: &Testbed, text: &str) -> Option<String> {
    let log = testbed.envoy().log();
    let line = log.lines().find(|line| line.contains(text))?;
    line.split(['[', ']']).nth(3).map(Into::into)
}

#[tokio::test]
async fn the_main_thread_scrapes_so_that_no_request_waits_for_it() {
    let testbed = testbed(2).start().await;
    // Every worker has had requests.
    let prompts = (0..40).map(|number| prompt(&format!("hello {number}"), 300));
    ask_all(&testbed, prompts).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    testbed.servers()[0].set_overrides(Overrides {
        metrics: MetricsAnswer::Html,
        ..Overrides::default()
    });
    let scraper = eventually("a page that cannot be read", async || {
        thread_of(&testbed, "metrics cannot be read")
    })
    .await;
    let main = thread_of(&testbed, "starting main dispatch loop");
    assert_eq!(Some(scraper), main);
}

/// Sends the headers of a completion and `part` of its body, on a connection of its own.
async fn begin(testbed: &Testbed, number: usize, whole: bool) -> TcpStream {
    let body = completion(&prompt(&format!("abort {number}"), 500)).to_string();
    let length = body.len() + if whole { 0 } else { 100 };
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let address = testbed.envoy().address();
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("written");
    stream
}

#[tokio::test]
async fn a_thousand_aborts_leave_nothing_in_flight_at_any_worker() {
    const AT_ONCE: usize = 50;
    let testbed = testbed(2).start().await;
    hold(&testbed);
    for round in 0..10 {
        let number = |one: usize| round * AT_ONCE + one;
        let sent = join_all((0..AT_ONCE).map(|one| begin(&testbed, number(one), true))).await;
        let held = join_all((0..AT_ONCE).map(|one| begin(&testbed, number(one), false))).await;
        eventually("requests in flight", async || {
            let open = testbed.in_flight().await.iter().sum::<u64>();
            (open == AT_ONCE as u64).then_some(())
        })
        .await;
        drop((sent, held));
        testbed.nothing_in_flight().await;
    }
    nothing_was_missed(&testbed).await;
}

#[tokio::test]
async fn two_hundred_resets_of_servers_leave_nothing_in_flight_at_any_worker() {
    let testbed = testbed(2).start().await;
    for server in testbed.servers() {
        server.set_overrides(Overrides {
            reset: Some(Reset {
                at: ResetPoint::AfterChunks(2),
                times: None,
            }),
            ..Overrides::default()
        });
    }
    for round in 0..4 {
        let streams = (0..50).map(async |number| {
            let mut body = completion(&prompt(&format!("reset {round} {number}"), 500));
            body["stream"] = json!(true);
            body["max_tokens"] = json!(50);
            let answer = Answer::on_a_new_connection(testbed.envoy(), COMPLETIONS, &body).await;
            assert!(answer.broken_off);
        });
        join_all(streams).await;
    }
    testbed.nothing_in_flight().await;
    let resets = testbed.metric("epp_upstream_reset_total", &[]).await;
    assert_eq!(resets, Some(200));
    nothing_was_missed(&testbed).await;
}

async fn nothing_was_missed(testbed: &Testbed) {
    assert_eq!(testbed.metric("epp_replica_gap_total", &[]).await, Some(0));
    assert_eq!(testbed.metric("epp_log_untold_total", &[]).await, Some(0));
}

#[tokio::test]
async fn a_server_that_fails_requests_of_all_workers_is_left_out_by_all() {
    let testbed = testbed(3).start().await;
    let fails = json!({ "fail": { "status": 500 } });
    testbed.servers()[0].set_overrides(serde_json::from_value(fails).unwrap());
    // Two of a worker's requests fail: too few for it to tell by itself.
    let prompts =
        |name: &'static str| (0..24).map(move |number| prompt(&format!("{name} {number}"), 600));
    ask_all(&testbed, prompts("at once")).await;
    eventually("the ill server to be left out", async || {
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        (candidates == Some(2)).then_some(())
    })
    .await;
    let since = std::time::Instant::now();
    let answers = ask_all(&testbed, prompts("left out")).await;
    // At most one probe a second, whichever worker's.
    let probes = 1 + since.elapsed().as_secs() as usize;
    assert!(
        testbed.shares(&answers)[0] <= probes,
        "{:?}",
        testbed.shares(&answers)
    );
}

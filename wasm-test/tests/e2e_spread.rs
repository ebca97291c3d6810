//! Many requests at once: what is in flight counts before any scrape can show it.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use wasm_test::sim::{Hold, Overrides, SimConfig, SimServer};
use wasm_test::testbed::{
    Answer, CHAT, COMPLETIONS, Setup, Testbed, chat, completion, eventually, prompt, say,
};

fn hold(testbed: &Testbed, hold: Hold) {
    for server in testbed.servers() {
        server.set_overrides(Overrides {
            hold,
            ..server.state().overrides
        });
    }
}

fn received(testbed: &Testbed) -> Vec<usize> {
    let servers = testbed.servers().iter();
    servers.map(|server| server.log().len()).collect()
}

/// Sends all bodies at once while no server answers; returns how many each server received, once
/// all have arrived. Then lets them answer.
async fn burst(testbed: &Testbed, path: &str, bodies: Vec<serde_json::Value>) -> Vec<usize> {
    hold(testbed, Hold::Generations);
    let before = received(testbed);
    let count = bodies.len();
    let requests = bodies.iter().map(|body| testbed.ask(path, body));
    let arrived = eventually("all to arrive", async || {
        let now = received(testbed);
        let new = now.iter().zip(&before).map(|(now, before)| now - before);
        let new: Vec<usize> = new.collect();
        (new.iter().sum::<usize>() == count).then_some(new)
    });
    let release = async {
        let shares = arrived.await;
        let open: u64 = testbed.in_flight().await.iter().sum();
        assert_eq!(open, count as u64, "all are in flight");
        hold(testbed, Hold::None);
        shares
    };
    let (answers, shares) =
        futures_util::future::join(futures_util::future::join_all(requests), release).await;
    assert!(answers.iter().all(|answer: &Answer| answer.status == 200));
    testbed.nothing_in_flight().await;
    shares
}

fn within(shares: &[usize], wanted: usize, tolerance: usize) -> bool {
    shares
        .iter()
        .all(|share| share.abs_diff(wanted) <= tolerance)
}

fn balanced(setup: Setup) -> Setup {
    setup.pool(|pool| pool["scoring"] = json!({ "preset": "balanced" }))
}

/// First turns of chats that share a system prompt.
fn conversations(count: usize) -> Vec<serde_json::Value> {
    let system = prompt("you are a helpful assistant", 4_000);
    let first_turn = |number| {
        let question = format!("question number {number}");
        chat(&[say("system", &system), say("user", &question)])
    };
    (0..count).map(first_turn).collect()
}

#[tokio::test]
async fn a_warm_server_keeps_up_to_the_guard_and_the_others_share_the_rest() {
    let testbed = Testbed::with_servers(4).start().await;
    let common = prompt("common", 4_096);
    let warm = testbed.index_of(testbed.complete(&common).await.server());
    let question = |number| completion(&format!("{common} and question {number}"));

    let mut shares = burst(
        &testbed,
        COMPLETIONS,
        (0..50).map(question).collect::<Vec<_>>(),
    )
    .await;

    let kept = shares.remove(warm);
    assert!(kept.abs_diff(20) <= 2, "{kept} {shares:?}");
    assert!(within(&shares, 10, 2), "{kept} {shares:?}");
}

#[tokio::test]
async fn distinct_cold_prompts_at_once_are_shared_evenly() {
    let testbed = Testbed::with_servers(8).start().await;
    let cold = |number| completion(&prompt(&format!("client {number}"), 2_000));
    let shares = burst(&testbed, COMPLETIONS, (0..48).map(cold).collect::<Vec<_>>()).await;
    assert!(within(&shares, 6, 1), "{shares:?}");
}

#[tokio::test]
async fn distinct_cold_prompts_at_once_are_shared_by_every_worker() {
    let testbed = Testbed::with_servers(4).workers(2).start().await;
    let cold = |number| completion(&prompt(&format!("client {number}"), 2_000));
    let shares = burst(&testbed, COMPLETIONS, (0..48).map(cold).collect::<Vec<_>>()).await;
    // Each worker shares out its own requests, to one more or less.
    assert!(within(&shares, 12, 2), "{shares:?}");
}

/// A server that never said a word about itself, and three that do.
async fn with_a_silent_one() -> (Testbed, SimServer) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let silent = SimServer::start(SimConfig::default(), any).await.unwrap();
    silent.set_overrides(Overrides {
        // Every family's name begins with nothing.
        metrics_without: vec![String::new()],
        ..Overrides::default()
    });
    let setup = Testbed::with_servers(3).further_endpoint(silent.address());
    (setup.start().await, silent)
}

#[tokio::test]
async fn a_server_without_samples_takes_neither_all_nor_none_of_a_burst() {
    let (testbed, silent) = with_a_silent_one().await;
    let cold = |number| prompt(&format!("client {number}"), 2_000);
    let answers = testbed.complete_all((0..60).map(cold)).await;
    let share = answers
        .iter()
        .filter(|answer| answer.server() == silent.address());
    let share = share.count();
    assert!((5..=25).contains(&share), "{share} of 60");
}

#[tokio::test]
async fn a_server_without_samples_takes_neither_all_nor_none_of_what_comes_one_by_one() {
    let (testbed, silent) = with_a_silent_one().await;
    let mut share = 0;
    for number in 0..60 {
        let answer = testbed
            .complete(&prompt(&format!("visitor {number}"), 2_000))
            .await;
        share += usize::from(answer.server() == silent.address());
    }
    // A fair share is 15; four standard deviations are 13.
    assert!((2..=28).contains(&share), "{share} of 60");
}

#[tokio::test]
async fn balanced_spreads_conversations_with_an_unseen_common_system_prompt() {
    let testbed = balanced(Testbed::with_servers(4)).start().await;
    let shares = burst(&testbed, CHAT, conversations(12)).await;
    assert!(within(&shares, 3, 1), "{shares:?}");
}

#[tokio::test]
async fn default_sends_conversations_with_an_unseen_common_system_prompt_to_one_server() {
    let testbed = Testbed::with_servers(4).start().await;
    let mut shares = burst(&testbed, CHAT, conversations(12)).await;
    shares.sort_unstable();
    assert_eq!(shares, [0, 0, 0, 12]);
}

//! Conversations through a real Envoy: who gets which turn, by the servers' own counters.

use serde_json::{Value, json};
use wasm_test::sim::Preset;
use wasm_test::testbed::{Answer, CHAT, COMPLETIONS, Testbed, chat, completion, prompt, say};

/// Prompt tokens a server found in its cache since its start.
fn hits(testbed: &Testbed, server: usize) -> u64 {
    let state = testbed.servers()[server].state();
    state.counters.prefix_cache_hits
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

/// Three turns of a chat; each but the first must find the one before it in its server's cache.
async fn follow_chat(testbed: &Testbed, name: &str, shape: impl Fn(Value) -> Value) {
    let mut messages = vec![say("user", &prompt(name, 2_000))];
    let mut server = None;
    for turn in 1..=3 {
        let before: Vec<u64> = (0..4).map(|index| hits(testbed, index)).collect();
        let answer = testbed.ask(CHAT, &shape(chat(&messages))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.reason(), "picked");
        assert_eq!(answer.picked(), answer.server());
        let index = testbed.index_of(answer.server());
        let found = hits(testbed, index) - before[index];
        if turn == 1 {
            assert_eq!((answer.cache_match().0, found), (0, 0));
        } else {
            assert_eq!(Some(index), server, "turn {turn} went elsewhere");
            assert!(answer.cache_match().0 >= 7, "{:?}", answer.cache_match());
            // The previous turn's 2,000 bytes are hundreds of tokens.
            assert!(found > 300, "turn {turn} found {found} tokens");
        }
        server = Some(index);
        messages.push(say("assistant", &answer.text()));
        messages.push(say("user", &format!("and then, in turn {turn}?")));
    }
}

/// A prompt, then the same with its answer and more text behind it.
async fn follow_completion(testbed: &Testbed, name: &str, shape: impl Fn(Value) -> Value) {
    let first_prompt = prompt(name, 2_000);
    let first = testbed
        .ask(COMPLETIONS, &shape(completion(&first_prompt)))
        .await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.cache_match(), (0, 8));
    let server = testbed.index_of(first.server());
    let before = hits(testbed, server);

    let next_prompt = format!("{first_prompt}{} and more", first.text());
    let next = testbed
        .ask(COMPLETIONS, &shape(completion(&next_prompt)))
        .await;

    assert_eq!(next.server(), first.server());
    // The last of the eight blocks was partly filled, so it is another one in the longer prompt.
    assert_eq!(next.cache_match(), (7, 8));
    let found = hits(testbed, server) - before;
    assert!(found > 300, "found {found} tokens");
}

#[tokio::test]
async fn a_follow_up_chat_turn_returns_to_the_server_that_holds_the_conversation() {
    let testbed = Testbed::with_servers(4).start().await;
    for name in ["Ada", "Bob", "Cid", "Dot", "Eve"] {
        follow_chat(&testbed, name, |body| body).await;
        follow_chat(&testbed, &format!("{name} by stream"), streamed).await;
    }
}

#[tokio::test]
async fn a_follow_up_completion_returns_to_the_server_that_holds_its_prompt() {
    let testbed = Testbed::with_servers(4).start().await;
    for name in ["Ada", "Bob", "Cid", "Dot", "Eve"] {
        follow_completion(&testbed, name, |body| body).await;
        follow_completion(&testbed, &format!("{name} by stream"), streamed).await;
    }
}

#[tokio::test]
async fn a_stream_reaches_the_client_token_by_token() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.preset = Preset::A100Llama8b)
        .start()
        .await;
    let mut body = streamed(completion("tell me a story"));
    body["max_tokens"] = json!(10_000);
    let request = testbed.post(COMPLETIONS, body.to_string());
    let mut response = request.send().await.expect("an answer");
    // Two minutes of generation: what comes before its end was not waited for.
    for _ in 0..3 {
        let chunk = response.chunk().await.expect("no error");
        assert!(chunk.is_some_and(|bytes| bytes.starts_with(b"data: ")));
    }
    let state = |index: usize| testbed.servers()[index].state();
    assert_eq!(
        (0..2)
            .map(|index| state(index).gauges.num_requests_running)
            .sum::<u64>(),
        1
    );
}

#[tokio::test]
async fn a_cached_prompt_has_its_first_token_sooner_than_a_cold_one() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.preset = Preset::A100Llama8b)
        .start()
        .await;
    // About 5,000 tokens: a second of prefill, or 45 ms when cached.
    let body = streamed(completion(&prompt("long", 20_000)));
    let cold = testbed.ask(COMPLETIONS, &body).await;
    let warm = testbed.ask(COMPLETIONS, &body).await;
    let time = |answer: &Answer| answer.time_to_first_token.expect("a token");
    assert!(
        time(&warm) < time(&cold) / 3,
        "{:?} {:?}",
        time(&warm),
        time(&cold)
    );
}

#[tokio::test]
async fn distinct_cold_prompts_spread_over_all_servers() {
    let testbed = Testbed::with_servers(4).start().await;
    let mut answers = Vec::new();
    for number in 0..200 {
        answers.push(
            testbed
                .complete(&prompt(&format!("client {number}"), 600))
                .await,
        );
    }
    let shares = testbed.shares(&answers);
    // 50 each; five standard deviations of a fair die are 30.
    assert!(
        shares.iter().all(|share| (20..=80).contains(share)),
        "{shares:?}"
    );
}

#[tokio::test]
async fn requests_of_two_models_do_not_share_cached_blocks() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.lora_modules = vec!["adapter".into()])
        .start()
        .await;
    let mut body = completion(&prompt("common", 2_000));
    assert_eq!(testbed.ask(COMPLETIONS, &body).await.cache_match(), (0, 8));
    assert_eq!(testbed.ask(COMPLETIONS, &body).await.cache_match(), (8, 8));
    body["model"] = json!("adapter");
    assert_eq!(testbed.ask(COMPLETIONS, &body).await.cache_match(), (0, 8));
}

//! What sharing state between workers is worth: the same traffic with one worker, with four, and with
//! four that keep to themselves.

#[path = "shared_state/traffic.rs"]
mod traffic;

use traffic::{Traffic, play, play_open_loop, served_ratio};
use wasm_test::sim::Preset;
use wasm_test::testbed::{Setup, SlowServer, Testbed, eventually, prompt};

fn instant(setup: Setup) -> Setup {
    setup.every_server(|server| server.preset = Preset::Instant)
}

/// Conversations that come again and again, on a connection of their own for each turn.
const CHATS: Traffic = Traffic {
    name: "chat",
    conversations: 24,
    turns: 5,
    tokens: 1,
    in_flight: 4,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_predict_like_one_and_far_better_than_four_alone() {
    let mut predicted = Vec::new();
    for (workers, shared) in [(1, true), (4, true), (4, false)] {
        let setup = instant(Testbed::with_servers(4).workers(workers));
        let setup = if shared { setup } else { setup.unshared() };
        let testbed = setup.start().await;
        predicted.push(play(&testbed, CHATS).await.predicted());
        testbed.nothing_in_flight().await;
    }
    let [one, shared, alone] = predicted[..] else {
        panic!("three runs");
    };
    println!("predicted hit ratio: one worker {one:.3}, four {shared:.3}, four alone {alone:.3}");
    assert!((one - shared).abs() <= 0.01, "{one} and {shared}");
    assert!(shared - alone >= 0.3, "{shared} and {alone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_find_more_in_their_caches_with_four_workers_that_share() {
    let traffic = Traffic {
        name: "half a second",
        conversations: 32,
        turns: 4,
        tokens: 40,
        in_flight: 16,
    };
    let mut served = Vec::new();
    for shared in [true, false] {
        let setup = Testbed::with_servers(4)
            .workers(4)
            .every_server(|server| server.preset = Preset::A100Llama8b);
        let setup = if shared { setup } else { setup.unshared() };
        let testbed = setup.start().await;
        play(&testbed, traffic).await;
        served.push(served_ratio(&testbed));
    }
    let [shared, alone] = served[..] else {
        panic!("two runs");
    };
    println!("servers' hit ratio: four workers {shared:.3}, four alone {alone:.3}");
    assert!(shared - alone >= 0.15, "{shared} and {alone}");
}

/// 320 requests that run at once, 80 a server, where 256 may run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_the_servers_can_run_cuts_nobody_off() {
    let mut ratios = Vec::new();
    for rate in [160.0, 20.0] {
        let mut setup = Testbed::with_servers(0).workers(4);
        for _ in 0..4 {
            setup = setup.further_endpoint(SlowServer::start().await.address());
        }
        let testbed = setup.start().await;
        let (played, lowest) = play_open_loop(&testbed, 64, 6, rate).await;
        let predicted = played.predicted();
        println!("{rate}/s: predicted {predicted:.3}, fewest candidates {lowest}");
        assert_eq!(lowest, 4, "at {rate}/s");
        ratios.push(predicted);
    }
    assert!((ratios[0] - ratios[1]).abs() <= 0.02, "{ratios:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_known_to_hold_nothing() {
    let testbed = instant(Testbed::with_servers(2).workers(2)).start().await;
    let words = prompt("before", 2_000);
    let first = testbed.complete_anew(&words).await;
    let again = testbed.complete_anew(&words).await;
    assert_eq!(again.cache_match().0, again.cache_match().1);
    let index = testbed.index_of(first.server());
    let server = &testbed.servers()[index];
    server.kill().await;
    server.restart().await.expect("its port is still its own");
    eventually("its blocks to be forgotten", async || {
        let next = testbed.complete_anew(&words).await;
        (next.cache_match().0 == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_that_share_nothing_mostly_agree() {
    let first = instant(Testbed::with_servers(4).workers(2)).start().await;
    let one_by_one = Traffic {
        in_flight: 1,
        ..CHATS
    };
    let alone = play(&first, one_by_one).await;
    let ratio_of_one = served_ratio(&first);
    let second = first.another_envoy().await;
    let before = traffic::counters(&first);
    let traffic = Traffic {
        name: "alternating",
        ..one_by_one
    };
    traffic::play_alternating(&first, &second, traffic).await;
    let after = traffic::counters(&first);
    let ratio_of_two = traffic::ratio_between(before, after);
    println!(
        "servers' hit ratio: one Envoy {ratio_of_one:.3} (it predicted {:.3}), two {ratio_of_two:.3}",
        alone.predicted()
    );
    assert!(ratio_of_two >= 0.9 * ratio_of_one);
}

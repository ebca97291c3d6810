//! What tests see of a simulated server and can make it do.

use std::collections::HashSet;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::time::timeout;
use wasm_test::sim::{Hold, LogEntry, Overrides, Preset, Sim, SimConfig};

/// Upper bound of every wait; a test that gets here has failed.
const DEADLINE: Duration = Duration::from_secs(30);

async fn start() -> Sim {
    let config = SimConfig {
        preset: Preset::Instant,
        ..SimConfig::default()
    };
    Sim::start(&config, 1).await.expect("a free port")
}

async fn complete(sim: &Sim, prompt: &str) {
    let body = json!({"prompt": prompt, "max_tokens": 1});
    let answer = Client::new()
        .post(sim[0].url("/v1/completions"))
        .json(&body)
        .send()
        .await;
    assert!(answer.expect("an answer").status().is_success());
}

/// Polls until `holds`; fails after the deadline.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, poll)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn every_answer_tells_what_the_server_received() {
    let sim = start().await;
    let client = Client::new();
    for (path, status) in [("/nope", 404), ("/v1/completions", 400), ("/health", 405)] {
        let request = client
            .post(sim[0].url(path))
            .header("X-Custom", "1")
            .body("abc");
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{path}");
        // SHA-256 of "abc", from FIPS 180-2.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(answer.headers()["x-sim-body-sha256"], digest, "{path}");
        let seen = answer.headers()["x-sim-headers-seen"]
            .to_str()
            .expect("ASCII");
        let seen: HashSet<&str> = seen.split(',').collect();
        assert_eq!(
            seen,
            HashSet::from(["accept", "content-length", "host", "x-custom"]),
            "{path}"
        );
    }
    assert_eq!(sim[0].log().len(), 3);
}

#[tokio::test]
async fn the_log_tells_tokens_and_leaves_out_scrapes_and_control() {
    let sim = start().await;
    let client = Client::new();
    let prompt = ["word"; 33].join(" ");
    for _ in 0..2 {
        complete(&sim, &prompt).await;
    }
    for path in ["/metrics", "/sim/state", "/v1/models"] {
        client
            .get(sim[0].url(path))
            .send()
            .await
            .expect("an answer");
    }
    let log = client
        .get(sim[0].url("/sim/log"))
        .send()
        .await
        .expect("an answer");
    let log: Vec<LogEntry> = log.json().await.expect("JSON");
    assert_eq!(log, sim[0].log());
    let told: Vec<_> = log
        .iter()
        .map(|entry| {
            (
                entry.path.as_str(),
                entry.prompt_tokens,
                entry.cached_tokens,
                entry.status,
            )
        })
        .collect();
    let expected = [
        ("/v1/completions", Some(33), Some(0), Some(200)),
        ("/v1/completions", Some(33), Some(32), Some(200)),
        ("/v1/models", None, None, Some(200)),
    ];
    assert_eq!(told, expected);
    assert_eq!(sim[0].state().scrapes, 1);
}

#[tokio::test]
async fn held_answers_start_once_released() {
    let sim = start().await;
    for (hold, path, health_answers) in [
        (Hold::Generations, "/v1/completions", true),
        (Hold::All, "/v1/completions", false),
    ] {
        sim[0].set_overrides(Overrides {
            hold,
            ..Overrides::default()
        });
        let logged = sim[0].log().len();
        let url = sim[0].url(path);
        let request = Client::new()
            .post(url)
            .json(&json!({"prompt": "a", "stream": true}))
            .send();
        let mut request = tokio::spawn(request);
        until("the request arrived", || sim[0].log().len() > logged).await;
        let health = Client::new().get(sim[0].url("/health")).send();
        let wait = if health_answers {
            DEADLINE
        } else {
            Duration::from_millis(50)
        };
        assert_eq!(
            timeout(wait, health).await.is_ok(),
            health_answers,
            "{hold:?}"
        );
        assert!(
            timeout(Duration::from_millis(20), &mut request)
                .await
                .is_err(),
            "{hold:?}"
        );
        let control = Client::new()
            .delete(sim[0].url("/sim/override"))
            .send()
            .await;
        assert!(
            control
                .expect("control is never held")
                .status()
                .is_success()
        );
        let answer = timeout(DEADLINE, request)
            .await
            .expect("in time")
            .expect("no panic");
        assert_eq!(
            answer.expect("an answer").status(),
            StatusCode::OK,
            "{hold:?}"
        );
    }
}

#[tokio::test]
async fn a_delayed_metrics_page_delays_nothing_else() {
    let sim = start().await;
    sim[0].set_overrides(Overrides {
        metrics_delay_ms: 3_600_000,
        ..Overrides::default()
    });
    let mut scrape = tokio::spawn(Client::new().get(sim[0].url("/metrics")).send());
    until("the scrape arrived", || sim[0].state().scrapes == 1).await;
    complete(&sim, "a").await;
    assert!(
        timeout(Duration::from_millis(20), &mut scrape)
            .await
            .is_err()
    );
    scrape.abort();
}

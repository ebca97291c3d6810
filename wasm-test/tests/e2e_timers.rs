//! When Envoy's timers end, which tests of time-outs rely on.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::json;
use wasm_test::envoy::{Envoy, NO_FILTER, TIMER_SLACK};

const ASKED: Duration = Duration::from_millis(50);
const ROUNDS: usize = 20;
const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_ends_early_by_no_more_than_its_slack() {
    let delay = format!("{}s", ASKED.as_secs_f64());
    let envoy = Envoy::builder(NO_FILTER)
        .concurrency(1)
        .bootstrap(move |tree| {
            let listener = &mut tree["static_resources"]["listeners"][0];
            let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
            let fault = json!({
                "name": "envoy.filters.http.fault",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
                    "delay": { "fixed_delay": delay, "percentage": { "numerator": 100 } },
                },
            });
            let filters = manager["http_filters"].as_array_mut().expect("a list");
            filters.insert(0, fault);
            let answers = &mut manager["route_config"]["virtual_hosts"][0];
            answers["routes"] = json!([{
                "match": { "prefix": "/" },
                "direct_response": { "status": 200 },
            }]);
        })
        .start()
        .await
        .expect("a start");
    let (client, url) = (Client::new(), envoy.url());
    let took = async || {
        let sent = Instant::now();
        let answer = client.get(&url).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        sent.elapsed()
    };
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        all.extend(join_all((0..AT_ONCE).map(|_| took())).await);
    }
    all.sort();
    let early = all.iter().filter(|took| **took < ASKED).count();
    println!(
        "{early} of {} ended early, the first after {:?}",
        all.len(),
        all[0]
    );
    assert!(all[0] + TIMER_SLACK >= ASKED, "{:?}", all[0]);
}

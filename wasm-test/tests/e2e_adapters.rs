//! Requests for adapters, by what the servers' pages say is loaded.

use serde_json::json;
use wasm_test::sim::{Overrides, Preset};
use wasm_test::testbed::{Answer, COMPLETIONS, Testbed, completion, eventually, prompt};

async fn ask(testbed: &Testbed, name: &str) -> Answer {
    let mut body = completion(&prompt(name, 1_000));
    body["model"] = json!("support");
    testbed.ask(COMPLETIONS, &body).await
}

#[tokio::test]
async fn requests_go_where_their_adapter_is_loaded_until_its_queue_costs_more() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.lora_modules = vec!["support".into()])
        .server(0, |config| config.preset = Preset::A100Llama8b)
        .start()
        .await;
    // vLLM lists an adapter while it has requests for it: this one is answered for half a minute.
    let loaded = &testbed.servers()[0];
    let mut body = completion(&prompt("long", 1_000));
    body["model"] = json!("support");
    body["max_tokens"] = json!(2_500);
    let long = reqwest::Client::new()
        .post(loaded.url(COMPLETIONS))
        .json(&body);
    let long = tokio::spawn(long.send());
    eventually("the request to run", async || {
        (loaded.state().gauges.num_requests_running > 0).then_some(())
    })
    .await;
    let seen = loaded.state().scrapes;
    eventually("scrapes that show the adapter", async || {
        (loaded.state().scrapes > seen + 3).then_some(())
    })
    .await;
    for number in 0..10 {
        let answer = ask(&testbed, &format!("loaded {number}")).await;
        assert_eq!(answer.picked(), loaded.address(), "{answer:?}");
    }
    let loads = || {
        testbed.metric(
            "epp_adapter_loads_triggered_total",
            &[("adapter", "support")],
        )
    };
    assert_eq!(loads().await.unwrap_or(0), 0);

    // 15 waiting cost 0.075, the missing adapter 0.05.
    loaded.set_overrides(Overrides {
        num_requests_waiting: Some(15.0),
        ..Overrides::default()
    });
    let mut number = 0;
    eventually("the queue to weigh more", async || {
        number += 1;
        let answer = ask(&testbed, &format!("queued {number}")).await;
        (answer.picked() != loaded.address()).then_some(())
    })
    .await;
    assert_eq!(loads().await, Some(1));
    long.abort();
}

//! Two pools behind one listener, each with a cluster of its own: what happens to one is nothing to
//! the other.

use serde_json::{Value, json};
use wasm_test::testbed::{Answer, Testbed, completion, prompt};

/// The first two servers are the first pool's, the third is the other's alone.
const OTHER: usize = 2;

fn split_pools(plugin: &mut Value) {
    let all = plugin["pools"][0]["endpoints"].take();
    let all = all.as_array().expect("a list");
    let mut other = plugin["pools"][0].clone();
    plugin["pools"][0]["endpoints"] = json!(all[..OTHER]);
    other["name"] = json!("other");
    other["cluster"] = json!("other-servers");
    other["match"] = json!({ "pathPrefix": "/other/v1" });
    other["endpoints"] = json!(all[OTHER..]);
    plugin["pools"].as_array_mut().expect("a list").push(other);
}

fn split_clusters(tree: &mut Value) {
    let resources = &mut tree["static_resources"];
    let mut other = resources["clusters"][0].clone();
    other["name"] = json!("other-servers");
    other["load_assignment"]["cluster_name"] = json!("other-servers");
    for (cluster, range) in [
        (&mut resources["clusters"][0], 0..OTHER),
        (&mut other, OTHER..3),
    ] {
        let hosts = &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"];
        *hosts = json!(hosts.as_array().expect("a list")[range]);
    }
    resources["clusters"]
        .as_array_mut()
        .expect("a list")
        .push(other);
    let filter = &mut resources["listeners"][0]["filter_chains"][0]["filters"][0];
    let routes = &mut filter["typed_config"]["route_config"]["virtual_hosts"][0]["routes"];
    let mut route = routes[0].clone();
    route["match"] = json!({ "prefix": "/other/" });
    route["route"]["cluster"] = json!("other-servers");
    route["route"]["prefix_rewrite"] = json!("/");
    routes.as_array_mut().expect("a list").insert(0, route);
}

async fn ask(testbed: &Testbed, path: &str, name: &str) -> Answer {
    testbed.ask(path, &completion(&prompt(name, 2_000))).await
}

#[tokio::test]
async fn a_pool_of_dead_servers_costs_the_other_nothing() {
    let testbed = Testbed::with_servers(3)
        .plugin(split_pools)
        .bootstrap(split_clusters)
        .start()
        .await;
    let server = |answer: &Answer| testbed.index_of(answer.server());
    for number in 0..10 {
        let name = format!("client {number}");
        let first = ask(&testbed, "/v1/completions", &name).await;
        assert!(server(&first) < OTHER, "{first:?}");
        // The same prompt, of which the other pool knows nothing.
        let other = ask(&testbed, "/other/v1/completions", &name).await;
        assert_eq!((server(&other), other.cache_match()), (OTHER, (0, 8)));
    }

    testbed.servers()[OTHER].kill().await;
    for number in 0..10 {
        let name = format!("client {number}");
        let dead = ask(&testbed, "/other/v1/completions", &name).await;
        assert_eq!(dead.status, 503);
        let alive = ask(&testbed, "/v1/completions", &name).await;
        assert_eq!((alive.status.as_u16(), alive.cache_match()), (200, (8, 8)));
        assert!(server(&alive) < OTHER, "{alive:?}");
    }
    assert_eq!(testbed.all_fallbacks().await, 0);
    assert_eq!(testbed.decisions().await, 20);
    testbed.assert_no_vm_lost().await;
}

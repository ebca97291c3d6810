//! Another plugin with the same, empty `vm_id` that writes over the module's shared data.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use inline_epp::config::Config;
use inline_epp::flow::Router;
use inline_epp::requestcontrol::{Ledger, LedgerHandle};
use serde_json::{Value, json};
use wasm_test::testbed::{Setup, Testbed, eventually, prompt};
use xxhash_rust::xxh64::xxh64;

/// As in the module.
const PREFIX: &str = "inline-epp/5";
/// The fewest there can be.
const SLOTS: u32 = 256;
/// By when no request counts as open any more: three times what the module waits for a sign of it.
const FORGOTTEN: Duration = Duration::from_mins(1);
/// Three seconds of writing, and what a busy machine adds.
const WRITES: Duration = Duration::from_secs(4);

/// The plugin, built by `rustc`.
fn scribbler() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let module = folder.join(format!("scribbler-{}.wasm", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/scribbler.rs");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "--target", "wasm32-wasip1"])
        .args(["--crate-type", "cdylib", "-C", "panic=abort"])
        .args(["-C", "opt-level=s", "-D", "warnings", "-o"])
        .args([&module, &source])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("rustc runs").success(), "it does not build");
    module
}

/// Every key that the module writes with the plugin configuration `text`.
fn keys(text: &str) -> Vec<String> {
    let config = Config::parse(text.as_bytes()).expect("valid");
    let router = Router::new(config, &LedgerHandle::new(Ledger::alone())).expect("valid");
    let fingerprint = xxh64(text.as_bytes(), 0);
    let mut keys = vec!["vms".to_owned(), format!("lease/{fingerprint:016x}")];
    for pool in router.pools() {
        let (name, key) = (&pool.config().name, pool.key().0);
        keys.extend([format!("newest/{name}"), format!("snapshot/{name}")]);
        keys.extend([
            format!("leases/{key:016x}"),
            format!("checkpoint/{key:016x}"),
        ]);
        keys.extend((0..4).map(|chunk| format!("checkpoint/{key:016x}/{chunk}")));
    }
    keys.extend((0..SLOTS).map(|slot| format!("log/{SLOTS}/{slot}")));
    keys.into_iter()
        .map(|key| format!("{PREFIX}/{key}"))
        .collect()
}

/// Puts the plugin in front of the module, both without a `vm_id`.
fn beside(setup: Setup, plugin: PathBuf) -> Setup {
    setup
        .plugin(|plugin| plugin["limits"] = json!({ "logSlots": SLOTS }))
        .connection_manager(move |manager| {
            let filters = manager["http_filters"].as_array_mut().expect("a list");
            let mut foreign = filters[0].clone();
            let ours = &mut filters[0]["typed_config"]["config"];
            let text = ours["configuration"]["value"].to_string();
            let string = "type.googleapis.com/google.protobuf.StringValue";
            ours["configuration"] = json!({ "@type": string, "value": text });
            ours["vm_config"]["vm_id"] = json!("");
            foreign["name"] = json!("scribbler");
            let theirs = &mut foreign["typed_config"]["config"];
            theirs["name"] = json!("scribbler");
            theirs["root_id"] = json!("scribbler");
            theirs["vm_config"]["vm_id"] = json!("");
            theirs["vm_config"]["code"]["local"]["filename"] = json!(plugin);
            theirs["configuration"] = json!({ "@type": string, "value": keys(&text).join("\n") });
            filters.insert(0, foreign);
        })
}

async fn total(testbed: &Testbed, name: &str) -> u64 {
    testbed
        .metric(name, &[])
        .await
        .expect("it is exported from the start")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_writes_over_our_shared_data_is_counted_and_breaks_nothing() {
    let setup = Testbed::with_servers(3).workers(2);
    let testbed = beside(setup, scribbler()).start_unscraped().await;
    let started = Instant::now();
    let mut asked = 0;
    while started.elapsed() < WRITES {
        let answer = testbed
            .complete_anew(&prompt(&format!("meanwhile {asked}"), 2_000))
            .await;
        assert_eq!((answer.status.as_u16(), answer.reason()), (200, "picked"));
        asked += 1;
    }
    assert_eq!(testbed.decisions().await, asked);
    let gaps = total(&testbed, "epp_replica_gap_total").await;
    let foreign = total(&testbed, "epp_foreign_data_total").await;
    println!("{asked} requests, {gaps} entries lost, {foreign} values not ours");
    assert!(gaps > 0 && foreign > 0);
    // A busy machine ticks late.
    let foreign = || total(&testbed, "epp_foreign_data_total");
    eventually("the end of it", async || {
        let before = foreign().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        (foreign().await == before).then_some(())
    })
    .await;
    // Nothing of it stays: what is asked from now on is known to both workers, and scraped.
    testbed.metrics_taken_over().await;
    let words = prompt("afterwards", 2_560);
    eventually("all workers to agree", async || {
        let mut all = true;
        for _ in 0..8 {
            let answer = testbed.complete_anew(&words).await;
            assert_eq!(answer.status, 200);
            all &= answer.cache_match() == (10, 10);
        }
        all.then_some(())
    })
    .await;
    // Ends of requests were lost as well: those are closed when nobody has spoken of them for long.
    let since = Instant::now();
    while testbed.in_flight().await.iter().sum::<u64>() > 0 {
        assert!(
            since.elapsed() < FORGOTTEN,
            "{:?}",
            testbed.in_flight().await
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let reloads = testbed.envoy().vm_reloads().await.unwrap();
    assert_eq!(reloads, wasm_test::envoy::VmReloads::default());
    let log = testbed.envoy().log();
    for word in ["panicked", "[critical]"] {
        assert!(!log.contains(word), "{log}");
    }
}

/// The list of keys is that of the module: one more, and this says so.
#[test]
fn every_key_that_the_module_writes_is_written_over() {
    let config: Value = wasm_test::envoy::plugin_configuration("envoy/envoy.yaml").expect("there");
    let keys = keys(&config.to_string());
    let sources = [
        include_str!("../../src/host/shared.rs"),
        include_str!("../../src/host/ledger.rs"),
        include_str!("../../src/requestcontrol/ledger/board.rs"),
    ];
    let formats = sources
        .iter()
        .flat_map(|source| source.split("format!(\"").skip(1));
    let mut found = 0;
    for format in formats {
        let format = format.split('"').next().unwrap_or_default();
        let name = format
            .trim_start_matches("{PREFIX}/")
            .split(['/', '{'])
            .next();
        let name = name.unwrap_or_default();
        // Words are only compared with themselves; a name that comes as an argument is one of board.rs.
        if name.is_empty() || name == "word" {
            continue;
        }
        found += 1;
        let start = format!("{PREFIX}/{name}");
        assert!(keys.iter().any(|key| key.starts_with(&start)), "{format}");
    }
    assert!(found >= 7, "{found}");
}

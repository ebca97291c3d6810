//! Tests of the whole: what a user writes against what comes out.

mod endpoint_picker;
mod errors;
mod hostile;
mod key_list;
mod ranges;
mod values;

use serde_json::{Value, json};

use super::{Config, ConfigError};

/// The least that is a configuration.
fn minimal() -> Value {
    json!({"pools": [{"name": "llama", "cluster": "model-servers", "endpoints": ["10.0.0.1:8000"]}]})
}

/// Every accepted key, none of them at its default.
fn full() -> Value {
    json!({
        "pools": [{
            "name": "llama",
            "cluster": "model-servers",
            "match": {"models": ["llama-3-8b*"], "hosts": ["LLM.example.com"], "pathPrefix": "/v1"},
            "endpoints": [
                "10.0.0.1:8000",
                {
                    "address": "[fd00::1]:8000",
                    "labels": {"llm-d.ai/role": "decode", "zone": ""},
                    "maxRunning": 128
                }
            ],
            "models": [{
                "name": "support",
                "targets": [{"model": "billing-lora", "weight": 9, "adapter": true}]
            }],
            "discovery": {
                "adminCluster": "admin", "interval": "2s",
                "sources": [{"cluster": "decode", "labels": {"llm-d.ai/role": "decode"}}]
            },
            "metrics": {
                "path": "/stats/prometheus?x", "interval": "500ms", "timeout": 0.25,
                "cluster": "scrape", "port": 9090, "engine": "vLLM",
                "gpuCluster": "gpus", "gpuPort": 9401
            },
            "scoring": {
                "preset": "Batch",
                "weights": {"cache": 5, "load": 2, "queue": 1.5, "health": 1, "adapter": 0.5},
                "maxQueue": 7, "maxRunning": 8, "minHealth": 0.1, "tieBand": 0.01,
                "guardFloor": 9, "guardRatio": 2
            },
            "prefix": {
                "blockTokens": 128, "autoTune": false, "maxTokens": 65536,
                "capacityBlocks": 1000, "pendingCredit": "FULL"
            },
            "health": {"staleAfter": 5, "staleFloor": 0.25, "errorWindow": "4s"},
            "endpointPickerConfig": {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"},
            "disaggregation": {
                "mode": "Inline-NIXL", "prefillTimeout": "5s", "cluster": "prefill",
                "bootstrapPort": 9000
            }
        }],
        "overrideHost": {"mode": "StatefulSession", "header": "X-Pick", "fallbacks": 3},
        "maxBufferedBytes": "32Mi",
        "failureMode": "failclose",
        "limits": {"indexBytes": 33_554_432, "logSlots": 512, "labelValues": 10},
        "debugHeaders": true,
        "logLevel": "TRACE"
    })
}

fn parse(config: &Value) -> Result<Config, ConfigError> {
    Config::parse(config.to_string().as_bytes())
}

/// The line that refuses `config`.
#[track_caller]
fn refusal(config: &Value) -> String {
    parse(config).unwrap_err().to_string()
}

/// `config` with `value` at `path`, such as `pools[0].scoring.maxQueue`; objects on the way are
/// made when absent.
#[track_caller]
fn with(mut config: Value, path: &str, value: Value) -> Value {
    let mut at = &mut config;
    for segment in path.split('.') {
        let (name, index) = match segment.split_once('[') {
            Some((name, index)) => (name, Some(index.trim_end_matches(']'))),
            None => (segment, None),
        };
        at = &mut at[name];
        if let Some(index) = index {
            at = &mut at[index.parse::<usize>().unwrap()];
        }
    }
    *at = value;
    config
}

//! Servers that share their work.

use serde_json::{Value, json};

use super::Setup;

/// Tokens of the testbed's prompts in these runs, in bytes.
pub const TOKEN_BYTES: usize = 4;

/// A change of the plugin's pool: the first `prefill` endpoints compute prompts, the others decode;
/// a prompt of which `threshold` tokens are missing is split, any prompt where that is 0.
pub fn split_pool(prefill: usize, mode: &'static str, threshold: u32) -> impl Fn(&mut Value) {
    move |pool| {
        let endpoints = pool["endpoints"].as_array_mut().expect("a list");
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            let role = if index < prefill { "prefill" } else { "decode" };
            *endpoint = json!({"address": *endpoint, "labels": {"llm-d.ai/role": role}});
        }
        let decider = match threshold {
            0 => json!({"type": "always-disagg-pd-decider", "name": "decider"}),
            tokens => json!({
                "type": "prefix-based-pd-decider", "name": "decider",
                "parameters": {"nonCachedTokens": tokens},
            }),
        };
        pool["disaggregation"] = json!({"mode": mode, "prefillTimeout": "1s"});
        pool["endpointPickerConfig"] = json!({
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
            "plugins": [
                {"type": "prefill-filter"}, {"type": "decode-filter"},
                {"type": "prefix-cache-scorer"}, {"type": "queue-scorer"},
                decider,
                {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "decider"}}},
            ],
            "schedulingProfiles": [
                {"name": "prefill", "plugins": [
                    {"pluginRef": "prefill-filter"},
                    {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer"},
                ]},
                {"name": "decode", "plugins": [
                    {"pluginRef": "decode-filter"},
                    {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer"},
                ]},
            ],
        });
    }
}

impl Setup {
    /// Has the first `prefill` servers compute prompts for the others; see [`split_pool`].
    #[must_use]
    pub fn split(self, prefill: usize, mode: &'static str, threshold: u32) -> Self {
        let change = |config: &mut crate::sim::SimConfig| {
            config.kv_transfer = true;
            config.bytes_per_token = u32::try_from(TOKEN_BYTES).ok();
        };
        self.every_server(change)
            .pool(split_pool(prefill, mode, threshold))
    }
}

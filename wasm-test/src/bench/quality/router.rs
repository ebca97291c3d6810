//! Who chooses the server: one name a router, and how to start it in front of servers.

use std::fmt;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::options::Setup;
use super::peer::{self, Peer};
use crate::bench::BenchError;
use crate::envoy::{CANONICAL, Envoy, NO_FILTER};

/// Worker threads of every Envoy here.
const WORKERS: usize = 2;

/// The header by which the ring hash goes. Envoy cannot hash a part of a body, so the client, which
/// knows its conversation, sends a hash of the first user message.
pub const KEY_HEADER: &str = "x-first-user-message";

/// The routers, in the order of the report.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Router {
    /// Stock Envoy, in turns.
    RoundRobin,
    /// Stock Envoy, at random.
    Random,
    /// Stock Envoy, the fewest requests open among all servers.
    LeastRequest,
    /// Stock Envoy, consistent hash of the first user message.
    RingHash,
    /// `PyPI`'s sglang-router with `cache_aware`.
    SglangRouter,
    /// `PyPI`'s smg with `cache_aware`.
    Smg,
    /// `PyPI`'s vllm-router with `cache_aware`.
    VllmRouter,
    /// The module as shipped.
    Default,
    /// The module's preset.
    LowLatency,
    /// The module's preset.
    Batch,
    /// The module's preset.
    ManyAdapter,
    /// The module's preset.
    Balanced,
    /// The module with llm-d's default profile: queue 2, KV-cache utilisation 2, prefix 3.
    LlmD,
    /// The load generator itself, which knows every server's cache and queue, straight to the
    /// server with the earliest first token.
    Oracle,
}

/// Whose router it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// One of Envoy's own policies.
    Envoy,
    /// Another project's router.
    Peer,
    /// The module.
    InlineEpp,
    /// Nobody's.
    Oracle,
}

impl Router {
    /// Whose it is.
    pub fn family(self) -> Family {
        match self {
            Self::RoundRobin | Self::Random | Self::LeastRequest | Self::RingHash => Family::Envoy,
            Self::SglangRouter | Self::Smg | Self::VllmRouter => Family::Peer,
            Self::Oracle => Family::Oracle,
            _ => Family::InlineEpp,
        }
    }

    /// The preset's name in the module's configuration.
    fn preset(self) -> Option<String> {
        let is_preset = self.family() == Family::InlineEpp && self != Self::LlmD;
        let value = self.to_possible_value().filter(|_| is_preset)?;
        Some(value.get_name().to_owned())
    }
}

/// In tables and drawings.
impl fmt::Display for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(preset) = self.preset() {
            return write!(f, "inline-epp, {preset}");
        }
        f.write_str(match self {
            Self::RoundRobin => "Envoy round robin",
            Self::Random => "Envoy random",
            Self::LeastRequest => "Envoy least request",
            Self::RingHash => "Envoy ring hash",
            Self::SglangRouter => "sglang-router",
            Self::Smg => "smg",
            Self::VllmRouter => "vllm-router",
            Self::LlmD => "inline-epp, llm-d 2/2/3",
            _ => "oracle",
        })
    }
}

/// A router that takes requests.
#[derive(Debug)]
pub enum Started {
    /// In a real Envoy, with the module or without.
    Envoy(Box<Envoy>),
    /// Another project's process.
    Peer(Peer),
    /// None: the load generator chooses.
    Oracle,
}

impl Started {
    /// Base URL for requests; `None` where each goes straight to its server.
    pub fn url(&self) -> Option<String> {
        match self {
            Self::Envoy(envoy) => Some(envoy.url()),
            Self::Peer(peer) => Some(peer.url()),
            Self::Oracle => None,
        }
    }
}

impl Router {
    /// Starts it in front of `servers`. The module scrapes their metrics once a second of the
    /// load's time, and has what `setup` merges into its pool.
    pub async fn start(self, servers: &[SocketAddr], setup: &Setup) -> Result<Started, BenchError> {
        let (interval_ms, further) = (setup.interval_ms(), setup.pool.clone());
        let builder = match self.family() {
            Family::Oracle => return Ok(Started::Oracle),
            Family::Peer => return Ok(Started::Peer(peer::start(self, servers).await?)),
            Family::Envoy => Envoy::builder(NO_FILTER).bootstrap(move |tree| self.set_policy(tree)),
            Family::InlineEpp => Envoy::builder(CANONICAL).plugin(move |plugin| {
                let pool = &mut plugin["pools"][0];
                pool["metrics"]["interval"] = format!("{interval_ms}ms").into();
                match self.preset() {
                    Some(preset) => pool["scoring"]["preset"] = preset.into(),
                    None => pool["endpointPickerConfig"] = llm_d(),
                }
                merge(pool, &further);
            }),
        };
        let envoy = builder
            .endpoints(servers)
            .concurrency(WORKERS)
            .start()
            .await?;
        Ok(Started::Envoy(Box::new(envoy)))
    }

    /// Puts this policy in the place of the file's round robin.
    fn set_policy(self, bootstrap: &mut Value) {
        let (name, kind, mut settings) = match self {
            Self::Random => ("random", "Random", json!({})),
            // Of all servers, not of two at random: the stronger baseline.
            Self::LeastRequest => (
                "least_request",
                "LeastRequest",
                json!({"selection_method": "FULL_SCAN"}),
            ),
            Self::RingHash => ("ring_hash", "RingHash", json!({})),
            _ => ("round_robin", "RoundRobin", json!({})),
        };
        let at = format!("envoy.extensions.load_balancing_policies.{name}.v3.{kind}");
        settings["@type"] = format!("type.googleapis.com/{at}").into();
        let resources = &mut bootstrap["static_resources"];
        resources["clusters"][0]["load_balancing_policy"] = json!({"policies": [{
            "typed_extension_config": {
                "name": format!("envoy.load_balancing_policies.{name}"),
                "typed_config": settings,
            },
        }]});
        if self == Self::RingHash {
            let manager = &mut resources["listeners"][0]["filter_chains"][0]["filters"][0];
            let hosts = &mut manager["typed_config"]["route_config"]["virtual_hosts"][0];
            hosts["routes"][0]["route"]["hash_policy"] =
                json!([{"header": {"header_name": KEY_HEADER}}]);
        }
    }
}

/// Puts `further` into `value`, objects member by member.
fn merge(value: &mut Value, further: &Value) {
    match further {
        Value::Object(members) => {
            for (name, member) in members {
                merge(&mut value[name.as_str()], member);
            }
        }
        other => *value = other.clone(),
    }
}

/// llm-d's default profile, as its users paste it.
fn llm_d() -> Value {
    let scorers = [
        ("queue-scorer", 2),
        ("kv-cache-utilization-scorer", 2),
        ("prefix-cache-scorer", 3),
    ];
    let mut plugins: Vec<Value> = scorers
        .iter()
        .map(|(name, _)| json!({"type": name}))
        .collect();
    plugins.push(json!({"type": "max-score-picker"}));
    let mut used: Vec<Value> = scorers
        .iter()
        .map(|(name, weight)| json!({"pluginRef": name, "weight": weight}))
        .collect();
    used.push(json!({"pluginRef": "max-score-picker"}));
    json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": [{"name": "default", "plugins": used}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_merged_replaces_what_is_there_and_nothing_beside_it() {
        let mut pool = json!({"name": "a", "prefix": {"blockTokens": 64}});
        merge(&mut pool, &json!({"prefix": {"capacityBlocks": 5000}}));
        let expected = json!({"name": "a", "prefix": {"blockTokens": 64, "capacityBlocks": 5000}});
        assert_eq!(pool, expected);
        merge(&mut pool, &json!({}));
        assert_eq!(pool, expected);
    }

    #[test]
    fn presets_are_named_as_in_the_configuration() {
        let named: Vec<String> = Router::value_variants()
            .iter()
            .filter_map(|router| router.preset())
            .collect();
        assert_eq!(
            named,
            [
                "default",
                "low-latency",
                "batch",
                "many-adapter",
                "balanced"
            ]
        );
        let plugin = |router: &Router| {
            let scoring = match router.preset() {
                Some(preset) => json!({"scoring": {"preset": preset}}),
                None => json!({"endpointPickerConfig": llm_d()}),
            };
            let mut pool = json!({"name": "p", "cluster": "c", "endpoints": ["127.0.0.1:1"]});
            let pool_map = pool.as_object_mut().expect("an object");
            pool_map.extend(scoring.as_object().expect("an object").clone());
            json!({"pools": [pool]})
        };
        for router in Router::value_variants() {
            if router.family() == Family::InlineEpp {
                let text = plugin(router).to_string();
                let parsed = inline_epp::config::Config::parse(text.as_bytes());
                assert!(parsed.is_ok(), "{router}: {parsed:?}");
            }
        }
    }
}

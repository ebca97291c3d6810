//! Every plugin type, one line each, and what is at hand while plugins are made.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::plugin::{Plugin, PluginType};
use super::producer::{approx_prefix_cache, core_metrics, in_flight, metrics_source, token};
use super::profile_handler::{Decider, always_disagg, disagg, prefix_based, single};
use super::{filter, passive, picker, scorer};
use crate::config::{ConfigError, Fields, MetricSpec, PoolConfig, quoted};

/// Every plugin type, in the order of the documentation.
pub fn plugin_types() -> &'static [PluginType] {
    TYPES
}

const TYPES: &[PluginType] = &[
    filter::role::DECODE,
    filter::role::PREFILL,
    filter::label_selector::TYPE,
    filter::queue_limit::TYPE,
    scorer::queue::TYPE,
    scorer::kv_cache::TYPE,
    scorer::prefix_cache::TYPE,
    scorer::lora_affinity::TYPE,
    scorer::running_requests::TYPE,
    scorer::load_aware::TYPE,
    scorer::endpoint_attribute::TYPE,
    scorer::metric::TYPE,
    scorer::label::TYPE,
    scorer::load::TYPE,
    scorer::queue_depth::TYPE,
    scorer::free_slots::TYPE,
    scorer::health::TYPE,
    scorer::adapter::TYPE,
    picker::max_score::TYPE,
    picker::random::TYPE,
    picker::weighted_random::TYPE,
    single::TYPE,
    disagg::TYPE,
    prefix_based::TYPE,
    always_disagg::TYPE,
    approx_prefix_cache::TYPE,
    in_flight::TYPE,
    token::TYPE,
    metrics_source::TYPE,
    core_metrics::TYPE,
    passive::OPENAI,
    passive::ANTHROPIC,
    passive::VLLM_HTTP,
    passive::PASSTHROUGH,
    passive::DISAGG_HEADERS,
    passive::PREFILL_HEADER,
];

/// Types of llm-d that this version does not have, and what to do instead.
pub fn missing_types() -> &'static [(&'static str, &'static str)] {
    MISSING
}

const LABELS: &str = "select by label with a label-selector-filter";
const MATCHES: &str = "use prefix-cache-scorer, which knows what was sent where";
const SESSIONS: &str = "use prefix-cache-scorer, which brings a conversation back to where it was";
const LATENCY: &str =
    "there is no training sidecar; weigh queue, load and cache, or a metric with metric-scorer";
const FLOW: &str = "limit queues with a queue-limit-filter, and requests in Envoy with circuit breakers or a rate limit";
const HOSTS: &str =
    "list the endpoints under the pool's endpoints, or have them from Envoy with its discovery";
const EVENTS: &str =
    "there are no Kubernetes notifications; Envoy tells of endpoints, see the pool's discovery";
const CLUSTERS: &str =
    "a pool is one Envoy cluster; make a pool of each and tell them apart by match";
const PATHS: &str = "leave it out: its requests are routed by load";

#[rustfmt::skip]
const MISSING: &[(&str, &str)] = &[
    ("by-label-selector", LABELS),
    ("by-label", LABELS),
    ("encode-filter", "leave it out: there is no encode stage"),
    ("session-affinity-filter", SESSIONS),
    ("multicluster-session-affinity-filter", SESSIONS),
    ("endpoint-attribute-filter", "weigh the attribute with endpoint-attribute-scorer"),
    ("topology-affinity-filter", "weigh zones with label-scorer"),
    ("utilization-filter", "limit queues with a queue-limit-filter"),
    ("prefix-cache-affinity-filter", "weigh matches with prefix-cache-scorer; the load guard limits them"),
    ("slo-headroom-tier-filter", LATENCY),
    ("context-length-aware", "tell pools apart by match, or endpoints by a label-selector-filter"),
    ("header-based-testing-filter", "leave it out: no client chooses its server"),
    ("active-request-scorer", "use running-requests-size-scorer, which counts requests just sent"),
    ("token-load-scorer", "use running-requests-size-scorer, which counts requests just sent"),
    ("precise-prefix-cache-scorer", MATCHES),
    ("no-hit-lru-scorer", "leave it out: equal endpoints share new prompts evenly"),
    ("session-affinity-scorer", SESSIONS),
    ("header-label-affinity-scorer", LABELS),
    ("topology-affinity-scorer", "weigh zones with label-scorer"),
    ("mm-embeddings-cache-scorer", "leave it out: images are not matched"),
    ("latency-scorer", LATENCY),
    ("multicluster-queue-scorer", CLUSTERS),
    ("multicluster-kv-cache-utilization-scorer", CLUSTERS),
    ("multicluster-prefix-cache-scorer", CLUSTERS),
    ("header-profile-handler", "make a pool of each profile and tell them apart by match"),
    ("data-parallel-profile-handler", "leave it out: an endpoint's engines are one endpoint"),
    ("pd-profile-handler", "use disagg-profile-handler, its newer name, with deciders"),
    ("always-disagg-multimodal-decider", "leave it out: there is no encode stage"),
    ("multicluster-approx-prefix-cache-producer", CLUSTERS),
    ("precise-prefix-cache-producer", "there is no ZMQ in Envoy; use approx-prefix-cache-producer, which knows what was sent where"),
    ("predicted-latency-producer", LATENCY),
    ("mm-embeddings-cache-producer", "leave it out: images are not matched"),
    ("session-id-producer", SESSIONS),
    ("burst-prefix-cache-producer", "leave it out: a burst of one new prompt stays together, see prefix.pendingCredit"),
    ("p2p-source-producer", "leave it out: no header names a source of KV cache"),
    ("latency-slo-admitter", LATENCY),
    ("probabilistic-admitter", FLOW),
    ("disaggregatedset-rollout-screener", LABELS),
    ("agent-identity", FLOW),
    ("request-attribute-reporter", "read the metrics on Envoy's admin port"),
    ("destination-endpoint-served-verifier", "read x-epp-endpoint with debugHeaders"),
    ("sglanghttp-parser", PATHS),
    ("vertexai-parser", PATHS),
    ("vllmgrpc-parser", PATHS),
    ("multicluster-metrics-data-source", CLUSTERS),
    ("multicluster-metrics-extractor", CLUSTERS),
    ("models-data-source", "choose pools by model with match.models"),
    ("models-data-extractor", "choose pools by model with match.models"),
    ("dcgm-data-source", "set the pool's metrics.gpuCluster, and use load-scorer"),
    ("dcgm-extractor", "set the pool's metrics.gpuCluster, and use load-scorer"),
    ("topology-extractor", "give endpoints labels, and weigh them with label-scorer"),
    ("k8s-notification-source", EVENTS),
    ("endpoint-notification-source", EVENTS),
    ("file-discovery", HOSTS),
    ("multicluster-file-discovery", HOSTS),
    ("global-strict-fairness-policy", FLOW),
    ("round-robin-fairness-policy", FLOW),
    ("program-aware-fairness", FLOW),
    ("fcfs-ordering-policy", FLOW),
    ("edf-ordering-policy", FLOW),
    ("slo-deadline-ordering-policy", FLOW),
    ("static-usage-limit-policy", FLOW),
    ("priority-holdback-policy", FLOW),
    ("soft-reflective-ceiling-policy", FLOW),
    ("sheddable-eviction-filter", FLOW),
    ("priority-then-time-eviction-order-policy", FLOW),
    ("utilization-detector", FLOW),
    ("concurrency-detector", FLOW),
];

/// The type `name`, for a plugin declared at `path`.
pub(super) fn find(name: &str, path: &str) -> Result<&'static PluginType, ConfigError> {
    let found = TYPES.iter().find(|one| one.name == name);
    found.ok_or_else(|| not_there(name, path))
}

fn not_there(name: &str, path: &str) -> ConfigError {
    let missing = MISSING.iter().find(|(missing, _)| *missing == name);
    if let Some((name, instead)) = missing {
        return ConfigError::later(path, name, instead);
    }
    let what = format!("plugin type {} is not registered", quoted(name));
    ConfigError::other(path, what)
}

/// What is at hand while the plugins of a pool are made.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// Producers change what they are for.
    pub(crate) pool: &'a mut PoolConfig,
    /// By name; producers and deciders come first.
    pub(super) built: BTreeMap<String, Plugin>,
    /// Places of series by the names that producers gave them.
    pub(super) series: BTreeMap<String, usize>,
    /// The name of the plugin that is being made.
    pub(super) current: String,
    /// The name of the plugin that set the prefix index up.
    pub(super) prefix_producer: Option<String>,
}

impl Setup<'_> {
    /// Has the series `spec` read, under `name`, which stands at `path`.
    pub(crate) fn series(
        &mut self,
        path: &str,
        name: &str,
        spec: &str,
    ) -> Result<usize, ConfigError> {
        let Some(spec) = MetricSpec::parse(spec) else {
            return Err(ConfigError::expected(path, MetricSpec::WHAT, quoted(spec)));
        };
        let series = &mut self.pool.metrics.signals;
        if let Some(&place) = self.series.get(name) {
            if series.get(place) == Some(&spec) {
                return Ok(place);
            }
            let found = format!("{} again, as another series", quoted(name));
            return Err(ConfigError::expected(
                path,
                "a name that no series has yet",
                found,
            ));
        }
        let place = series.len();
        if place >= MetricSpec::MAX {
            let expected = format!("at most {} series in a pool", MetricSpec::MAX);
            return Err(ConfigError::expected(path, expected, "one more"));
        }
        series.push(spec);
        self.series.insert(name.to_owned(), place);
        Ok(place)
    }

    /// The place of the series called `name`; one that no endpoint has where there is none.
    pub(crate) fn place_of(&self, name: &str) -> usize {
        self.series.get(name).copied().unwrap_or(usize::MAX)
    }

    /// The plugin that is being made sets up the pool's prefix index.
    pub(crate) fn claim_prefix_index(&mut self, fields: &Fields<'_>) -> Result<(), ConfigError> {
        let before = self.prefix_producer.replace(self.current.clone());
        match before {
            None => Ok(()),
            Some(before) => {
                let what = format!("a pool has one prefix index, and {before:?} sets it up");
                Err(ConfigError::other(fields.path(), what))
            }
        }
    }

    /// Refuses a producer of matches that there is not.
    pub(crate) fn check_prefix_producer(
        &self,
        fields: &Fields<'_>,
        name: &str,
    ) -> Result<(), ConfigError> {
        let Some(producer) = fields.optional_text(name)? else {
            return Ok(());
        };
        let declared = self.prefix_producer.as_deref();
        if producer == declared.unwrap_or(approx_prefix_cache::NAME) {
            return Ok(());
        }
        Err(unregistered(&fields.path_of(name), &producer))
    }

    /// The decider that the field `name` refers to, if it does.
    pub(crate) fn optional_decider(
        &self,
        fields: &Fields<'_>,
        name: &str,
    ) -> Result<Option<Rc<dyn Decider>>, ConfigError> {
        let Some(decider) = fields.optional_text(name)? else {
            return Ok(None);
        };
        let path = fields.path_of(name);
        match self.built.get(&decider) {
            Some(Plugin::Decider(found)) => Ok(Some(Rc::clone(found))),
            Some(_) => Err(ConfigError::expected(&path, "a decider", quoted(&decider))),
            None => Err(unregistered(&path, &decider)),
        }
    }
}

fn unregistered(path: &str, name: &str) -> ConfigError {
    let what = format!(
        "a plugin has a dependency on the unregistered plugin {}",
        quoted(name)
    );
    ConfigError::other(path, what)
}

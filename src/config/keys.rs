//! Every key, once: where it stands, what it holds, what it is when absent, what it means.

use core::time::Duration;

use super::kind::Kind;
use super::text;

/// One accepted key.
#[derive(Clone, Copy, Debug)]
pub struct KeyDoc {
    /// Where it stands; `[]` is every entry of a list: `pools[].scoring.maxQueue`.
    pub path: &'static str,
    /// Type and range; its `Display` is for people.
    pub kind: Kind,
    /// What an absent key reads as, as JSON; `None` when the key is required.
    pub default: Option<&'static str>,
    /// One line for the documentation.
    pub meaning: &'static str,
}

/// Every accepted key, sections included, in the order of the documentation.
pub fn keys() -> &'static [KeyDoc] {
    KEYS
}

/// A key of the contract that this version refuses by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaterKey {
    /// As [`KeyDoc::path`].
    pub(super) path: &'static str,
    /// What to do until then; its `pools[]` stands for the pool in question.
    pub(super) instead: &'static str,
}

/// The keys of one document: the configuration, or an object in it with a list of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// What may be written.
    pub(crate) keys: &'static [KeyDoc],
    /// What is refused by name.
    pub(crate) later: &'static [LaterKey],
}

/// The rows of the configuration.
pub(super) const ROWS: Rows = Rows {
    keys: KEYS,
    later: LATER_KEYS,
};

impl Rows {
    /// The keys directly inside `section`, with their names.
    pub(super) fn keys_of(
        self,
        section: &str,
    ) -> impl Iterator<Item = (&'static str, &'static KeyDoc)> {
        let keys = self.keys.iter();
        keys.filter_map(move |key| Some((name_in(key.path, section)?, key)))
    }

    /// The refused keys directly inside `section`, with their names.
    pub(super) fn later_keys_of(
        self,
        section: &str,
    ) -> impl Iterator<Item = (&'static str, LaterKey)> {
        let later = self.later.iter();
        later.filter_map(move |key| Some((name_in(key.path, section)?, *key)))
    }
}

/// What is left of `path` inside `section`, when that is one name.
fn name_in(path: &'static str, section: &str) -> Option<&'static str> {
    let rest = path.strip_prefix(section)?;
    let name = if section.is_empty() {
        rest
    } else {
        rest.strip_prefix('.')?
    };
    (!name.contains(['.', '['])).then_some(name)
}

pub(crate) const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> KeyDoc {
    let default = Some(default);
    KeyDoc {
        path,
        kind,
        default,
        meaning,
    }
}

pub(crate) const fn required(path: &'static str, kind: Kind, meaning: &'static str) -> KeyDoc {
    let default = None;
    KeyDoc {
        path,
        kind,
        default,
        meaning,
    }
}

pub(crate) const fn section(path: &'static str, meaning: &'static str) -> KeyDoc {
    key(path, Kind::Section, "{}", meaning)
}

pub(crate) const fn later(path: &'static str, instead: &'static str) -> LaterKey {
    LaterKey { path, instead }
}

pub(crate) const fn choice(names: &'static [&'static str]) -> Kind {
    Kind::Choice { names }
}

/// Two pools never share state, and each has stats of its own: hundreds are a mistake.
const POOLS: Kind = Kind::List {
    min: 1,
    max: 256,
    of: "pools",
};
/// Every endpoint is scraped each interval and scored for each request.
const ENDPOINTS: Kind = Kind::List {
    min: 0,
    max: 4096,
    of: "endpoints, each \"ip:port\" or an object",
};
/// Each is one bit in what is known of a host.
const SOURCES: Kind = Kind::List {
    min: 0,
    max: super::discovery::MAX_SOURCES,
    of: "clusters, each an object",
};
/// Each is tried on every request.
const PATTERNS: Kind = Kind::List {
    min: 0,
    max: 256,
    of: "patterns",
};
/// Each is compared with every request's model.
const MODELS: Kind = Kind::List {
    min: 0,
    max: 256,
    of: "models",
};
const TARGETS: Kind = Kind::List {
    min: 1,
    max: 64,
    of: "targets",
};
/// A target that nobody shall get is left out; more than a million to one is never seen.
const MODEL_WEIGHT: Kind = Kind::Whole {
    min: 1,
    max: 1_000_000,
};
/// A maximum of 0 would leave no candidate, ever.
pub(crate) const AT_LEAST_ONE: Kind = Kind::Whole {
    min: 1,
    max: u32::MAX,
};
/// Shares, health and freshness are parts of a whole.
pub(crate) const SHARE: Kind = Kind::Number { min: 0.0, max: 1.0 };
/// Only the ratio of weights matters, and a million to one is beyond any use. A bounded sum stays
/// finite.
pub(super) const WEIGHT: Kind = Kind::Number {
    min: 0.0,
    max: 1_000_000.0,
};
/// Scores this near count as equal. A tenth is a whole factor of the default formula; more would
/// silence it.
const TIE_BAND: Kind = Kind::Number { min: 0.0, max: 0.1 };
/// Below 1 the guard would close even an endpoint that has less than its fair share.
const GUARD_RATIO: Kind = Kind::Number {
    min: 1.0,
    max: 1_000.0,
};
/// A view older than minutes says nothing about load; more than 20 scrapes a second of every
/// endpoint cost the model servers more than they tell.
pub(crate) const SCRAPE_INTERVAL: Kind = Kind::Duration {
    min: Duration::from_millis(50),
    max: Duration::from_mins(10),
};
/// A window is cut into ten parts; longer ones would keep a healed endpoint out for minutes.
const ERROR_WINDOW: Kind = Kind::Duration {
    min: Duration::from_secs(1),
    max: Duration::from_mins(10),
};
/// Less than a connection takes would never split anything; a client waits for all of it.
const PREFILL_TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_millis(10),
    max: Duration::from_mins(10),
};
/// Zero would fail every scrape; an answer a minute late describes another time.
const SCRAPE_TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: Duration::from_mins(1),
};
/// Nothing listens at port 0.
const PORT: Kind = Kind::Whole {
    min: 1,
    max: 65_535,
};
/// Each block is an index entry per endpoint: blocks of a few tokens make the index many times
/// larger than the caches it mirrors. Engines use at most hundreds of tokens a block.
pub(crate) const BLOCK_TOKENS: Kind = Kind::Whole {
    min: 16,
    max: 4_096,
};
/// At least one block of any size. At the smallest block size, 16 Mi tokens are 8 MiB of hashes for
/// a request.
pub(crate) const MAX_TOKENS: Kind = Kind::Whole {
    min: 16,
    max: 16_777_216,
};
/// Freshness falls between `staleAfter` and ten intervals, so there must be something between.
const STALE_AFTER: Kind = Kind::Whole { min: 1, max: 9 };
/// Each fallback is one more `ip:port` in a header, and is used only when all before it failed.
const FALLBACKS: Kind = Kind::Whole { min: 0, max: 8 };
/// A VM has 1 GiB. The indexes take up to half of it; a held body is copied in whole, and the texts
/// read from it may take as much again.
const BUFFERED_BYTES: Kind = Kind::Size {
    min: 1 << 10,
    max: 128 << 20,
};
/// Under 1 MiB an index holds too little to match anything; half of a VM's 1 GiB is for everything
/// else.
const INDEX_BYTES: Kind = Kind::Size {
    min: 1 << 20,
    max: 512 << 20,
};
/// Fewer are lapped between two ticks of a busy proxy; more than a million are a gigabyte of prompts.
const LOG_SLOTS: Kind = Kind::Whole {
    min: 256,
    max: 1 << 20,
};
/// Envoy keeps every stat it has seen until it ends.
const LABEL_VALUES: Kind = Kind::Whole {
    min: 1,
    max: 10_000,
};

#[rustfmt::skip]
const KEYS: &[KeyDoc] = &[
    required("pools", POOLS, "The first pool whose match fits takes the request; a request that fits none is not touched."),
    required("pools[].name", Kind::Text(&text::POOL_NAME), "Unique; appears in metric labels."),
    required("pools[].cluster", Kind::Text(&text::CLUSTER_NAME), "The Envoy cluster that holds the model servers."),
    section("pools[].match", "Which requests are the pool's: every given part must fit."),
    key("pools[].match.models", PATTERNS, "[]", "Model names, `*` for any text; not asked when the body cannot be read that far."),
    key("pools[].match.hosts", PATTERNS, "[]", "Host names without port, `*` for any text, in any case."),
    key("pools[].match.pathPrefix", Kind::Text(&text::PATH_PREFIX), "null", "Path prefix that ends where a path segment does; absent: every path."),
    key("pools[].endpoints", ENDPOINTS, "[]", "The model servers, as `ip:port` or as objects; at least one where there is no `discovery`. With it, they are used until Envoy's list is read, and say more of the hosts in it."),
    required("pools[].endpoints[].address", Kind::Text(&super::endpoint::ADDRESS), "`ip:port`; IPv6 in brackets."),
    key("pools[].endpoints[].labels", Kind::Labels, "{}", "Labels, as on a pod."),
    key("pools[].endpoints[].maxRunning", AT_LEAST_ONE, "null", "Requests one engine runs at once; absent: `scoring.maxRunning`."),
    key("pools[].models", MODELS, "[]", "Models that servers are asked for under other names; the name in the response stays the server's."),
    required("pools[].models[].name", Kind::Text(&text::MODEL_NAME), "What clients ask for; unique in the pool."),
    required("pools[].models[].targets", TARGETS, "What servers are asked for instead; a conversation keeps its target."),
    required("pools[].models[].targets[].model", Kind::Text(&text::MODEL_NAME), "The server's name for it."),
    key("pools[].models[].targets[].weight", MODEL_WEIGHT, "1", "Its share of the conversations, against the other targets' weights."),
    key("pools[].models[].targets[].adapter", Kind::Flag, "false", "It is an adapter: servers that have it loaded are preferred."),
    key("pools[].discovery", Kind::Section, "null", "Take the endpoints, and Envoy's word on their health, from its own host list (`GET /clusters?format=json`); absent: `endpoints` alone."),
    required("pools[].discovery.adminCluster", Kind::Text(&text::CLUSTER_NAME), "The Envoy cluster of its own admin interface."),
    key("pools[].discovery.interval", SCRAPE_INTERVAL, "\"1s\"", "Time between two readings of the list."),
    key("pools[].discovery.sources", SOURCES, "[]", "The clusters whose hosts make up the pool, all of them hosts of its `cluster` too; empty: the hosts of its `cluster`."),
    required("pools[].discovery.sources[].cluster", Kind::Text(&text::CLUSTER_NAME), "An Envoy cluster."),
    key("pools[].discovery.sources[].labels", Kind::Labels, "{}", "Labels of all its hosts, as on a pod."),
    section("pools[].metrics", "How the endpoints' metrics are read."),
    key("pools[].metrics.path", Kind::Text(&text::REQUEST_PATH), "\"/metrics\"", "Path of the metrics text."),
    key("pools[].metrics.interval", SCRAPE_INTERVAL, "\"1s\"", "Time between two scrapes of an endpoint."),
    key("pools[].metrics.timeout", SCRAPE_TIMEOUT, "\"3s\"", "Time after which a scrape has failed."),
    key("pools[].metrics.cluster", Kind::Text(&text::CLUSTER_NAME), "null", "Another cluster with the same endpoints, for scrapes only; absent: the pool's."),
    key("pools[].metrics.port", PORT, "null", "Port of the metrics text at each endpoint's address; `metrics.cluster` then has the hosts at that port. Absent: the endpoint's."),
    key("pools[].metrics.engine", choice(&["auto", "vllm", "sglang", "trtllm", "triton"]), "\"auto\"", "Whose metric names to expect; `auto`: those each page has."),
    key("pools[].metrics.gpuCluster", Kind::Text(&text::CLUSTER_NAME), "null", "A cluster with a DCGM exporter at each endpoint's address and `gpuPort`, read for GPU load and errors; absent: none is read."),
    key("pools[].metrics.gpuPort", PORT, "9400", "Port of the DCGM exporters."),
    section("pools[].scoring", "How candidates are chosen and weighed."),
    key("pools[].scoring.preset", choice(&["default", "low-latency", "batch", "many-adapter", "balanced"]), "\"default\"", "Defaults for a kind of traffic; keys given beside it win."),
    section("pools[].scoring.weights", "Weights of the factors; only their ratio counts."),
    key("pools[].scoring.weights.cache", WEIGHT, "0.6", "Share of the prompt's blocks the endpoint holds."),
    key("pools[].scoring.weights.load", WEIGHT, "0.2", "1 − GPU load, KV-cache utilisation or running requests."),
    key("pools[].scoring.weights.queue", WEIGHT, "0.1", "1 − queue depth / `maxQueue`."),
    key("pools[].scoring.weights.health", WEIGHT, "0.05", "Health."),
    key("pools[].scoring.weights.adapter", WEIGHT, "0.05", "1 when the adapter is loaded or none is needed."),
    key("pools[].scoring.maxQueue", AT_LEAST_ONE, "20", "Waiting requests at which an endpoint is no candidate."),
    key("pools[].scoring.maxRunning", AT_LEAST_ONE, "256", "Requests one engine runs at once (vLLM's `--max-num-seqs`)."),
    key("pools[].scoring.minHealth", SHARE, "0.3", "Health below which an endpoint is no candidate."),
    key("pools[].scoring.tieBand", TIE_BAND, "0.002", "Scores this near the best count as equal to it."),
    key("pools[].scoring.guardFloor", AT_LEAST_ONE, "20", "Open requests below which the load guard never acts."),
    key("pools[].scoring.guardRatio", GUARD_RATIO, "1.5", "Times the mean of open requests at which a cache match stops counting."),
    section("pools[].prefix", "How prompts are cut into blocks and remembered."),
    key("pools[].prefix.blockTokens", BLOCK_TOKENS, "64", "Pseudo-tokens of 4 bytes in a block."),
    key("pools[].prefix.autoTune", Kind::Flag, "true", "With `capacityBlocks: auto`, take each endpoint's capacity from its metrics."),
    key("pools[].prefix.maxTokens", MAX_TOKENS, "131072", "Pseudo-tokens of a prompt that are hashed; the rest is ignored."),
    key("pools[].prefix.capacityBlocks", Kind::AutoOrWhole, "\"auto\"", "Blocks an endpoint's cache holds; `auto`: from its metrics, 31250 until they tell."),
    key("pools[].prefix.pendingCredit", choice(&["unlessConfirmed", "full", "none"]), "\"unlessConfirmed\"", "Whether blocks count that were sent but not yet answered."),
    section("pools[].health", "How doubt about an endpoint is weighed."),
    key("pools[].health.staleAfter", STALE_AFTER, "3", "Scrape intervals after which metrics count less."),
    key("pools[].health.staleFloor", SHARE, "0.5", "Health of an endpoint whose metrics are ten intervals old or older."),
    key("pools[].health.errorWindow", ERROR_WINDOW, "\"10s\"", "How long a failed answer (5xx, reset, time-out) counts against an endpoint."),
    key("pools[].endpointPickerConfig", Kind::Object { of: "an llm-d EndpointPickerConfig" }, "null", "An llm-d `EndpointPickerConfig`, pasted as it is; its profiles then choose and weigh in the place of `scoring`'s preset, weights and `maxQueue`."),
    section("pools[].disaggregation", "How a prompt is computed at one endpoint for another, where a `disagg-profile-handler` names both."),
    key("pools[].disaggregation.mode", choice(&["off", "header", "inline-nixl", "inline-sglang"]), "\"header\"", "`header`: name the prefill endpoint to the decode endpoint's sidecar; `inline-…`: call it from here, no sidecar; `off`: decode endpoints alone."),
    key("pools[].disaggregation.prefillTimeout", PREFILL_TIMEOUT, "\"30s\"", "Time for the prefill endpoint's answer; then the decode endpoint computes the prompt itself."),
    key("pools[].disaggregation.cluster", Kind::Text(&text::CLUSTER_NAME), "null", "Another cluster with the prefill endpoints, with circuit breakers of its own, for these calls; absent: the pool's."),
    key("pools[].disaggregation.bootstrapPort", PORT, "8998", "SGLang's `--disaggregation-bootstrap-port` of the prefill endpoints."),
    section("overrideHost", "How the pick reaches Envoy."),
    key("overrideHost.mode", choice(&["header", "statefulSession"]), "\"header\"", "Who reads the header: the cluster's `override_host` policy, or a `stateful_session` filter behind this one (the pick alone, in base64)."),
    key("overrideHost.header", Kind::Text(&text::HEADER_NAME), "\"x-gateway-destination-endpoint\"", "That header."),
    key("overrideHost.fallbacks", FALLBACKS, "2", "Next-best endpoints named after the pick, for retries; none with `statefulSession`."),
    key("maxBufferedBytes", BUFFERED_BYTES, "983040", "Bytes of a body held before the pick; Envoy must be able to buffer 1 MiB more."),
    key("failureMode", choice(&["FailOpen", "FailClose"]), "\"FailOpen\"", "When no endpoint is fit: route by the same scores all the same, or answer 503."),
    section("limits", "Caps on what grows with traffic."),
    key("limits.indexBytes", INDEX_BYTES, "\"64Mi\"", "Memory for the prefix indexes, in each Envoy worker."),
    key("limits.logSlots", LOG_SLOTS, "4096", "Decisions that shared data keeps for workers, and the main thread, that are behind; each takes 64 bytes, and 8 for each new block of its prompt."),
    key("limits.labelValues", LABEL_VALUES, "100", "Client-controlled values of a metric label; the rest is `other`."),
    key("debugHeaders", Kind::Flag, "false", "Send the `x-epp-*` headers to the client."),
    key("logLevel", choice(&["info", "debug", "trace"]), "\"info\"", "The most detailed level that is logged."),
];

#[rustfmt::skip]
const LATER_KEYS: &[LaterKey] = &[
    later("pools[].prefix.forgetOnMiss", "leave it out"),
    later("console", "read the metrics on Envoy's admin port"),
];

//! Headers that steer routing, which no client may send.

/// Removed from every request of a pool before anything reads them, beside the destination header
/// itself: they would let a client choose its server, another tenant's queue, or an address a
/// sidecar connects to. Names are llm-d's and their older aliases.
pub const CONTROL_HEADERS: [&str; 19] = [
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-scores",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-gateway-model-name-rewrite",
    "x-llm-d-slo-ttft-ms",
    "x-llm-d-slo-tpot-ms",
    "x-slo-ttft-ms",
    "x-slo-tpot-ms",
    "x-llm-d-request-dropped-reason",
    "x-conformance-test-served-endpoint",
    "test-epp-endpoint-selection",
];

//! The metrics this version exports, and how their labels travel in a stat name.

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A present value.
    Gauge,
    /// A distribution of whole numbers.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As Prometheus shows it.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// Label names, `pod` last: Envoy drops a dot at the end of a stat name, and an address never
    /// ends in one.
    pub labels: &'static [&'static str],
    /// What it tells, for the documentation.
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident [$($label:literal)*] $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                meaning: $meaning,
            };
        )*
        /// Every metric, in the order of the documentation.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    ROUTING_DECISIONS "epp_routing_decisions_total" Counter ["pool" "model" "pod"]
        "Requests routed by their prompt, by the endpoint picked.";
    FALLBACK "epp_fallback_total" Counter ["pool" "reason"]
        "Requests routed without their prompt's help, by reason.";
    CACHE_MATCH_BLOCKS "epp_cache_match_blocks_total" Counter ["pool"]
        "Prompt blocks the picked endpoints were thought to hold.";
    PROMPT_BLOCKS "epp_prompt_blocks_total" Counter ["pool"]
        "Prompt blocks of all requests routed by their prompt.";
    CACHE_MATCH_RATIO "epp_cache_match_ratio" Histogram []
        "Share of a prompt's blocks the picked endpoint was thought to hold, in percent.";
    COMPOSITE_SCORE "epp_composite_score" Histogram []
        "Composite score of the picked endpoint, in percent.";
    SCORING_LATENCY "epp_scoring_latency_us" Histogram []
        "Time from a complete request to its pick, in microseconds: read, parse, hash, match, score.";
    QUEUE_DEPTH "epp_queue_depth" Gauge ["pool" "pod"]
        "Requests waiting at the endpoint, with those the scrape cannot show yet.";
    INFLIGHT_REQUESTS "epp_inflight_requests" Gauge ["pool" "pod"]
        "Requests this Envoy sent to the endpoint that are not over.";
    POD_HEALTH_SCORE "epp_pod_health_score" Gauge ["pool" "pod"]
        "Health of the endpoint, in percent.";
    CANDIDATE_PODS "epp_candidate_pods" Gauge ["pool"]
        "Endpoints that a request without a prompt may go to: those that every filter lets through.";
    MAX_QUEUE "epp_max_queue" Gauge ["pool"]
        "Waiting requests at which an endpoint is no candidate; 0 where no filter limits the queue.";
    PREFIX_TREE_NODES "epp_prefix_tree_nodes" Gauge ["pool"]
        "Entries of the prefix index: blocks times endpoints that hold them; each worker has them all.";
    BUILD_INFO "epp_build_info" Gauge ["version"]
        "Always 1; the label is the module's version.";
    ADAPTER_LOADS "epp_adapter_loads_triggered_total" Counter ["pool" "adapter"]
        "Requests sent to an endpoint that did not list their adapter among the loaded ones.";
    SCRAPES "epp_scrapes_total" Counter ["pool" "result"]
        "Scrapes of endpoints' metrics, by result: ok, error, timeout, unreadable.";
    DISCOVERY "epp_discovery_total" Counter ["pool" "result"]
        "Readings of Envoy's host list, by result as above; none without discovery.";
    REPLICA_GAP "epp_replica_gap_total" Counter []
        "Entries of the decision log that some worker could not read before they were overwritten.";
    LOG_UNTOLD "epp_log_untold_total" Counter []
        "Entries of the decision log that could not be written: only one worker knows them.";
    FOREIGN_DATA "epp_foreign_data_total" Counter []
        "Leases and snapshots in shared data that something else wrote, each time a worker met one: they are not taken.";
    UPSTREAM_RESET "epp_upstream_reset_total" Counter ["pool" "pod"]
        "Responses an endpoint broke off after they had begun.";
    DISAGG_DECISION "epp_disagg_decision_total" Counter ["pool" "decision"]
        "Requests of pools that may split them, by what became of it; absent for other pools.";
    DISAGG_PREFILL_LATENCY "epp_disagg_prefill_latency_ms" Histogram []
        "Time from a call of a prefill endpoint to its answer or failure, in milliseconds; inline modes only.";
    DISAGG_TRANSFERRED "epp_disagg_transferred_tokens" Gauge ["pool" "pod"]
        "Prompt tokens the endpoint says it took over from others since it started, as last scraped; absent where it says nothing, or no split is configured.";
}

/// Bytes of a label value that are kept.
const VALUE_BYTES: usize = 128;

/// The name Envoy keeps `metric` under: `name|label=value|…`, which the shipped `stats_tags` turn
/// back into labels. `values` come in the order of the metric's labels.
pub fn stat_name(metric: &Metric, values: &[&str]) -> String {
    let mut name = metric.name.to_owned();
    for (label, value) in metric.labels.iter().zip(values) {
        name.push('|');
        name.push_str(label);
        name.push('=');
        push_value(&mut name, value);
    }
    name
}

/// Appends `value` so that nothing in it can end it or start another label. Dots at its end are
/// left out: Envoy shows a label without them, and two stats must not show as one series.
fn push_value(name: &mut String, value: &str) {
    let start = name.len();
    for character in value.chars() {
        let kept = name.len().saturating_sub(start);
        if kept.saturating_add(character.len_utf8()) > VALUE_BYTES {
            break;
        }
        name.push(if character == '|' || character.is_control() {
            '_'
        } else {
            character
        });
    }
    while name.len() > start && name.ends_with('.') {
        name.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_name_in_their_order() {
        let name = stat_name(
            &ROUTING_DECISIONS,
            &["llama", "meta-llama/Llama-3.1", "[::1]:80"],
        );
        let expected =
            "epp_routing_decisions_total|pool=llama|model=meta-llama/Llama-3.1|pod=[::1]:80";
        assert_eq!(name, expected);
        assert_eq!(stat_name(&COMPOSITE_SCORE, &[]), "epp_composite_score");
    }

    #[test]
    fn a_client_cannot_forge_a_label() {
        let name = stat_name(
            &ROUTING_DECISIONS,
            &["p", "evil|pod=1.2.3.4:1\n", "10.0.0.1:80"],
        );
        assert_eq!(
            name,
            "epp_routing_decisions_total|pool=p|model=evil_pod=1.2.3.4:1_|pod=10.0.0.1:80"
        );
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let name = stat_name(&FALLBACK, &["é".repeat(100).as_str(), "no_body"]);
        assert_eq!(
            name,
            format!("epp_fallback_total|pool={}|reason=no_body", "é".repeat(64))
        );
    }

    #[test]
    fn dots_at_the_end_of_a_value_are_left_out() {
        for (value, label) in [("v1..", "v1"), ("v.1", "v.1"), ("...", ""), ("", "")] {
            let name = stat_name(&ROUTING_DECISIONS, &["p", value, "10.0.0.1:80"]);
            let expected =
                format!("epp_routing_decisions_total|pool=p|model={label}|pod=10.0.0.1:80");
            assert_eq!(name, expected);
        }
        let cut = stat_name(&FALLBACK, &[&format!("{}.x", "a".repeat(127)), "no_body"]);
        assert_eq!(
            cut,
            format!("epp_fallback_total|pool={}|reason=no_body", "a".repeat(127))
        );
    }

    #[test]
    fn the_pod_label_comes_last() {
        for metric in ALL {
            let others = metric.labels.iter().rev().skip(1);
            assert!(
                others.into_iter().all(|label| *label != "pod"),
                "{}",
                metric.name
            );
        }
    }
}

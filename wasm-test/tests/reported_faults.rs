//! Faults that users of other routers reported, and the tests that show this one without them: a
//! map that is held to the sources, so that a test that is renamed, removed or ignored is missed.
//!
//! Three groups: bodies and what lies between client and server (25 to 42), servers' metrics (43 to
//! 56), load and hot spots (57 to 74). Numbers are kept where a report does not apply.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use source::Test;

#[path = "reported_faults/source.rs"]
mod source;

/// What becomes of a report.
enum Answer {
    /// These tests fail where the fault is back. `file::test`, the file under `wasm-test/tests`
    /// unless it begins with `src`.
    Shown(&'static [&'static str]),
    /// Not answered in full. The tests show what holds all the same.
    InPart(&'static str, &'static [&'static str]),
    /// Nothing of the module's could be at fault.
    OutOfReach(&'static str),
}

use Answer::{InPart, OutOfReach, Shown};

/// Number, the fault as it was seen, and its answer.
const REPORTS: [(u8, &str, Answer); 41] = [
    (
        25,
        "a body over 128 KB is answered with 500",
        Shown(&[
            "e2e_odd_requests::a_body_of_megabytes_is_held_whole_with_the_shipped_limit",
            "e2e_framing::a_body_is_held_to_its_end_however_it_comes",
        ]),
    ),
    (
        26,
        "413 above 32,768 bytes, a listener's small buffer",
        Shown(&[
            "e2e_body_limits::a_body_beyond_the_listeners_buffer_is_held_whole_with_the_shipped_limits",
            "e2e_body_limits::a_body_beyond_the_only_buffer_is_routed_by_the_part_read_where_its_length_is_known",
        ]),
    ),
    (
        27,
        "413 one byte above the router's own limit",
        Shown(&[
            "e2e_body_limits::a_body_is_truncated_from_one_byte_over_the_limit_on",
            "e2e_body_limits::a_body_over_the_shipped_limit_is_routed_by_the_part_read",
            "scenarios::a_body_over_the_limit_is_routed_by_the_part_read",
            "src/flow/stream/tests/requests::a_body_too_long_to_hold_is_routed_by_the_part_read",
        ]),
    ),
    (
        28,
        "bodies of megabytes exhaust a transport between proxy and picker",
        Shown(&["e2e_body_limits::eight_megabytes_are_held_whole_with_the_shipped_limits"]),
    ),
    (
        29,
        "a gzip body is refused as malformed JSON",
        Shown(&[
            "e2e_odd_requests::an_encoded_body_is_routed_by_load",
            "scenarios::a_request_without_a_readable_prompt_is_routed_by_load_with_its_reason",
        ]),
    ),
    (
        30,
        "a zstd body is refused",
        Shown(&["e2e_odd_requests::an_encoded_body_is_routed_by_load"]),
    ),
    (
        31,
        "a held body over 1 MiB never ends, or is refused",
        Shown(&[
            "e2e_body_limits::a_body_of_known_length_is_never_refused_with_envoys_own_limit",
            "e2e_body_limits::eight_megabytes_are_routed_by_the_part_read_with_the_default_limit",
            "host_model::a_held_body_over_the_limit_is_answered_with_413_after_it_was_shown",
        ]),
    ),
    (
        32,
        "a buffer limit of the route is not enough, or not obeyed",
        Shown(&[
            "e2e_body_limits::eight_megabytes_are_held_whole_with_the_shipped_limits",
            "e2e_body_limits::eight_megabytes_are_replayed_to_the_next_server_of_the_list",
            "epp_check::a_route_that_holds_or_retries_too_little_is_warned_of",
        ]),
    ),
    (
        33,
        "a request without a body hangs while its headers are held",
        Shown(&[
            "e2e_odd_requests::a_get_is_routed_by_load",
            "e2e_odd_requests::a_head_is_routed_by_load",
            "e2e_odd_requests::a_post_without_a_body_is_routed_by_load",
            "e2e_odd_requests::an_upgrade_is_routed_at_once",
            "e2e_watchdog::a_host_that_withholds_bodies_is_found_out_once_and_routed_by_load",
            "host_clock::a_host_that_withholds_bodies_costs_two_ticks_at_most_and_one_warning",
        ]),
    ),
    (
        35,
        "after a trap every request gets 503",
        Shown(&[
            "no_panics::no_line_of_ours_can_panic",
            "host_model::a_trap_ends_every_stream_of_the_vm_without_another_callback",
            "host_model::a_lost_vm_is_replaced_by_a_request_once_its_interval_is_over",
            "epp_check::settings_of_the_filter_that_lose_requests_are_warned_of",
        ]),
    ),
    (
        36,
        "start-up blocks while the module cannot be downloaded",
        OutOfReach("the control plane downloads it, before there is a module"),
    ),
    (
        38,
        "the picker runs on routes that do not need it",
        Shown(&[
            "e2e_odd_requests::a_path_outside_every_pool_is_untouched",
            "e2e_odd_requests::a_model_no_pool_takes_is_untouched",
            "scenarios::a_path_outside_every_pool_is_untouched",
            "e2e_request_id::a_request_that_is_nobodys_gets_no_request_id",
        ]),
    ),
    (
        39,
        "a destination header of the client is obeyed",
        Shown(&[
            "e2e_odd_requests::a_client_cannot_choose_its_server",
            "e2e_odd_requests::no_control_header_of_a_client_reaches_a_server",
            "scenarios::no_control_header_of_a_client_reaches_a_server",
        ]),
    ),
    (
        40,
        "a retry goes to the dead server again",
        Shown(&[
            "scenarios::a_request_names_its_pick_and_two_fallbacks",
            "scenarios::a_server_that_is_gone_hands_its_request_and_its_blocks_to_the_next_of_the_list",
            "e2e_failures::an_endpoint_that_refuses_costs_a_retry_on_the_next_of_the_list",
            "e2e_failures::a_server_that_answers_503_hands_its_request_and_its_blocks_to_the_next",
            "e2e_body_limits::eight_megabytes_are_replayed_to_the_next_server_of_the_list",
        ]),
    ),
    (
        41,
        "a pick that the cluster does not hold goes elsewhere in silence",
        Shown(&["e2e_health::an_endpoint_that_envoys_cluster_does_not_hold_is_reported_once"]),
    ),
    (
        42,
        "of two pools behind one picker, an empty one costs both their requests",
        Shown(&[
            "e2e_two_pools::a_pool_of_dead_servers_costs_the_other_nothing",
            "src/flow/stream/tests/requests::the_first_pool_that_takes_the_model_gets_the_request",
        ]),
    ),
    (
        43,
        "vLLM renamed gpu_cache_usage_perc, and the cache counts as empty",
        Shown(&[
            "src/datalayer/vllm/tests::one_family_is_enough_and_leaves_the_others_empty",
            "src/datalayer/vllm/tests::both_names_of_kv_utilisation_are_read_and_the_higher_value_counts",
        ]),
    ),
    (
        44,
        "of several engines only the last one's series count",
        Shown(&[
            "src/datalayer/vllm/tests::engines_add_their_queues_and_show_the_fullest_cache",
            "properties_datalayer::engines_combine_as_a_fold_over_them",
        ]),
    ),
    (
        47,
        "a page without adapter series is not read at all",
        Shown(&[
            "src/datalayer/vllm/tests::one_family_is_enough_and_leaves_the_others_empty",
            "src/datalayer/engine/tests::a_missing_family_leaves_only_its_own_field_empty",
        ]),
    ),
    (
        48,
        "a pool of vLLM and SGLang is read by one engine's names",
        Shown(&[
            "src/datalayer/engine/tests::each_page_of_a_mixed_pool_decides_for_itself",
            "e2e_scraping::metrics_and_gpu_load_come_from_other_ports_and_paths",
        ]),
    ),
    (
        49,
        "a server whose first page has no samples is never picked",
        Shown(&[
            "e2e_spread::a_server_without_samples_takes_neither_all_nor_none_of_a_burst",
            "e2e_spread::a_server_without_samples_takes_neither_all_nor_none_of_what_comes_one_by_one",
            "e2e_scraping::a_pool_without_metrics_is_routed_by_prompt",
            "e2e_scraping::a_page_that_is_no_metrics_page_is_counted_as_unreadable",
        ]),
    ),
    (
        50,
        "numbers of a page that stopped coming count as new",
        Shown(&[
            "host_clock::metrics_lose_worth_with_age_and_take_nobody_out",
            "e2e_scraping::stale_metrics_lower_the_score_and_exclude_nobody",
            "e2e_scraping::pages_that_hang_dawdle_or_are_garbage_cost_their_own_servers_only",
            "src/requestcontrol/pool/tests/adapters::gpu_load_that_the_exporter_stopped_telling_is_forgotten",
        ]),
    ),
    (
        51,
        "after a stall all servers are stale and everybody gets 500",
        Shown(&[
            "e2e_scraping::stale_metrics_lower_the_score_and_exclude_nobody",
            "src/requestcontrol/pool/tests/health::staleness_alone_takes_nobody_out_whatever_the_floor",
            "host_clock::a_stalled_leader_is_replaced_and_its_late_answers_overwrite_nothing",
        ]),
    ),
    (
        53,
        "every worker scrapes every server",
        Shown(&[
            "e2e_scraping::one_of_all_workers_scrapes_each_server_once_an_interval",
            "host_clock::one_vm_of_all_scrapes_each_server_once_an_interval",
            "host_clock::the_lease_of_a_lost_vm_passes_on_when_it_lapses",
        ]),
    ),
    (
        55,
        "metrics are looked for under /metrics and at the server's port only",
        Shown(&[
            "e2e_scraping::metrics_and_gpu_load_come_from_other_ports_and_paths",
            "host_clock::scrapes_go_to_the_metrics_cluster_and_fail_where_there_is_none",
        ]),
    ),
    (
        56,
        "the index has room for the GPU's blocks, while offloaded ones are there as well",
        InPart(
            "offload is not read from the page; capacityBlocks says what a server holds",
            &["src/requestcontrol/pool/tests::reported_cache_size_becomes_index_capacity"],
        ),
    ),
    (
        57,
        "a burst between two scrapes goes to one server",
        Shown(&[
            "e2e_spread::distinct_cold_prompts_at_once_are_shared_evenly",
            "src/requestcontrol/pool/tests::a_burst_of_cold_prompts_spreads_evenly",
            "src/requestcontrol/in_flight::what_the_scrape_cannot_have_seen_is_our_own",
        ]),
    ),
    (
        58,
        "among equals the same server is always first",
        Shown(&[
            "e2e_routing::distinct_cold_prompts_spread_over_all_servers",
            "load_spread::idle_servers_share_requests_that_are_answered_at_once",
            "src/scheduling/tests::equals_share_distinct_prompts_evenly_and_keep_the_same_one",
        ]),
    ),
    (
        59,
        "a system prompt that all share draws all to one server",
        Shown(&[
            "e2e_spread::balanced_spreads_conversations_with_an_unseen_common_system_prompt",
            "e2e_spread::a_warm_server_keeps_up_to_the_guard_and_the_others_share_the_rest",
            "src/prefix/chain/tests::the_anchor_stays_where_the_first_user_message_ends",
        ]),
    ),
    (
        61,
        "the server with the smallest index draws what matches nowhere",
        Shown(&["load_spread::long_and_short_prompts_are_shared_alike"]),
    ),
    (
        62,
        "open requests are not counted: load is always 0",
        Shown(&[
            "load_spread::slow_streams_count_for_as_long_as_they_last",
            "src/scheduling/tests::own_requests_count_as_queued_and_as_running",
        ]),
    ),
    (
        63,
        "a stream that breaks off stays in flight",
        Shown(&[
            "e2e_aborts::a_hundred_clients_that_reset_their_streams_leave_nothing_in_flight",
            "e2e_aborts::a_hundred_streams_of_one_connection_that_are_reset_leave_nothing_in_flight",
            "e2e_aborts::a_hundred_streams_that_servers_reset_leave_nothing_in_flight",
            "e2e_failures::a_server_killed_under_load_costs_only_the_streams_it_had_begun",
            "e2e_failures::a_client_that_goes_away_before_the_answer_is_no_longer_in_flight",
            "e2e_failures::a_client_that_goes_away_mid_stream_is_no_longer_in_flight",
            "e2e_failures::a_client_that_goes_away_before_its_body_ends_leaves_no_trace",
            "properties_flow::any_order_of_events_ends_in_one_outcome_and_nothing_in_flight",
        ]),
    ),
    (
        65,
        "an imbalance anywhere suspends affinity everywhere",
        Shown(&["load_spread::an_imbalance_suspends_affinity_to_the_loaded_server_and_no_other"]),
    ),
    (
        66,
        "prompts without reuse are served worse than in turns",
        Shown(&["load_spread::prompts_that_share_nothing_wait_no_longer_than_in_turns"]),
    ),
    (
        67,
        "routers that do not know of each other all pick the same server",
        Shown(&[
            "e2e_workers::a_burst_of_cold_prompts_spreads_over_idle_servers",
            "e2e_workers::a_burst_with_one_known_prefix_leaves_no_server_alone",
            "e2e_shared_state::four_workers_predict_like_one_and_far_better_than_four_alone",
            "e2e_shared_state::two_envoys_that_share_nothing_mostly_agree",
        ]),
    ),
    (
        68,
        "448 to 0 while nothing is in flight",
        Shown(&["load_spread::idle_servers_share_requests_that_are_answered_at_once"]),
    ),
    (
        69,
        "some servers idle under steady load",
        Shown(&["load_spread::no_server_idles_under_ten_minutes_of_steady_load"]),
    ),
    (
        71,
        "a server is picked although 12 wait there and others idle",
        Shown(&[
            "load_spread::a_server_with_requests_waiting_gets_no_cold_prompt_while_others_idle",
            "e2e_scores::a_server_over_the_queue_limit_gets_nothing_while_another_is_available",
            "e2e_scores::a_server_one_below_the_queue_limit_still_serves_what_it_holds",
        ]),
    ),
    (
        72,
        "a server that joins without metrics has half a score, and starves",
        Shown(&[
            "e2e_discovery::endpoints_come_and_go_with_envoys_host_list",
            "e2e_failures::a_server_that_returns_has_its_share_again_within_ten_seconds",
            "e2e_spread::a_server_without_samples_takes_neither_all_nor_none_of_what_comes_one_by_one",
        ]),
    ),
    (
        73,
        "one prompt of 100,000 tokens counts as much as one of 100",
        Shown(&[
            "src/requestcontrol/pool/tests::a_long_prompt_in_flight_fills_a_cache_of_known_size",
            "src/requestcontrol/in_flight::a_newer_scrape_takes_over_what_was_sent_before_it",
        ]),
    ),
    (
        74,
        "low priority goes before high, one tenant starves the others",
        InPart(
            "nothing is queued or shed here; priorities that clients send are taken out",
            &["e2e_odd_requests::no_control_header_of_a_client_reaches_a_server"],
        ),
    ),
];

/// Where `file` is in the repository.
fn path(file: &str) -> String {
    let file = format!("{file}.rs");
    match file.strip_prefix("src/") {
        Some(_) => file,
        None => format!("wasm-test/tests/{file}"),
    }
}

fn tests_in(file: &str) -> BTreeMap<String, Test> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let path = root.expect("a repository").join(path(file));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    source::tests(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn every_test_named_exists_and_runs() {
    let mut read = BTreeMap::new();
    for (number, _, answer) in &REPORTS {
        let (Shown(named) | InPart(_, named)) = answer else {
            continue;
        };
        for name in *named {
            let (file, test) = name.rsplit_once("::").expect("file::test");
            let tests = read.entry(file).or_insert_with(|| tests_in(file));
            match tests.get(test) {
                None => panic!("{number}: there is no test {test} in {}", path(file)),
                Some(found) => assert!(!found.left_out, "{number}: {test} does not always run"),
            }
        }
    }
}

#[test]
fn every_report_is_there_once_and_has_its_answer() {
    assert!(REPORTS.is_sorted_by_key(|(number, ..)| number));
    let mut numbers: Vec<u8> = REPORTS.iter().map(|(number, ..)| *number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), REPORTS.len());
    for (number, fault, answer) in &REPORTS {
        assert!(!fault.is_empty(), "{number}");
        match answer {
            Shown(named) => assert!(!named.is_empty(), "{number}"),
            InPart(why, _) | OutOfReach(why) => assert!(!why.is_empty(), "{number}"),
        }
    }
}

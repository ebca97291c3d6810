mod build;
mod disagg;
mod own;
mod pickers;
mod vectors;

use super::picker::TieKey;
use super::*;
use crate::config::{ScoringConfig, Weights};
use crate::datalayer::EndpointId;
use crate::telemetry::Reason;

fn config() -> ScoringConfig {
    ScoringConfig {
        weights: Weights {
            cache: 0.60,
            load: 0.20,
            queue: 0.10,
            health: 0.05,
            adapter: 0.05,
        },
        max_queue: 20,
        max_running: 256,
        min_health: 0.3,
        tie_band: 0.002,
        guard_floor: 20,
        guard_ratio: 1.5,
    }
}

/// An idle, healthy endpoint that holds nothing.
fn idle(id: u16) -> Candidate {
    Candidate {
        address_hash: 1_000 + u64::from(id),
        total_blocks: 10,
        max_running: 256,
        kv_utilisation: Some(0.0),
        ..Candidate::new(EndpointId::new(id))
    }
}

/// A request for ten blocks that names `attempts` endpoints.
fn request(tie: u64, attempts: usize) -> Request {
    Request {
        tie: TieKey(tie),
        random: tie,
        attempts,
        total_blocks: 10,
        block_tokens: 64,
        prompt_tokens: 640.0,
        tokens_per_block: 64.0,
    }
}

fn composite(candidate: &Candidate) -> f64 {
    composite_of(&five_factor(&config()), candidate)
}

fn composite_of(profile: &Profile, candidate: &Candidate) -> f64 {
    profile.composites(&request(7, 1), &[candidate])[0]
}

fn assert_close(actual: f64, expected: f64, what: &str) {
    assert!(
        (actual - expected).abs() < 1e-9,
        "{what}: {actual} instead of {expected}"
    );
}

fn picks(candidates: &[Candidate]) -> Vec<usize> {
    let decision = five_factor(&config()).run(&request(7, 10), candidates);
    decision
        .ranking
        .iter()
        .map(|ranked| ranked.endpoint.index())
        .collect()
}

/// [`idle`] with one change.
fn with(change: impl FnOnce(&mut Candidate)) -> Candidate {
    let mut candidate = idle(0);
    change(&mut candidate);
    candidate
}

#[test]
fn the_cache_factor_is_the_matched_share() {
    assert_close(composite(&idle(0)), 0.40, "nothing cached");
    assert_close(
        composite(&with(|c| c.matched_blocks = 5)),
        0.70,
        "half cached",
    );
    assert_close(
        composite(&with(|c| c.matched_blocks = 10)),
        1.0,
        "all cached",
    );
    assert_close(composite(&with(|c| c.total_blocks = 0)), 0.40, "no prompt");
    let guarded = with(|c| (c.matched_blocks, c.guarded) = (10, true));
    assert_close(composite(&guarded), 0.40, "behind the guard");
}

#[test]
fn the_load_factor_is_the_gpu_or_the_fuller_of_batch_and_kv_cache() {
    assert_close(
        composite(&with(|c| c.kv_utilisation = Some(0.5))),
        0.30,
        "KV cache",
    );
    assert_close(composite(&with(|c| c.running = 128)), 0.30, "batch");
    assert_close(
        composite(&with(|c| c.running = 999)),
        0.20,
        "more than the batch holds",
    );
    let fuller = with(|c| (c.running, c.kv_utilisation) = (128, Some(0.2)));
    assert_close(composite(&fuller), 0.30, "the fuller one");
    let gpu = with(|c| (c.gpu_utilisation, c.kv_utilisation) = (Some(0.1), Some(0.9)));
    assert_close(composite(&gpu), 0.38, "the GPU's own word");
    let warm = with(|c| (c.gpu_utilisation, c.matched_blocks) = (Some(0.8), 10));
    assert_close(composite(&warm), 0.84, "all cached at 80 % GPU load");
}

#[test]
fn the_queue_factor_is_half_a_hundredth_for_each_request() {
    for waiting in 0..=20_u32 {
        let expected = 0.40 - 0.005 * f64::from(waiting);
        assert_close(
            composite(&with(|c| c.waiting = waiting)),
            expected,
            "waiting",
        );
    }
    assert_close(
        composite(&with(|c| c.waiting = 100)),
        0.30,
        "more than the limit",
    );
}

#[test]
fn the_health_factor_is_at_most_35_thousandths_among_candidates() {
    assert_close(
        composite(&with(|c| c.health = 0.3)),
        0.365,
        "just healthy enough",
    );
    assert_close(composite(&with(|c| c.health = 0.5)), 0.375, "half");
}

#[test]
fn the_adapter_factor_is_all_or_nothing() {
    assert_close(
        composite(&with(|c| c.adapter_ready = false)),
        0.35,
        "not loaded",
    );
}

#[test]
fn own_requests_count_as_queued_and_as_running() {
    let queued = 0.10 * 2.0 / 20.0;
    let running = 0.20 * 2.0 / 256.0;
    let candidate = Candidate { own: 2, ..idle(0) };
    assert_close(composite(&candidate), 0.40 - queued - running, "own");
}

#[test]
fn weights_are_normalised_whatever_their_sum() {
    let mut doubled = config();
    doubled.weights = Weights {
        cache: 1.2,
        load: 0.4,
        queue: 0.2,
        health: 0.1,
        adapter: 0.1,
    };
    let candidate = Candidate {
        matched_blocks: 3,
        waiting: 4,
        health: 0.7,
        ..idle(0)
    };
    assert_close(
        composite_of(&five_factor(&doubled), &candidate),
        composite(&candidate),
        "doubled",
    );
}

#[test]
fn what_a_scorer_gets_wrong_stays_in_range() {
    for health in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        assert_close(
            composite(&Candidate { health, ..idle(0) }),
            0.35,
            "bad health",
        );
    }
    assert_close(
        composite(&Candidate {
            health: 9.0,
            ..idle(0)
        }),
        0.40,
        "health above 1",
    );
}

#[test]
fn a_warm_busy_endpoint_beats_a_cold_idle_one() {
    let warm = Candidate {
        matched_blocks: 10,
        gpu_utilisation: Some(0.8),
        ..idle(1)
    };
    assert_eq!(picks(&[idle(0), warm])[0], 1);
}

#[test]
fn the_unhealthy_are_no_candidates() {
    let ill = Candidate {
        matched_blocks: 10,
        fitness: 0.299,
        ..idle(1)
    };
    assert_eq!(picks(&[idle(0), ill]), [0]);
}

#[test]
fn who_lacks_the_model_is_no_candidate_and_the_ill_who_have_it_are_before_them() {
    let lacks = Candidate {
        matched_blocks: 10,
        serves_model: false,
        ..idle(1)
    };
    assert_eq!(picks(&[idle(0), lacks.clone()]), [0]);
    let ill = Candidate {
        fitness: 0.1,
        ..idle(0)
    };
    let decision = five_factor(&config()).run(&request(7, 10), &[ill, lacks.clone()]);
    assert_eq!(decision.exception, Some(Reason::NoCandidates));
    assert_eq!(decision.ranking.len(), 1);
    assert_eq!(decision.ranking[0].endpoint.index(), 0);
    assert_eq!(picks(&[lacks]), [1], "better there than nowhere");
}

#[test]
fn a_full_queue_gets_nothing_while_another_is_available() {
    let full = Candidate {
        matched_blocks: 10,
        waiting: 20,
        ..idle(1)
    };
    let nearly = Candidate {
        matched_blocks: 10,
        waiting: 19,
        ..idle(1)
    };
    assert_eq!(picks(&[idle(0), full]), [0]);
    assert_eq!(picks(&[idle(0), nearly]), [1, 0]);
}

#[test]
fn own_requests_wait_only_beyond_the_free_slots() {
    let with_slots = Candidate {
        running: 200,
        own: 75,
        ..idle(0)
    };
    assert_eq!(with_slots.truly_waiting(), 19);
    let without = Candidate {
        running: 300,
        own: 5,
        waiting: 3,
        ..idle(0)
    };
    assert_eq!(without.truly_waiting(), 8);
}

#[test]
fn all_over_the_limit_still_serves_the_best_of_the_healthy() {
    let over = |id, waiting| Candidate {
        waiting,
        ..idle(id)
    };
    let ill = Candidate {
        fitness: 0.1,
        ..idle(2)
    };
    let decision = five_factor(&config()).run(&request(7, 10), &[over(0, 30), over(1, 20), ill]);
    assert_eq!(decision.exception, Some(Reason::AllOverLimit));
    let places: Vec<usize> = decision
        .ranking
        .iter()
        .map(|one| one.endpoint.index())
        .collect();
    assert_eq!(places.len(), 2);
    assert!(!places.contains(&2));
}

#[test]
fn none_healthy_still_serves() {
    let ill = |id| Candidate {
        fitness: 0.1,
        ..idle(id)
    };
    let decision = five_factor(&config()).run(&request(7, 10), &[ill(0), ill(1)]);
    assert_eq!(decision.exception, Some(Reason::NoCandidates));
    assert_eq!(decision.ranking.len(), 2);
    let nobody = five_factor(&config()).run(&request(7, 10), &[]);
    assert!(nobody.ranking.is_empty());
}

#[test]
fn the_list_is_ranked_and_no_longer_than_asked() {
    let candidates: Vec<Candidate> = (0..5_u16)
        .map(|id| Candidate {
            matched_blocks: u32::from(id),
            ..idle(id)
        })
        .collect();
    let decision = five_factor(&config()).run(&request(7, 3), &candidates);
    let places: Vec<usize> = decision
        .ranking
        .iter()
        .map(|one| one.endpoint.index())
        .collect();
    assert_eq!(places, [4, 3, 2]);
    assert_eq!(decision.exception, None);
}

#[test]
fn equals_share_distinct_prompts_evenly_and_keep_the_same_one() {
    let candidates: Vec<Candidate> = (0..4).map(idle).collect();
    let profile = five_factor(&config());
    let mut shares = [0_u32; 4];
    for key in 0..4_000_u64 {
        let pick = |of: &[Candidate]| profile.run(&request(key, 1), of).ranking[0].endpoint;
        let picked = pick(&candidates);
        let reversed: Vec<Candidate> = candidates.iter().rev().cloned().collect();
        assert_eq!(
            pick(&reversed),
            picked,
            "the order of endpoints changed the pick"
        );
        shares[picked.index()] += 1;
    }
    assert!(
        shares.iter().all(|share| (900..=1_100).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn scores_within_the_tie_band_are_equal_and_beyond_it_are_not() {
    // One waiting request costs 0.005: beyond the band of 0.002.
    let busier = Candidate {
        waiting: 1,
        ..idle(1)
    };
    // One running request costs 0.0008: within it.
    let nearly = Candidate {
        running: 1,
        ..idle(1)
    };
    let profile = five_factor(&config());
    let wins = |candidate: &Candidate| {
        let pair = [idle(0), candidate.clone()];
        (0..400_u64)
            .filter(|&key| {
                profile.run(&request(key, 1), &pair).ranking[0]
                    .endpoint
                    .index()
                    == 1
            })
            .count()
    };
    assert_eq!(wins(&busier), 0);
    assert!((120..280).contains(&wins(&nearly)));
}

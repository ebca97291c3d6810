//! A prompt that is computed at another endpoint than the one that answers.

use super::*;

/// A pool whose endpoint 0 decodes and endpoint 1 computes prompts.
fn split() -> Pool {
    let json = r#"{"pools": [{
        "name": "p", "cluster": "c",
        "endpoints": [
            {"address": "10.0.0.1:8000", "labels": {"llm-d.ai/role": "decode"}},
            {"address": "10.0.0.1:8001", "labels": {"llm-d.ai/role": "prefill"}}
        ],
        "endpointPickerConfig": {
            "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
            "plugins": [
                {"type": "decode-filter"}, {"type": "prefill-filter"}, {"type": "prefix-cache-scorer"},
                {"type": "always-disagg-pd-decider", "name": "d"},
                {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "d"}}}
            ],
            "schedulingProfiles": [
                {"name": "decode", "plugins": [{"pluginRef": "decode-filter"}, {"pluginRef": "prefix-cache-scorer"}]},
                {"name": "prefill", "plugins": [{"pluginRef": "prefill-filter"}]}
            ]
        }
    }]}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    Pool::new(config.pools[0].clone(), 1_000, alone()).unwrap()
}

/// Routes the prompt; its ticket.
fn send_split(pool: &mut Pool, prompt: &Chain) -> Ticket {
    let pick = pool.pick(prompt, "m", TieKey(1), 1, at(1));
    assert_eq!(pick.decision.ranking[0].endpoint, EndpointId::new(0));
    assert_eq!(pick.prefill, Some(EndpointId::new(1)));
    let ticket = Ticket::open(pool, vec![EndpointId::new(0)], &prompt.blocks, at(1));
    ticket
        .unwrap()
        .with_prefill(pool, pick.prefill, &prompt.blocks, at(1))
}

fn open(pool: &Pool) -> [u32; 2] {
    [0, 1].map(|id| pool.open_at(EndpointId::new(id)))
}

#[test]
fn both_hold_the_prompt_and_prefill_is_over_with_the_first_byte() {
    let mut pool = split();
    let mut ticket = send_split(&mut pool, &cold(1));
    assert_eq!(open(&pool), [1, 1]);
    ticket.served(&mut pool, answered(0, 200), at(2));
    assert_eq!(open(&pool), [1, 1]);
    ticket.answered(&mut pool, false);
    assert_eq!(open(&pool), [1, 0]);
    ticket.close(&mut pool);
    assert_eq!(open(&pool), [0, 0]);
    assert_eq!(matched(&mut pool, &cold(1)), [10, 10]);
}

#[test]
fn what_got_no_answer_leaves_nothing_at_either() {
    let mut pool = split();
    send_split(&mut pool, &cold(1)).close(&mut pool);
    let mut refused = send_split(&mut pool, &cold(2));
    refused.served(&mut pool, answered(0, 500), at(2));
    assert_eq!(pool.indexed_blocks(), 0);
    refused.close(&mut pool);
    assert_eq!((open(&pool), pool.indexed_blocks()), ([0, 0], 0));
}

#[test]
fn an_unfit_prefill_endpoint_is_no_probe_for_requests() {
    let mut pool = split();
    for _ in 0..5 {
        pool.failed(EndpointId::new(1));
    }
    let pick = pool.pick(&cold(1), "m", TieKey(1), 3, at(5_000));
    let ranked: Vec<usize> = pick
        .decision
        .ranking
        .iter()
        .map(|one| one.endpoint.index())
        .collect();
    assert_eq!((ranked, pick.prefill), (vec![0], None));
}

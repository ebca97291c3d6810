//! llm-d's picker tests, and what of them is settled otherwise here.

use serde_json::json;

use super::build::profile_of;
use super::*;
use crate::scheduling::picker::Picker;

/// The picker of a profile with nothing else, with scores of 0 to 100 given as percent.
struct Picks {
    profile: Profile,
}

impl Picks {
    fn new(type_name: &str, most: Option<u32>) -> Self {
        let plugin = json!({"type": type_name, "parameters": {"maxNumOfEndpoints": most}});
        Self {
            profile: profile_of(&json!({ "plugins": [plugin] })),
        }
    }

    /// Whom it picks, by their places.
    fn pick(&self, scores: &[u16], random: u64) -> Vec<usize> {
        let candidates: Vec<Scored> = (0..)
            .zip(scores)
            .map(|(id, score)| Scored {
                endpoint: EndpointId::new(id),
                address_hash: u64::from(id),
                score: f64::from(*score) / 100.0,
            })
            .collect();
        let request = Request {
            random,
            ..request(random, 3)
        };
        let picker: &dyn Picker = self.profile.picker();
        let ranking = picker.pick(&request, &candidates);
        ranking.iter().map(|one| one.endpoint.index()).collect()
    }

    /// How often each of `scores` comes first, or at all, in 10,000 draws.
    fn shares(&self, scores: &[u16]) -> Vec<f64> {
        let mut counts = vec![0.0; scores.len()];
        for random in 0..10_000 {
            for place in self.pick(scores, random) {
                counts[place] += 1.0;
            }
        }
        counts.iter().map(|count| count / 10_000.0).collect()
    }
}

#[test]
fn max_score_picker() {
    let of = |most| Picks::new("max-score-picker", Some(most));
    assert_eq!(of(1).pick(&[10, 25, 15], 7), [1]);
    let mut both = of(2).pick(&[50, 50, 30], 7);
    both.sort_unstable();
    assert_eq!(both, [0, 1]);
    assert_eq!(of(2).pick(&[20, 25, 30], 7), [2, 1]);
    assert_eq!(of(4).pick(&[20, 25, 30], 7), [2, 1, 0]);
    let mut three = of(3).pick(&[30, 25, 30], 7);
    assert_eq!(three.pop(), Some(1));
    three.sort_unstable();
    assert_eq!(three, [0, 2]);
}

/// In llm-d equals are drawn anew for each request; here a conversation stays where it is.
#[test]
fn equals_are_drawn_once_for_a_conversation() {
    let picks = Picks::new("max-score-picker", Some(1));
    let first = picks.pick(&[50, 50, 50], 7);
    assert!((0..100).all(|_| picks.pick(&[50, 50, 50], 7) == first));
    let shares = picks.shares(&[50, 50, 50]);
    assert!(
        shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.05),
        "{shares:?}"
    );
}

/// Without `maxNumOfEndpoints` there is one for the request and one for each retry.
#[test]
fn retries_have_endpoints_unless_they_are_counted_out() {
    for name in [
        "max-score-picker",
        "random-picker",
        "weighted-random-picker",
    ] {
        let picked = |most| Picks::new(name, most).pick(&[10, 20, 30, 40], 7).len();
        assert_eq!(
            (picked(None), picked(Some(1)), picked(Some(9))),
            (3, 1, 4),
            "{name}"
        );
    }
}

#[test]
fn random_picker() {
    for (most, scores) in [(1, &[10, 90][..]), (2, &[0, 0, 100]), (3, &[5, 5, 5, 5])] {
        let shares = Picks::new("random-picker", Some(most)).shares(scores);
        let expected = f64::from(most) / f64::from(u32::try_from(scores.len()).unwrap());
        let near = |share: &f64| (share - expected.min(1.0)).abs() < 0.05;
        assert!(shares.iter().all(near), "{shares:?}");
    }
}

#[test]
fn weighted_random_picker() {
    let picks = Picks::new("weighted-random-picker", Some(1));
    for scores in [
        &[10, 90][..],
        &[100, 100, 100],
        &[30, 0],
        &[100, 90, 50, 30, 20],
    ] {
        let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
        for (share, score) in picks.shares(scores).iter().zip(scores) {
            assert!(
                (share - f64::from(*score) / sum).abs() < 0.05,
                "{scores:?}: {share}"
            );
            assert!(
                *score > 0 || *share <= 0.0,
                "nothing is drawn with no score"
            );
        }
    }
    let shares = picks.shares(&[0, 0]);
    assert!(
        shares.iter().all(|share| (share - 0.5).abs() < 0.05),
        "{shares:?}"
    );
    let all = Picks::new("weighted-random-picker", Some(3));
    assert!(
        (0..100).all(|random| all.pick(&[0, 50, 50], random)[2] == 0),
        "no score comes last"
    );
}

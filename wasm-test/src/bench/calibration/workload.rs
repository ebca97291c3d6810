//! Conversations of token ids, played in a random order.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Tokens of an answer.
pub const ANSWER: usize = 4;

/// Conversations at a time, how much a turn adds, and the longest prompt, in tokens: together more
/// than a cache of 256 blocks of 32 holds.
const CONVERSATIONS: usize = 24;
const TURN: std::ops::Range<usize> = 20..140;
const LONGEST: usize = 800;

/// Ids that every vocabulary has, past those with a meaning of their own.
const IDS: std::ops::Range<u32> = 300..2000;

/// `count` prompts; each begins with an earlier one of its conversation, if there is one. One that
/// would be too long begins a new conversation.
pub fn prompts(count: usize) -> Vec<Vec<u32>> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut conversations = vec![Vec::new(); CONVERSATIONS];
    let turn = |_| {
        let conversation: &mut Vec<u32> = &mut conversations[rng.random_range(0..CONVERSATIONS)];
        let more = rng.random_range(TURN);
        if conversation.len() + more > LONGEST {
            conversation.clear();
        }
        conversation.extend((0..more).map(|_| rng.random_range(IDS)));
        conversation.clone()
    };
    (0..count).map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_continue_others_and_stay_short_enough() {
        let prompts = prompts(300);
        assert!(
            prompts
                .iter()
                .all(|prompt| (20..=LONGEST).contains(&prompt.len()))
        );
        let continued = prompts.iter().enumerate().filter(|(at, prompt)| {
            prompts[..*at]
                .iter()
                .any(|earlier| prompt.starts_with(earlier))
        });
        assert!(continued.count() > 200);
    }
}

//! The conversations and the order in which their turns come.

use std::fmt;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::Options;

/// Words a conversation grows by with each turn, question and answer together. Equal growth makes
/// the best possible hit ratio of six turns (1+2+3+4+5)/(1+2+3+4+5+6) = 0.71, and that of a random
/// choice among four servers 0.33.
pub const GROWTH: usize = 600;

/// Words the model is asked to answer; its question is that much shorter, the first excepted.
pub const ANSWER: usize = 24;

/// Bytes of the shared system prompt.
const SYSTEM_BYTES: usize = 4096;

/// What the conversations of a workload have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing: they differ from their first bytes.
    Distinct,
    /// A system prompt of 4 KB.
    SharedSystemPrompt,
}

impl Kind {
    /// The scoring preset made for such conversations.
    pub fn scoring_preset(self) -> &'static str {
        match self {
            Self::Distinct => "default",
            Self::SharedSystemPrompt => "balanced",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Distinct => "nothing in common",
            Self::SharedSystemPrompt => "a 4 KB system prompt in common",
        })
    }
}

/// What is played: equal seeds and sizes give equal workloads.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What the conversations have in common.
    pub kind: Kind,
    /// Opens every conversation.
    pub system: Option<String>,
    /// The user's messages of each conversation, one a turn.
    pub questions: Vec<Vec<String>>,
    /// The conversation each turn belongs to: its n-th occurrence is its n-th turn.
    pub order: Vec<usize>,
}

impl Workload {
    /// The workload of `options`.
    pub fn new(kind: Kind, options: &Options) -> Self {
        let mut rng = StdRng::seed_from_u64(options.seed);
        let turns = usize::from(options.turns);
        let questions: Vec<Vec<String>> = (0..options.conversations)
            .map(|_| conversation(turns, &mut rng))
            .collect();
        let mut order: Vec<usize> = (0..questions.len())
            .flat_map(|conversation| std::iter::repeat_n(conversation, turns))
            .collect();
        order.shuffle(&mut rng);
        let system = (kind == Kind::SharedSystemPrompt).then(|| {
            let mut text = text(SYSTEM_BYTES / SHORTEST_WORD, &mut rng);
            text.truncate(SYSTEM_BYTES);
            text
        });
        Self {
            kind,
            system,
            questions,
            order,
        }
    }
}

fn conversation(turns: usize, rng: &mut StdRng) -> Vec<String> {
    (0..turns)
        .map(|turn| text(if turn == 0 { GROWTH } else { GROWTH - ANSWER }, rng))
        .collect()
}

/// `words` random words after a random number: no two texts start alike.
fn text(words: usize, rng: &mut StdRng) -> String {
    let number: u64 = rng.random();
    let mut text = format!("{number:016x}:");
    for _ in 0..words {
        text.push(' ');
        text.push_str(WORDS.choose(rng).unwrap_or(&"word"));
    }
    text
}

/// Length of the shortest of [`WORDS`] and the space before it, in bytes.
const SHORTEST_WORD: usize = 4;

/// Of no more than five letters: one token each, for most tokenizers.
const WORDS: [&str; 32] = [
    "ocean", "river", "stone", "cloud", "light", "night", "paper", "glass", "metal", "wood",
    "grain", "bread", "apple", "lemon", "salt", "sugar", "horse", "eagle", "tiger", "snake",
    "house", "tower", "road", "train", "ship", "plane", "money", "price", "trade", "law", "music",
    "dance",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: Kind, seed: u64) -> Workload {
        let options = Options {
            seed,
            ..Options::default()
        };
        Workload::new(kind, &options)
    }

    #[test]
    fn equal_seeds_give_equal_workloads_and_others_do_not() {
        let one = workload(Kind::Distinct, 1);
        let same = workload(Kind::Distinct, 1);
        let other = workload(Kind::Distinct, 2);
        assert_eq!((&one.questions, &one.order), (&same.questions, &same.order));
        assert_ne!(one.questions, other.questions);
        assert_ne!(one.order, other.order);
    }

    #[test]
    fn every_conversation_has_all_its_turns() {
        let workload = workload(Kind::Distinct, 1);
        for (conversation, questions) in workload.questions.iter().enumerate() {
            let turns = workload.order.iter().filter(|one| **one == conversation);
            assert_eq!((questions.len(), turns.count()), (6, 6));
        }
        assert_eq!(workload.order.len(), 26 * 6);
    }

    #[test]
    fn no_two_conversations_start_alike() {
        let workload = workload(Kind::Distinct, 1);
        let mut starts: Vec<&str> = workload.questions.iter().map(|one| &one[0][..8]).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 26);
    }

    #[test]
    fn only_the_second_workload_shares_its_system_prompt() {
        assert_eq!(workload(Kind::Distinct, 1).system, None);
        let system = workload(Kind::SharedSystemPrompt, 1).system;
        assert_eq!(system.map(|text| text.len()), Some(4096));
    }
}

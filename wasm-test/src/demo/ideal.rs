//! The best that routing can do.

use std::collections::HashSet;

use crate::sim::SimConfig;
use crate::sim::cache::{BlockHash, CacheScope, Chain};
use crate::sim::template::{Message, render};
use crate::sim::tokenizer::tokenize;

/// Hit ratio of `histories` in one cache that is shared by all servers and forgets nothing, with
/// the servers' own blocks: only full ones count, and the one with the prompt's last token never.
pub fn hit_ratio(histories: &[Vec<Message>]) -> f64 {
    let mut cache = Cache::default();
    for history in histories {
        let answers = history.iter().enumerate();
        for (at, answer) in answers.filter(|(_, message)| message.role == "assistant") {
            cache.turn(&history[..at], &answer.content);
        }
    }
    cache.hits as f64 / cache.queries.max(1) as f64
}

#[derive(Default)]
struct Cache {
    blocks: HashSet<BlockHash>,
    queries: usize,
    hits: usize,
}

impl Cache {
    fn turn(&mut self, prompt: &[Message], answer: &str) {
        let block_size = SimConfig::default().block_size as usize;
        let mut chain = Chain::new(&CacheScope::default(), block_size);
        let mut tokens = render(prompt);
        self.queries += tokens.len();
        let usable = tokens.len().saturating_sub(1) / block_size;
        let hashes = chain.extend(&tokens).iter().take(usable);
        let hits = hashes.take_while(|hash| self.blocks.contains(hash)).count();
        self.hits += hits * block_size;
        tokens.extend(tokenize(answer));
        // Nobody computes the KV of the last token.
        tokens.pop();
        self.blocks.extend(chain.extend(&tokens));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, words: usize) -> Message {
        Message {
            role: role.to_owned(),
            content: " word".repeat(words),
        }
    }

    /// The chat template adds 5 tokens to a question, 6 to an answer and 4 before the next one.
    #[test]
    fn a_second_turn_hits_the_full_blocks_of_the_first_and_its_answer() {
        let turn = [message("user", 91), message("assistant", 29)];
        let history = [turn.clone(), turn].concat();
        // Prompts of 100 and 231 tokens; 128 were computed when the second comes.
        let expected = 128.0 / (100.0 + 231.0);
        assert!((hit_ratio(&[history]) - expected).abs() < 1e-9);
    }

    #[test]
    fn conversations_share_what_they_have_in_common() {
        let turn = vec![message("user", 91), message("assistant", 1)];
        let one = hit_ratio(std::slice::from_ref(&turn));
        let two = hit_ratio(&[turn.clone(), turn]);
        assert!(one.abs() < 1e-9);
        assert!((two - 96.0 / 200.0).abs() < 1e-9);
    }
}

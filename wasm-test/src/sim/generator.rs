//! What the simulated model says: a fixed function of the prompt.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::sim::tokenizer::Token;

/// Every word is one piece of the tokenizer, leading space included: generated text that comes back
/// in the next turn has exactly the tokens it was generated as.
const WORDS: [&str; 32] = [
    " our", " node", " is", " ready", " and", " the", " cache", " holds", " each", " block", " of",
    " this", " turn", " so", " we", " keep", " it", " warm", " then", " load", " stays", " low",
    " for", " all", " pods", " in", " pool", " while", " new", " text", " comes", " next",
];

/// The endless answer to one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    seed: u64,
}

impl Answer {
    /// The answer to `prompt`; `choice` tells the `n` answers of one request apart.
    pub fn to(prompt: &[Token], choice: u64) -> Self {
        let seed = prompt.iter().fold(choice, |seed, token| {
            xxh3_64_with_seed(&token.id().to_le_bytes(), seed)
        });
        Self { seed }
    }

    /// The word at position `index` of the answer.
    pub fn word(self, index: usize) -> &'static str {
        let pick = xxh3_64_with_seed(&index.to_le_bytes(), self.seed);
        WORDS[(pick % WORDS.len() as u64) as usize]
    }

    /// Where the model stops by itself when the client sets no limit: 64 to 191 tokens.
    pub fn natural_length(self) -> usize {
        64 + (self.seed % 128) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::tokenizer::tokenize;

    #[test]
    fn generated_text_tokenizes_to_the_generated_tokens() {
        let answer = Answer::to(&tokenize("a prompt"), 0);
        let words: Vec<&str> = (0..200).map(|index| answer.word(index)).collect();
        let tokens: Vec<Token> = words.iter().map(|word| Token::of_piece(word)).collect();
        assert_eq!(tokenize(&words.concat()), tokens);
    }

    #[test]
    fn answers_depend_on_the_prompt_and_the_choice() {
        let text = |answer: Answer| (0..20).map(|index| answer.word(index)).collect::<String>();
        let prompt = tokenize("a prompt");
        let answer = text(Answer::to(&prompt, 0));
        assert_eq!(answer, text(Answer::to(&prompt, 0)));
        assert_ne!(answer, text(Answer::to(&prompt, 1)));
        assert_ne!(answer, text(Answer::to(&tokenize("another"), 0)));
    }
}

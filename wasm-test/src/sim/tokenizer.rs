//! The simulator's tokenizer: byte-pair-like pieces found by rule.
//!
//! It has nothing in common with the router's fixed four bytes a token, so a hit the router
//! predicts and a hit the server counts cannot agree by construction. The rule is chosen so that
//! the prompts of the recorded vLLM exchanges cover as many blocks as a real vocabulary gives them.

use xxhash_rust::xxh3::xxh3_64;

/// One token id of the simulated vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u32);

/// Ids lie in `0..VOCABULARY`; the lowest 16 are control tokens no text produces.
pub const VOCABULARY: u32 = 1 << 31;
const SPECIAL_TOKENS: u32 = 16;

impl Token {
    /// `<|im_start|>` of the chat template.
    pub const IM_START: Self = Self(1);
    /// `<|im_end|>` of the chat template.
    pub const IM_END: Self = Self(2);

    /// The token of an id a client sent, `None` outside the vocabulary.
    pub fn from_id(id: u64) -> Option<Self> {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < VOCABULARY)
            .map(Self)
    }

    pub fn id(self) -> u32 {
        self.0
    }

    /// The token of one piece. A hash in place of a table: every server agrees without sharing one.
    pub fn of_piece(piece: &str) -> Self {
        let span = u64::from(VOCABULARY - SPECIAL_TOKENS);
        Self((xxh3_64(piece.as_bytes()) % span) as u32 + SPECIAL_TOKENS)
    }
}

/// Longest piece of a word in bytes, its leading space included.
const MAX_PIECE: usize = 6;

/// Longer words the vocabulary holds whole, as a learned one holds its frequent words.
const WHOLE_WORDS: [&str; 5] = [" string", " struct", " object", " because", " through"];

/// The tokens of `text`, in order.
pub fn tokenize(text: &str) -> Vec<Token> {
    pieces(text).map(Token::of_piece).collect()
}

/// The tokens of `text` in a vocabulary of all texts of `bytes` bytes, the last one shorter.
pub fn cut(text: &str, bytes: u32) -> Vec<Token> {
    let pieces = text.as_bytes().chunks(bytes.max(1) as usize);
    pieces
        .map(|piece| Token::of_piece(&String::from_utf8_lossy(piece)))
        .collect()
}

/// Words with the space before them, cut into pieces; every digit, punctuation mark, line break,
/// further white-space character and non-ASCII character (2–4 bytes) by itself.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    words(text).flat_map(|word| {
        let whole = WHOLE_WORDS.contains(&word) || !word.is_ascii();
        let step = if whole { word.len() } else { MAX_PIECE };
        (0..word.len())
            .step_by(step)
            .map(move |start| &word[start..word.len().min(start + step)])
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let lead = usize::from(first == ' ');
        let letters = rest[lead..]
            .bytes()
            .take_while(u8::is_ascii_alphabetic)
            .count();
        let length = if letters > 0 {
            lead + letters
        } else {
            first.len_utf8()
        };
        let (word, tail) = rest.split_at(length);
        rest = tail;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        pieces(text).collect()
    }

    #[test]
    fn words_keep_their_leading_space_and_split_after_six_bytes() {
        assert_eq!(
            split("keep answers short"),
            ["keep", " answe", "rs", " short"]
        );
    }

    #[test]
    fn digits_punctuation_and_line_breaks_stand_alone() {
        assert_eq!(
            split("Rule 10: a.\nb"),
            ["Rule", " ", "1", "0", ":", " a", ".", "\n", "b"]
        );
    }

    #[test]
    fn frequent_long_words_are_one_token() {
        assert_eq!(split("a string"), ["a", " string"]);
    }

    #[test]
    fn non_ascii_text_is_cut_at_character_boundaries() {
        assert_eq!(split("été 東京"), ["é", "t", "é", " ", "東", "京"]);
    }

    #[test]
    fn no_text_produces_a_control_token() {
        for piece in ["<|im_start|>", "<|im_end|>", "", "a"] {
            assert!(Token::of_piece(piece).id() >= SPECIAL_TOKENS);
        }
    }

    #[test]
    fn ids_outside_the_vocabulary_are_refused() {
        assert!(Token::from_id(u64::from(VOCABULARY)).is_none());
        assert_eq!(Token::from_id(300), Some(Token(300)));
    }
}

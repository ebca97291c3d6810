//! The chat template: `ChatML`, as many open models use it.

use crate::sim::tokenizer::{Token, tokenize};

/// One message as the template sees it: its text parts joined, without separators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    pub content: String,
}

/// The tokens of a conversation, ending where the assistant's answer begins.
///
/// An answer sent back as an assistant message yields the very tokens that were generated, because
/// the generator writes whole pieces; so the next turn hits the generated blocks.
pub fn render(messages: &[Message]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let line_break = Token::of_piece("\n");
    for message in messages {
        tokens.push(Token::IM_START);
        tokens.extend(tokenize(&message.role));
        tokens.push(line_break);
        tokens.extend(tokenize(&message.content));
        tokens.extend([Token::IM_END, line_break]);
    }
    tokens.push(Token::IM_START);
    tokens.extend(tokenize("assistant"));
    tokens.push(line_break);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
        }
    }

    #[test]
    fn every_message_is_framed_by_control_tokens() {
        let line_break = Token::of_piece("\n");
        let expected = [
            vec![Token::IM_START],
            tokenize("user"),
            vec![line_break],
            tokenize("hi"),
            vec![Token::IM_END, line_break, Token::IM_START],
            tokenize("assistant"),
            vec![line_break],
        ]
        .concat();
        assert_eq!(render(&[message("user", "hi")]), expected);
    }

    #[test]
    fn next_turn_starts_with_the_previous_prompt_and_its_answer() {
        let first = render(&[message("user", "hi")]);
        let next = render(&[
            message("user", "hi"),
            message("assistant", " well then"),
            message("user", "go on"),
        ]);
        let held = [first, tokenize(" well then")].concat();
        assert!(next.starts_with(&held));
    }
}

//! `/v1/embeddings` and the other calls that generate no text: `/pooling`, `/classify`, `/score`,
//! `/rerank`.
//!
//! An input is read like a completion's prompt, a list of messages like a chat. Pairs of texts that
//! are scored against each other, whatever their form, make one chain.

use super::encoder::{Encoder, Field};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};
use super::{chat_completions, head, prompts};

const HEAD: [(Key, Field); 3] = [
    (Key::AddSpecialTokens, Field::AddSpecialTokens),
    (Key::TruncatePrompt, Field::TruncatePrompt),
    (Key::MediaArguments, Field::MediaArguments),
];

const PAIRS: [(Key, Field); 6] = [
    (Key::Query, Field::Pair),
    (Key::Queries, Field::Pair),
    (Key::Text1, Field::Pair),
    (Key::Text2, Field::Pair),
    (Key::Documents, Field::Documents),
    (Key::Items, Field::Item),
];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    if body.get(Key::Messages).is_some() {
        return chat_completions::read(body, reader, encoder);
    }
    let head = head::digest(body, &HEAD, reader)?;
    if body.find(Key::Input, reader) {
        return prompts::read(head, reader, encoder);
    }
    if PAIRS.iter().all(|&(key, _)| body.get(key).is_none()) {
        return Err(Stop::UnknownShape);
    }
    if let Some(digest) = head {
        encoder.record_bytes(Field::Head, &digest.to_le_bytes());
    }
    body.record(&PAIRS, reader, encoder)?;
    encoder.end_prompt();
    Ok(())
}

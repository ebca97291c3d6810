//! `/v1/completions`: a string, token ids, or a list of either.

use super::encoder::{Encoder, Field};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};
use super::{head, prompts};

const HEAD: [(Key, Field); 4] = [
    (Key::AddSpecialTokens, Field::AddSpecialTokens),
    (Key::TruncatePrompt, Field::TruncatePrompt),
    (Key::MediaArguments, Field::MediaArguments),
    (Key::PromptEmbeds, Field::PromptEmbeds),
];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    let head = head::digest(body, &HEAD, reader)?;
    if body.find(Key::Prompt, reader) {
        return prompts::read(head, reader, encoder);
    }
    // Embeddings of a prompt may stand in for it.
    head::alone(head, encoder)
}

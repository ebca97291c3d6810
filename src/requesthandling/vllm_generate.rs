//! vLLM's `/inference/v1/generate`: token ids, rendered elsewhere.

use super::encoder::{Encoder, Field};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};
use super::{head, prompts};

/// `features` are the media that some of the ids stand for.
const HEAD: [(Key, Field); 1] = [(Key::Features, Field::Features)];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    let head = head::digest(body, &HEAD, reader)?;
    if body.find(Key::TokenIds, reader) {
        return prompts::read(head, reader, encoder);
    }
    Err(Stop::UnknownShape)
}

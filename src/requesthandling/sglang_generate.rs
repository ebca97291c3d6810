//! `SGLang`'s `/generate`: `text` or `input_ids`, one prompt or a list of them.

use super::encoder::{Encoder, Field};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};
use super::{head, prompts};

/// The server has one model, and names an adapter beside it.
const HEAD: [(Key, Field); 4] = [
    (Key::LoraPath, Field::Adapter),
    (Key::ImageData, Field::Image),
    (Key::AudioData, Field::Audio),
    (Key::VideoData, Field::Video),
];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    let head = head::digest(body, &HEAD, reader)?;
    if body.find(Key::InputIds, reader) || body.find(Key::Text, reader) {
        return prompts::read(head, reader, encoder);
    }
    Err(Stop::UnknownShape)
}

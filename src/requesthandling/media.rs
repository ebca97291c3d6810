//! Images, audio and video as placeholders: as many pseudo-tokens as llm-d estimates, filled with
//! the hash of the content, so that equal media are equal and others are not.

mod image;

use xxhash_rust::xxh64::Xxh64;

use self::image::ImageSize;
use super::encoder::{Encoder, Field};
use super::json::{Kind, Reader, Stop};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Image,
    Audio,
    Video,
}

/// Pixels of an image or a frame that make one token.
const PIXELS_PER_TOKEN: u64 = 1_024;
/// Tokens of an image of unknown size, taken as 640 × 360.
const DEFAULT_IMAGE_TOKENS: u32 = 640 * 360 / 1_024;
/// Tokens of a video: ten seconds at two frames a second, each as an image of unknown size.
const VIDEO_TOKENS: u32 = 20 * DEFAULT_IMAGE_TOKENS;
/// Most tokens of one medium: a few bytes may claim to be an image of any size.
const MAX_TOKENS: u32 = 16_384;

const NAMES: [&[u8]; 4] = [b"url", b"data", b"format", b"file_id"];
const URL: usize = 0;
const DATA: usize = 1;
const FORMAT: usize = 2;
const FILE_ID: usize = 3;

/// Reads a medium: its address as a string, or an object that holds an address or the data.
/// Whether it has either form; it is passed in any case.
pub(super) fn read(
    medium: Medium,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<bool, Stop> {
    let mut content = Content::new();
    match reader.kind()? {
        Kind::Text => content.read(reader)?,
        Kind::Object => {
            let fields = reader.fields(&NAMES)?;
            let end = reader.offset();
            let mut holds_any = false;
            for name in [URL, DATA, FORMAT, FILE_ID] {
                let Some(value) = fields.settled(name)? else {
                    continue;
                };
                reader.seek(value);
                if reader.kind()? == Kind::Text {
                    content.read(reader)?;
                    holds_any = true;
                }
            }
            reader.seek(end);
            if !holds_any {
                return Ok(false);
            }
        }
        Kind::List | Kind::Null | Kind::Scalar => {
            reader.skip()?;
            return Ok(false);
        }
    }
    let (field, tokens) = match medium {
        Medium::Image => (Field::Image, content.image_tokens()),
        Medium::Audio => (Field::Audio, content.audio_tokens()),
        Medium::Video => (Field::Video, VIDEO_TOKENS),
    };
    encoder.placeholder(field, content.hash.digest(), tokens.clamp(1, MAX_TOKENS));
    Ok(true)
}

/// What is kept of a medium's content while it is passed over.
struct Content {
    hash: Xxh64,
    len: usize,
    size: ImageSize,
}

impl Content {
    fn new() -> Self {
        Self {
            hash: Xxh64::new(0),
            len: 0,
            size: ImageSize::default(),
        }
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        reader.text(|piece| {
            self.hash.update(piece);
            self.size.read(piece);
            self.len = self.len.saturating_add(piece.len());
        })
    }

    fn image_tokens(&self) -> u32 {
        let Some((width, height)) = self.size.pixels() else {
            return DEFAULT_IMAGE_TOKENS;
        };
        let pixels = u64::from(width).saturating_mul(u64::from(height));
        u32::try_from(pixels / PIXELS_PER_TOKEN).unwrap_or(u32::MAX)
    }

    fn audio_tokens(&self) -> u32 {
        u32::try_from(self.len.div_ceil(4)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;

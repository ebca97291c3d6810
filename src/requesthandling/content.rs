//! A message's content: a string, or parts of text, images, audio and video.

use super::encoder::{Encoder, Field};
use super::json::{Kind, Reader, Stop};
use super::media::{self, Medium};

/// Reads the content at the reader's place. Text is hashed as it is, media as what stands for
/// them, and a part of any other type as its JSON: a type that is not known today decides the
/// prompt, too.
pub(super) fn read(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    match reader.kind()? {
        Kind::Text => encoder.text(reader),
        Kind::List => reader.items(|reader| {
            encoder.check_room()?;
            part(reader, encoder)
        }),
        Kind::Null => reader.skip(),
        Kind::Object | Kind::Scalar => encoder.record(Field::Content, reader),
    }
}

const NAMES: [&[u8]; 7] = [
    b"type",
    b"text",
    b"image_url",
    b"input_audio",
    b"audio_url",
    b"video_url",
    b"source",
];
const TYPE: usize = 0;
const TEXT: usize = 1;
const IMAGE_URL: usize = 2;
const INPUT_AUDIO: usize = 3;
const AUDIO_URL: usize = 4;
const VIDEO_URL: usize = 5;
const SOURCE: usize = 6;

/// Types of parts whose value is of a kind this reads, and where that stands.
const TYPES: [(&[u8], usize); 10] = [
    (b"text", TEXT),
    (b"input_text", TEXT),
    (b"output_text", TEXT),
    (b"image_url", IMAGE_URL),
    (b"input_image", IMAGE_URL),
    (b"image", SOURCE),
    (b"input_audio", INPUT_AUDIO),
    (b"audio_url", AUDIO_URL),
    (b"video_url", VIDEO_URL),
    (b"input_video", VIDEO_URL),
];

/// One part, or a string in its place.
pub(super) fn part(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    match reader.kind()? {
        Kind::Text => encoder.text(reader),
        Kind::Object => encoder.attempt(reader, quick, thorough),
        Kind::List | Kind::Null | Kind::Scalar => encoder.record(Field::Part, reader),
    }
}

/// Reads a part whose type comes first, if its type is known.
pub(super) fn quick(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<bool, Stop> {
    let mut wanted = None;
    let mut was_read = false;
    let in_order = reader.fields_in_order(&NAMES, |reader, place| {
        if place == TYPE {
            wanted = known_place(reader)?;
            Ok(())
        } else if wanted == Some(place) {
            was_read = known(place, reader, encoder)?;
            Ok(())
        } else {
            reader.skip()
        }
    })?;
    Ok(in_order && was_read)
}

fn thorough(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let start = reader.offset();
    let fields = reader.fields(&NAMES)?;
    let end = reader.offset();
    let place = match fields.settled(TYPE)? {
        Some(kind) => {
            reader.seek(kind);
            known_place(reader)?
        }
        None => None,
    };
    let value = match place {
        Some(place) => fields.settled(place)?,
        None => None,
    };
    let was_read = match (place, value) {
        (Some(place), Some(value)) => {
            reader.seek(value);
            known(place, reader, encoder)?
        }
        _ => false,
    };
    if !was_read {
        reader.seek(start);
        encoder.record(Field::Part, reader)?;
    }
    reader.seek(end);
    Ok(())
}

/// Reads a part's type; where its value stands, if this reads it.
fn known_place(reader: &mut Reader<'_>) -> Result<Option<usize>, Stop> {
    if reader.kind()? != Kind::Text {
        reader.skip()?;
        return Ok(None);
    }
    let word = reader.word()?;
    let found = TYPES.iter().find(|&&(name, _)| word.is(name));
    Ok(found.map(|&(_, place)| place))
}

/// Reads the value of a part of a known type; whether it has the form that goes with the type.
fn known(place: usize, reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<bool, Stop> {
    let medium = match place {
        TEXT if reader.kind()? == Kind::Text => {
            encoder.text(reader)?;
            return Ok(true);
        }
        TEXT => {
            reader.skip()?;
            return Ok(false);
        }
        IMAGE_URL | SOURCE => Medium::Image,
        VIDEO_URL => Medium::Video,
        _ => Medium::Audio,
    };
    media::read(medium, reader, encoder)
}

//! Prompts as a string, token ids, or a list of either.

use super::encoder::{Encoder, Field};
use super::json::{Kind, Reader, Stop};

/// Reads the prompts at the reader's place. Each is a chain of its own and begins with `head`.
pub(super) fn read(
    head: Option<u64>,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    let start = reader.offset();
    if reader.kind()? != Kind::List {
        return one(head, reader, encoder);
    }
    let first = reader.first_item()?;
    reader.seek(start);
    // A list of numbers is one prompt, a list of anything else one of prompts.
    if first == Some(Kind::Scalar) {
        return one(head, reader, encoder);
    }
    reader.items(|reader| {
        encoder.check_room()?;
        one(head, reader, encoder)
    })
}

fn one(head: Option<u64>, reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    if let Some(digest) = head {
        encoder.record_bytes(Field::Head, &digest.to_le_bytes());
    }
    match reader.kind()? {
        Kind::Text => encoder.text(reader)?,
        Kind::List => reader.items(|reader| {
            encoder.token(reader.token_id()?);
            Ok(())
        })?,
        // What holds more than text, as embeddings of images do.
        Kind::Object => encoder.record(Field::Item, reader)?,
        Kind::Null | Kind::Scalar => return Err(Stop::UnknownShape),
    }
    encoder.end_prompt();
    Ok(())
}

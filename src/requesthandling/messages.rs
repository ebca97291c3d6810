//! Anthropic's `/v1/messages` and its `count_tokens`: the system prompt apart, messages of blocks.
//!
//! A text-only conversation hashes as the chat that servers make of it. Where clients mark what to
//! cache is left out: the marks move with every turn.

use core::cell::Cell;

use super::content;
use super::encoder::{Encoder, Field};
use super::json::{Kind, Reader, Stop};
use super::keys::{Key, TopLevel};

const HEAD: [(Key, Field); 3] = [
    (Key::Tools, Field::Tools),
    (Key::Thinking, Field::Thinking),
    (Key::ChatTemplateArguments, Field::ChatTemplateArguments),
];

/// What a client's billing header in the system prompt begins with. It changes with every request,
/// and servers drop it.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    if body.get(Key::Messages).is_none() {
        return Err(Stop::UnknownShape);
    }
    body.record(&HEAD, reader, encoder)?;
    if body.find(Key::System, reader) {
        system(reader, encoder)?;
    }
    body.find(Key::Messages, reader);
    reader.items(|reader| {
        encoder.check_room()?;
        message(reader, encoder)
    })?;
    encoder.end_prompt();
    Ok(())
}

fn system(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    match reader.kind()? {
        Kind::Null => return Ok(()),
        Kind::List => {}
        Kind::Text | Kind::Object | Kind::Scalar => {
            encoder.literal("system");
            return content::read(reader, encoder);
        }
    }
    let mut began = false;
    reader.items(|reader| {
        encoder.check_room()?;
        if is_billing_header(reader)? {
            return reader.skip();
        }
        if !core::mem::replace(&mut began, true) {
            encoder.literal("system");
        }
        content::part(reader, encoder)
    })
}

/// Whether the block at the reader's place, where the reader stays, is a billing header.
fn is_billing_header(reader: &mut Reader<'_>) -> Result<bool, Stop> {
    let start = reader.offset();
    let mut begins_so = false;
    if reader.kind()? == Kind::Object {
        let fields = reader.fields(&[b"text"])?;
        if let Some(text) = fields.settled(0)? {
            reader.seek(text);
            begins_so = reader.kind()? == Kind::Text && reader.begins_with(BILLING_HEADER)?;
        }
    }
    reader.seek(start);
    Ok(begins_so)
}

fn message(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let is_user = Cell::new(false);
    encoder.object(reader, &[b"role", b"content"], |place, reader, encoder| {
        if place == 0 {
            is_user.set(encoder.role(reader)?);
            return Ok(());
        }
        blocks(reader, encoder)
    })?;
    if is_user.get() {
        encoder.end_first_user_message();
    }
    Ok(())
}

fn blocks(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    if reader.kind()? != Kind::List {
        return content::read(reader, encoder);
    }
    reader.items(|reader| {
        encoder.check_room()?;
        block(reader, encoder)
    })
}

const NAMES: [&[u8]; 8] = [
    b"type",
    b"tool_use_id",
    b"is_error",
    b"id",
    b"name",
    b"input",
    b"thinking",
    b"content",
];
const TYPE: usize = 0;
const CONTENT: usize = 7;

/// What a block of a type of its own is hashed as, in this order; by places in [`NAMES`].
const RESULT: [(usize, Field); 2] = [(1, Field::ToolCallId), (2, Field::IsError)];
const USE: [(usize, Field); 3] = [(3, Field::ToolUse), (4, Field::Name), (5, Field::ToolCalls)];
const THINKING: [(usize, Field); 1] = [(6, Field::ReasoningContent)];

fn block(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    if reader.kind()? != Kind::Object {
        return content::part(reader, encoder);
    }
    // Most are text, as in other APIs.
    encoder.attempt(reader, content::quick, own_block)
}

fn own_block(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let start = reader.offset();
    let fields = reader.fields(&NAMES)?;
    let end = reader.offset();
    let records = match fields.settled(TYPE)? {
        Some(kind) => {
            reader.seek(kind);
            records(reader)?
        }
        None => &[],
    };
    if records.is_empty() {
        reader.seek(start);
        return content::part(reader, encoder);
    }
    for &(name, field) in records {
        if let Some(value) = fields.settled(name)? {
            reader.seek(value);
            encoder.record(field, reader)?;
        }
    }
    if *records == RESULT
        && let Some(content) = fields.settled(CONTENT)?
    {
        reader.seek(content);
        content::read(reader, encoder)?;
    }
    reader.seek(end);
    Ok(())
}

/// What a block of the type at the reader's place is hashed as; nothing for the types that other
/// APIs know as parts.
fn records(reader: &mut Reader<'_>) -> Result<&'static [(usize, Field)], Stop> {
    if reader.kind()? != Kind::Text {
        return Ok(&[]);
    }
    let kind = reader.word()?;
    Ok(match kind.bytes() {
        Some(b"tool_result") => &RESULT,
        Some(b"tool_use") => &USE,
        Some(b"thinking") => &THINKING,
        _ => &[],
    })
}

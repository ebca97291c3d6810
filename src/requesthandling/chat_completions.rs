//! `/v1/chat/completions`: what stands before the messages, then each message's role, content and
//! further fields.

use core::cell::Cell;

use super::content;
use super::encoder::{Encoder, Field};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};

/// What chat templates put at the head of the prompt, or change there.
pub(super) const HEAD: [(Key, Field); 9] = [
    (Key::Tools, Field::Tools),
    (Key::ReasoningEffort, Field::ReasoningEffort),
    (Key::Reasoning, Field::Reasoning),
    (Key::ChatTemplate, Field::ChatTemplate),
    (Key::ChatTemplateArguments, Field::ChatTemplateArguments),
    (Key::Documents, Field::Documents),
    (Key::AddSpecialTokens, Field::AddSpecialTokens),
    (Key::MediaArguments, Field::MediaArguments),
    (Key::TruncatePrompt, Field::TruncatePrompt),
];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    if body.get(Key::Messages).is_none() {
        return Err(Stop::UnknownShape);
    }
    body.record(&HEAD, reader, encoder)?;
    body.find(Key::Messages, reader);
    reader.items(|reader| {
        encoder.check_room()?;
        message(reader, encoder)
    })?;
    encoder.end_prompt();
    Ok(())
}

/// In the order they are hashed.
const NAMES: [&[u8]; 9] = [
    b"role",
    b"content",
    b"reasoning_content",
    b"reasoning",
    b"tool_calls",
    b"function_call",
    b"tool_call_id",
    b"refusal",
    b"name",
];

fn message(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let is_user = Cell::new(false);
    encoder.object(reader, &NAMES, |place, reader, encoder| {
        let field = match place {
            0 => {
                is_user.set(encoder.role(reader)?);
                return Ok(());
            }
            1 => return content::read(reader, encoder),
            2 | 3 => Field::ReasoningContent,
            4 => Field::ToolCalls,
            5 => Field::FunctionCall,
            6 => Field::ToolCallId,
            7 => Field::Refusal,
            _ => Field::Name,
        };
        encoder.record(field, reader)
    })?;
    if is_user.get() {
        encoder.end_first_user_message();
    }
    Ok(())
}

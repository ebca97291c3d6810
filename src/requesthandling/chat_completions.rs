//! `/v1/chat/completions`: what stands before the messages, then each message's role, content and
//! further fields.

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
const ROLE: usize = 0;
const CONTENT: usize = 1;
/// In the order they are hashed, by their places in [`NAMES`].
const FURTHER: [(usize, Field); 7] = [
    (2, Field::ReasoningContent),
    (3, Field::ReasoningContent),
    (4, Field::ToolCalls),
    (5, Field::FunctionCall),
    (6, Field::ToolCallId),
    (7, Field::Refusal),
    (8, Field::Name),
];

/// One message. Its fields come in any order and are hashed in one, so of a message that was cut
/// off, what would stand behind a field that is missing is left out.
fn message(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let fields = reader.fields(&NAMES)?;
    let end = reader.offset();
    let (role, content) = (fields.settled(ROLE)?, fields.settled(CONTENT)?);
    let is_user = content::of_message(role, content, content::read, reader, encoder)?;
    for (name, field) in FURTHER {
        if let Some(value) = fields.settled(name)? {
            reader.seek(value);
            encoder.record(field, reader)?;
        }
    }
    reader.seek(end);
    if is_user {
        encoder.end_first_user_message();
    }
    Ok(())
}

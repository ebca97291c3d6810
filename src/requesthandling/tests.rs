//! Bodies in, prompts as bytes out.

mod chat;
mod cost;
mod cut_off;
mod others;
mod prompts;
mod shapes;
mod tools;

use super::*;

/// What a sink was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    model: Option<String>,
    salt: Option<Vec<u8>>,
    /// Those that were ended.
    prompts: Vec<Vec<u8>>,
    /// What came after the last one's end.
    open: Vec<u8>,
    /// Bytes of the first prompt up to the end of the first user message.
    first_user_end: Option<usize>,
    /// Lengths of `open` that may be gone back to.
    marks: Vec<usize>,
}

impl PromptSink for Read {
    fn push(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    fn end_first_user_message(&mut self) {
        if self.first_user_end.is_none() {
            self.first_user_end = Some(self.open.len());
        }
    }

    fn end_prompt(&mut self) {
        self.prompts.push(core::mem::take(&mut self.open));
    }

    fn mark(&mut self) {
        self.marks.push(self.open.len());
    }

    fn end_mark(&mut self, kept: bool) {
        let mark = self.marks.pop().unwrap();
        if !kept {
            self.open.truncate(mark);
        }
    }

    fn is_full(&self) -> bool {
        false
    }
}

fn read_with(request: Result<Request<'_>, ParseError>) -> Result<Read, ParseError> {
    let mut request = request?;
    let mut read = Read {
        model: request.model().map(|model| model.name.clone()),
        salt: request.cache_salt().map(<[u8]>::to_vec),
        ..Read::default()
    };
    request.read_prompts(&mut read)?;
    read.marks.clear();
    Ok(read)
}

/// Reads a whole body, and makes sure that the size of the window does not matter.
#[track_caller]
fn read_bytes(api: Api, body: &[u8]) -> Result<Read, ParseError> {
    let whole = read_with(Request::read(api, &mut &*body, false));
    for size in [1, 2, 3, 7, 64] {
        let mut source = body;
        let reader = Reader::with_window(&mut source, false, size);
        let windows = read_with(Request::with_reader(api, reader));
        assert_eq!(windows, whole, "window of {size}");
    }
    whole
}

#[track_caller]
fn read(api: Api, body: &str) -> Result<Read, ParseError> {
    read_bytes(api, body.as_bytes())
}

fn read_cut(api: Api, body: &[u8]) -> Result<Read, ParseError> {
    read_with(Request::read(api, &mut &*body, true))
}

/// The one prompt of a body.
#[track_caller]
fn prompt(api: Api, body: &str) -> Vec<u8> {
    let read = read(api, body).unwrap();
    assert_eq!(read.prompts.len(), 1, "{body}");
    read.prompts[0].clone()
}

#[track_caller]
fn chat(body: &str) -> Vec<u8> {
    prompt(Api::ChatCompletions, body)
}

/// The one prompt of a chat of these messages.
#[track_caller]
fn chat_of(messages: &str) -> Vec<u8> {
    chat(&format!(r#"{{"model":"m","messages":[{messages}]}}"#))
}

/// A record as it is hashed.
fn record(field: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&[0xFF, field], &len[..], bytes].concat()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let padded = [
            0,
            group[0],
            *group.get(1).unwrap_or(&0),
            *group.get(2).unwrap_or(&0),
        ];
        let bits = u32::from_be_bytes(padded);
        for digit in 0..4 {
            let at = (bits >> (18 - 6 * digit) & 63) as usize;
            let char = if digit <= group.len() {
                char::from(DIGITS[at])
            } else {
                '='
            };
            text.push(char);
        }
    }
    text
}

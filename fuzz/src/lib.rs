//! What must hold for any bytes.

use inline_epp::prefix::{ChainBuilder, Seed};
use inline_epp::requesthandling::{Api, ParseError, PromptSink, Request, continue_from};

/// A whole body: JSON is never taken for something else, and another name for the model changes
/// nothing but the model.
pub fn read_whole(api: Api, body: &[u8]) {
    let read = Prompts::read(api, body, false);
    // Deeper nesting than it allows is the one thing that serde_json refuses and servers may not.
    if read == Err(ParseError::Malformed) {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        assert!(!is_json, "JSON was taken for something else");
    }
    let Ok(read) = read else { return };
    let Some((_, place)) = &read.model else {
        return;
    };
    let name = r#""another \"name\"""#.as_bytes();
    let renamed = [&body[..place.start], name, &body[place.end..]].concat();
    let again = Prompts::read(api, &renamed, false).expect("as readable as before");
    assert_eq!(again.model.expect("a name").0, "another \"name\"");
    assert_eq!(again.prompts, read.prompts);
}

/// The beginning of a body, and of a response.
pub fn read_cut_off(body: &[u8]) {
    for (_, api) in Api::paths() {
        for end in [body.len() / 2, body.len()] {
            // What is read of it is any of the unit tests' business; here it only has to end.
            let _ = Prompts::read(api, &body[..end], true);
        }
    }
    continue_from(body, &mut Prompts::default());
}

/// Prompts as bytes and, to run that code, as a chain.
#[derive(Debug, Default, PartialEq)]
struct Prompts {
    model: Option<(String, std::ops::Range<usize>)>,
    prompts: Vec<Vec<u8>>,
    open: Vec<u8>,
    marks: Vec<usize>,
}

impl Prompts {
    fn read(api: Api, mut body: &[u8], cut_off: bool) -> Result<Self, ParseError> {
        let mut request = Request::read(api, &mut body, cut_off)?;
        let mut read = Self {
            model: request
                .model()
                .map(|model| (model.name.clone(), model.place.clone())),
            ..Self::default()
        };
        request.read_prompts(&mut read)?;
        let mut builder = ChainBuilder::new(16, 1_000);
        for prompt in &read.prompts {
            builder.push(prompt);
            builder.end_prompt();
        }
        builder.push(&read.open);
        builder.finish().chain(Seed::new("m", request.cache_salt()));
        Ok(read)
    }
}

impl PromptSink for Prompts {
    fn push(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    fn end_first_user_message(&mut self) {
        assert!(self.marks.is_empty());
    }

    fn end_prompt(&mut self) {
        assert!(self.marks.is_empty());
        self.prompts.push(std::mem::take(&mut self.open));
    }

    fn mark(&mut self) {
        self.marks.push(self.open.len());
    }

    fn end_mark(&mut self, kept: bool) {
        let mark = self.marks.pop().expect("a mark");
        if !kept {
            self.open.truncate(mark);
        }
    }

    fn is_full(&self) -> bool {
        false
    }
}

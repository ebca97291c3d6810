//! What the module reads from a body, for tests that hold bodies against each other.

use inline_epp::prefix::{Chain, ChainBuilder, Seed};
use inline_epp::requesthandling::{Api, ParseError, PromptSink, Request};

/// A body's model, salt and prompts as the bytes that are hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    pub model: Option<String>,
    pub cache_salt: Option<Vec<u8>>,
    /// Those that are whole.
    pub whole: Vec<Vec<u8>>,
    /// The beginning of one that was cut off.
    pub cut_off: Vec<u8>,
    /// Lengths of `cut_off` that may be gone back to.
    marks: Vec<usize>,
}

impl Prompts {
    /// Reads a body, of which the end is missing if it is `cut_off`.
    pub fn read(api: Api, mut body: &[u8], cut_off: bool) -> Result<Self, ParseError> {
        let mut request = Request::read(api, &mut body, cut_off)?;
        let mut prompts = Self {
            model: request.model().map(|model| model.name.clone()),
            cache_salt: request.cache_salt().map(<[u8]>::to_vec),
            ..Self::default()
        };
        request.read_prompts(&mut prompts)?;
        prompts.marks.clear();
        Ok(prompts)
    }

    /// All prompts, one after the other.
    pub fn joined(&self) -> Vec<u8> {
        [self.whole.concat(), self.cut_off.clone()].concat()
    }

    /// The chain of these prompts, in blocks of `block_tokens`.
    pub fn chain(&self, block_tokens: u32) -> Chain {
        let mut builder = ChainBuilder::new(block_tokens, u32::MAX);
        for prompt in &self.whole {
            builder.push(prompt);
            builder.end_prompt();
        }
        builder.push(&self.cut_off);
        let model = self.model.as_deref().unwrap_or_default();
        let seed = Seed::new(model, self.cache_salt.as_deref());
        builder.finish().chain(seed)
    }
}

impl PromptSink for Prompts {
    fn push(&mut self, bytes: &[u8]) {
        self.cut_off.extend_from_slice(bytes);
    }

    fn end_first_user_message(&mut self) {}

    fn end_prompt(&mut self) {
        self.whole.push(std::mem::take(&mut self.cut_off));
    }

    fn mark(&mut self) {
        self.marks.push(self.cut_off.len());
    }

    fn end_mark(&mut self, kept: bool) {
        let mark = self.marks.pop().expect("a mark");
        if !kept {
            self.cut_off.truncate(mark);
        }
    }

    fn is_full(&self) -> bool {
        false
    }
}

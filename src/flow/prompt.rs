//! What a held body says: whose request it is, its prompts as a chain, and the model to ask for.

use core::ops::Range;

use super::request::Request as Head;
use super::router::Router;
use crate::config::{ModelConfig, PrefixConfig};
use crate::prefix::{BlockHash, Chain, ChainBuilder, Contents, Seed};
use crate::requesthandling::{Api, Body, Edit, ParseError, PromptSink, Request, continue_from};
use crate::telemetry::Reason;

/// A body that was read.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) pool: usize,
    /// Empty where no prompt was read.
    pub(super) chain: Chain,
    pub(super) model: Model,
    /// Set where other requests can go on from the response.
    pub(super) continued: Option<Continued>,
    /// What cuts out of the body what no client may send.
    pub(super) cuts: Vec<Edit>,
    pub(super) reason: Reason,
}

/// How a request is hashed that goes on from a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Continued {
    seed: Seed,
    block_tokens: u32,
}

impl Continued {
    /// The blocks of a request that goes on from the response that begins with `start`, none where
    /// it has no id.
    pub(super) fn blocks(self, start: &[u8]) -> Vec<BlockHash> {
        let mut sink = ChainBuilder::new(self.block_tokens, u32::MAX);
        continue_from(start, &mut sink);
        sink.finish().chain(self.seed).blocks
    }
}

/// The model a request is for.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// What the client asked for; empty where it asked for none.
    pub(super) asked: String,
    /// What the server is asked for.
    pub(super) target: String,
    /// Where the body has to be changed for that.
    pub(super) rewrite: Option<Range<usize>>,
    pub(super) seed: Seed,
}

/// Reads the `body` of a request. `None` when no pool takes its model.
pub(super) fn read(
    router: &Router,
    head: &Head,
    api: Api,
    body: &mut dyn Body,
    truncated: bool,
) -> Option<Prompt> {
    let request = Request::read(api, body, truncated);
    let mut request = match request {
        Ok(request) => request,
        // No model is known, so none is asked for.
        Err(error) => {
            return Some(Prompt {
                pool: *head.pools.first()?,
                chain: Chain::default(),
                model: Model::default(),
                continued: None,
                cuts: Vec::new(),
                reason: reason(Some(error), true, truncated),
            });
        }
    };
    let name = request.model().map(|model| model.name.as_str());
    let pool = match name {
        // It may come in the part that was not read.
        None if truncated => *head.pools.first()?,
        name => router.fitting_model(&head.pools, name.unwrap_or_default())?,
    };
    let config = router.config().pools.get(pool)?;
    let (contents, error) = contents(&mut request, &config.prefix);
    let logical = name_of(&request).and_then(|name| config.model(name));
    // Conversations without a prompt are told apart by nothing.
    let key = contents.conversation().unwrap_or(head.tie.0);
    let model = Model::new(&request, logical, key);
    let chain = contents.chain(model.seed);
    let continued = (api == Api::Responses).then_some(Continued {
        seed: model.seed,
        block_tokens: config.prefix.block_tokens,
    });
    let cuts = request.without_servers_own();
    let reason = reason(error, chain.blocks.is_empty(), truncated);
    Some(Prompt {
        pool,
        chain,
        model,
        continued,
        cuts,
        reason,
    })
}

fn name_of<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    request.model().map(|model| model.name.as_str())
}

/// The blocks of all prompts; none where they could not be read to their end.
fn contents(request: &mut Request<'_>, prefix: &PrefixConfig) -> (Contents, Option<ParseError>) {
    let max_blocks = prefix.max_tokens / prefix.block_tokens.max(1);
    let mut sink = ChainBuilder::new(prefix.block_tokens, max_blocks);
    match request.read_prompts(&mut sink) {
        Ok(()) => (sink.finish(), None),
        Err(error) => (Contents::default(), Some(error)),
    }
}

impl Model {
    fn new(request: &Request<'_>, logical: Option<&ModelConfig>, key: u64) -> Self {
        let asked = name_of(request).unwrap_or_default();
        let target = logical.and_then(|model| model.target(key));
        let target = target.map_or(asked, |target| target.model.as_str());
        let place = request.model().map(|model| model.place.clone());
        Self {
            asked: asked.to_owned(),
            target: target.to_owned(),
            rewrite: place.filter(|_| target != asked),
            seed: Seed::new(target, request.cache_salt()),
        }
    }
}

fn reason(error: Option<ParseError>, is_empty: bool, truncated: bool) -> Reason {
    match error {
        _ if truncated => Reason::TruncatedBody,
        Some(ParseError::Malformed) => Reason::MalformedBody,
        Some(ParseError::UnknownShape) => Reason::UnknownShape,
        None if is_empty => Reason::UnknownShape,
        None => Reason::Picked,
    }
}

/// Hashes the prompts of one request.
impl PromptSink for ChainBuilder {
    fn push(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    fn end_first_user_message(&mut self) {
        self.mark_anchor();
    }

    fn end_prompt(&mut self) {
        self.end_prompt();
    }

    fn mark(&mut self) {
        self.mark();
    }

    fn end_mark(&mut self, kept: bool) {
        self.end_mark(kept);
    }

    fn is_full(&self) -> bool {
        self.is_full()
    }
}

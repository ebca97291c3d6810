//! The two routes that generate text.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc::UnboundedSender;

use crate::sim::cache::CacheScope;
use crate::sim::driver::Session;
use crate::sim::engine::{Finish, Job, Output, OutputEvent, Remote};
use crate::sim::generator::Answer;
use crate::sim::instance::{Instance, unix_seconds};
use crate::sim::observe::LogSeq;
use crate::sim::openai::error::ApiError;
use crate::sim::openai::request::{Api, Ask, StreamOptions};
use crate::sim::openai::response::{self, Choice, Envelope};
use crate::sim::openai::stream::Events;
use crate::sim::tokenizer::Token;
use crate::sim::transfer::{self, Params, Transfer};

/// `POST /v1/completions`
pub async fn completions(
    State(instance): State<Arc<Instance>>,
    Extension(seq): Extension<LogSeq>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    generate(Api::Completions, instance, seq, &headers, &body).await
}

/// `POST /v1/chat/completions`
pub async fn chat_completions(
    State(instance): State<Arc<Instance>>,
    Extension(seq): Extension<LogSeq>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    generate(Api::Chat, instance, seq, &headers, &body).await
}

async fn generate(
    api: Api,
    instance: Arc<Instance>,
    seq: LogSeq,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let ask = match ask(api, &instance, seq, headers, body) {
        Ok(ask) => ask,
        Err(error) => return error.into_response(),
    };
    let envelope = envelope(&ask, headers);
    // Equal ids of clients are told apart.
    let name = format!("{}-{:08x}", envelope.id, rand::random::<u32>());
    let begun = match transfer::begin(&instance, &ask.transfer, &name).await {
        Ok(remote) => submit(instance, seq, headers, &ask, &remote),
        Err(error) => Err(error),
    };
    let exchange = match begun {
        Ok(exchange) => exchange,
        Err(error) => return error.into_response(),
    };
    match ask.stream {
        Some(options) => exchange.streamed(ask, options, envelope),
        None => exchange.whole(&ask, envelope).await,
    }
}

/// Reads a body and hands its jobs to an engine.
pub fn begin(
    api: Api,
    instance: Arc<Instance>,
    LogSeq(seq): LogSeq,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Ask, Exchange), ApiError> {
    let ask = ask(api, &instance, LogSeq(seq), headers, body)?;
    let exchange = submit(instance, LogSeq(seq), headers, &ask, &Remote::None)?;
    Ok((ask, exchange))
}

/// Reads a body.
fn ask(
    api: Api,
    instance: &Instance,
    LogSeq(seq): LogSeq,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Ask, ApiError> {
    let mut ask = Ask::parse(api, &instance.config, headers, body)?;
    if instance.faults.current().no_kv_transfer {
        ask.transfer = Transfer::None;
    }
    let prompt_tokens = ask.prompt_tokens();
    instance.log.update(seq, |entry| {
        entry.prompt_tokens = Some(prompt_tokens);
        entry.transfer = ask.transfer.as_str().map(str::to_owned);
    });
    Ok(ask)
}

/// Hands a request's jobs to an engine.
fn submit(
    instance: Arc<Instance>,
    LogSeq(seq): LogSeq,
    headers: &HeaderMap,
    ask: &Ask,
    remote: &Remote,
) -> Result<Exchange, ApiError> {
    let context = instance.config.context_tokens();
    let rank = rank(headers, instance.engines.all().len())?;
    let submitted = instance
        .engines
        .submit(rank, |sink| jobs(ask, context, remote, sink));
    let Ok(session) = submitted else {
        return Err(ApiError::busy());
    };
    Ok(Exchange {
        instance,
        seq,
        reporter: (ask.prompts.len() - 1) * ask.n,
        kept_as: match remote {
            Remote::Keep(name) => Some(name.clone()),
            Remote::None | Remote::Fetched { .. } => None,
        },
        session,
    })
}

/// The engine that `X-data-parallel-rank` pins; without a number in it, none.
fn rank(headers: &HeaderMap, engines: usize) -> Result<Option<usize>, ApiError> {
    let header = headers.get("x-data-parallel-rank");
    let text = header.and_then(|value| value.to_str().ok());
    let Some(rank) = text.and_then(|text| text.trim().parse::<i64>().ok()) else {
        return Ok(None);
    };
    let known = usize::try_from(rank).ok().filter(|rank| *rank < engines);
    known
        .map(Some)
        .ok_or_else(|| ApiError::rank_out_of_range(rank, engines))
}

/// One job for each answer to each prompt.
fn jobs(ask: &Ask, context: usize, remote: &Remote, sink: &UnboundedSender<Output>) -> Vec<Job> {
    let scope = CacheScope {
        lora: ask.lora.as_ref().map(|adapter| adapter.name.clone()),
        salt: ask.salt.clone(),
    };
    let choices = ask
        .prompts
        .iter()
        .flat_map(|prompt| (0..ask.n).map(move |n| (prompt, n)));
    let job = |(choice, (prompt, n)): (usize, (&_, usize))| {
        let prompt: &crate::sim::openai::request::Prompt = prompt;
        let answer = Answer::to(&prompt.tokens, n as u64);
        let room = context - prompt.tokens.len();
        let wanted = ask.max_tokens.unwrap_or_else(|| answer.natural_length());
        let by_itself = ask.max_tokens.is_none() && wanted <= room;
        Job {
            prompt: prompt.tokens.clone(),
            scope: scope.clone(),
            lora_rank: ask.lora.as_ref().map_or(0, |adapter| adapter.rank),
            answer,
            max_tokens: wanted.min(room),
            finish: if by_itself {
                Finish::Stop
            } else {
                Finish::Length
            },
            remote: remote.clone(),
            choice,
            sink: sink.clone(),
        }
    };
    choices.enumerate().map(job).collect()
}

/// The client's request id becomes the answer's, behind a prefix.
fn envelope(ask: &Ask, headers: &HeaderMap) -> Envelope {
    let header = headers
        .get("x-request-id")
        .and_then(|value| value.to_str().ok());
    let id = ask
        .request_id
        .as_deref()
        .or(header)
        .map_or_else(|| format!("{:016x}", rand::random::<u64>()), str::to_owned);
    let prefix = match ask.api {
        Api::Completions => "cmpl",
        Api::Chat => "chatcmpl",
    };
    Envelope {
        id: format!("{prefix}-{id}"),
        created: unix_seconds() as u64,
    }
}

/// A request in the engine. Dropping it aborts the request.
#[derive(Debug)]
pub struct Exchange {
    instance: Arc<Instance>,
    seq: u64,
    /// The choice whose hit is reported: the last prompt's first.
    reporter: usize,
    /// The name its blocks are kept under.
    kept_as: Option<String>,
    session: Session,
}

impl Exchange {
    /// The next output, the log kept up to date.
    async fn next(&mut self) -> Option<Output> {
        let output = self.session.next().await?;
        if let OutputEvent::Started { cached } = output.event
            && output.choice == self.reporter
        {
            self.instance
                .log
                .update(self.seq, |entry| entry.cached_tokens = Some(cached));
        }
        Some(output)
    }

    async fn whole(mut self, ask: &Ask, envelope: Envelope) -> Response {
        let block_size = self.instance.config.block_size as usize;
        let (choices, reported) = self.collect(ask).await;
        let kept = self.kept_as.as_deref().and_then(|name| {
            let kept = self.session.kept(name)?;
            Some(Params::new(&self.instance, name, kept, reported))
        });
        match response::body(ask, envelope, choices, reported, block_size, kept) {
            Ok(mut body) => {
                body.extend(vec![b' '; self.instance.faults.current().padding]);
                ([(CONTENT_TYPE, "application/json")], body).into_response()
            }
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// Waits for all answers; also the cached tokens of the last prompt.
    pub async fn collect(&mut self, ask: &Ask) -> (Vec<Choice>, usize) {
        let mut choices = vec![Choice::default(); ask.prompts.len() * ask.n];
        if ask.echo {
            for (index, choice) in choices.iter_mut().enumerate() {
                choice.text = ask.prompts[index / ask.n].text.clone().unwrap_or_default();
            }
        }
        let mut reported = 0;
        while let Some(Output { choice, event }) = self.next().await {
            match event {
                OutputEvent::Started { cached } if choice == self.reporter => reported = cached,
                OutputEvent::Started { .. } => {}
                OutputEvent::Token { text, finish } => {
                    let choice = &mut choices[choice];
                    choice.text.push_str(text);
                    choice.token_ids.push(Token::of_piece(text).id());
                    choice.finish = finish;
                }
            }
        }
        (choices, reported)
    }

    /// As with vLLM, the head goes out at once, even while the request waits in the queue.
    fn streamed(self, ask: Ask, options: StreamOptions, envelope: Envelope) -> Response {
        let block_size = self.instance.config.block_size as usize;
        let events = Events::new(ask, options, envelope, block_size);
        let stream = futures_util::stream::unfold(Some((self, events)), |state| async {
            let (mut exchange, mut events) = state?;
            loop {
                let Some(Output { choice, event }) = exchange.next().await else {
                    return Some((Ok::<_, std::io::Error>(Bytes::from(events.end())), None));
                };
                match event {
                    OutputEvent::Started { cached } if choice == exchange.reporter => {
                        events.set_cached(cached);
                    }
                    OutputEvent::Started { .. } => {}
                    OutputEvent::Token { text, finish } => {
                        let text = events.token(choice, text, finish);
                        return Some((Ok(Bytes::from(text)), Some((exchange, events))));
                    }
                }
            }
        });
        let content_type = [(CONTENT_TYPE, "text/event-stream; charset=utf-8")];
        (content_type, Body::from_stream(stream)).into_response()
    }
}

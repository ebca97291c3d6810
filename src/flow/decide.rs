//! The decision: from a held request to an endpoint.

use super::command::{Command, Count, Replacement};
use super::destination;
use super::prompt::{self, Continued, Model, Prompt};
use super::request::Request;
use super::router::Router;
use super::stream::Held;
use crate::config::{Config, FailureMode, OverrideMode};
use crate::prefix::Chain;
use crate::requestcontrol::{Pick, Pool, Ticket};
use crate::requesthandling::Body;
use crate::scheduling::Ranked;
use crate::scheduling::picker::TieKey;
use crate::telemetry::Reason;
use crate::time::Timestamp;

/// Tells the sidecar of the pick where to have the prompt computed.
const PREFILL_HEADER: &str = "x-prefiller-host-port";

/// What became of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// No pool takes its model.
    NotOurs,
    /// Answered here.
    Refused,
    /// It goes on its way.
    Routed {
        pool: usize,
        /// Absent where no endpoint is known: the cluster's own policy chooses.
        ticket: Option<Ticket>,
        /// What the client may see of it.
        debug: Option<Debug>,
        /// Other requests can go on from the response.
        continued: Option<Continued>,
    },
}

/// The answer while `failureMode: FailClose` finds nobody.
const REFUSAL: &str = concat!(
    r#"{"error":{"message":"no model server is available","#,
    r#""type":"ServiceUnavailableError","param":null,"code":503}}"#
);

/// Routes a request of which `body` can be read.
pub(super) fn by_prompt(
    router: &mut Router,
    held: Held,
    body: &mut dyn Body,
    now: Timestamp,
    commands: &mut Vec<Command>,
) -> Outcome {
    let Held {
        request,
        api,
        truncated,
        content_length,
        buffered,
    } = held;
    let Some(prompt) = prompt::read(router, &request, api, body, truncated) else {
        return Outcome::NotOurs;
    };
    let Prompt {
        pool,
        chain,
        model,
        continued,
        reason,
    } = prompt;
    let rewrite = rewrite(&model, content_length, buffered);
    let plan = Plan {
        pool,
        chain,
        model,
        fills_cache: api.fills_cache(),
        continued,
        tie: request.tie,
        reason,
    };
    let outcome = route(router, plan, now, commands);
    if matches!(outcome, Outcome::Routed { .. }) {
        commands.extend(rewrite.map(Command::ReplaceBody));
    }
    outcome
}

/// Header that tells the server, and whoever logs it, that the body asks for another model than
/// the client did.
const REWRITE_HEADER: &str = "x-llm-d-model-name-rewrite";

/// Puts the target's name in the place of the asked one, and nothing else.
fn rewrite(model: &Model, content_length: Option<usize>, held: usize) -> Option<Replacement> {
    let place = model.rewrite.clone()?;
    // Of all JSON values, a string cannot fail to be written.
    let bytes = serde_json::to_vec(&model.target).unwrap_or_default();
    let mut headers = vec![(REWRITE_HEADER, model.target.clone().into_bytes())];
    if let Some(before) = content_length {
        let kept = before.saturating_sub(place.len());
        let length = kept.saturating_add(bytes.len()).to_string();
        headers.push(("content-length", length.into_bytes()));
    }
    Some(Replacement {
        place,
        bytes,
        held,
        headers,
    })
}

/// Routes a request whose prompt is not known, to the first pool its host and path fit.
pub(super) fn by_load(
    router: &mut Router,
    request: &Request,
    reason: Reason,
    now: Timestamp,
    commands: &mut Vec<Command>,
) -> Outcome {
    let Some(&pool) = request.pools.first() else {
        return Outcome::NotOurs;
    };
    let plan = Plan {
        pool,
        chain: Chain::default(),
        model: Model::default(),
        fills_cache: false,
        continued: None,
        tie: request.tie,
        reason,
    };
    route(router, plan, now, commands)
}

/// Everything a pick needs.
struct Plan {
    pool: usize,
    chain: Chain,
    model: Model,
    /// The server has the prompt in its cache afterwards.
    fills_cache: bool,
    continued: Option<Continued>,
    tie: TieKey,
    reason: Reason,
}

fn route(router: &mut Router, plan: Plan, now: Timestamp, commands: &mut Vec<Command>) -> Outcome {
    let Plan {
        pool,
        chain,
        model,
        fills_cache,
        continued,
        tie,
        reason,
    } = plan;
    let Policy {
        mode,
        header,
        attempts,
        failure_mode,
        debug_headers,
    } = Policy::of(router.config());
    let Some(state) = router.pool_mut(pool) else {
        return Outcome::NotOurs;
    };

    // The other workers' latest decisions count.
    state.catch_up();
    let mut pick = state.pick(&chain, &model.target, tie, attempts, now);
    destination::leave_the_named(mode, &mut pick.decision.ranking);
    let exception = pick.decision.exception;
    let reason = exception
        .filter(|_| !reason.is_fallback())
        .unwrap_or(reason);
    let nobody_fit =
        failure_mode == FailureMode::FailClose && exception == Some(Reason::NoCandidates);
    if nobody_fit || pick.decision.ranking.is_empty() {
        let reason = if nobody_fit {
            Reason::NoCandidates
        } else {
            Reason::NoEndpoints
        };
        return without_choice(pool, reason, failure_mode, debug_headers, commands);
    }
    commands.push(Command::SetRequestHeader(
        header.into(),
        destinations(state, &pick, mode),
    ));
    if let Some(prefill) = pick.prefill.and_then(|id| state.endpoint(id)) {
        let address = prefill.name.clone().into_bytes();
        commands.push(Command::SetRequestHeader(PREFILL_HEADER.into(), address));
    }
    count(&pick, pool, &model, reason, commands);
    commands.extend(pick.explained.iter().cloned().map(Command::Trace));
    let debug = debug_headers.then(|| Debug::new(state, &pick, reason));
    let offered = pick.decision.ranking.iter().map(|ranked| ranked.endpoint);
    let blocks = if fills_cache {
        chain.blocks.as_slice()
    } else {
        &[]
    };
    let ticket = Ticket::open(state, offered.collect(), blocks, now);
    let ticket = ticket.map(|ticket| ticket.with_prefill(state, pick.prefill, blocks, now));
    Outcome::Routed {
        pool,
        ticket,
        debug,
        continued,
    }
}

/// No endpoint to name: the cluster's own policy chooses, or the client is told.
fn without_choice(
    pool: usize,
    reason: Reason,
    failure_mode: FailureMode,
    debug_headers: bool,
    commands: &mut Vec<Command>,
) -> Outcome {
    commands.push(Command::Count(Count::Fallback { pool, reason }));
    if failure_mode == FailureMode::FailClose {
        commands.push(Command::Reply {
            status: 503,
            body: REFUSAL,
        });
        return Outcome::Refused;
    }
    Outcome::Routed {
        pool,
        ticket: None,
        debug: debug_headers.then_some(Debug { reason, pick: None }),
        continued: None,
    }
}

/// What the configuration says about every pick.
struct Policy {
    mode: OverrideMode,
    header: String,
    /// How many endpoints to name: the pick and its fallbacks.
    attempts: usize,
    failure_mode: FailureMode,
    debug_headers: bool,
}

impl Policy {
    fn of(config: &Config) -> Self {
        Self {
            mode: config.override_host.mode,
            header: config.override_host.header.clone(),
            attempts: destination::attempts(&config.override_host),
            failure_mode: config.failure_mode,
            debug_headers: config.debug_headers,
        }
    }
}

/// Counts a pick: once as a decision or as a fallback, and what it was based on.
fn count(pick: &Pick, pool: usize, model: &Model, reason: Reason, commands: &mut Vec<Command>) {
    let Some(&Ranked { endpoint, score }) = pick.decision.ranking.first() else {
        return;
    };
    let &Pick {
        matched_blocks,
        total_blocks,
        loads_adapter,
        ..
    } = pick;
    let mut count = |count| commands.push(Command::Count(count));
    count(if reason.is_fallback() {
        Count::Fallback { pool, reason }
    } else {
        Count::Decision {
            pool,
            model: model.asked.clone(),
            endpoint,
        }
    });
    if total_blocks > 0 {
        count(Count::Scored {
            pool,
            matched_blocks,
            total_blocks,
            score,
        });
    }
    if loads_adapter {
        count(Count::AdapterLoad {
            pool,
            adapter: model.target.clone(),
        });
    }
}

/// The ranking as Envoy reads it.
fn destinations(pool: &Pool, pick: &Pick, mode: OverrideMode) -> Vec<u8> {
    let ranking = pick.decision.ranking.iter();
    let names = ranking.filter_map(|ranked| pool.endpoint(ranked.endpoint));
    let names: Vec<&str> = names.map(|endpoint| endpoint.name.as_str()).collect();
    destination::value(mode, &names)
}

/// What `debugHeaders` shows the client.
#[derive(Clone, Debug)]
pub(super) struct Debug {
    reason: Reason,
    /// Endpoint, composite score, matched and total blocks.
    pick: Option<(String, f64, u32, u32)>,
}

impl Debug {
    fn new(pool: &Pool, pick: &Pick, reason: Reason) -> Self {
        let first = pick.decision.ranking.first();
        let shown = first.and_then(|ranked| {
            let name = pool.endpoint(ranked.endpoint)?.name.clone();
            Some((name, ranked.score, pick.matched_blocks, pick.total_blocks))
        });
        Self {
            reason,
            pick: shown,
        }
    }

    pub(super) fn write(&self, commands: &mut Vec<Command>) {
        let mut set = |name, value: String| {
            commands.push(Command::SetResponseHeader(name, value.into_bytes()));
        };
        set("x-epp-reason", self.reason.as_str().to_owned());
        if let Some((endpoint, score, matched, total)) = &self.pick {
            set("x-epp-endpoint", endpoint.clone());
            set("x-epp-score", format!("{score:.4}"));
            set("x-epp-cache-match", format!("{matched}/{total}"));
        }
    }
}

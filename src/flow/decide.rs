//! The decision: from a held request to an endpoint.

use super::command::{Command, Count};
use super::request::Request;
use super::router::Router;
use super::stream::Held;
use crate::config::{Config, FailureMode, PrefixConfig};
use crate::prefix::{Chain, ChainBuilder, Seed};
use crate::requestcontrol::{Pick, Pool, Ticket};
use crate::requesthandling::{InferenceRequest, ParseError, close_cut_off};
use crate::scheduling::Ranked;
use crate::scheduling::picker::TieKey;
use crate::telemetry::Reason;
use crate::time::Timestamp;

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
    },
}

/// The answer while `failureMode: FailClose` finds nobody.
const REFUSAL: &str = concat!(
    r#"{"error":{"message":"no model server is available","#,
    r#""type":"ServiceUnavailableError","param":null,"code":503}}"#
);

/// Routes a request of which `body` was read.
pub(super) fn by_prompt(
    router: &mut Router,
    held: Held,
    mut body: Vec<u8>,
    now: Timestamp,
    commands: &mut Vec<Command>,
) -> Outcome {
    let Held {
        request,
        api,
        truncated,
        ..
    } = held;
    if truncated {
        close_cut_off(&mut body);
    }
    let parsed = match api.parse(&body) {
        Ok(parsed) => parsed,
        Err(error) => {
            let reason = if truncated {
                Reason::TruncatedBody
            } else {
                reason_of(error)
            };
            return by_load(router, &request, reason, now, commands);
        }
    };
    let model = parsed.model.as_deref().unwrap_or_default();
    let pool = if truncated && parsed.model.is_none() {
        // It may stand behind the cut, where clients that write the prompt first have it.
        request.pools.first().copied()
    } else {
        router.fitting_model(&request.pools, model)
    };
    let Some(pool) = pool else {
        return Outcome::NotOurs;
    };
    let reason = match (truncated, parsed.prompt.is_empty()) {
        (true, _) => Reason::TruncatedBody,
        (false, true) => Reason::UnknownShape,
        (false, false) => Reason::Picked,
    };
    let Some(config) = router.config().pools.get(pool) else {
        return Outcome::NotOurs;
    };
    let chain = chain_of(&parsed, &config.prefix, truncated);
    let plan = Plan {
        pool,
        chain,
        model,
        tie: request.tie,
        reason,
    };
    route(router, plan, now, commands)
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
        model: "",
        tie: request.tie,
        reason,
    };
    route(router, plan, now, commands)
}

fn reason_of(error: ParseError) -> Reason {
    match error {
        ParseError::Malformed => Reason::MalformedBody,
        ParseError::UnknownShape => Reason::UnknownShape,
    }
}

/// Hashes the prompt; of one that was cut off, whole blocks only.
fn chain_of(request: &InferenceRequest<'_>, prefix: &PrefixConfig, truncated: bool) -> Chain {
    let model = request.model.as_deref().unwrap_or_default();
    let salt = request
        .cache_salt
        .as_deref()
        .filter(|salt| !salt.is_empty());
    let max_blocks = prefix.max_tokens / prefix.block_tokens.max(1);
    let mut builder = ChainBuilder::new(Seed::new(model, salt), prefix.block_tokens, max_blocks);
    for (piece, count) in request.prompt.pieces.iter().zip(1_usize..) {
        builder.push(piece.as_bytes());
        if request.prompt.first_user_end == Some(count) {
            builder.mark_anchor();
        }
    }
    if truncated {
        builder.finish_whole()
    } else {
        builder.finish()
    }
}

/// Everything a pick needs.
struct Plan<'a> {
    pool: usize,
    chain: Chain,
    model: &'a str,
    tie: TieKey,
    reason: Reason,
}

fn route(
    router: &mut Router,
    plan: Plan<'_>,
    now: Timestamp,
    commands: &mut Vec<Command>,
) -> Outcome {
    let Plan {
        pool,
        chain,
        model,
        tie,
        reason,
    } = plan;
    let Policy {
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
    let tie = chain.anchor.map_or(tie, |anchor| TieKey(anchor.0));
    let pick = state.pick(&chain, model, tie, attempts, now);
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
        destinations(state, &pick),
    ));
    count(&pick, pool, model, reason, commands);
    let debug = debug_headers.then(|| Debug::new(state, &pick, reason));
    let offered = pick.decision.ranking.iter().map(|ranked| ranked.endpoint);
    let ticket = Ticket::open(state, offered.collect(), &chain.blocks, now);
    Outcome::Routed {
        pool,
        ticket,
        debug,
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
    }
}

/// What the configuration says about every pick.
struct Policy {
    header: String,
    /// How many endpoints to name: the pick and its fallbacks.
    attempts: usize,
    failure_mode: FailureMode,
    debug_headers: bool,
}

impl Policy {
    fn of(config: &Config) -> Self {
        let fallbacks = usize::try_from(config.override_host.fallbacks).unwrap_or(0);
        Self {
            header: config.override_host.header.clone(),
            attempts: fallbacks.saturating_add(1),
            failure_mode: config.failure_mode,
            debug_headers: config.debug_headers,
        }
    }
}

/// Counts a pick: once as a decision or as a fallback, and what it was based on.
fn count(pick: &Pick, pool: usize, model: &str, reason: Reason, commands: &mut Vec<Command>) {
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
            model: model.to_owned(),
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
            adapter: model.to_owned(),
        });
    }
}

/// The ranking as the `override_host` policy reads it: one address an attempt, comma separated.
fn destinations(pool: &Pool, pick: &Pick) -> Vec<u8> {
    let ranking = pick.decision.ranking.iter();
    let names = ranking.filter_map(|ranked| pool.endpoint(ranked.endpoint));
    let names: Vec<&str> = names.map(|endpoint| endpoint.name.as_str()).collect();
    names.join(",").into_bytes()
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

//! The decision: from a held request to an endpoint.

use super::command::{Command, Count, PrefillCall};
use super::destination;
use super::prefill::{BodyChange, Parts, Prefill};
use super::prompt::{self, Continued, Model, Prompt};
use super::request::Request;
use super::router::Router;
use super::stream::Held;
use super::usage::UsageWatch;
use crate::config::{Config, FailureMode, OverrideHost, OverrideMode, SplitMode};
use crate::datalayer::EndpointId;
use crate::prefix::{BlockHash, Chain};
use crate::requestcontrol::{Pick, Pool, Ticket};
use crate::requesthandling::{Body, Edit};
use crate::scheduling::Ranked;
use crate::scheduling::picker::TieKey;
use crate::telemetry::{Reason, SplitDecision};
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
    /// It goes on its way, at once or once its prompt is computed elsewhere.
    Routed(Box<Route>),
}

/// Where a request goes.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) pool: usize,
    /// Absent where no endpoint is known: the cluster's own policy chooses.
    pub(super) ticket: Option<Ticket>,
    /// What the client may see of it.
    pub(super) debug: Option<Debug>,
    /// Other requests can go on from the response.
    pub(super) continued: Option<Continued>,
    /// The response tells how many tokens the prompt has.
    pub(super) usage: Option<UsageWatch>,
    /// Who computes the prompt first, as long as that is only a wish.
    wish: Option<EndpointId>,
    /// Its prompt is computed elsewhere first.
    pub(super) prefill: Option<Box<Prefill>>,
}

/// Times that a ranking is made again because another worker was faster; the one after is final.
const MAX_OVERTAKEN: u32 = 3;

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
        cuts,
        reason,
    } = prompt;
    let change = BodyChange {
        content_length,
        held: buffered,
        model: rewrite(&model),
    };
    let plan = Plan {
        pool,
        chain,
        model,
        fills_cache: api.fills_cache(),
        continued,
        tie: request.tie,
        reason,
    };
    let OverrideHost { header, mode, .. } = router.config().override_host.clone();
    let mut outcome = route(router, &plan, now, commands);
    let Outcome::Routed(route) = &mut outcome else {
        return outcome;
    };
    let Some((prefill, state)) = route.wish.take().zip(router.pool_mut(pool)) else {
        commands.extend(change.command(cuts));
        return outcome;
    };
    let parts = Parts {
        pool,
        request: &request,
        api,
        change: &change,
        header: &header,
        prefill,
    };
    // A session filter sees no calls of ours: nothing would lead them to one endpoint.
    let whole = (mode == OverrideMode::Header && !truncated).then_some(body);
    let chain = &plan.chain;
    if let Some(call) = whole.and_then(|body| begin_prefill(route, &parts, state, chain, body, now))
    {
        commands.push(Command::Prefill(call));
        return outcome;
    }
    let decision = SplitDecision::NotSplittable;
    commands.push(Command::Count(Count::Split { pool, decision }));
    commands.extend(change.command(cuts));
    outcome
}

/// Lets `route` wait for a call of the prefill endpoint. `None` where the request cannot be shared.
fn begin_prefill(
    route: &mut Route,
    parts: &Parts<'_>,
    pool: &mut Pool,
    chain: &Chain,
    body: &mut dyn Body,
    now: Timestamp,
) -> Option<PrefillCall> {
    let decode = route.ticket.as_ref()?.endpoint(pool)?;
    let (split, call) = Prefill::new(parts, decode, pool, body, now)?;
    let (ticket, blocks) = (route.ticket.take(), &chain.blocks);
    route.ticket = ticket.map(|one| one.with_prefill(pool, Some(parts.prefill), blocks, now));
    route.prefill = Some(Box::new(split));
    Some(call)
}

/// Puts the target's name in the place of the asked one, and nothing else.
fn rewrite(model: &Model) -> Option<(Edit, String)> {
    let place = model.rewrite.clone()?;
    // Of all JSON values, a string cannot fail to be written.
    let bytes = serde_json::to_vec(&model.target).unwrap_or_default();
    Some((Edit::new(place, bytes), model.target.clone()))
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
    route(router, &plan, now, commands)
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

impl Plan {
    /// The blocks that the server has in its cache afterwards.
    fn cached(&self) -> &[BlockHash] {
        if self.fills_cache {
            &self.chain.blocks
        } else {
            &[]
        }
    }
}

fn route(router: &mut Router, plan: &Plan, now: Timestamp, commands: &mut Vec<Command>) -> Outcome {
    let &Plan {
        pool,
        ref chain,
        ref model,
        continued,
        reason,
        ..
    } = plan;
    let policy = Policy::of(router.config());
    let Some(state) = router.pool_mut(pool) else {
        return Outcome::NotOurs;
    };

    let (pick, ticket) = match choose(state, plan, &policy, now) {
        Ok(choice) => choice,
        Err(reason) => return without_choice(pool, reason, &policy, commands),
    };
    let reason = match pick.decision.exception {
        Some(exception) if !reason.is_fallback() => exception,
        _ => reason,
    };
    let destinations = destinations(state, &pick, policy.mode);
    commands.push(Command::SetRequestHeader(
        policy.header.into(),
        destinations,
    ));
    let told = tell_sidecar(state, &pick, commands);
    count(&pick, pool, model, reason, commands);
    let wish = count_split(state, &pick, pool, commands);
    let debug = policy
        .debug_headers
        .then(|| Debug::new(state, &pick, reason));
    let ticket = ticket.map(|ticket| ticket.with_prefill(state, told, plan.cached(), now));
    Outcome::Routed(Box::new(Route {
        pool,
        ticket,
        debug,
        continued,
        usage: UsageWatch::new(state, chain, model, reason),
        wish,
        prefill: None,
    }))
}

/// Ranks the endpoints and sends the request to the first. Workers that choose at the same time
/// would all choose the same endpoint: where one was faster, the ranking is made again with its
/// request known. Nobody to send to is an error.
fn choose(
    pool: &mut Pool,
    plan: &Plan,
    policy: &Policy,
    now: Timestamp,
) -> Result<(Pick, Option<Ticket>), Reason> {
    // The other workers' latest decisions count.
    pool.catch_up();
    let mut overtaken = 0_u32;
    loop {
        let &Policy { mode, attempts, .. } = policy;
        let mut pick = pool.pick(&plan.chain, &plan.model.target, plan.tie, attempts, now);
        destination::leave_the_named(mode, &mut pick.decision.ranking);
        if let Some(reason) = obstacle(&pick, policy) {
            return Err(reason);
        }
        let ranking = pick.decision.ranking.iter();
        let offered = ranking.map(|ranked| ranked.endpoint).collect();
        let blocks = plan.cached();
        let Some(open) = pick.open.filter(|_| overtaken < MAX_OVERTAKEN) else {
            let ticket = Ticket::open(pool, offered, blocks, now);
            return Ok((pick, ticket));
        };
        if let Some(ticket) = Ticket::open_unless_busier(pool, offered, open, blocks, now) {
            return Ok((pick, Some(ticket)));
        }
        overtaken = overtaken.saturating_add(1);
    }
}

/// Why the request goes to nobody of the ranking.
fn obstacle(pick: &Pick, policy: &Policy) -> Option<Reason> {
    let refuses = policy.failure_mode == FailureMode::FailClose;
    if refuses && pick.decision.exception == Some(Reason::NoCandidates) {
        return Some(Reason::NoCandidates);
    }
    let is_empty = pick.decision.ranking.is_empty();
    is_empty.then_some(Reason::NoEndpoints)
}

/// Names the prefill endpoint to a sidecar, where one is to see to it. Returns who was named.
fn tell_sidecar(pool: &Pool, pick: &Pick, commands: &mut Vec<Command>) -> Option<EndpointId> {
    let is_told = pool.config().disaggregation.mode == SplitMode::Header;
    let prefill = pick.prefill.filter(|_| is_told)?;
    let address = pool.endpoint(prefill)?.name.clone().into_bytes();
    commands.push(Command::SetRequestHeader(PREFILL_HEADER.into(), address));
    Some(prefill)
}

/// Counts what becomes of computing the prompt elsewhere, where that is known with the pick. Returns
/// who is to be called for it, where that is ours to do.
fn count_split(
    state: &Pool,
    pick: &Pick,
    pool: usize,
    commands: &mut Vec<Command>,
) -> Option<EndpointId> {
    if !state.splits() {
        return None;
    }
    let is_inline = state.config().disaggregation.mode.is_inline();
    let decision = match pick.prefill {
        Some(prefill) if is_inline => return Some(prefill),
        Some(_) => SplitDecision::Sidecar,
        None if pick.total_blocks == 0 => SplitDecision::NoPrompt,
        None if pick.wants_prefill => SplitDecision::NoPrefillEndpoint,
        None => SplitDecision::DecodeOnly,
    };
    commands.push(Command::Count(Count::Split { pool, decision }));
    None
}

/// No endpoint to name: the cluster's own policy chooses, or the client is told.
fn without_choice(
    pool: usize,
    reason: Reason,
    policy: &Policy,
    commands: &mut Vec<Command>,
) -> Outcome {
    commands.push(Command::Count(Count::Fallback { pool, reason }));
    if policy.failure_mode == FailureMode::FailClose {
        commands.push(Command::Reply {
            status: 503,
            body: REFUSAL,
        });
        return Outcome::Refused;
    }
    Outcome::Routed(Box::new(Route {
        pool,
        ticket: None,
        debug: policy.debug_headers.then_some(Debug { reason, pick: None }),
        continued: None,
        usage: None,
        wish: None,
        prefill: None,
    }))
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
    commands.extend(pick.explained.iter().cloned().map(Command::Trace));
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

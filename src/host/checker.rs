//! Asks the endpoints whether they are ready and what they serve, by HTTP calls from the root
//! context. The calls go through the pools' own clusters, since it is the way of the requests that
//! counts, unless those cannot lead them to one endpoint.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use super::abi::{self, Buffer, HeaderMap};
use super::calls::{self, Get};
use super::scraper::{Call, Found};
use crate::config::Config;
use crate::datalayer::{
    CheckAnswer, CheckPlan, Condition, ListAnswer, ModelList, Question, Unusable, readiness,
};
use crate::flow::Router;
use crate::requestcontrol::Pool;
use crate::time::Timestamp;

pub(super) struct Checker {
    /// One for each pool.
    plans: Vec<CheckPlan>,
    /// Calls under way, by the host's token; bounded by the endpoints.
    calls: BTreeMap<u32, Check>,
}

struct Check {
    pool: usize,
    address: SocketAddr,
    started: Timestamp,
    question: Question,
}

/// Bytes of Envoy's own answers that hold their cause.
const CAUSE_BYTES: usize = 1024;

impl Checker {
    pub(super) fn new(config: &Config) -> Self {
        let pools = config.pools.iter();
        let plans = pools.map(|pool| CheckPlan::new(pool.metrics.interval, pool.metrics.timeout));
        Self {
            plans: plans.collect(),
            calls: BTreeMap::new(),
        }
    }

    /// `scrape` has ended, with what it `found`.
    pub(super) fn note_scrape(&mut self, scrape: Call, found: Option<&Found>) {
        let Some(plan) = self.plans.get_mut(scrape.pool) else {
            return;
        };
        match found {
            Some(Found::Metrics(found)) => plan.note_readable(scrape.address, found.process_start),
            None if scrape.is_engines() => plan.note_unreadable(scrape.address),
            Some(Found::Gpu(_)) | None => {}
        }
    }

    /// Asks what is due. What the host refuses, since the cluster has no room, is asked in its turn.
    pub(super) fn start_due(&mut self, router: &Router, now: Timestamp) {
        for ((number, plan), pool) in self.plans.iter_mut().enumerate().zip(router.pools()) {
            let override_host = &router.config().override_host;
            let Some(cluster) = override_host.checks_cluster(pool.config()) else {
                continue;
            };
            let endpoints: Vec<_> = pool
                .endpoints()
                .map(|(id, endpoint)| (endpoint.address, pool.readiness(id)))
                .collect();
            for (address, question) in plan.start_due(&endpoints, now) {
                let header = &override_host.header;
                let Some(token) = ask(cluster, header, pool, address, question) else {
                    plan.ended(address, question, now, false);
                    continue;
                };
                let check = Check {
                    pool: number,
                    address,
                    started: now,
                    question,
                };
                self.calls.insert(token, check);
            }
        }
    }

    /// Whether the call behind `token` is one of these.
    pub(super) fn has_asked(&self, token: u32) -> bool {
        self.calls.contains_key(&token)
    }

    /// Takes over the answer to the call behind `token`. Returns the pool it is about.
    pub(super) fn take_answer(
        &mut self,
        token: u32,
        body_size: usize,
        router: &mut Router,
    ) -> Option<usize> {
        let check = self.calls.remove(&token)?;
        let pool = router.pool_mut(check.pool)?;
        let answered = match check.question {
            Question::IsReady => take_readiness(pool, check.address, body_size),
            Question::Models => take_models(pool, check.address, body_size),
        };
        let plan = self.plans.get_mut(check.pool)?;
        plan.ended(check.address, check.question, check.started, answered);
        Some(check.pool)
    }
}

/// `None` when the host refuses.
fn ask(
    cluster: &str,
    header: &str,
    pool: &Pool,
    address: SocketAddr,
    question: Question,
) -> Option<u32> {
    let host = address.to_string();
    let call = Get {
        cluster,
        path: question.path(),
        authority: &host,
        accept: "*/*",
        override_host: Some((header, &host)),
        timeout: pool.config().metrics.timeout,
    };
    call.start().ok()
}

fn take_readiness(pool: &mut Pool, address: SocketAddr, body_size: usize) -> bool {
    let body = abi::buffer(Buffer::HttpCallResponseBody, body_size.min(CAUSE_BYTES));
    let header = |name| abi::header(HeaderMap::HttpCallResponse, name);
    let verdict = readiness(CheckAnswer {
        status: &header(":status").unwrap_or_default(),
        by_server: header(calls::SERVICE_TIME).is_ok(),
        overloaded: header("x-envoy-overloaded").is_ok(),
        body: &body.unwrap_or_default(),
    });
    if let (Some(is_ready), Some(endpoint)) = (verdict, pool.find(address)) {
        pool.take_check(endpoint, is_ready);
    }
    verdict.is_some()
}

fn take_models(pool: &mut Pool, address: SocketAddr, body_size: usize) -> bool {
    // One byte more shows that it is too long.
    let size = body_size.min(ModelList::MAX_ANSWER_BYTES.saturating_add(1));
    let status = abi::header(HeaderMap::HttpCallResponse, ":status").unwrap_or_default();
    let body = abi::buffer(Buffer::HttpCallResponseBody, size).unwrap_or_default();
    let models = match ListAnswer::read(&status, &body) {
        ListAnswer::Unanswered => return false,
        ListAnswer::None => None,
        ListAnswer::Models(models) => Some(models),
    };
    if let Some(endpoint) = pool.find(address) {
        pool.take_models(endpoint, models);
    }
    true
}

/// Tells the operator of an endpoint that became unusable, or usable again.
pub(super) fn log_change(pool: &Pool, address: SocketAddr, condition: Condition) {
    let pool = &pool.config().name;
    if condition.is_usable() {
        log::info!("inline-epp: pool={pool} pod={address} is used again");
        return;
    }
    let causes: Vec<&str> = condition.causes().map(Unusable::as_str).collect();
    let causes = causes.join(", and ");
    log::warn!("inline-epp: pool={pool} pod={address} is not used: it {causes}");
}

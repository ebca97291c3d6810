//! Reads the endpoints' metrics through Envoy's own clusters, by HTTP calls from the root context.

use std::collections::BTreeMap;

use proxy_wasm::hostcalls::dispatch_http_call;

use super::abi::{self, Buffer, HeaderMap};
use super::metrics::{Metrics, ScrapeResult};
use crate::config::{Config, Engine};
use crate::datalayer::{EndpointId, EndpointMetrics, ScrapePlan, engine};
use crate::flow::Router;
use crate::time::Timestamp;

pub(super) struct Scraper {
    plans: Vec<ScrapePlan>,
    /// Calls under way, by the host's token; bounded by the endpoints.
    calls: BTreeMap<u32, Call>,
    /// How each endpoint's latest scrape ended, by pool and endpoint.
    latest: BTreeMap<(usize, EndpointId), ScrapeResult>,
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) pool: usize,
    pub(super) endpoint: EndpointId,
    pub(super) started: Timestamp,
    /// Whose page is expected.
    engine: Engine,
}

impl Scraper {
    pub(super) fn new(config: &Config) -> Self {
        let plans = config.pools.iter().map(|pool| {
            let metrics = &pool.metrics;
            ScrapePlan::new(pool.endpoints.len(), metrics.interval, metrics.timeout)
        });
        Self {
            plans: plans.collect(),
            calls: BTreeMap::new(),
            latest: BTreeMap::new(),
        }
    }

    /// Starts what is due. Returns the calls the host refused at once.
    pub(super) fn start_due(&mut self, router: &Router, now: Timestamp) -> Vec<Call> {
        let mut refused = Vec::new();
        let pools = self.plans.iter_mut().zip(&router.config().pools);
        for (pool, (plan, config)) in pools.enumerate() {
            for endpoint in plan.start_due(now) {
                let scrape = Call {
                    pool,
                    endpoint,
                    started: now,
                    engine: config.metrics.engine,
                };
                if let Some(token) = call(router, pool, endpoint) {
                    self.calls.insert(token, scrape);
                } else {
                    plan.ended(endpoint, now);
                    refused.push(scrape);
                }
            }
        }
        refused
    }

    /// The call behind `token` has ended.
    pub(super) fn ended(&mut self, token: u32) -> Option<Call> {
        let call = self.calls.remove(&token)?;
        if let Some(plan) = self.plans.get_mut(call.pool) {
            plan.ended(call.endpoint, call.started);
        }
        Some(call)
    }

    /// Counts how `call` ended, and logs it where it is news.
    pub(super) fn note(
        &mut self,
        router: &Router,
        metrics: &Metrics,
        call: Call,
        result: ScrapeResult,
    ) {
        metrics.scrape(call.pool, result);
        let before = self.latest.insert((call.pool, call.endpoint), result);
        let Some(pool) = router
            .pools()
            .get(call.pool)
            .filter(|_| before != Some(result))
        else {
            return;
        };
        let name = pool
            .endpoint(call.endpoint)
            .map_or("", |endpoint| &endpoint.name);
        let pool = &pool.config().name;
        match (result, before) {
            (ScrapeResult::Ok, None) => {}
            (ScrapeResult::Ok, Some(_)) => {
                log::info!("inline-epp: pool={pool} pod={name} metrics are back");
            }
            (failed, _) => log::warn!(
                "inline-epp: pool={pool} pod={name} metrics: {}; routing on what was last known",
                failed.as_str()
            ),
        }
    }
}

/// `GET`s the endpoint's metrics. The override header in the call makes the cluster's policy choose
/// exactly this host.
fn call(router: &Router, pool: usize, endpoint: EndpointId) -> Option<u32> {
    let state = router.pools().get(pool)?;
    let name = state.endpoint(endpoint)?.name.as_str();
    let config = state.config();
    let cluster = config.metrics.cluster.as_ref().unwrap_or(&config.cluster);
    let headers = vec![
        (":method", "GET"),
        (":path", config.metrics.path.as_str()),
        (":authority", name),
        ("accept", "text/plain"),
        (router.config().override_host.header.as_str(), name),
    ];
    dispatch_http_call(cluster, headers, None, Vec::new(), config.metrics.timeout).ok()
}

/// What the ended `call` brought. A host answers 504 for a time-out, 503 for a refused connection and
/// no header at all for a reset.
pub(super) fn read_answer(call: Call, body_size: usize) -> (ScrapeResult, Option<EndpointMetrics>) {
    let status = abi::header(HeaderMap::HttpCallResponse, ":status").unwrap_or_default();
    match status.as_slice() {
        b"200" => {
            let page = abi::buffer(Buffer::HttpCallResponseBody, body_size).unwrap_or_default();
            match engine::read(call.engine, &page) {
                Some(metrics) => (ScrapeResult::Ok, Some(metrics)),
                None => (ScrapeResult::Unreadable, None),
            }
        }
        b"504" => (ScrapeResult::Timeout, None),
        _ => (ScrapeResult::Error, None),
    }
}

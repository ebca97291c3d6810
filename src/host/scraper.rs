//! Reads the endpoints' metrics through Envoy's own clusters, by HTTP calls from the root context.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use super::calls::{self, Get};
use super::metrics::{Metrics, ScrapeResult};
use crate::config::{Config, Engine, MetricSpec, PoolConfig};
use crate::datalayer::{EndpointMetrics, GpuReading, ScrapePlan, engine, gpu, signals};
use crate::flow::Router;
use crate::time::Timestamp;

pub(super) struct Scraper {
    sources: Vec<Source>,
    /// Calls under way, by the host's token; bounded by the endpoints.
    calls: BTreeMap<u32, Call>,
    /// How each endpoint's latest scrape ended, by source and address.
    latest: BTreeMap<(usize, SocketAddr), ScrapeResult>,
}

/// One kind of page of one pool's endpoints.
struct Source {
    pool: usize,
    page: Page,
    plan: ScrapePlan,
}

/// What a page is read for.
#[derive(Clone, Copy)]
enum Page {
    /// The engine's metrics.
    Engine(Engine),
    /// The load and the errors of the GPUs beside it.
    Gpu,
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The source's place.
    source: usize,
    pub(super) pool: usize,
    /// Which of the pool's endpoints. While the call was under way another may have joined, even
    /// at the place of this one.
    pub(super) address: SocketAddr,
    pub(super) started: Timestamp,
    page: Page,
}

/// What a page said.
pub(super) enum Found {
    Metrics(Box<EndpointMetrics>),
    Gpu(GpuReading),
}

impl Scraper {
    pub(super) fn new(config: &Config) -> Self {
        let mut sources = Vec::new();
        for (at, pool) in config.pools.iter().enumerate() {
            let metrics = &pool.metrics;
            let engine = config.override_host.metrics_cluster(pool);
            let pages = [
                engine.map(|_| Page::Engine(metrics.engine)),
                metrics.gpu.as_ref().map(|_| Page::Gpu),
            ];
            for page in pages.into_iter().flatten() {
                let plan = ScrapePlan::new(metrics.interval, metrics.timeout);
                sources.push(Source {
                    pool: at,
                    page,
                    plan,
                });
            }
        }
        Self {
            sources,
            calls: BTreeMap::new(),
            latest: BTreeMap::new(),
        }
    }

    /// Starts what is due. Returns the calls the host refused at once, and why.
    pub(super) fn start_due(&mut self, router: &Router, now: Timestamp) -> Vec<(Call, String)> {
        let mut refused = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            let Some(pool) = router.pools().get(source.pool) else {
                continue;
            };
            self.latest
                .retain(|(of, address), _| *of != at || pool.find(*address).is_some());
            let every = pool.config().metrics.interval;
            let endpoints = pool.endpoints().map(|(_, one)| (one.address, every));
            for address in source.plan.start_due(endpoints, now) {
                let scrape = Call {
                    source: at,
                    pool: source.pool,
                    address,
                    started: now,
                    page: source.page,
                };
                match call(router, scrape) {
                    Ok(token) => {
                        self.calls.insert(token, scrape);
                    }
                    Err(why) => {
                        source.plan.ended(address, now);
                        refused.push((scrape, why));
                    }
                }
            }
        }
        refused
    }

    /// The call behind `token` has ended.
    pub(super) fn ended(&mut self, token: u32) -> Option<Call> {
        let call = self.calls.remove(&token)?;
        if let Some(source) = self.sources.get_mut(call.source) {
            source.plan.ended(call.address, call.started);
        }
        Some(call)
    }

    /// Counts how `call` ended, and logs it with `why` where it is news.
    pub(super) fn note(
        &mut self,
        router: &Router,
        metrics: &Metrics,
        call: Call,
        result: ScrapeResult,
        why: &str,
    ) {
        metrics.scrape(call.pool, result);
        let before = self.latest.insert((call.source, call.address), result);
        let Some(pool) = router
            .pools()
            .get(call.pool)
            .filter(|_| before != Some(result))
        else {
            return;
        };
        let name = call.address;
        let pool = &pool.config().name;
        match (result, before) {
            (ScrapeResult::Ok, None) => {}
            (ScrapeResult::Ok, Some(_)) => {
                log::info!(
                    "inline-epp: pool={pool} pod={name} {} are back",
                    call.page.what()
                );
            }
            _ => log::warn!(
                "inline-epp: pool={pool} pod={name} {} cannot be read: {why}",
                call.page.what()
            ),
        }
    }
}

impl Call {
    /// Whether it is the engine's metrics that are read.
    pub(super) const fn is_engines(self) -> bool {
        matches!(self.page, Page::Engine(_))
    }
}

impl Page {
    /// For people.
    const fn what(self) -> &'static str {
        match self {
            Self::Engine(_) => "metrics",
            Self::Gpu => "GPU metrics",
        }
    }

    /// `series`: what plugins ask for beside the engine's metrics.
    fn read(self, text: &[u8], series: &[MetricSpec]) -> Option<Found> {
        match self {
            Self::Engine(engine) => engine::read(engine, text).map(|metrics| {
                Found::Metrics(Box::new(EndpointMetrics {
                    signals: signals::read(series, text),
                    ..metrics
                }))
            }),
            Self::Gpu => gpu::read(text).map(Found::Gpu),
        }
    }
}

/// Where a page is.
struct Target<'a> {
    cluster: &'a str,
    path: &'a str,
    address: SocketAddr,
}

impl<'a> Target<'a> {
    fn new(
        whole: &'a Config,
        pool: &'a PoolConfig,
        page: Page,
        endpoint: SocketAddr,
    ) -> Option<Self> {
        let metrics = &pool.metrics;
        let at = |port| SocketAddr::new(endpoint.ip(), port);
        match page {
            Page::Engine(_) => Some(Self {
                cluster: whole.override_host.metrics_cluster(pool)?,
                path: &metrics.path,
                address: metrics.port.map_or(endpoint, at),
            }),
            Page::Gpu => metrics.gpu.as_ref().map(|gpu| Self {
                cluster: &gpu.cluster,
                path: GPU_PATH,
                address: at(gpu.port),
            }),
        }
    }
}

/// A DCGM exporter has no other.
const GPU_PATH: &str = "/metrics";

/// `GET`s the page. The override header in the call makes the cluster choose exactly this host. An error says why the host refused.
fn call(router: &Router, call: Call) -> Result<u32, String> {
    let target = router.pools().get(call.pool).and_then(|pool| {
        let target = Target::new(router.config(), pool.config(), call.page, call.address)?;
        Some((target, pool.config().metrics.timeout))
    });
    let Some((target, timeout)) = target else {
        return Err("no such endpoint".to_owned());
    };
    let host = target.address.to_string();
    let get = Get {
        cluster: target.cluster,
        path: target.path,
        authority: &host,
        accept: "text/plain",
        override_host: Some((&router.config().override_host.header, &host)),
        timeout,
    };
    get.start()
}

/// What the ended `call` brought, and a word on it.
pub(super) fn read_answer(
    router: &Router,
    call: Call,
    body_size: usize,
) -> (ScrapeResult, Option<Found>, String) {
    let page = match calls::answer(body_size) {
        Ok(page) => page,
        Err((result, why)) => return (result, None, why),
    };
    #[cfg(feature = "test-switches")]
    super::switches::trap_if_told(&page);
    let pool = router.pools().get(call.pool);
    let series = pool.map_or(&[][..], |pool| &pool.config().metrics.signals);
    let found = call.page.read(&page, series);
    if found.is_some() {
        return (ScrapeResult::Ok, found, String::new());
    }
    let why = "the page holds no metric of a known engine".to_owned();
    (ScrapeResult::Unreadable, None, why)
}

//! Reads Envoy's own host list, by HTTP calls from the root context to its admin interface.

use core::time::Duration;
use std::collections::BTreeMap;

use super::calls::{self, Get};
use super::metrics::{Metrics, ScrapeResult};
use super::shared::SharedWord;
use crate::config::{Config, DiscoveryConfig, PoolConfig};
use crate::datalayer::clusters::{self, ClustersError};
use crate::datalayer::{Member, ScrapePlan};
use crate::flow::Router;
use crate::requestcontrol::Pool;
use crate::time::Timestamp;

pub(super) struct Discovery {
    /// Those of the pools that have one.
    sources: Vec<Source>,
    /// Calls under way, by the host's token: the source's place and the start.
    calls: BTreeMap<u32, (usize, Timestamp)>,
}

struct Source {
    pool: usize,
    interval: Duration,
    plan: ScrapePlan<()>,
    /// How the latest reading ended.
    latest: SharedWord,
    /// Hosts the latest list had too many.
    left_out: usize,
}

impl Discovery {
    /// For VMs of one configuration, told by its `fingerprint`.
    pub(super) fn new(config: &Config, fingerprint: u64) -> Self {
        let pools = config.pools.iter().enumerate();
        let sources = pools.filter_map(|(pool, config)| {
            let interval = config.discovery.as_ref()?.interval;
            let subject = format!("host-list/{}", config.name);
            Some(Source {
                pool,
                interval,
                plan: ScrapePlan::new(interval, config.metrics.timeout),
                latest: SharedWord::new(fingerprint, &subject),
                left_out: 0,
            })
        });
        Self {
            sources: sources.collect(),
            calls: BTreeMap::new(),
        }
    }

    /// Starts the readings that are due.
    pub(super) fn start_due(&mut self, router: &Router, metrics: &Metrics, now: Timestamp) {
        for (at, source) in self.sources.iter_mut().enumerate() {
            if source
                .plan
                .start_due(core::iter::once(((), source.interval)), now)
                .is_empty()
            {
                continue;
            }
            let Some(pool) = router.pools().get(source.pool).map(Pool::config) else {
                continue;
            };
            match call(pool) {
                Ok(token) => {
                    self.calls.insert(token, (at, now));
                }
                Err(why) => {
                    source.plan.ended((), now);
                    source.note(pool, metrics, ScrapeResult::Error, &why);
                }
            }
        }
    }

    /// The call behind `token` has ended. Returns the pool whose endpoints may be others now.
    pub(super) fn ended(
        &mut self,
        token: u32,
        body_size: usize,
        router: &mut Router,
        metrics: &Metrics,
    ) -> Option<usize> {
        let (at, started) = self.calls.remove(&token)?;
        let source = self.sources.get_mut(at)?;
        source.plan.ended((), started);
        let pool = router.pool_mut(source.pool)?;
        match read(pool.config(), body_size) {
            Ok(hosts) => {
                source.note(pool.config(), metrics, ScrapeResult::Ok, "");
                source.follow(pool, &hosts);
                Some(source.pool)
            }
            Err((result, why)) => {
                source.note(pool.config(), metrics, result, &why);
                None
            }
        }
    }
}

impl Source {
    fn follow(&mut self, pool: &mut Pool, hosts: &[Member]) {
        let before = pool.endpoints().count();
        let followed = pool.follow_host_list(hosts);
        let name = &pool.config().name;
        if followed.joined > 0 || followed.left > 0 {
            log::info!(
                "inline-epp: pool={name} endpoints {} (were {before}: {} joined, {} left)",
                pool.endpoints().count(),
                followed.joined,
                followed.left
            );
        }
        if core::mem::replace(&mut self.left_out, followed.left_out) != followed.left_out
            && followed.left_out > 0
        {
            log::warn!(
                "inline-epp: pool={name} {} hosts are left out: a pool has at most {} endpoints",
                followed.left_out,
                pool.endpoints().count()
            );
        }
    }

    /// Counts how a reading ended, and logs it with `why` where it is news.
    fn note(&mut self, pool: &PoolConfig, metrics: &Metrics, result: ScrapeResult, why: &str) {
        metrics.discovery(self.pool, result);
        let (is_news, is_first) = self.latest.change(result.as_str());
        let Some(discovery) = pool.discovery.as_ref().filter(|_| is_news) else {
            return;
        };
        let (name, admin) = (&pool.name, &discovery.admin_cluster);
        match (result, is_first) {
            (ScrapeResult::Ok, true) => {}
            (ScrapeResult::Ok, false) => {
                log::info!("inline-epp: pool={name} Envoy's host list is back");
            }
            _ => log::warn!(
                "inline-epp: pool={name} Envoy's host list cannot be read through cluster {admin}: \
                 {why}; the pool keeps the endpoints it has"
            ),
        }
    }
}

/// The clusters whose hosts make up `pool`.
fn sources(pool: &PoolConfig, discovery: &DiscoveryConfig) -> Vec<String> {
    if discovery.sources.is_empty() {
        vec![pool.cluster.clone()]
    } else {
        let sources = discovery.sources.iter();
        sources.map(|source| source.cluster.clone()).collect()
    }
}

fn call(pool: &PoolConfig) -> Result<u32, String> {
    let Some(discovery) = &pool.discovery else {
        return Err("it is not asked for".to_owned());
    };
    let sources = sources(pool, discovery);
    let names: Vec<&str> = sources.iter().map(String::as_str).collect();
    let path = clusters::path(&names);
    let get = Get {
        cluster: &discovery.admin_cluster,
        path: &path,
        authority: "localhost",
        accept: "application/json",
        override_host: None,
        timeout: pool.metrics.timeout,
    };
    get.start()
}

/// The hosts the ended call brought.
fn read(pool: &PoolConfig, body_size: usize) -> Result<Vec<Member>, (ScrapeResult, String)> {
    let text = calls::answer(body_size)?;
    let unreadable = |why: String| (ScrapeResult::Unreadable, why);
    let Some(discovery) = &pool.discovery else {
        return Err(unreadable("it is not asked for".to_owned()));
    };
    let sources = sources(pool, discovery);
    let names: Vec<&str> = sources.iter().map(String::as_str).collect();
    clusters::read(&text, &names).map_err(|error| {
        unreadable(match error {
            ClustersError::Unreadable => {
                "the answer is no host list; is it Envoy's admin interface?".to_owned()
            }
            ClustersError::NoSuchCluster(place) => {
                let name = names.get(place).copied().unwrap_or_default();
                format!("Envoy knows no cluster {name}")
            }
        })
    })
}

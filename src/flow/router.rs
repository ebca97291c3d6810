//! All pools of one configuration, and which of them a request belongs to.

use super::delivery::BodyDelivery;
use super::event::Headers;
use super::proxy::{Offer, ProxyVersion};
use crate::config::{Config, ConfigError, LogLevel};
use crate::prefix::BYTES_PER_ENTRY;
use crate::requestcontrol::{LedgerHandle, Pool};

/// What all streams of a VM share.
#[derive(Debug)]
pub struct Router {
    config: Config,
    pools: Vec<Pool>,
    pub(super) delivery: BodyDelivery,
}

impl Router {
    /// Pools as `config` lists them, with what `ledger` knows of them. The index budget is shared out
    /// evenly.
    ///
    /// # Errors
    /// What is wrong with the plugins a pool asks for, with its JSON path.
    pub fn new(mut config: Config, ledger: &LedgerHandle) -> Result<Self, ConfigError> {
        let share = config.limits.index_bytes / config.pools.len().max(1);
        let entries = share / BYTES_PER_ENTRY;
        let pools = core::mem::take(&mut config.pools);
        let pools = pools
            .into_iter()
            .map(|pool| Pool::new(pool, entries, ledger.clone()));
        let mut pools: Vec<Pool> = pools.collect::<Result<_, _>>()?;
        pools.iter_mut().for_each(Pool::begin);
        if config.log_level == LogLevel::Trace {
            pools.iter_mut().for_each(Pool::explain_picks);
        }
        config.pools = pools.iter().map(|pool| pool.config().clone()).collect();
        Ok(Self {
            config,
            pools,
            delivery: BodyDelivery::default(),
        })
    }

    /// What the operator asked for, with what plugins set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether held streams get their bodies, as far as is known.
    pub fn delivery(&self) -> BodyDelivery {
        self.delivery
    }

    /// Learns what runs it, before the first request: where that is known to withhold bodies, no
    /// stream is ever held.
    pub fn run_in(&mut self, version: Option<ProxyVersion>) -> Offer {
        self.delivery = version.map(ProxyVersion::delivery).unwrap_or_default();
        Offer::new(version, &self.config.override_host)
    }

    /// A held stream's body followed its resume at once. Returns whether that settles that this
    /// host withholds bodies: from here on no stream is held.
    pub fn body_was_withheld(&mut self) -> bool {
        self.delivery.was_withheld()
    }

    /// The pools, in the order of the configuration.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The pools, in the order of the configuration.
    pub fn pools_mut(&mut self) -> &mut [Pool] {
        &mut self.pools
    }

    /// The pool at place `pool`.
    pub fn pool_mut(&mut self, pool: usize) -> Option<&mut Pool> {
        self.pools.get_mut(pool)
    }

    /// The pools whose host and path rules `headers` fit, by their places.
    pub(super) fn fitting_route(&self, headers: Headers<'_>) -> Vec<usize> {
        let host = headers.value(":authority").unwrap_or_default();
        let path = headers.value(":path").unwrap_or_default();
        let pools = self.config.pools.iter().enumerate();
        pools
            .filter(|(_, pool)| pool.matcher.fits_route(host, path))
            .map(|(at, _)| at)
            .collect()
    }

    /// Whether one of `pools` calls endpoints on a request's behalf.
    pub(super) fn makes_calls(&self, pools: &[usize]) -> bool {
        pools.iter().any(|&pool| {
            let config = self.config.pools.get(pool);
            config.is_some_and(|pool| pool.disaggregation.mode.is_inline())
        })
    }

    /// The first of `pools` that takes requests for `model`.
    pub(super) fn fitting_model(&self, pools: &[usize], model: &str) -> Option<usize> {
        let takes = |pool: usize| {
            self.config
                .pools
                .get(pool)
                .is_some_and(|pool| pool.matcher.fits_model(model))
        };
        pools.iter().copied().find(|&pool| takes(pool))
    }
}

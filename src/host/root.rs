//! The root context: configuration, ticks, and what the streams of this VM share.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use xxhash_rust::xxh64::xxh64;

use super::abi::{self, Buffer};
use super::checker::{self, Checker};
use super::discovery::Discovery;
use super::ledger::{self, SharedBoard};
use super::logger;
use super::metrics::{Metrics, ScrapeResult};
use super::scraper::{self, Call, Found, Scraper};
use super::shared::{self, Leadership, SharedSnapshot};
use super::stream::HttpStream;
use super::watchdog::{self, Watchdog};
use crate::config::Config;
use crate::flow::{ProxyVersion, Router};
use crate::replication::VmId;
use crate::replication::lease::Suitability;
use crate::requestcontrol::{Ledger, LedgerHandle, Pool, Upkeep};

/// What the streams of one configuration share. Borrows never span a host call that could come
/// back to us.
pub(super) struct Shared {
    pub(super) router: RefCell<Router>,
    pub(super) metrics: RefCell<Metrics>,
    pub(super) entropy: Entropy,
    pub(super) watchdog: Watchdog,
}

impl Shared {
    /// A body followed its stream's resume: once that is settled to be the rule, says so.
    pub(super) fn body_was_withheld(&self) {
        let Ok(mut router) = self.router.try_borrow_mut() else {
            return;
        };
        if router.body_was_withheld() {
            log::warn!(
                "inline-epp: Envoy withholds the body while headers are held, so requests are \
                 routed by load only (headers_only); set allow_on_headers_stop_iteration: true in \
                 the filter's config (Envoy 1.35 or newer)"
            );
        }
    }
}

pub(super) struct Root {
    context_id: u32,
    /// Absent until configured.
    running: Option<Running>,
}

struct Running {
    shared: Rc<Shared>,
    scraper: Scraper,
    discovery: Discovery,
    checker: Checker,
    leadership: Leadership,
    /// One for each pool.
    snapshots: Vec<SharedSnapshot>,
    /// Pools whose snapshot changed since it was published.
    unpublished: Vec<bool>,
    ledger: LedgerHandle,
    /// As the ledger counted them when the snapshots were last read.
    publications: Option<u64>,
}

/// Ticks in the shortest scrape interval: scrapes start, and snapshots arrive, at most a tenth of
/// an interval late.
const TICKS_PER_INTERVAL: u32 = 10;
/// A lease outlives one missed scrape.
const INTERVALS_PER_LEASE: u32 = 2;

impl Root {
    pub(super) fn new(context_id: u32) -> Self {
        Self {
            context_id,
            running: None,
        }
    }

    fn configure(&mut self, size: usize) -> Result<(), String> {
        let json = abi::buffer(Buffer::PluginConfiguration, size)
            .map_err(|error| format!("cannot be read: {error:?}"))?;
        let config = Config::parse(&json).map_err(|error| error.to_string())?;
        let entropy = Entropy::new();
        let vm = VmId(u32::try_from(entropy.number).unwrap_or(u32::MAX));
        let ledger = ledger::of_this_vm(config.limits.log_slots, vm);
        let mut router = Router::new(config, &ledger).map_err(|error| error.to_string())?;
        let offer = router.run_in(proxy_version());
        let config = router.config();
        logger::set_level(config.log_level);
        log::info!(
            "inline-epp {} {}",
            env!("CARGO_PKG_VERSION"),
            config.summary()
        );
        let level = if offer.lacks {
            log::Level::Warn
        } else {
            log::Level::Info
        };
        log::log!(level, "inline-epp: {}", offer.line);
        for pool in router.pools() {
            let name = &pool.config().name;
            for profile in pool.profiles() {
                log::info!("inline-epp: pool={name} {profile}");
            }
        }
        for warning in config.warnings() {
            log::warn!("inline-epp: {warning}");
        }
        let running = Running::new(router, entropy, ledger, xxh64(&json, 0));
        abi::set_tick_period(running.tick_period())
            .map_err(|error| format!("the host does not tick: {error:?}"))?;
        running.leadership.is_newest();
        self.running = Some(running);
        Ok(())
    }
}

impl Running {
    fn new(router: Router, entropy: Entropy, ledger: LedgerHandle, fingerprint: u64) -> Self {
        let config = router.config();
        let interval = shortest_interval(config);
        let lease = interval.saturating_mul(INTERVALS_PER_LEASE);
        let scraper = Scraper::new(config);
        let discovery = Discovery::new(config, fingerprint);
        let checker = Checker::new(config);
        let pools = config.pools.iter();
        let snapshots: Vec<SharedSnapshot> =
            pools.map(|pool| SharedSnapshot::new(&pool.name)).collect();
        let names = config.pools.iter().map(|pool| pool.name.as_str());
        let leadership = Leadership::new(fingerprint, names, entropy.vm, lease);
        let mut metrics = Metrics::new(&router);
        metrics.follow_members(&router);
        Self {
            scraper,
            discovery,
            checker,
            leadership,
            ledger,
            publications: None,
            unpublished: vec![false; snapshots.len()],
            snapshots,
            shared: Rc::new(Shared {
                metrics: RefCell::new(metrics),
                router: RefCell::new(router),
                entropy,
                watchdog: Watchdog::default(),
            }),
        }
    }

    fn tick_period(&self) -> Duration {
        let router = self.shared.router.try_borrow();
        let interval = router.map_or(Duration::from_secs(1), |all| {
            shortest_interval(all.config())
        });
        interval / TICKS_PER_INTERVAL
    }

    fn tick(&mut self) {
        let now = abi::now();
        let leads = self.leadership.holds(now, self.suits());
        let upkeep = Upkeep { now, leads };
        self.ledger
            .with(|ledger| ledger.upkeep(upkeep, &mut SharedBoard));
        let (Ok(mut router), Ok(mut metrics)) = (
            self.shared.router.try_borrow_mut(),
            self.shared.metrics.try_borrow_mut(),
        ) else {
            return;
        };
        for pool in router.pools_mut() {
            pool.expire_abandoned(now);
            pool.take_outcomes(now);
            for (address, condition) in pool.take_changes() {
                if leads {
                    checker::log_change(pool, address, condition);
                }
            }
        }
        // A leader reads as well: what its predecessor knew, until its own scrapes are back.
        let publications = self.ledger.with(|ledger| ledger.publications());
        if core::mem::replace(&mut self.publications, publications) != publications {
            for (pool, shared) in self.snapshots.iter_mut().enumerate() {
                if let (Some(snapshot), Some(pool)) = (shared.read_new(), router.pool_mut(pool)) {
                    pool.apply(&snapshot, now);
                    // Who published it has told what is new in it.
                    pool.take_changes();
                }
            }
        }
        metrics.follow_members(&router);
        if leads {
            let pools = self
                .snapshots
                .iter_mut()
                .zip(&mut self.unpublished)
                .zip(router.pools());
            for ((shared, unpublished), pool) in pools {
                pool.forget_strangers();
                if core::mem::take(unpublished) {
                    shared.publish(&pool.snapshot());
                    pool.published();
                }
            }
            self.discovery.start_due(&router, &metrics, now);
            for (refused, why) in self.scraper.start_due(&router, now) {
                let result = ScrapeResult::Error;
                self.scraper.note(&router, &metrics, refused, result, &why);
                self.checker.note_scrape(refused, None);
            }
            self.checker.start_due(&router, now);
            metrics.report_pools(&router, now);
        }
        self.count_trouble(&metrics);
    }

    /// How well this VM suits to scrape for all, as of now.
    fn suits(&self) -> Suitability {
        let Ok(router) = self.shared.router.try_borrow() else {
            return Suitability::Behind;
        };
        let pools = router.pools().iter().map(Pool::key);
        let suits = self.ledger.with(|ledger| {
            ledger.catch_up();
            ledger.suits(pools)
        });
        suits.unwrap_or(Suitability::Behind)
    }

    /// Counts what was wrong with shared data since the last call.
    fn count_trouble(&self, metrics: &Metrics) {
        let snapshots = self.snapshots.iter().map(SharedSnapshot::take_foreign);
        let foreign = snapshots.fold(self.leadership.take_foreign(), u32::saturating_add);
        if foreign > 0 {
            metrics.foreign_data(foreign);
        }
        let trouble = |ledger: &mut Ledger| (ledger.take_lost(), ledger.take_untold());
        if let Some((missed, untold)) = self.ledger.with(trouble) {
            metrics.log_trouble(missed, untold);
        }
    }

    fn call_ended(&mut self, token: u32, body_size: usize) {
        if self.checker.has_asked(token) {
            self.checked(token, body_size);
            return;
        }
        match self.scraper.ended(token) {
            Some(call) => self.scraped(call, body_size),
            None => self.discovered(token, body_size),
        }
    }

    fn checked(&mut self, token: u32, body_size: usize) {
        let Ok(mut router) = self.shared.router.try_borrow_mut() else {
            return;
        };
        let pool = self.checker.take_answer(token, body_size, &mut router);
        if let Some(unpublished) = pool.and_then(|pool| self.unpublished.get_mut(pool)) {
            *unpublished = true;
        }
    }

    fn discovered(&mut self, token: u32, body_size: usize) {
        let (Ok(mut router), Ok(mut metrics)) = (
            self.shared.router.try_borrow_mut(),
            self.shared.metrics.try_borrow_mut(),
        ) else {
            return;
        };
        let pool = self
            .discovery
            .ended(token, body_size, &mut router, &metrics);
        if let Some(unpublished) = pool.and_then(|pool| self.unpublished.get_mut(pool)) {
            *unpublished = true;
            metrics.follow_members(&router);
        }
    }

    fn scraped(&mut self, call: Call, body_size: usize) {
        let (Ok(mut router), Ok(mut metrics)) = (
            self.shared.router.try_borrow_mut(),
            self.shared.metrics.try_borrow_mut(),
        ) else {
            return;
        };
        let (result, found, why) = scraper::read_answer(&router, call, body_size);
        self.scraper.note(&router, &metrics, call, result, &why);
        self.checker.note_scrape(call, found.as_ref());
        let Some(state) = router.pool_mut(call.pool) else {
            return;
        };
        let Some(endpoint) = state.find(call.address) else {
            return;
        };
        match found {
            Some(Found::Metrics(found)) => {
                if let Some(tokens) = found.external_tokens.filter(|_| state.splits()) {
                    metrics.transferred(call.pool, endpoint, tokens);
                }
                state.take_scrape(endpoint, call.started, &found);
                if let Some(unpublished) = self.unpublished.get_mut(call.pool) {
                    *unpublished = true;
                }
            }
            Some(Found::Gpu(found)) => {
                state.update_gpu(endpoint, call.started, found);
            }
            None => {}
        }
    }
}

/// What the proxy says it is; `None` where it does not.
fn proxy_version() -> Option<ProxyVersion> {
    let number = |name| {
        let path = format!("xds\0node\0user_agent_build_version\0version\0{name}");
        let bytes = abi::property(&path).ok()?;
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    };
    Some(ProxyVersion {
        major: number("major_number")?,
        minor: number("minor_number")?,
        patch: number("patch").unwrap_or(0),
    })
}

fn shortest_interval(config: &Config) -> Duration {
    let scrapes = config.pools.iter().map(|pool| pool.metrics.interval);
    let pools = config.pools.iter();
    let readings = pools.filter_map(|pool| Some(pool.discovery.as_ref()?.interval));
    scrapes
        .chain(readings)
        .min()
        .unwrap_or(Duration::from_secs(1))
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, _: usize, body_size: usize, _: usize) {
        if let Some(running) = &mut self.running {
            running.call_ended(token, body_size);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        match self.configure(size) {
            Ok(()) => true,
            Err(error) => {
                log::error!("inline-epp: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(running) = &mut self.running {
            running.tick();
            let patience = running.tick_period();
            watchdog::resume_overdue(&running.shared, self.context_id, abi::now(), patience);
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        // The SDK panics when there is no context for a stream.
        Some(match &self.running {
            Some(running) => Box::new(HttpStream::new(context_id, &running.shared)),
            None => Box::new(Unconfigured),
        })
    }
}

/// A stream that comes before a valid configuration: it passes untouched.
struct Unconfigured;

impl Context for Unconfigured {}

impl HttpContext for Unconfigured {}

/// Numbers that differ from stream to stream and from VM to VM. They are not secret.
pub(super) struct Entropy {
    /// How many VMs of this process were given a number before.
    number: u64,
    /// This VM's number among those of all processes.
    vm: u64,
    streams: Cell<u64>,
}

impl Entropy {
    /// The clock alone does not tell VMs apart that start at the same moment; the number does, and
    /// the clock tells this process from others.
    fn new() -> Self {
        let number = shared::unique_number().unwrap_or(u64::MAX);
        let seed = u128::from(abi::now().as_nanos()) << 64 | u128::from(number);
        Self {
            number,
            vm: xxh64(&seed.to_le_bytes(), 0),
            streams: Cell::new(0),
        }
    }

    pub(super) fn next(&self) -> u128 {
        let stream = self.streams.get();
        self.streams.set(stream.wrapping_add(1));
        let seed = (u128::from(self.vm) << 64 | u128::from(stream)).to_le_bytes();
        u128::from(xxh64(&seed, 0)) << 64 | u128::from(xxh64(&seed, 1))
    }
}

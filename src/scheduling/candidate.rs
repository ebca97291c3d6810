//! What the plugins know of an endpoint, for one request.

use crate::datalayer::{AdapterState, Adapters, EndpointId, Labels, Signals};

/// An endpoint with the attributes producers attached to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which endpoint this is.
    pub endpoint: EndpointId,
    /// Identifies it to every proxy alike, unlike its place in this pool.
    pub address_hash: u64,
    /// Leading blocks of the prompt it holds.
    pub matched_blocks: u32,
    /// Blocks of the prompt, 0 when none was read.
    pub total_blocks: u32,
    /// The load guard is closed: its cached blocks count for nothing.
    pub guarded: bool,
    /// Requests waiting there, as scraped.
    pub waiting: u32,
    /// Requests running there, as scraped.
    pub running: u32,
    /// Requests this proxy sent that the scraped numbers do not show.
    pub own: u32,
    /// Requests it runs at once, over all its engines; at least 1.
    pub max_running: u32,
    /// KV-cache utilisation in [0, 1].
    pub kv_utilisation: Option<f64>,
    /// GPU utilisation in [0, 1].
    pub gpu_utilisation: Option<f64>,
    /// Health in [0, 1]: fitness, and how fresh its metrics are.
    pub health: f64,
    /// How well its latest answers turned out, in [0, 1]. Unlike health it does not fall because
    /// metrics are old: that alone takes nobody out of the running.
    pub fitness: f64,
    /// How fresh its metrics are, in [0, 1]: 1 while they are new, and as stale as can be while there
    /// are none.
    pub freshness: f64,
    /// Endpoints of a higher tier stand by until no lower one has a fit endpoint.
    pub tier: u8,
    /// Whether its turn has come.
    pub standing: Standing,
    /// The adapter the request wants is loaded, or it wants none.
    pub adapter_ready: bool,
    /// Nothing is known against its serving the model the request wants.
    pub serves_model: bool,
    /// What the request's model would find there, were it an adapter.
    pub adapter: AdapterFit,
    /// Its labels.
    pub labels: Labels,
    /// Series that plugins asked for.
    pub signals: Signals,
}

/// What a request for an adapter finds at an endpoint, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterFit {
    /// It is loaded.
    Loaded,
    /// There is room for it.
    Room,
    /// It waits to be loaded, and others are in its way.
    Waiting,
    /// Others are in its way.
    Full,
}

impl AdapterFit {
    /// What a request for `model` finds where `adapters` are listed; `None`: nothing is said of
    /// adapters.
    pub fn of(adapters: Option<&Adapters>, model: &str) -> Self {
        let state = adapters.and_then(|adapters| adapters.state(model));
        match state {
            Some(AdapterState::Running) => Self::Loaded,
            _ if adapters.is_some_and(Adapters::has_room) => Self::Room,
            Some(AdapterState::Waiting) => Self::Waiting,
            None => Self::Full,
        }
    }
}

/// Whether an endpoint's turn has come, whatever it scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may get requests.
    Active,
    /// Not while a lower tier has a fit endpoint.
    Standby,
    /// Something forbids it, such as a failed health check.
    Excluded,
}

impl Candidate {
    /// The endpoint `endpoint`, idle, well, and holding nothing of a prompt of no blocks.
    pub fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            address_hash: 0,
            matched_blocks: 0,
            total_blocks: 0,
            guarded: false,
            waiting: 0,
            running: 0,
            own: 0,
            max_running: 1,
            kv_utilisation: None,
            gpu_utilisation: None,
            health: 1.0,
            fitness: 1.0,
            freshness: 1.0,
            tier: 0,
            standing: Standing::Active,
            adapter_ready: true,
            serves_model: true,
            adapter: AdapterFit::Full,
            labels: Labels::default(),
            signals: Signals::default(),
        }
    }

    /// Whether it may be used and does at least as well as `min_health`, in [0, 1].
    pub fn is_fit(&self, min_health: f64) -> bool {
        self.standing != Standing::Excluded && self.fitness >= min_health
    }

    /// Whether it is fit, as [`Self::is_fit`] has it, and may have the model.
    pub fn can_serve(&self, min_health: f64) -> bool {
        self.serves_model && self.is_fit(min_health)
    }

    /// Queue depth for scoring: what waits, and what was sent since the numbers were read.
    pub fn queue(&self) -> u32 {
        self.waiting.saturating_add(self.own)
    }

    /// Requests that run, those sent since the numbers were read among them.
    pub fn busy(&self) -> u32 {
        self.running.saturating_add(self.own)
    }

    /// Requests that really wait: own ones take free slots first.
    pub fn truly_waiting(&self) -> u32 {
        let free_slots = self.max_running.saturating_sub(self.running);
        self.waiting
            .saturating_add(self.own.saturating_sub(free_slots))
    }

    /// How busy it is, in [0, 1]: the GPU's own word, else the fuller of cache and batch.
    pub fn load(&self) -> f64 {
        let batch = f64::from(self.busy()) / f64::from(self.max_running.max(1));
        let fuller = batch.max(self.kv_utilisation.unwrap_or(0.0));
        let load = self.gpu_utilisation.unwrap_or(fuller);
        load.clamp(0.0, 1.0)
    }
}

//! What the plugins know of an endpoint, for one request.

use crate::datalayer::EndpointId;

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
    /// Endpoints of a higher tier stand by until no lower one has a fit endpoint.
    pub tier: u8,
    /// Whether its turn has come.
    pub standing: Standing,
    /// The adapter the request wants is loaded, or it wants none.
    pub adapter_ready: bool,
    /// Nothing is known against its serving the model the request wants.
    pub serves_model: bool,
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

    /// Requests that really wait: own ones take free slots first.
    pub fn truly_waiting(&self) -> u32 {
        let free_slots = self.max_running.saturating_sub(self.running);
        self.waiting
            .saturating_add(self.own.saturating_sub(free_slots))
    }

    /// How busy it is, in [0, 1]: the GPU's own word, else the fuller of cache and batch.
    pub fn load(&self) -> f64 {
        let running = self.running.saturating_add(self.own);
        let batch = f64::from(running) / f64::from(self.max_running.max(1));
        let fuller = batch.max(self.kv_utilisation.unwrap_or(0.0));
        let load = self.gpu_utilisation.unwrap_or(fuller);
        load.clamp(0.0, 1.0)
    }
}

//! stub
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingCredit {
    /// a
    UnlessConfirmed,
    /// b
    Full,
    /// c
    None,
}
/// x
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ScoringConfig {
    pub weights: Weights,
    pub max_queue: u32,
    pub max_running: u32,
    pub min_health: f64,
    pub tie_band: f64,
    pub guard_floor: u32,
    pub guard_ratio: f64,
}
/// x
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Weights {
    pub cache: f64,
    pub load: f64,
    pub queue: f64,
    pub health: f64,
    pub adapter: f64,
}

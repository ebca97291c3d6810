//! Adapters that are loaded.

use super::Scorer;
use crate::scheduling::Candidate;

/// 1 when the adapter is loaded or none is needed, else 0.
#[derive(Debug)]
pub struct Adapter;

impl Scorer for Adapter {
    fn name(&self) -> &'static str {
        "lora-affinity-scorer"
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        if candidate.adapter_ready { 1.0 } else { 0.0 }
    }
}

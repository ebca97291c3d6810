//! The default profile: cache, load, queue, health, adapter.

use super::filter::{Active, Filter, Healthy, QueueLimit, ServesModel};
use super::picker::MaxScore;
use super::profile::{Profile, Weighted};
use super::scorer::{Adapter, Health, Load, PrefixCache, Queue, Scorer};
use crate::config::ScoringConfig;

/// The five-factor profile with the weights and limits of `config`.
pub fn five_factor(config: &ScoringConfig) -> Profile {
    let weights = &config.weights;
    let filters: Vec<Box<dyn Filter>> = vec![
        Box::new(ServesModel),
        Box::new(Healthy {
            min_health: config.min_health,
        }),
        Box::new(Active),
        Box::new(QueueLimit {
            max_queue: config.max_queue,
        }),
    ];
    let scorers: [(Box<dyn Scorer>, f64); 5] = [
        (Box::new(PrefixCache), weights.cache),
        (Box::new(Load), weights.load),
        (
            Box::new(Queue {
                max_queue: config.max_queue,
            }),
            weights.queue,
        ),
        (Box::new(Health), weights.health),
        (Box::new(Adapter), weights.adapter),
    ];
    let scorers = scorers
        .into_iter()
        .map(|(scorer, weight)| Weighted { scorer, weight });
    let picker = Box::new(MaxScore {
        tie_band: config.tie_band,
    });
    Profile::new(filters, scorers.collect(), picker)
}

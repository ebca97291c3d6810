//! The default profile: cache, load, queue, health, adapter.

use std::rc::Rc;

use super::filter::Filter;
use super::filter::active::Active;
use super::filter::healthy::Healthy;
use super::filter::queue_limit::QueueLimit;
use super::filter::serves_model::ServesModel;
use super::picker::Most;
use super::picker::max_score::MaxScore;
use super::profile::{Profile, Weighted};
use super::scorer::{
    Scorer, adapter, adapter::Adapter, health, health::Health, load, load::Load, prefix_cache,
    prefix_cache::PrefixCache, queue_depth, queue_depth::QueueDepth,
};
use crate::config::ScoringConfig;

/// The five-factor profile with the weights and limits of `config`.
pub fn five_factor(config: &ScoringConfig) -> Profile {
    let weights = &config.weights;
    let max_queue = config.max_queue;
    let mut filters = standing_filters(config);
    filters.push(Rc::new(QueueLimit { max_queue }));
    let weighted = |name: &str, scorer: Rc<dyn Scorer>, weight| Weighted {
        name: name.to_owned(),
        scorer,
        weight,
    };
    let scorers = vec![
        weighted(
            prefix_cache::TYPE.name,
            Rc::new(PrefixCache::SHARE),
            weights.cache,
        ),
        weighted(load::TYPE.name, Rc::new(Load), weights.load),
        weighted(
            queue_depth::TYPE.name,
            Rc::new(QueueDepth { max_queue }),
            weights.queue,
        ),
        weighted(health::TYPE.name, Rc::new(Health), weights.health),
        weighted(adapter::TYPE.name, Rc::new(Adapter), weights.adapter),
    ];
    let picker = Rc::new(MaxScore {
        tie_band: config.tie_band,
        most: Most::default(),
    });
    Profile::new("default", filters, scorers, picker)
}

/// The filters that every profile begins with: Envoy's override host ignores health, so nothing
/// that must not be used may be named.
pub(super) fn standing_filters(config: &ScoringConfig) -> Vec<Rc<dyn Filter>> {
    let min_health = config.min_health;
    vec![
        Rc::new(ServesModel),
        Rc::new(Healthy { min_health }),
        Rc::new(Active),
    ]
}

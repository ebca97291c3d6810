//! Any endpoint.

use super::{Most, PARAMETERS, Picker, highest};
use crate::config::{ConfigError, Fields};
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Ranked, Request, Scored};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "any, all as likely; scores are not looked at",
    ..PluginType::new("random-picker", Role::Picker, Build::Reads(build))
};

/// Takes any.
#[derive(Debug)]
struct Random {
    most: Most,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let most = Most::read(fields)?;
    Ok(Plugin::picker(Random { most }))
}

impl Picker for Random {
    fn pick(&self, request: &Request, scored: &[Scored]) -> Vec<Ranked> {
        shuffled(request, scored, self.most.of(request))
    }
}

/// `count` of `scored` in any order.
pub(super) fn shuffled(request: &Request, scored: &[Scored], count: usize) -> Vec<Ranked> {
    let mut numbers = Numbers::new(request.random);
    highest(scored, |_| numbers.next(), Ord::cmp, count)
}

/// Random numbers from a seed: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(super) struct Numbers {
    state: u64,
}

impl Numbers {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

//! Drops endpoints of another role.

use super::Filter;
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Candidate, Request};

/// The label that says what an endpoint does of a request.
const LABEL: &str = "llm-d.ai/role";

pub(in crate::scheduling) const DECODE: PluginType = PluginType {
    effect: "keeps endpoints whose label `llm-d.ai/role` is `decode`, `prefill-decode`, `both` or \
             `encode-prefill-decode`",
    missing: "no label: kept",
    ..PluginType::filter("decode-filter", Build::Plain(decode))
};

pub(in crate::scheduling) const PREFILL: PluginType = PluginType {
    effect: "keeps endpoints whose label `llm-d.ai/role` is `prefill`, `encode-prefill`, \
             `prefill-decode`, `both` or `encode-prefill-decode`",
    missing: "no label: dropped",
    ..PluginType::filter("prefill-filter", Build::Plain(prefill))
};

/// Keeps endpoints that play one of some roles.
#[derive(Debug)]
struct Role {
    roles: &'static [&'static str],
    keeps_unlabelled: bool,
}

fn decode() -> Plugin {
    Plugin::filter(Role {
        roles: &["decode", "prefill-decode", "both", "encode-prefill-decode"],
        keeps_unlabelled: true,
    })
}

fn prefill() -> Plugin {
    Plugin::filter(Role {
        roles: &[
            "prefill",
            "encode-prefill",
            "prefill-decode",
            "both",
            "encode-prefill-decode",
        ],
        keeps_unlabelled: false,
    })
}

impl Filter for Role {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| match candidate.labels.get(LABEL) {
            Some(role) => self.roles.contains(&role),
            None => self.keeps_unlabelled,
        });
    }
}

//! Always a second endpoint.

use std::rc::Rc;

use super::Decider;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::{Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "always",
    ..PluginType::new(
        "always-disagg-pd-decider",
        Role::Decider,
        Build::Plain(|| Plugin::Decider(Rc::new(Always))),
    )
};

#[derive(Debug)]
struct Always;

impl Decider for Always {
    fn wants_prefill(&self, _: &Request, _: Option<&Candidate>) -> bool {
        true
    }
}

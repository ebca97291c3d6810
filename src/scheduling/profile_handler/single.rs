//! One profile for every request.

use std::rc::Rc;

use super::{ProfileHandler, SoFar};
use crate::scheduling::Request;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "runs the only profile",
    ..PluginType::new(
        "single-profile-handler",
        Role::ProfileHandler,
        Build::Plain(|| Plugin::ProfileHandler(Rc::new(Single))),
    )
};

/// Runs the only profile.
#[derive(Debug)]
pub(crate) struct Single;

impl ProfileHandler for Single {
    fn check(&self, profiles: &[&str]) -> Result<(), String> {
        if profiles.len() > 1 {
            return Err("SingleProfileHandler cannot support multiple scheduling profiles".into());
        }
        Ok(())
    }

    fn next(&self, _: &Request, so_far: &SoFar<'_>) -> Option<usize> {
        (!so_far.has_run(0)).then_some(0)
    }

    fn primary(&self, _: &SoFar<'_>) -> Option<usize> {
        Some(0)
    }

    fn prefill(&self, _: &SoFar<'_>) -> Option<usize> {
        None
    }
}

//! Drops endpoints that only stand by.

use super::Filter;
use crate::scheduling::{Candidate, Request, Standing};

/// Keeps endpoints of the lowest tier that has a fit one. Every profile begins with it.
#[derive(Debug)]
pub(crate) struct Active;

impl Filter for Active {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| candidate.standing != Standing::Standby);
    }
}

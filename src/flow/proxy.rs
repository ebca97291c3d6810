//! The proxy this runs in, by what it tells of itself before the first request.

use core::fmt;

use super::delivery::BodyDelivery;
use crate::config::{OverrideHost, OverrideMode};

/// An Envoy's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyVersion {
    /// 1, so far.
    pub major: u64,
    /// A new one each quarter.
    pub minor: u64,
    /// Of the fixes to it.
    pub patch: u64,
}

/// The first that can hold a request's headers while its body comes, and that has the
/// `override_host` policy.
const FULL: ProxyVersion = ProxyVersion {
    major: 1,
    minor: 35,
    patch: 0,
};

impl ProxyVersion {
    /// How held streams fare there. An older one would hold the body as well, for ever.
    pub(super) fn delivery(self) -> BodyDelivery {
        if self < FULL {
            BodyDelivery::OnlyAfterResume
        } else {
            BodyDelivery::default()
        }
    }
}

impl fmt::Display for ProxyVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What the proxy offers and what that makes of requests: one line for the start-up log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The line.
    pub line: String,
    /// Something that was asked for cannot be had.
    pub lacks: bool,
}

impl Offer {
    /// Of a proxy of this `version`, which one before Envoy 1.29 or so does not tell.
    pub(super) fn new(version: Option<ProxyVersion>, picks: &OverrideHost) -> Self {
        let is_old = version.is_some_and(|version| version < FULL);
        let name = version.map_or_else(
            || "of unknown version".to_owned(),
            |version| format!("Envoy {version}"),
        );
        let bodies = if is_old {
            format!(
                "cannot hold headers without the body (that takes {FULL}), so requests are \
                 routed by load only (headers_only)"
            )
        } else {
            "requests are held and routed by their prompts, if it hands over bodies of held \
             requests as it should"
                .to_owned()
        };
        let reader = match picks.mode {
            OverrideMode::Header if is_old => {
                "which has no override_host policy to read them: use overrideHost.mode \
                 statefulSession"
            }
            OverrideMode::Header => "for the cluster's override_host policy",
            OverrideMode::StatefulSession => "for a stateful_session filter behind this one",
        };
        let header = &picks.header;
        Self {
            line: format!("proxy {name}: {bodies}; picks go into {header}, {reader}"),
            lacks: is_old,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u64, minor: u64, patch: u64) -> ProxyVersion {
        ProxyVersion {
            major,
            minor,
            patch,
        }
    }

    fn offer(version: Option<ProxyVersion>, mode: OverrideMode) -> Offer {
        let picks = OverrideHost {
            mode,
            header: "x-pick".to_owned(),
            fallbacks: 2,
        };
        Offer::new(version, &picks)
    }

    #[test]
    fn an_envoy_before_1_35_is_never_made_to_hold() {
        for old in [version(1, 34, 9), version(0, 99, 0)] {
            assert_eq!(old.delivery(), BodyDelivery::OnlyAfterResume);
        }
        for new in [version(1, 35, 0), version(1, 40, 2), version(2, 0, 0)] {
            assert_eq!(new.delivery(), BodyDelivery::default());
        }
    }

    #[test]
    fn one_line_says_what_there_is_and_what_becomes_of_it() {
        let held = "requests are held and routed by their prompts, if it hands over bodies of held \
                    requests as it should";
        assert_eq!(
            offer(Some(version(1, 40, 0)), OverrideMode::Header),
            Offer {
                line: format!(
                    "proxy Envoy 1.40.0: {held}; picks go into x-pick, for the cluster's \
                     override_host policy"
                ),
                lacks: false,
            }
        );
        assert_eq!(
            offer(None, OverrideMode::StatefulSession),
            Offer {
                line: format!(
                    "proxy of unknown version: {held}; picks go into x-pick, for a \
                     stateful_session filter behind this one"
                ),
                lacks: false,
            }
        );
        let old = offer(Some(version(1, 34, 2)), OverrideMode::Header);
        assert!(old.lacks);
        assert!(old.line.contains("routed by load only (headers_only)"));
        assert!(old.line.ends_with("use overrideHost.mode statefulSession"));
    }
}

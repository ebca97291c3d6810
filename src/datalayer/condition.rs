//! Why an endpoint must get no requests, whatever it would score.

/// One cause that takes an endpoint out of the running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unusable {
    /// Envoy's active health check of it failed, or has not run yet.
    FailedHealthCheck = 1,
    /// Envoy's outlier detection ejected it.
    Ejected = 1 << 1,
    /// It is going away and finishes what it has.
    Draining = 1 << 2,
    /// It refuses connections, or its own health check says 503: still loading, or shutting down.
    NotReady = 1 << 3,
    /// It runs requests but has made no token for a long time.
    Stalled = 1 << 4,
}

impl Unusable {
    /// Every cause.
    pub const ALL: [Self; 5] = [
        Self::FailedHealthCheck,
        Self::Ejected,
        Self::Draining,
        Self::NotReady,
        Self::Stalled,
    ];

    /// For people: completes "is not used: it …".
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailedHealthCheck => "fails Envoy's health check",
            Self::Ejected => "was ejected by Envoy's outlier detection",
            Self::Draining => "is draining",
            Self::NotReady => "is not ready",
            Self::Stalled => "makes no tokens although requests run",
        }
    }

    const fn bit(self) -> u8 {
        self as u8
    }
}

/// All causes that hold for an endpoint; none for one that may get requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition(u8);

impl Condition {
    /// Nothing speaks against it.
    pub const USABLE: Self = Self(0);

    /// What only Envoy's host list tells.
    const ENVOYS: u8 =
        Unusable::FailedHealthCheck.bit() | Unusable::Ejected.bit() | Unusable::Draining.bit();
    const KNOWN: u8 = Self::ENVOYS | Unusable::NotReady.bit() | Unusable::Stalled.bit();

    /// This condition, with `cause` or without it.
    #[must_use]
    pub const fn with(self, cause: Unusable, holds: bool) -> Self {
        if holds {
            Self(self.0 | cause.bit())
        } else {
            Self(self.0 & !cause.bit())
        }
    }

    /// This condition, with `host`'s word on what Envoy's host list tells.
    #[must_use]
    pub const fn with_hosts_word(self, host: Self) -> Self {
        Self(self.0 & !Self::ENVOYS | host.0 & Self::ENVOYS)
    }

    /// What holds in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it may get requests.
    pub const fn is_usable(self) -> bool {
        self.0 == 0
    }

    /// What holds.
    pub fn causes(self) -> impl Iterator<Item = Unusable> {
        let holds = move |cause: &Unusable| self.0 & cause.bit() != 0;
        Unusable::ALL.into_iter().filter(holds)
    }

    /// One bit for each cause.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The condition of `bits`; `None` where a bit means nothing.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::KNOWN == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_and_go_one_by_one() {
        let mut condition = Condition::USABLE;
        for cause in Unusable::ALL {
            condition = condition.with(cause, true);
            assert_eq!(Condition::from_bits(condition.bits()), Some(condition));
        }
        assert!(condition.causes().eq(Unusable::ALL));
        for cause in Unusable::ALL {
            assert!(!condition.is_usable());
            condition = condition.with(cause, false);
        }
        assert!(condition.is_usable());
        assert_eq!(Condition::from_bits(1 << 5), None);
    }

    #[test]
    fn the_host_list_leaves_alone_what_it_does_not_tell() {
        let ours = Condition::USABLE.with(Unusable::NotReady, true);
        let ejected = Condition::USABLE.with(Unusable::Ejected, true);
        let both = ours.with_hosts_word(ejected);
        assert!(both.causes().eq([Unusable::Ejected, Unusable::NotReady]));
        assert_eq!(both.with_hosts_word(Condition::USABLE), ours);
    }
}

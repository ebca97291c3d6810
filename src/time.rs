//! Points in time, as numbers that come from outside.

use core::time::Duration;

/// A point on the process's monotonic clock, in nanoseconds. All VMs of one Envoy read the same
/// clock, so a timestamp means the same in each of them; it means nothing in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The timestamp `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`, zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved by `by`, saturating at the end of the clock (584 years).
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_never_goes_below_zero() {
        let early = Timestamp::from_nanos(10);
        let late = early.after(Duration::from_nanos(5));
        assert_eq!(late.since(early), Duration::from_nanos(5));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}

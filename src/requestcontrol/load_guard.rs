//! Keeps one warm endpoint from drawing everything to itself.

/// Closes for an endpoint whose open requests reach `max(floor, ratio × mean)`, the mean being the
/// fit endpoints' after this pick: its cached blocks then count for nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadGuard {
    threshold: f64,
}

impl LoadGuard {
    /// The guard for one decision over `candidates` endpoints with `open` requests in all.
    pub fn new(floor: u32, ratio: f64, open: u32, candidates: u32) -> Self {
        let mean = (f64::from(open) + 1.0) / f64::from(candidates.max(1));
        Self {
            threshold: f64::from(floor).max(ratio * mean),
        }
    }

    /// Whether an endpoint with `open` requests is behind the guard.
    pub fn holds(&self, open: u32) -> bool {
        f64::from(open) >= self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_closes_at_the_floor_or_at_the_ratio_of_the_mean() {
        let rows = [
            // floor, ratio, open in all, candidates, closes at
            (20, 1.5, 0, 4, 20),
            (20, 1.5, 52, 4, 20),
            (20, 1.5, 79, 4, 30),
            (20, 1.5, 200, 4, 76),
            (4, 1.5, 0, 4, 4),
            (4, 1.5, 11, 4, 5),
            (1, 1.0, 0, 1, 1),
            (20, 1.5, 10, 0, 20),
        ];
        for (floor, ratio, open, candidates, closes_at) in rows {
            let guard = LoadGuard::new(floor, ratio, open, candidates);
            assert!(
                !guard.holds(closes_at - 1),
                "{floor} {ratio} {open} {candidates}"
            );
            assert!(
                guard.holds(closes_at),
                "{floor} {ratio} {open} {candidates}"
            );
        }
    }
}

//! Who scrapes: one VM holds a lease that every VM can read and anyone may take once it lapses.

use core::time::Duration;

use super::wire::{Kind, open, seal, unseal};
use crate::time::Timestamp;

const KIND: Kind = Kind {
    magic: *b"EPPL",
    version: 1,
};

/// A claim to be the one scraper, as it stands in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The VM that holds it.
    pub holder: u64,
    /// When it lapses.
    pub until: Timestamp,
}

/// What a VM should do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another VM leads.
    Follow,
    /// This VM leads and needs to write nothing.
    Lead,
    /// Write this lease, on condition that nobody else did since it was read: on success this VM
    /// leads, otherwise it follows.
    Claim(Lease),
}

/// What `me` should do at `now`, given what shared data holds. A lease lasts `duration` and is
/// renewed once half of it is over. One that ends later than a new one would was not written by
/// this module's rules and counts as lapsed: nobody can lock all VMs out.
pub fn step(current: Option<Lease>, me: u64, now: Timestamp, duration: Duration) -> Step {
    let claim = Step::Claim(Lease {
        holder: me,
        until: now.after(duration),
    });
    let Some(lease) = current.filter(|lease| lease.until <= now.after(duration)) else {
        return claim;
    };
    let left = lease.until.since(now);
    match (lease.holder == me, left > duration / 2) {
        (true, true) => Step::Lead,
        (true, false) => claim,
        (false, _) if left.is_zero() => claim,
        (false, _) => Step::Follow,
    }
}

/// Encodes `lease` for shared data.
pub fn encode(lease: Lease) -> Vec<u8> {
    let mut out = open(KIND, 16);
    out.extend_from_slice(&lease.holder.to_le_bytes());
    out.extend_from_slice(&lease.until.as_nanos().to_le_bytes());
    seal(out)
}

/// Decodes what [`encode`] wrote, and nothing else.
pub fn decode(bytes: &[u8]) -> Option<Lease> {
    let mut reader = unseal(bytes, KIND)?;
    let lease = Lease {
        holder: reader.u64()?,
        until: Timestamp::from_nanos(reader.u64()?),
    };
    (reader.remaining() == 0).then_some(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn step_at(current: Option<Lease>, me: u64, millis: u64) -> Step {
        step(current, me, at(millis), DURATION)
    }

    #[test]
    fn the_first_one_claims_it() {
        let claim = Lease {
            holder: 1,
            until: at(2_100),
        };
        assert_eq!(step_at(None, 1, 100), Step::Claim(claim));
    }

    #[test]
    fn the_holder_leads_and_renews_at_half_time() {
        let lease = Some(Lease {
            holder: 1,
            until: at(2_000),
        });
        assert_eq!(step_at(lease, 1, 900), Step::Lead);
        let renewed = Lease {
            holder: 1,
            until: at(3_000),
        };
        assert_eq!(step_at(lease, 1, 1_000), Step::Claim(renewed));
    }

    #[test]
    fn others_follow_until_it_lapses() {
        let lease = Some(Lease {
            holder: 1,
            until: at(2_000),
        });
        assert_eq!(step_at(lease, 2, 1_999), Step::Follow);
        let taken = Lease {
            holder: 2,
            until: at(4_000),
        };
        assert_eq!(step_at(lease, 2, 2_000), Step::Claim(taken));
    }

    #[test]
    fn a_lease_from_the_far_future_locks_nobody_out() {
        let forged = Some(Lease {
            holder: 9,
            until: at(1_000_000),
        });
        assert!(matches!(step_at(forged, 1, 0), Step::Claim(_)));
    }

    #[test]
    fn a_lease_survives_its_encoding_and_nothing_else_does() {
        let lease = Lease {
            holder: 7,
            until: at(5),
        };
        let bytes = encode(lease);
        assert_eq!(decode(&bytes), Some(lease));
        assert_eq!(decode(&[]), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }
}

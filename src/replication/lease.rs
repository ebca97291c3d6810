//! Who scrapes: one VM holds a lease that every VM can read and anyone may take once it lapses. One
//! that serves requests takes it from one that does not (the main thread's never does): what it
//! reports for all then rests on requests it has seen.

use core::time::Duration;

use super::wire::{Kind, open, seal, unseal};
use crate::time::Timestamp;

const KIND: Kind = Kind {
    magic: *b"EPPL",
    version: 2,
};

/// A claim to be the one scraper, as it stands in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The VM that holds it.
    pub holder: u64,
    /// When it lapses.
    pub until: Timestamp,
    /// It has served a request.
    pub serves: bool,
}

/// The VM that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its number.
    pub vm: u64,
    /// It has served a request.
    pub serves: bool,
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
pub fn step(current: Option<Lease>, me: Claimant, now: Timestamp, duration: Duration) -> Step {
    let claim = Step::Claim(Lease {
        holder: me.vm,
        until: now.after(duration),
        serves: me.serves,
    });
    let Some(lease) = current.filter(|lease| lease.until <= now.after(duration)) else {
        return claim;
    };
    let left = lease.until.since(now);
    let idles = me.serves && !lease.serves;
    match (lease.holder == me.vm, left > duration / 2 && !idles) {
        (true, true) => Step::Lead,
        (true, false) => claim,
        (false, _) if left.is_zero() || idles => claim,
        (false, _) => Step::Follow,
    }
}

/// Encodes `lease` for shared data.
pub fn encode(lease: Lease) -> Vec<u8> {
    let mut out = open(KIND, 17);
    out.extend_from_slice(&lease.holder.to_le_bytes());
    out.extend_from_slice(&lease.until.as_nanos().to_le_bytes());
    out.push(u8::from(lease.serves));
    seal(out)
}

/// Decodes what [`encode`] wrote, and nothing else.
pub fn decode(bytes: &[u8]) -> Option<Lease> {
    let mut reader = unseal(bytes, KIND)?;
    let lease = Lease {
        holder: reader.u64()?,
        until: Timestamp::from_nanos(reader.u64()?),
        serves: reader.u8()? != 0,
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

    /// A lease of `holder` until `millis`.
    fn lease(holder: u64, millis: u64, serves: bool) -> Lease {
        Lease {
            holder,
            until: at(millis),
            serves,
        }
    }

    fn step_at(current: Option<Lease>, vm: u64, serves: bool, millis: u64) -> Step {
        step(current, Claimant { vm, serves }, at(millis), DURATION)
    }

    #[test]
    fn the_first_one_claims_it() {
        let claim = Step::Claim(lease(1, 2_100, false));
        assert_eq!(step_at(None, 1, false, 100), claim);
    }

    #[test]
    fn the_holder_leads_and_renews_at_half_time() {
        let current = Some(lease(1, 2_000, true));
        assert_eq!(step_at(current, 1, true, 900), Step::Lead);
        let renewed = Step::Claim(lease(1, 3_000, true));
        assert_eq!(step_at(current, 1, true, 1_000), renewed);
    }

    #[test]
    fn others_follow_until_it_lapses() {
        let current = Some(lease(1, 2_000, false));
        assert_eq!(step_at(current, 2, false, 1_999), Step::Follow);
        let taken = Step::Claim(lease(2, 4_000, false));
        assert_eq!(step_at(current, 2, false, 2_000), taken);
    }

    #[test]
    fn who_serves_takes_it_from_who_does_not_and_keeps_it() {
        let idle = Some(lease(1, 2_000, false));
        let taken = lease(2, 2_100, true);
        assert_eq!(step_at(idle, 2, true, 100), Step::Claim(taken));
        assert_eq!(step_at(Some(taken), 1, false, 200), Step::Follow);
        assert_eq!(step_at(Some(taken), 3, true, 200), Step::Follow);
        // The holder's own first request is news to the others.
        assert_eq!(
            step_at(idle, 1, true, 100),
            Step::Claim(lease(1, 2_100, true))
        );
    }

    #[test]
    fn a_lease_from_the_far_future_locks_nobody_out() {
        let forged = Some(lease(9, 1_000_000, true));
        assert!(matches!(step_at(forged, 1, false, 0), Step::Claim(_)));
    }

    #[test]
    fn a_lease_survives_its_encoding_and_nothing_else_does() {
        let lease = lease(7, 5, true);
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

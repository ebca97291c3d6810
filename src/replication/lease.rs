//! Who scrapes: one VM holds a lease that every VM can read and anyone may take once it lapses, or who
//! suits better before that. Best suits the main thread's, which no request waits for.

use core::time::Duration;

use super::wire::{Kind, open, seal, unseal};
use crate::time::Timestamp;

const KIND: Kind = Kind {
    magic: *b"EPPL",
    version: 3,
};

/// A claim to be the one scraper, as it stands in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The VM that holds it.
    pub holder: u64,
    /// When it lapses.
    pub until: Timestamp,
    /// How well that VM suits.
    pub suits: Suitability,
}

/// How well a VM suits to scrape for all, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitability {
    /// It may not know all that others know, and they learn from who scrapes.
    Behind = 0,
    /// It shares nothing with others, and has no requests of its own to report on.
    KnowsNothing = 1,
    /// Requests wait while it scrapes.
    Serves = 2,
    /// It never had a request, as the main thread's VM never has.
    Idles = 3,
}

impl Suitability {
    /// Of a VM that `has_served` a request, and that is `in_step` with the others if it shares
    /// anything with them; `None` if it does not. One that shares nothing reports what it has served.
    pub const fn of(has_served: bool, in_step: Option<bool>) -> Self {
        match (in_step, has_served) {
            (Some(false), _) => Self::Behind,
            (None, false) => Self::KnowsNothing,
            (_, true) => Self::Serves,
            (Some(true), false) => Self::Idles,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Behind),
            1 => Some(Self::KnowsNothing),
            2 => Some(Self::Serves),
            3 => Some(Self::Idles),
            _ => None,
        }
    }
}

/// The VM that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its number.
    pub vm: u64,
    /// How well it suits.
    pub suits: Suitability,
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
    /// Write this lease on the same condition and do not lead meanwhile: this VM fell behind, and one
    /// that did not takes the lease when it looks next. If none did by half of its time, this VM leads.
    Offer(Lease),
}

/// What `me` should do at `now`, given what shared data holds. A lease lasts `duration` and is
/// renewed once half of it is over. One that ends later than a new one would was not written by
/// this module's rules and counts as lapsed: nobody can lock all VMs out.
pub fn step(current: Option<Lease>, me: Claimant, now: Timestamp, duration: Duration) -> Step {
    let claim = Lease {
        holder: me.vm,
        until: now.after(duration),
        suits: me.suits,
    };
    let Some(lease) = current.filter(|lease| lease.until <= now.after(duration)) else {
        return Step::Claim(claim);
    };
    let left = lease.until.since(now);
    if lease.holder != me.vm {
        let takes = left.is_zero() || me.suits > lease.suits;
        return if takes {
            Step::Claim(claim)
        } else {
            Step::Follow
        };
    }
    match (me.suits, lease.suits) {
        (Suitability::Behind, before) if before > Suitability::Behind => Step::Offer(claim),
        (now, before) if now != before || left <= duration / 2 => Step::Claim(claim),
        (Suitability::Behind, _) => Step::Follow,
        _ => Step::Lead,
    }
}

/// Encodes `lease` for shared data.
pub fn encode(lease: Lease) -> Vec<u8> {
    let mut out = open(KIND, 17);
    out.extend_from_slice(&lease.holder.to_le_bytes());
    out.extend_from_slice(&lease.until.as_nanos().to_le_bytes());
    out.push(lease.suits as u8);
    seal(out)
}

/// Decodes what [`encode`] wrote, and nothing else.
pub fn decode(bytes: &[u8]) -> Option<Lease> {
    let mut reader = unseal(bytes, KIND)?;
    let lease = Lease {
        holder: reader.u64()?,
        until: Timestamp::from_nanos(reader.u64()?),
        suits: Suitability::from_byte(reader.u8()?)?,
    };
    (reader.remaining() == 0).then_some(lease)
}

#[cfg(test)]
mod tests {
    use super::Suitability::{Behind, Idles, KnowsNothing, Serves};
    use super::*;

    const DURATION: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// A lease of `holder`, which `suits`, until `millis`.
    fn lease(holder: u64, millis: u64, suits: Suitability) -> Lease {
        Lease {
            holder,
            until: at(millis),
            suits,
        }
    }

    fn step_at(current: Option<Lease>, vm: u64, suits: Suitability, millis: u64) -> Step {
        step(current, Claimant { vm, suits }, at(millis), DURATION)
    }

    #[test]
    fn the_first_one_claims_it() {
        for suits in [Behind, KnowsNothing, Serves, Idles] {
            let claim = Step::Claim(lease(1, 2_100, suits));
            assert_eq!(step_at(None, 1, suits, 100), claim);
        }
    }

    #[test]
    fn the_holder_leads_and_renews_at_half_time() {
        for suits in [KnowsNothing, Serves, Idles] {
            let current = Some(lease(1, 2_000, suits));
            assert_eq!(step_at(current, 1, suits, 900), Step::Lead);
            let renewed = Step::Claim(lease(1, 3_000, suits));
            assert_eq!(step_at(current, 1, suits, 1_000), renewed);
        }
    }

    #[test]
    fn others_follow_until_it_lapses() {
        let current = Some(lease(1, 2_000, Idles));
        assert_eq!(step_at(current, 2, Idles, 1_999), Step::Follow);
        let taken = Step::Claim(lease(2, 4_000, Behind));
        assert_eq!(step_at(current, 2, Behind, 2_000), taken);
    }

    #[test]
    fn who_suits_better_takes_it_and_keeps_it() {
        let pairs = [
            (Behind, Serves),
            (KnowsNothing, Serves),
            (Serves, Idles),
            (Behind, Idles),
        ];
        for (worse, better) in pairs {
            let current = Some(lease(1, 2_000, worse));
            let taken = lease(2, 2_100, better);
            assert_eq!(step_at(current, 2, better, 100), Step::Claim(taken));
            assert_eq!(step_at(Some(taken), 1, worse, 200), Step::Follow);
            assert_eq!(step_at(Some(taken), 3, better, 200), Step::Follow);
        }
    }

    #[test]
    fn what_becomes_of_the_holder_is_news_to_the_others() {
        let idle = Some(lease(1, 2_000, Idles));
        let serves = Step::Claim(lease(1, 2_100, Serves));
        assert_eq!(step_at(idle, 1, Serves, 100), serves);
        let back = Step::Claim(lease(1, 2_100, Idles));
        assert_eq!(step_at(Some(lease(1, 2_000, Behind)), 1, Idles, 100), back);
    }

    #[test]
    fn who_fell_behind_offers_it_and_leads_again_if_nobody_takes_it() {
        for before in [Serves, Idles] {
            let offered = lease(1, 2_100, Behind);
            let current = Some(lease(1, 2_000, before));
            assert_eq!(step_at(current, 1, Behind, 100), Step::Offer(offered));
            let taken = Step::Claim(lease(2, 2_150, Serves));
            assert_eq!(step_at(Some(offered), 2, Serves, 150), taken);
            assert_eq!(step_at(Some(offered), 1, Behind, 200), Step::Follow);
            assert_eq!(step_at(Some(offered), 1, Behind, 1_099), Step::Follow);
            let kept = Step::Claim(lease(1, 3_100, Behind));
            assert_eq!(step_at(Some(offered), 1, Behind, 1_100), kept);
        }
    }

    #[test]
    fn who_shares_nothing_suits_once_it_has_served() {
        let of = Suitability::of;
        assert_eq!([of(false, None), of(true, None)], [KnowsNothing, Serves]);
        let in_step = [of(false, Some(true)), of(true, Some(true))];
        assert_eq!(in_step, [Idles, Serves]);
        let behind = [of(false, Some(false)), of(true, Some(false))];
        assert_eq!(behind, [Behind, Behind]);
    }

    #[test]
    fn a_lease_from_the_far_future_locks_nobody_out() {
        let forged = Some(lease(9, 1_000_000, Idles));
        assert!(matches!(step_at(forged, 1, Behind, 0), Step::Claim(_)));
    }

    #[test]
    fn a_lease_survives_its_encoding_and_nothing_else_does() {
        let lease = lease(7, 5, Serves);
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

//! Whether the host delivers bodies while headers are held.
//!
//! A filter without `allow_on_headers_stop_iteration` never sees a held stream's body, and the
//! stream would hang for ever. A watchdog resumes the first ones; where the withheld body then
//! follows at once, before anything else happens, the flag is missing, and after a few of these no
//! stream is held any more. A client that merely uploads slowly looks different: its body comes
//! later, or while the stream is still held.

/// Bodies that followed their stream's resume at once until the host is known to withhold them: one
/// could be a slow client whose body happened to come just then.
const ENOUGH: u8 = 3;

/// What this VM has learned about its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDelivery {
    /// No held stream has had a body yet: streams are held and watched.
    Unknown {
        /// Bodies that came right after their stream was resumed.
        withheld: u8,
    },
    /// A held stream's body came: streams are held for as long as it takes. For good.
    WhileHeld,
    /// Bodies are withheld until their streams are resumed: streams are routed by their headers.
    OnlyAfterResume,
}

impl Default for BodyDelivery {
    fn default() -> Self {
        Self::Unknown { withheld: 0 }
    }
}

impl BodyDelivery {
    /// Whether held streams need watching.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// A body came while its headers were held.
    pub(super) fn came_while_held(&mut self) {
        if self.is_unknown() {
            *self = Self::WhileHeld;
        }
    }

    /// A body followed its stream's resume at once. Returns whether that settles it.
    pub(super) fn was_withheld(&mut self) -> bool {
        let Self::Unknown { withheld } = *self else {
            return false;
        };
        let withheld = withheld.saturating_add(1);
        let settled = withheld >= ENOUGH;
        *self = if settled {
            Self::OnlyAfterResume
        } else {
            Self::Unknown { withheld }
        };
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_ever_delivered_a_body_is_trusted_for_good() {
        let mut delivery = BodyDelivery::default();
        delivery.was_withheld();
        delivery.came_while_held();
        assert!((0..10).all(|_| !delivery.was_withheld()));
        assert_eq!(delivery, BodyDelivery::WhileHeld);
    }

    #[test]
    fn three_withheld_bodies_settle_it_once() {
        let mut delivery = BodyDelivery::default();
        let news: Vec<bool> = (0..5).map(|_| delivery.was_withheld()).collect();
        assert_eq!(news, [false, false, true, false, false]);
        delivery.came_while_held();
        assert_eq!(delivery, BodyDelivery::OnlyAfterResume);
    }
}

//! The members of an object with the places that a change of the text needs.

use core::ops::Range;

use super::{Kind, Reader, Stop};

/// One member of an object; of equal keys, the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Member {
    /// How many members precede it.
    pub(in super::super) ordinal: usize,
    /// Where the key begins, its quote included.
    pub(in super::super) key: usize,
    /// Where the value stands.
    pub(in super::super) value: Range<usize>,
    /// Where the comma stands that precedes it.
    pub(in super::super) comma_before: Option<usize>,
    /// Where the comma stands that follows it.
    pub(in super::super) comma_after: Option<usize>,
    /// The key was there before.
    pub(in super::super) repeated: bool,
}

/// The members of an object that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Members<const N: usize> {
    /// Where the first member can stand: behind the bracket.
    pub(in super::super) start: usize,
    /// In the order of the names asked for.
    pub(in super::super) found: [Option<Member>; N],
}

impl Reader<'_> {
    /// Passes over an object and notes the members of `names`. Of an object that is cut off, those
    /// that are whole. One pass.
    pub(in super::super) fn members<const N: usize>(
        &mut self,
        names: &[&[u8]; N],
    ) -> Result<Members<N>, Stop> {
        if self.kind()? != Kind::Object {
            return Err(Stop::UnknownShape);
        }
        self.window.advance(1);
        let mut members = Members {
            start: self.offset(),
            found: [const { None }; N],
        };
        match self.each_member(names, &mut members.found) {
            Ok(()) | Err(Stop::CutOff) => Ok(members),
            Err(stop) => Err(stop),
        }
    }

    fn each_member<const N: usize>(
        &mut self,
        names: &[&[u8]; N],
        found: &mut [Option<Member>; N],
    ) -> Result<(), Stop> {
        if self.take_token(b'}')? {
            return Ok(());
        }
        let mut comma_before = None;
        for ordinal in 0_usize.. {
            self.peek()?;
            let key = self.offset();
            let place = self.key(names)?;
            self.expect_token(b':')?;
            self.peek()?;
            let start = self.offset();
            self.skip()?;
            let value = start..self.offset();
            let is_last = self.take_token(b'}')?;
            let comma_after = if is_last {
                None
            } else {
                self.expect_token(b',')?;
                self.offset().checked_sub(1)
            };
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                *slot = Some(Member {
                    ordinal,
                    key,
                    value,
                    comma_before,
                    comma_after,
                    repeated: slot.is_some(),
                });
            }
            if is_last {
                break;
            }
            comma_before = comma_after;
        }
        Ok(())
    }
}

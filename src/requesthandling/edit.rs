//! Changes of a body that leave the rest of its bytes as they are.

use core::ops::Range;

use super::body::{Body, WINDOW_BYTES};
use super::json::Member;

/// One change of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What goes.
    pub place: Range<usize>,
    /// What comes.
    pub bytes: Vec<u8>,
}

impl Edit {
    /// `bytes` in the place of `place`.
    pub fn new(place: Range<usize>, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self { place, bytes }
    }

    /// Puts `edits`, which do not overlap, into their order.
    pub fn sort(edits: &mut [Self]) {
        // What is put in comes before what is cut out in the same place, in the order given.
        edits.sort_by_key(|edit| (edit.place.start, edit.place.end));
    }

    /// A body's length after `edits`, which was `length` before.
    pub fn length_after(edits: &[Self], length: usize) -> usize {
        edits.iter().fold(length, |length, edit| {
            let kept = length.saturating_sub(edit.place.len());
            kept.saturating_add(edit.bytes.len())
        })
    }

    /// All of `body` as `edits` make it. They do not overlap, and come in their order.
    pub fn apply(edits: &[Self], body: &mut dyn Body) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::length_after(edits, body.len()));
        let mut at = 0;
        for edit in edits {
            copy(body, at..edit.place.start, &mut out);
            out.extend_from_slice(&edit.bytes);
            at = edit.place.end;
        }
        let end = body.len();
        copy(body, at..end, &mut out);
        out
    }
}

fn copy(body: &mut dyn Body, part: Range<usize>, out: &mut Vec<u8>) {
    let mut at = part.start;
    while at < part.end {
        let window = body.read(at, WINDOW_BYTES.min(part.end.saturating_sub(at)));
        if window.is_empty() {
            return;
        }
        at = at.saturating_add(window.len());
        out.extend_from_slice(&window);
    }
}

/// Cuts `members` out of their object, with the commas that go with them. Of a key that is there
/// several times the last one counts, so that one is made null: the others are as good as absent.
pub(super) fn cut<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<Edit> {
    let (repeated, mut single): (Vec<&Member>, Vec<&Member>) =
        members.partition(|member| member.repeated);
    single.sort_unstable_by_key(|member| member.ordinal);
    let cuts = single.iter().enumerate().map(|(cut_before, member)| {
        let Range { start, end } = member.value;
        let place = match (member.comma_before, member.comma_after) {
            // Something stays before it: that keeps its own end.
            (Some(comma), _) if member.ordinal > cut_before => comma..end,
            (_, Some(comma)) => member.key..comma.saturating_add(1),
            _ => member.key.min(start)..end,
        };
        Edit::new(place, [])
    });
    let nulls = repeated
        .iter()
        .map(|member| Edit::new(member.value.clone(), "null"));
    cuts.chain(nulls).collect()
}

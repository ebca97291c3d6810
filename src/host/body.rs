//! A request's body, where Envoy holds it.

use super::abi::{self, Buffer, HostResult};
use crate::flow::Replacement;
use crate::requesthandling::{Body, Edit, WINDOW_BYTES};

/// The first `len` bytes of the held body.
pub(super) struct HeldBody {
    pub(super) len: usize,
}

impl Body for HeldBody {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&mut self, start: usize, max: usize) -> Vec<u8> {
        let max = max.min(self.len.saturating_sub(start));
        // What the host does not show reads as the end of the body: routed by load, with a reason.
        abi::buffer_part(Buffer::RequestBody, start, max).unwrap_or_default()
    }
}

/// Carries out `replacement`.
///
/// The host replaces nothing but a buffer's beginning, or adds to its end. A place further in than
/// one window is reached by carrying the whole body from its beginning to its end, a window at a
/// time: no more than a window is in our memory, which never shrinks.
pub(super) fn replace(replacement: &Replacement) -> HostResult<()> {
    let Replacement { edits, held, .. } = replacement;
    let changed = edits.last().map_or(0, |edit| edit.place.end);
    if changed <= WINDOW_BYTES {
        let mut start = HeldBody { len: changed };
        let start = Edit::apply(edits, &mut start);
        return abi::replace_start(BODY, changed, &start);
    }
    let mut at = 0;
    for edit in edits {
        carry(edit.place.start.saturating_sub(at))?;
        abi::replace_start(BODY, edit.place.len(), &[])?;
        abi::append(BODY, &edit.bytes)?;
        at = edit.place.end;
    }
    carry(held.saturating_sub(at))
}

const BODY: Buffer = Buffer::RequestBody;

/// Moves the body's first `len` bytes to its end.
fn carry(len: usize) -> HostResult<()> {
    let mut left = len;
    while left > 0 {
        let window = abi::buffer_part(BODY, 0, left.min(WINDOW_BYTES))?;
        if window.is_empty() {
            return Ok(());
        }
        abi::replace_start(BODY, window.len(), &[])?;
        abi::append(BODY, &window)?;
        left = left.saturating_sub(window.len());
    }
    Ok(())
}

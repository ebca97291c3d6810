//! A body as it is held, and the part of it that is in memory.

use core::fmt;

/// Bytes that are read from where they are held, a part at a time.
pub trait Body {
    /// How many there are.
    fn len(&self) -> usize;

    /// Those from `start` on, at most `max` and fewer only where they end.
    fn read(&mut self, start: usize, max: usize) -> Vec<u8>;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Body for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn read(&mut self, start: usize, max: usize) -> Vec<u8> {
        let rest = self.get(start..).unwrap_or_default();
        rest.get(..max).unwrap_or(rest).to_vec()
    }
}

impl fmt::Debug for dyn Body + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.len())
    }
}

/// Bytes of a body that are in memory at once: one read for what is held with the shipped limit,
/// and a bound for the rest. The memory of a virtual machine never shrinks.
pub const WINDOW_BYTES: usize = 1 << 20;

/// A place in a body, and the bytes around it.
pub(super) struct Window<'b> {
    body: &'b mut dyn Body,
    size: usize,
    bytes: Vec<u8>,
    /// Offset of the first of `bytes`.
    start: usize,
    /// The place, counted from `start`.
    at: usize,
}

impl<'b> Window<'b> {
    pub(super) fn new(body: &'b mut dyn Body, size: usize) -> Self {
        Self {
            body,
            size,
            bytes: Vec::new(),
            start: 0,
            at: 0,
        }
    }

    /// The byte at the place, if it is in memory.
    #[inline]
    pub(super) fn first(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Bytes from the place on; none only at the end of the body.
    #[inline]
    pub(super) fn rest(&mut self) -> &[u8] {
        if self.at >= self.bytes.len() {
            let offset = self.offset();
            self.load(offset);
        }
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Goes on by `count` bytes of [`Self::rest`].
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }

    /// The place, counted from the body's beginning.
    pub(super) fn offset(&self) -> usize {
        self.start.saturating_add(self.at)
    }

    /// Goes to `offset`.
    pub(super) fn seek(&mut self, offset: usize) {
        match offset.checked_sub(self.start) {
            Some(at) if at < self.bytes.len() => self.at = at,
            _ => self.load(offset),
        }
    }

    fn load(&mut self, offset: usize) {
        if offset >= self.body.len() {
            // What is in memory stays: whoever saw the end goes back to what was passed.
            self.at = offset.saturating_sub(self.start);
            return;
        }
        // Freed first, so that there is one at a time.
        self.bytes = Vec::new();
        self.start = offset;
        self.at = 0;
        self.bytes = self.body.read(offset, self.size);
    }
}

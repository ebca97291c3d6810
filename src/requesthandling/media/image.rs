//! The size of an image, from the first bytes of its file.

/// Reads base64 (or a `data:` address with it) until the size is known or cannot be found.
///
/// Memory is constant; after the size is known, reading costs nothing.
#[derive(Debug, Default)]
pub(super) struct ImageSize {
    stage: Stage,
    /// Bits decoded from base64 that make no byte yet, and how many.
    bits: u32,
    bit_count: u32,
    file: File,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was read.
    #[default]
    Start,
    /// In `data:image/png;base64,`: how many bytes of `data:` matched.
    Address(usize),
    /// Up to the comma.
    Header,
    Base64,
    Done,
}

const SCHEME: &[u8] = b"data:";
/// Base64 of no image format begins with it, so it tells an address from plain data.
const SCHEME_START: u8 = b'd';

impl ImageSize {
    /// Takes the next piece of the text.
    pub(super) fn read(&mut self, text: &[u8]) {
        for &byte in text {
            match self.stage {
                Stage::Start if byte == SCHEME_START => self.stage = Stage::Address(1),
                Stage::Start => {
                    self.stage = Stage::Base64;
                    self.take_base64(byte);
                }
                Stage::Address(matched) => {
                    let next = matched.saturating_add(1);
                    self.stage = match SCHEME.get(matched) {
                        Some(&wanted) if wanted != byte => Stage::Done,
                        Some(_) if next == SCHEME.len() => Stage::Header,
                        _ => Stage::Address(next),
                    };
                }
                Stage::Header if byte == b',' => self.stage = Stage::Base64,
                Stage::Header => {}
                Stage::Base64 => self.take_base64(byte),
                Stage::Done => return,
            }
        }
    }

    /// Width and height in pixels, if they were found.
    pub(super) fn pixels(&self) -> Option<(u32, u32)> {
        self.file.size
    }

    fn take_base64(&mut self, byte: u8) {
        let value = match byte {
            b'A'..=b'Z' => byte.wrapping_sub(b'A'),
            b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => {
                self.stage = Stage::Done;
                return;
            }
        };
        self.bits = self.bits << 6 | u32::from(value);
        self.bit_count = self.bit_count.saturating_add(6);
        if let Some(left) = self.bit_count.checked_sub(8) {
            self.bit_count = left;
            let [.., byte] = (self.bits >> left).to_be_bytes();
            if self.file.take(byte) {
                self.stage = Stage::Done;
            }
        }
    }
}

/// Bytes that hold the size in every format but JPEG.
const HEAD: usize = 30;

/// An image file, byte by byte.
#[derive(Debug, Default)]
struct File {
    head: [u8; HEAD],
    len: usize,
    jpeg: Jpeg,
    size: Option<(u32, u32)>,
}

impl File {
    /// Takes a byte; `true` when no more are needed.
    fn take(&mut self, byte: u8) -> bool {
        if let Some(space) = self.head.get_mut(self.len) {
            *space = byte;
        }
        self.len = self.len.saturating_add(1);
        if self.len > 2 && self.head.starts_with(&[0xFF, 0xD8]) {
            let found = self.jpeg.take(byte);
            self.size = self.jpeg.size;
            return found;
        }
        if self.len < HEAD {
            return false;
        }
        self.size = self.by_head();
        true
    }

    fn by_head(&self) -> Option<(u32, u32)> {
        let head = &self.head;
        if head.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Some((big(self.bytes(16)), big(self.bytes(20))));
        }
        if head.starts_with(b"GIF8") {
            let [a, b, c, d] = self.bytes(6);
            return Some((little16(a, b), little16(c, d)));
        }
        if !head.starts_with(b"RIFF") || head.get(8..12) != Some(b"WEBP") {
            return None;
        }
        match &self.bytes(12) {
            b"VP8 " => {
                let [a, b, c, d] = self.bytes(26);
                Some((little16(a, b) & 0x3FFF, little16(c, d) & 0x3FFF))
            }
            b"VP8L" => {
                let bits = u32::from_le_bytes(self.bytes(21));
                let side = |bits: u32| (bits & 0x3FFF).saturating_add(1);
                Some((side(bits), side(bits >> 14)))
            }
            b"VP8X" => {
                let side = |at| (u32::from_le_bytes(self.bytes(at)) & 0xFF_FFFF).saturating_add(1);
                Some((side(24), side(27)))
            }
            _ => None,
        }
    }

    /// Four bytes of the head, zeros where it ends.
    fn bytes(&self, at: usize) -> [u8; 4] {
        core::array::from_fn(|byte| {
            let place = at.saturating_add(byte);
            self.head.get(place).copied().unwrap_or(0)
        })
    }
}

/// A JPEG file from its third byte on: segments, one of which holds the size.
#[derive(Debug, Default)]
struct Jpeg {
    /// Bytes to pass over.
    skip: usize,
    /// The bytes of the present segment that are read: marker, length, and a frame's beginning.
    segment: [u8; 9],
    len: usize,
    size: Option<(u32, u32)>,
}

impl Jpeg {
    /// Takes a byte; `true` when the size is known, or will not come.
    fn take(&mut self, byte: u8) -> bool {
        if let Some(left) = self.skip.checked_sub(1) {
            self.skip = left;
            return false;
        }
        if let Some(space) = self.segment.get_mut(self.len) {
            *space = byte;
        }
        self.len = self.len.saturating_add(1);
        let [_, marker, high, low, _, top, bottom, left, right] = self.segment;
        match (self.len, marker) {
            (1, _) => return byte != 0xFF,
            // Fill bytes before a marker, and markers that stand alone.
            (2, 0xFF) => self.len = 1,
            (2, 0x01 | 0xD0..=0xD8) => self.len = 0,
            // Image data or the end: no size stood before it.
            (2, 0xD9 | 0xDA) => return true,
            (4, _) if !is_frame(marker) => {
                let len = u16::from_be_bytes([high, low]);
                self.skip = usize::from(len).saturating_sub(2);
                self.len = 0;
            }
            (9, _) => {
                let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
                self.size = Some((side(left, right), side(top, bottom)));
                return true;
            }
            _ => {}
        }
        false
    }
}

const fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC)
}

const fn big(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

const fn little16(low: u8, high: u8) -> u32 {
    u32::from_le_bytes([low, high, 0, 0])
}

use super::*;

/// The size of an image file, given in pieces of base64.
fn size(file: &[u8]) -> Option<(u32, u32)> {
    let text = crate::requesthandling::tests::base64(file);
    let mut sizes = [1, 3, 1_000].map(|piece| {
        let mut size = ImageSize::default();
        for part in text.as_bytes().chunks(piece) {
            size.read(part);
        }
        size.pixels()
    });
    sizes.sort_unstable();
    assert_eq!(sizes[0], sizes[2], "pieces matter");
    sizes[0]
}

fn webp(kind: &[u8], rest: &[u8]) -> Vec<u8> {
    [b"RIFF\0\0\0\0WEBP", kind, rest, &[0; 20]].concat()
}

#[test]
fn the_size_is_read_from_every_common_format() {
    let png = [
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR",
        &640_u32.to_be_bytes()[..],
        &480_u32.to_be_bytes(),
        b"\x08\x02\0\0\0",
        b"crc and more",
    ]
    .concat();
    let gif = [b"GIF89a", &[0x80, 2, 0xE0, 1][..], &[0; 30]].concat();
    let lossy = webp(
        b"VP8 ",
        &[0, 0, 0, 0, 0, 0, 0, 0x9D, 1, 0x2A, 0x80, 2, 0xE0, 1],
    );
    let bits: u32 = 0x27F | 0x1DF << 14;
    let lossless = webp(
        b"VP8L",
        &[&[0, 0, 0, 0, 0x2F], &bits.to_le_bytes()[..]].concat(),
    );
    let extended = webp(b"VP8X", &[0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 2, 0, 0xDF, 1, 0]);
    for file in [
        png,
        gif,
        lossy,
        lossless,
        extended,
        jpeg(&[]),
        jpeg(&exif()),
    ] {
        assert_eq!(size(&file), Some((640, 480)), "{:?}", &file[..16]);
    }
}

/// A segment as long as a camera's preview.
fn exif() -> Vec<u8> {
    let mut segment = b"\xFF\xE1\xFF\xFE".to_vec();
    segment.resize(65_536, 0x55);
    segment
}

fn jpeg(segment: &[u8]) -> Vec<u8> {
    [
        &b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"[..],
        segment,
        // Fill bytes, a table that is no frame, then the frame.
        b"\xFF\xFF\xC4\0\x04ab\xFF\xD0\xFF\xC0\0\x11\x08\x01\xE0\x02\x80\x03",
        &[0; 20],
    ]
    .concat()
}

#[test]
fn what_has_no_size_has_none() {
    for file in [
        &b""[..],
        b"no image at all, though it is long enough",
        b"\x89PNG\r\n",
        b"RIFF\0\0\0\0WAVEfmt \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"RIFF\0\0\0\0WEBPVP9 \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\xFF\xD8\xFF\xD9 and then nothing that would be a picture",
        b"\xFF\xD8no segment follows, and the file is over before",
        b"\xFF\xD8\xFF\xE0\0",
    ] {
        assert_eq!(size(file), None, "{file:?}");
    }
    for text in [
        "https://example.com/a.png",
        "data",
        "data:,x",
        "dx",
        "data:image/png;base64,%%%",
    ] {
        let mut size = ImageSize::default();
        size.read(text.as_bytes());
        assert_eq!(size.pixels(), None, "{text}");
    }
}

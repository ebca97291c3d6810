//! The layer of an image: a gzipped archive with one file.

use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, Builder, EntryType, Header};

/// The name by which Istio's agent looks for the module.
pub const PLUGIN_FILE: &str = "plugin.wasm";

/// `module` as the only file of an archive. Times and owners are zero.
///
/// # Panics
/// Never: memory takes every byte.
pub(super) fn archive(module: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_size(module.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let mut archive = Builder::new(Vec::new());
    archive
        .append_data(&mut header, PLUGIN_FILE, module)
        .expect("memory takes every byte");
    archive.into_inner().expect("memory takes every byte")
}

/// `archive` gzipped, without a time or a name in the header, and the same system code everywhere.
///
/// # Panics
/// Never: memory takes every byte.
pub(super) fn compress(archive: &[u8]) -> Vec<u8> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .operating_system(UNKNOWN_SYSTEM)
        .write(Vec::new(), Compression::best());
    gzip.write_all(archive).expect("memory takes every byte");
    gzip.finish().expect("memory takes every byte")
}

/// The module in a `layer`, found as Istio's agent finds it: the first file whose name ends in
/// `plugin.wasm`.
pub fn unpack(layer: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::new(GzDecoder::new(layer));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry
            .path()?
            .file_name()
            .is_some_and(|name| name == PLUGIN_FILE)
        {
            let mut module = Vec::new();
            entry.read_to_end(&mut module)?;
            return Ok(module);
        }
    }
    Err(std::io::Error::other(format!(
        "no {PLUGIN_FILE} in the layer"
    )))
}

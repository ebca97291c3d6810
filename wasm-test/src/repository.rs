//! Where the repository's files are, whatever the working directory.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("wasm-test is a folder of the repository")
}

/// The file or folder at `relative` to the repository's root; an absolute path stays as it is.
pub fn path(relative: impl AsRef<Path>) -> PathBuf {
    root().join(relative)
}

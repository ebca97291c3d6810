//! Which Envoy to run: what `scripts/envoy.sh` says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::repository;

/// Why there is no Envoy to run: the script's own words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("scripts/envoy.sh found no Envoy: {0}")]
pub struct BinaryError(String);

/// The path of an Envoy that is new enough. The first call in a process runs the script, which may
/// install one; it blocks until that is done.
pub(super) fn path() -> Result<&'static Path, BinaryError> {
    static BINARY: OnceLock<Result<PathBuf, BinaryError>> = OnceLock::new();
    match BINARY.get_or_init(ask) {
        Ok(path) => Ok(path),
        Err(error) => Err(error.clone()),
    }
}

fn ask() -> Result<PathBuf, BinaryError> {
    let output = Command::new(repository::path("scripts/envoy.sh"))
        .output()
        .map_err(|error| BinaryError(error.to_string()))?;
    if !output.status.success() {
        return Err(BinaryError(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(PathBuf::from(
        String::from_utf8_lossy(&output.stdout).trim_end(),
    ))
}

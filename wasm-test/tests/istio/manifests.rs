//! The manifests in `envoy/istio`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("a folder of the repository").to_owned()
}

/// The documents of a manifest.
pub fn documents(file: &str) -> Vec<Value> {
    let path = root().join("envoy/istio").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

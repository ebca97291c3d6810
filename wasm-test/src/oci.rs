//! The module as an OCI image, the same bytes for the same module and labels on every machine.
//!
//! Two forms, both of which Istio's agent reads: an *image* with one gzipped layer that holds
//! `plugin.wasm`, which every registry and container tool knows, and the *artifact* of the Wasm
//! image specification, whose layer is the module itself. Nothing in them comes from the clock,
//! the file system or a map without order: the archive's times and owners are zero, the compressor
//! is the one in Cargo.lock, and JSON objects are sorted.

mod layer;
mod layout;

pub use layer::{PLUGIN_FILE, unpack};

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scenario::digest as hex;

/// Media type of the manifest of either form.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of the image form's only layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Media type of the artifact form's module.
pub const WASM_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
/// Media type of the artifact form's other layer, the plugin's name and root id.
pub const WASM_RUNTIME: &str = "application/vnd.module.wasm.config.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// How the module is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// One gzipped tar layer with `plugin.wasm`.
    Image,
    /// The module as a layer of its own, uncompressed, beside a runtime configuration.
    Artifact,
}

/// What the image says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Semantic version, without `v`.
    pub version: String,
    /// Commit, with `-dirty` behind it when the checkout has changes.
    pub revision: String,
    /// When that was committed, RFC 3339 in UTC.
    pub created: String,
    /// Where the source is; not every checkout knows.
    pub source: Option<String>,
    /// SPDX expression.
    pub licence: String,
}

/// Bytes that a registry stores under their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}

/// An image: its manifest and what that names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub manifest: Blob,
    pub config: Blob,
    pub layers: Vec<Blob>,
}

impl Labels {
    /// By their names of the OCI image specification, and the title that tools show.
    fn named(&self) -> BTreeMap<&'static str, &str> {
        let mut named = BTreeMap::from([
            ("org.opencontainers.image.title", "inline-epp"),
            ("org.opencontainers.image.version", &*self.version),
            ("org.opencontainers.image.revision", &*self.revision),
            ("org.opencontainers.image.created", &*self.created),
            ("org.opencontainers.image.licenses", &*self.licence),
        ]);
        if let Some(source) = &self.source {
            named.insert("org.opencontainers.image.source", source);
        }
        named
    }
}

impl Blob {
    fn json(media_type: &'static str, value: &Value) -> Self {
        let bytes = value.to_string().into_bytes();
        Self { media_type, bytes }
    }

    /// `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("sha256:{}", hex(&self.bytes))
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest(), "size": self.bytes.len() })
    }
}

impl Image {
    /// Packs `module`.
    pub fn pack(module: &[u8], form: Form, labels: &Labels) -> Self {
        match form {
            Form::Image => Self::layered(module, labels),
            Form::Artifact => Self::artifact(module, labels),
        }
    }

    fn layered(module: &[u8], labels: &Labels) -> Self {
        let archive = layer::archive(module);
        let config = json!({
            "architecture": "wasm",
            "os": "wasi",
            "created": labels.created,
            "config": { "Labels": labels.named() },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&archive))] },
            "history": [{ "created": labels.created, "created_by": "COPY plugin.wasm ./" }],
        });
        let layer = Blob {
            media_type: LAYER,
            bytes: layer::compress(&archive),
        };
        Self::of(Blob::json(CONFIG, &config), vec![layer], labels, "compat")
    }

    fn artifact(module: &[u8], labels: &Labels) -> Self {
        let runtime = json!({ "type": "envoy_proxy", "abiVersions": ["v0-2-100"],
            "config": { "rootIds": ["inline-epp"] } });
        let module = Blob {
            media_type: WASM_LAYER,
            bytes: module.to_vec(),
        };
        let layers = vec![Blob::json(WASM_RUNTIME, &runtime), module];
        Self::of(Blob::json(WASM_RUNTIME, &json!({})), layers, labels, "oci")
    }

    fn of(config: Blob, layers: Vec<Blob>, labels: &Labels, variant: &'static str) -> Self {
        let mut annotations = labels.named();
        // Some consumers of the Wasm image specification tell the two forms apart by this one.
        annotations.insert("module.wasm.image/variant", variant);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
            "annotations": annotations,
        });
        Self {
            manifest: Blob::json(MANIFEST, &manifest),
            config,
            layers,
        }
    }

    /// Bytes that are pulled: manifest, configuration and layers.
    pub fn size(&self) -> usize {
        let all = self.layers.iter().chain([&self.manifest, &self.config]);
        all.map(|blob| blob.bytes.len()).sum()
    }
}

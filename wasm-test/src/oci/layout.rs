//! An image as a folder that skopeo, buildah and others read: an OCI image layout.

use std::path::Path;
use std::{fs, io};

use serde_json::json;

use super::{Blob, Image};

impl Image {
    /// Writes the layout into `folder`, which is emptied first; the image gets the name `tag` in it.
    pub fn write_layout(&self, folder: &Path, tag: &str) -> io::Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        for blob in self.layers.iter().chain([&self.manifest, &self.config]) {
            let digest = blob.digest();
            let name = digest.strip_prefix("sha256:").unwrap_or(&digest);
            fs::write(blobs.join(name), &blob.bytes)?;
        }
        let mut named = self.manifest.descriptor();
        named["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "manifests": [named] });
        let index = Blob::json("application/vnd.oci.image.index.v1+json", &index);
        fs::write(folder.join("index.json"), &index.bytes)?;
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        fs::write(folder.join("oci-layout"), version.to_string())
    }
}

//! A container registry of one test: Debian's `docker-registry` on a port of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use wasm_test::oci;

const PATIENCE: Duration = Duration::from_secs(30);

/// Ends with the test.
#[derive(Debug)]
pub struct Registry {
    process: Child,
    folder: TempDir,
    host: String,
}

impl Registry {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = free.local_addr().expect("bound").to_string();
        drop(free);
        let configuration = folder.path().join("registry.yml");
        let data = folder.path().join("data");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{host}'}}\n",
            data.display()
        );
        fs::write(&configuration, text).expect("a writable folder");
        let log = File::create(folder.path().join("log")).expect("a writable folder");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("docker-registry; Debian's package has the same name");
        let registry = Self {
            process,
            folder,
            host,
        };
        registry.wait();
        registry
    }

    fn wait(&self) {
        let start = Instant::now();
        while std::net::TcpStream::connect(&self.host).is_err() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            assert!(start.elapsed() < PATIENCE, "no registry: {log:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The name of an image in it.
    pub fn reference(&self, image: &str) -> String {
        format!("{}/{image}", self.host)
    }

    /// The module in the image `name:tag`, by the rules of Istio's agent: the last layer when that is
    /// a gzipped OCI layer, else the Wasm layer of exactly two.
    pub async fn fetch_as_istio_does(&self, name: &str, tag: &str) -> Vec<u8> {
        let base = format!("http://{}/v2/{name}", self.host);
        let request = reqwest::Client::new()
            .get(format!("{base}/manifests/{tag}"))
            .header("accept", oci::MANIFEST);
        let manifest: Value = request.send().await.unwrap().json().await.unwrap();
        let layers = manifest["layers"].as_array().expect("layers");
        let last = layers.last().expect("at least one layer");
        let blob = async |layer: &Value| {
            let digest = layer["digest"].as_str().expect("a digest");
            let response = reqwest::get(format!("{base}/blobs/{digest}")).await;
            response.unwrap().bytes().await.unwrap().to_vec()
        };
        if last["mediaType"] == oci::LAYER {
            return oci::unpack(&blob(last).await).expect("plugin.wasm");
        }
        assert_eq!(layers.len(), 2, "{manifest}");
        let is_wasm = |layer: &&Value| layer["mediaType"] == oci::WASM_LAYER;
        let layer = layers.iter().find(is_wasm).expect("a Wasm layer");
        blob(layer).await
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

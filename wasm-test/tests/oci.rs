//! The module as an OCI image: the same bytes each time, in a real registry, read back by other tools.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use registry::Registry;
use serde_json::Value;
use wasm_test::artifact;
use wasm_test::oci::{Form, Image, Labels};

#[path = "oci/registry.rs"]
mod registry;

/// The most that is pulled into a gateway.
const MEGABYTE: u64 = 1_000_000;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("a folder of the repository").to_owned()
}

/// What `program` prints; a failure fails the test with what it said.
fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", program.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The lines that `scripts/oci.sh` prints, by their first word. One at a time: it writes `target/oci`.
fn oci_sh(arguments: &[&str]) -> BTreeMap<String, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let printed = run(root().join("scripts/oci.sh"), arguments);
    let lines = printed.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()))
        .collect()
}

fn labels() -> Labels {
    Labels {
        version: "1.2.3".into(),
        revision: "0123abcd".into(),
        created: "2026-01-02T03:04:05Z".into(),
        source: Some("https://git.example/inline-epp".into()),
        licence: "Apache-2.0".into(),
    }
}

#[test]
fn the_same_module_and_labels_are_the_same_bytes() {
    let module = fs::read(artifact::module().expect("a module")).expect("readable");
    for form in [Form::Image, Form::Artifact] {
        let image = Image::pack(&module, form, &labels());
        assert_eq!(image, Image::pack(&module, form, &labels()));
        let other = [&module[..], b"\0"].concat();
        let other = Image::pack(&other, form, &labels());
        assert_ne!(image.manifest.digest(), other.manifest.digest());
        let mut relabelled = labels();
        relabelled.revision.push('0');
        let other = Image::pack(&module, form, &relabelled);
        assert_ne!(image.manifest.digest(), other.manifest.digest());
    }
}

/// Known answers: another machine, or a newer compressor, that gives other bytes is found out.
#[test]
fn the_digest_does_not_depend_on_the_machine() {
    let module: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let digest = |form| Image::pack(&module, form, &labels()).manifest.digest();
    assert_eq!(
        digest(Form::Image),
        "sha256:47268a893eec78a0aa2c2e9e2662ae1422a86c0d668da15b144bc528e8290c3a"
    );
    assert_eq!(
        digest(Form::Artifact),
        "sha256:716ce151caee7382dcb55e01fd3c43262d4ee31aaa6467286a6c97047eb04e90"
    );
}

#[test]
fn the_module_does_not_tell_where_it_was_built() {
    let module = fs::read(artifact::module().expect("a module")).expect("readable");
    let home = std::env::var("HOME").expect("a home");
    let cargo = std::env::var("CARGO_HOME").unwrap_or(format!("{home}/.cargo"));
    let rustup = std::env::var("RUSTUP_HOME").unwrap_or(format!("{home}/.rustup"));
    let holds = |text: &str| {
        module
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    for place in [&cargo, &rustup, root().to_str().expect("UTF-8")] {
        assert!(!holds(place), "{place}");
    }
    // That the search would find it: paths are in there, under the name the flags give them.
    assert!(holds("/crates/"));
}

#[tokio::test]
async fn an_image_pushed_by_the_script_is_pulled_byte_for_byte() {
    let module = fs::read(artifact::module().expect("a module")).expect("readable");
    let registry = Registry::start();
    let reference = registry.reference("epp/inline-epp:test");

    let printed = oci_sh(&[
        "--push",
        &reference,
        "--plain-http",
        "--source",
        "https://git.example/inline-epp",
    ]);

    let digest = &printed["digest"];
    assert_eq!(printed["pushed"], format!("{reference}@{digest}"));
    let size: u64 = printed["size"].split_once(' ').unwrap().0.parse().unwrap();
    assert!(size < MEGABYTE, "{size}");
    assert_eq!(
        registry.fetch_as_istio_does("epp/inline-epp", "test").await,
        module
    );

    // A second tool, by the digest that was printed.
    let folder = tempfile::tempdir().unwrap();
    let pulled = folder.path().join("pulled");
    let from = format!("docker://{}@{digest}", registry.reference("epp/inline-epp"));
    let to = format!("dir:{}", pulled.display());
    run(
        "skopeo",
        &["copy", "--quiet", "--src-tls-verify=false", &from, &to],
    );
    let manifest: Value =
        serde_json::from_slice(&fs::read(pulled.join("manifest.json")).unwrap()).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    let layer = pulled.join(layer.trim_start_matches("sha256:"));
    let here = folder.path().to_str().unwrap();
    run("tar", &["-xzf", layer.to_str().unwrap(), "-C", here]);
    assert_eq!(fs::read(folder.path().join("plugin.wasm")).unwrap(), module);

    let facts = run(
        "skopeo",
        &[
            "inspect",
            "--tls-verify=false",
            &format!("docker://{reference}"),
        ],
    );
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let label = |name: &str| facts["Labels"][format!("org.opencontainers.image.{name}")].clone();
    assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(label("licenses"), "Apache-2.0");
    assert_eq!(label("source"), "https://git.example/inline-epp");
    let commit = run("git", &["rev-parse", "HEAD"]);
    let revision = label("revision");
    assert!(
        revision.as_str().unwrap().starts_with(commit.trim()),
        "{revision}"
    );

    // The same commit again.
    let again = oci_sh(&["--source", "https://git.example/inline-epp"]);
    assert_eq!(again["digest"], *digest);
}

#[tokio::test]
async fn the_artifact_form_is_read_by_istios_rules_too() {
    let module = fs::read(artifact::module().expect("a module")).expect("readable");
    let registry = Registry::start();
    let reference = registry.reference("inline-epp:artifact");

    oci_sh(&["--form", "artifact", "--push", &reference, "--plain-http"]);

    assert_eq!(
        registry.fetch_as_istio_does("inline-epp", "artifact").await,
        module
    );
}

#[tokio::test]
async fn the_containerfile_builds_an_image_that_holds_the_module() {
    let module = artifact::module().expect("a module");
    let registry = Registry::start();
    let reference = registry.reference("inline-epp:bud");
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(place("context")).unwrap();
    fs::copy(module, place("context") + "/plugin.wasm").unwrap();
    let (data, state) = (place("data"), place("state"));
    let buildah = |arguments: &[&str]| {
        let own = [
            "--root",
            &data,
            "--runroot",
            &state,
            "--storage-driver",
            "vfs",
        ];
        run("buildah", &[&own[..], arguments].concat())
    };
    let context = place("context");
    buildah(&[
        "bud",
        "--isolation",
        "chroot",
        "-f",
        "scripts/Containerfile",
        "-t",
        "epp",
        &context,
    ]);
    buildah(&[
        "push",
        "--tls-verify=false",
        "epp",
        &format!("docker://{reference}"),
    ]);

    let fetched = registry.fetch_as_istio_does("inline-epp", "bud").await;

    assert_eq!(fetched, fs::read(module).unwrap());
}

#[test]
fn the_bill_of_materials_lists_every_crate_of_the_module() {
    let printed = oci_sh(&["--sbom"]);
    let bill = fs::read_to_string(root().join(&printed["sbom"])).unwrap();
    assert!(!bill.contains(root().to_str().unwrap()));
    let bill: Value = serde_json::from_str(&bill).unwrap();
    let components = bill["components"].as_array().unwrap();
    let listed: Vec<&str> = components
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    let tree = run(
        env!("CARGO"),
        &[
            "tree",
            "--locked",
            "--package",
            "inline-epp",
            "--target",
            "wasm32-wasip1",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{lib}",
        ],
    );
    for package in [
        "log",
        "proxy-wasm",
        "serde",
        "serde_json",
        "xxhash-rust",
        "hashbrown",
    ] {
        assert!(listed.contains(&package), "{package}: {listed:?}");
    }
    let names: Vec<String> = listed.iter().map(|name| name.replace('-', "_")).collect();
    for library in tree
        .lines()
        .filter(|line| !line.is_empty() && *line != "inline_epp")
    {
        let library = library.trim_end_matches(" (*)");
        assert!(
            names.iter().any(|name| name == library),
            "{library}: {names:?}"
        );
    }
}

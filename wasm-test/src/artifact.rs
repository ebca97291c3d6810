//! The module as Envoy loads it: built from this checkout, never a stale file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::repository;

/// Why there is no module to load: cargo's own words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the module was not built: {0}")]
pub struct BuildError(String);

/// The path of `inline_epp.wasm`, built in release mode. The first call in a process runs cargo,
/// which decides what is fresh; it blocks until the build is done.
pub fn module() -> Result<&'static Path, BuildError> {
    static MODULE: OnceLock<Result<PathBuf, BuildError>> = OnceLock::new();
    built(&MODULE, &[])
}

/// The same with the switches that tests need: it traps on a request with the header `x-epp-trap`,
/// and keeps to itself where its environment has `EPP_UNSHARED`.
pub fn switchable_module() -> Result<&'static Path, BuildError> {
    static MODULE: OnceLock<Result<PathBuf, BuildError>> = OnceLock::new();
    let arguments = [
        "--features",
        "test-switches",
        "--target-dir",
        "target/test-switches",
    ];
    built(&MODULE, &arguments)
}

fn built(
    module: &'static OnceLock<Result<PathBuf, BuildError>>,
    arguments: &[&str],
) -> Result<&'static Path, BuildError> {
    match module.get_or_init(|| build(arguments, "inline_epp")) {
        Ok(path) => Ok(path),
        Err(error) => Err(error.clone()),
    }
}

/// The path of an example of the module's package, built like it; blocks until the build is done.
pub fn example(name: &str) -> Result<PathBuf, BuildError> {
    build(&["--example", name], name)
}

/// The compiler flags of `scripts/build.sh`, so that a test loads the bytes that are shipped.
fn flags() -> Result<String, BuildError> {
    let output = Command::new(repository::path("scripts/module-flags.sh"))
        .output()
        .map_err(|error| BuildError(format!("scripts/module-flags.sh does not run: {error}")))?;
    if !output.status.success() {
        return Err(BuildError(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds `target`, as `arguments` tell cargo to.
fn build(arguments: &[&str], target: &str) -> Result<PathBuf, BuildError> {
    let output = Command::new(env!("CARGO"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?)
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            "wasm32-wasip1",
        ])
        .args([
            "--package",
            "inline-epp",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(arguments)
        .current_dir(repository::root())
        .output()
        .map_err(|error| BuildError(format!("cargo does not run: {error}")))?;
    if !output.status.success() {
        return Err(BuildError(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|message| wasm_file(message, target))
        .ok_or_else(|| BuildError(format!("cargo reported no .wasm file of {target}")))
}

/// The path of `target`, when `message` is cargo's report of it.
fn wasm_file(message: &str, target: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["target"]["name"] != target {
        return None;
    }
    message["filenames"]
        .as_array()?
        .iter()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| {
            file.extension()
                .is_some_and(|extension| extension == "wasm")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_report_of_the_module_names_its_path() {
        let report = r#"{"reason":"compiler-artifact","target":{"name":"inline_epp"},
            "filenames":["/t/libinline_epp.rlib","/t/inline_epp.wasm"]}"#;
        let found = |message: &str| wasm_file(message, "inline_epp");
        assert_eq!(found(report), Some(PathBuf::from("/t/inline_epp.wasm")));
        assert_eq!(found(&report.replace("inline_epp\"}", "serde\"}")), None);
        assert_eq!(found(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(found("not JSON"), None);
    }
}

//! `scripts/envoy.sh` chooses the first Envoy that is new enough, and says what it passed over.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of `tests/fakes`: programs that answer as an Envoy of some version does.
fn fake(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fakes")
        .join(folder)
}

/// `scripts/envoy.sh` with `folders` in front of PATH, from another working directory.
fn envoy_sh(folders: &[PathBuf], variables: &[(&str, PathBuf)]) -> Output {
    let path = env::var_os("PATH").expect("a PATH");
    let path = env::join_paths(folders.iter().cloned().chain(env::split_paths(&path)));
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/envoy.sh"))
        .env_remove("ENVOY_PATH")
        .env("PATH", path.expect("no colon in a folder"))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(env::temp_dir())
        .output()
        .expect("bash runs")
}

fn stdout(output: &Output) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_envoy_that_was_named_comes_first() {
    let named = fake("new").join("envoy");
    let output = envoy_sh(&[fake("old")], &[("ENVOY_PATH", named.clone())]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), named);
}

#[test]
fn a_named_envoy_that_cannot_serve_is_an_error() {
    for (folder, reason) in [
        ("old", "older than 1.35"),
        ("broken", "does not answer --version"),
    ] {
        let output = envoy_sh(&[], &[("ENVOY_PATH", fake(folder).join("envoy"))]);
        assert!(!output.status.success());
        assert_eq!(stdout(&output), PathBuf::new());
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}

#[test]
fn the_envoy_of_func_e_comes_before_the_one_on_path() {
    let managed = fake("broken").join("../new/envoy");
    let output = envoy_sh(
        &[fake("func-e"), fake("new")],
        &[("FAKE_FUNC_E_ENVOY", managed.clone())],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), managed);
}

/// The command of the README, with Envoy's own check in place of a run, and from the same folder.
#[test]
fn func_e_runs_the_shipped_configuration() {
    let module = wasm_test::artifact::module().expect("a module");
    assert!(module.is_file());
    let envoy = stdout(&envoy_sh(&[], &[]));
    let output = Command::new(fake("func-e").join("func-e"))
        .args(["run", "-c", "envoy/envoy.yaml", "--mode", "validate"])
        .env("FAKE_FUNC_E_ENVOY", envoy)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("the fake runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.ends_with("configuration 'envoy/envoy.yaml' OK"),
        "{said:?}"
    );
}

#[test]
fn an_old_envoy_is_passed_over_with_a_line() {
    let old = fake("old").join("envoy");
    let output = envoy_sh(
        &[fake("func-e"), fake("new")],
        &[("FAKE_FUNC_E_ENVOY", old)],
    );
    assert_eq!(stdout(&output), fake("new").join("envoy"));
    assert!(
        stderr(&output).contains("Envoy 1.34.9 is older than 1.35"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_any_other_envoy_the_pinned_wheel_serves() {
    // This func-e names none, and the old Envoy hides any other.
    let output = envoy_sh(&[fake("func-e"), fake("old")], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("skipping envoy on PATH"),
        "{}",
        stderr(&output)
    );
    assert!(
        stdout(&output).ends_with("site-packages/envoy/_bin/envoy"),
        "{}",
        stderr(&output)
    );
}

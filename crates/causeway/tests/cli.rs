//! The command line, through the binary: what it prints and how it ends.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

const YAML: &str = "\
clusters:
  main:
    nodes:
      - { name: pg-0, address: \"127.0.0.1:1\" }
    monitor: { user: causeway }
    check_timeout: 200ms
databases: { app: {}, strict: { consistency: { default: primary } } }
auth: { rules: [{ address: \"127.0.0.0/8\", method: trust }] }
";

fn causeway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_causeway")).args(arguments).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file in a directory that goes with the guard.
fn file(yaml: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("causeway.yaml");
    std::fs::write(&file, yaml).unwrap();
    (directory, file)
}

fn route(arguments: &[&str]) -> Output {
    let (_directory, file) = file(YAML);
    causeway(&[&["route", "-c", file.to_str().unwrap(), "--user", "joe"], arguments].concat())
}

#[test]
fn usage() {
    for wrong in [&["bogus"][..], &["route"], &["run", "--no-such-flag"], &["dev", "--replicas", "99"]] {
        let output = causeway(wrong);
        assert_eq!(status(&output), 64, "{wrong:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{wrong:?}");
    }
    for flag in ["--version", "-V"] {
        let output = causeway(&[flag]);
        assert_eq!(status(&output), 0);
        assert!(text(&output.stdout).starts_with(concat!("causeway ", env!("CARGO_PKG_VERSION"))));
    }
    let help = causeway(&["--help"]);
    assert_eq!(status(&help), 0);
    assert!(text(&help.stdout).contains("Exit codes:"));
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let (_directory, file) = file(YAML);
    let path = file.to_str().unwrap();
    let valid = causeway(&["check", "-c", path]);
    assert_eq!(status(&valid), 0);
    let warning = format!(
        "{path}: warning: auth.rules[0]: clients from 127.0.0.0/8 are let in without a password\n{path}: valid\n"
    );
    assert_eq!(text(&valid.stdout), warning);

    std::fs::write(&file, YAML.replace("nodes:", "nods:")).unwrap();
    let wrong = causeway(&["check", "-c", path]);
    assert_eq!(status(&wrong), 78);
    let message = format!("{path}:3:5: clusters.main.nods: unknown key; did you mean `nodes`?\n");
    assert_eq!(text(&wrong.stderr), message);
    assert!(wrong.stdout.is_empty());

    // The command `run`, spelled out or not, refuses it alike.
    for arguments in [&["-c", path][..], &["run", "-c", path]] {
        let refused = causeway(arguments);
        assert_eq!((status(&refused), text(&refused.stderr)), (78, message.clone()));
    }
}

#[test]
fn route_prints_one_json_object() {
    let output = route(&["--database", "app", "--json", "--", "SELECT 1"]);
    assert_eq!(status(&output), 0);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object, serde_json::json!({ "class": "read", "target": "replica", "reason": "read" }));
    assert!(text(&output.stderr).contains("no node told"), "the node of the file does not answer");
}

#[test]
fn route_follows_the_session_and_the_configuration() {
    let output = route(&["--database", "app", "--pre", "BEGIN", "--pre", "SELECT 2", "--", "SELECT 1"]);
    assert_eq!(text(&output.stdout), "class:  read\ntarget: primary\nreason: in_transaction\n");
    let output = route(&["--database", "strict", "--", "SELECT 1"]);
    assert_eq!(text(&output.stdout), "class:  read\ntarget: primary\nreason: level_primary\n");
    let unknown = route(&["--database", "other", "--", "SELECT 1"]);
    assert_eq!(status(&unknown), 64);
    assert_eq!(text(&unknown.stderr), "database \"other\" is not configured\n");
}

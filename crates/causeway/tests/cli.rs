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

#[test]
fn what_it_prints_of_itself() {
    for (arguments, part) in [
        (&["completions", "bash"][..], "_causeway()"),
        (&["completions", "zsh"], "#compdef causeway"),
        (&["completions", "fish"], "complete -c causeway"),
        (&["man"], ".TH causeway 1"),
    ] {
        let output = causeway(arguments);
        assert_eq!(status(&output), 0, "{arguments:?}");
        assert!(text(&output.stdout).contains(part), "{arguments:?}");
    }
    let schema: serde_json::Value = serde_json::from_slice(&causeway(&["schema"]).stdout).unwrap();
    assert_eq!(schema["properties"]["pool"]["properties"]["mode"]["enum"][0], "transaction");
    assert_eq!(status(&causeway(&["completions", "cobol"])), 64);
}

#[test]
fn a_password_becomes_a_verifier() {
    use std::io::Write as _;
    use std::process::Stdio;

    let hash = |input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        let command =
            command.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = hash("pass word\n");
    let verifier = causeway_protocol::scram::Verifier::parse(text(&output.stdout).trim_end()).unwrap();
    assert!(verifier.matches(b"pass word") && !verifier.matches(b"pass word\n"));
    assert_ne!(hash("pass word\n").stdout, output.stdout, "the salt is another one each time");
    assert_eq!(status(&hash("\n")), 64);
}

#[test]
fn a_pgbouncer_can_be_taken_over() {
    let (directory, _file) = file("");
    let ini = directory.path().join("pgbouncer.ini");
    let list = directory.path().join("userlist.txt");
    std::fs::write(&list, "\"app\" \"s3cret\"\n").unwrap();
    std::fs::write(&ini, "[databases]\napp = host=127.0.0.1\n[pgbouncer]\nauth_file = userlist.txt\n")
        .unwrap();
    let output = causeway(&["import-pgbouncer", ini.to_str().unwrap()]);
    assert_eq!(status(&output), 0);
    let yaml = text(&output.stdout)
        .replace("/var/lib/causeway", directory.path().to_str().unwrap())
        .replace("password_file: /etc/causeway/monitor.pw", "password: x");
    let made = directory.path().join("made.yaml");
    std::fs::write(&made, &yaml).unwrap();
    let checked = causeway(&["check", "-c", made.to_str().unwrap()]);
    assert_eq!(status(&checked), 0, "{}\n{yaml}", text(&checked.stderr));
    std::fs::write(&ini, "[databases]\nnonsense\n").unwrap();
    let wrong = causeway(&["import-pgbouncer", ini.to_str().unwrap()]);
    assert_eq!(status(&wrong), 78);
    assert!(text(&wrong.stderr).contains("pgbouncer.ini:2: expected NAME = VALUE"));
}

/// Ten mistakes that people make: each is told with its line, what was expected, and the nearest name.
#[test]
fn mistakes_are_told_with_their_place() {
    for (wrong, parts) in [
        ("pol: { size: 3 }", &["pol: unknown key", "`pool`"][..]),
        ("pool: { sise: 3 }", &["pool.sise", "`size`"]),
        ("pool: { size: many }", &["pool.size", "whole number"]),
        ("pool: { size: -1 }", &["pool.size"]),
        ("pool: { checkout_timeout: 5 }", &["pool.checkout_timeout", "unit"]),
        ("pool: { checkout_timeout: 5sec }", &["pool.checkout_timeout", "\"sec\""]),
        ("pool: { mode: transactions }", &["pool.mode", "transaction"]),
        ("consistency: { default: clusters }", &["consistency.default", "cluster"]),
        ("listen: 127.0.0.1", &["listen"]),
        (
            "users: { app: { password: \"${NO_SUCH_VARIABLE}\" } }",
            &["users.app.password", "NO_SUCH_VARIABLE"],
        ),
        ("log: { level: info", &["causeway.yaml:"]),
        ("state_dir: /no/such/directory", &["state_dir", "/no/such/directory"]),
    ] {
        let lines = YAML.lines().count();
        let (_directory, file) = file(&format!("{YAML}{wrong}\n"));
        let output = causeway(&["check", "-c", file.to_str().unwrap()]);
        let told = text(&output.stderr);
        assert_eq!(status(&output), 78, "{wrong}: {told}");
        let place = format!("causeway.yaml:{}:", lines + 1);
        // A brace that is not closed is noticed where the text ends.
        assert!(
            told.contains(&place) || told.contains(&format!("causeway.yaml:{}:", lines + 2)),
            "{wrong}: {told}"
        );
        for part in parts {
            assert!(told.contains(part), "{wrong}: {part}: {told}");
        }
    }
}

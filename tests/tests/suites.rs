//! PostgreSQL's own regression and isolation suites, run direct and then through Causeway in its default mode with two
//! replicas: each test must come out the same, but for those that `tests/conformance/differences.tsv` lists, which
//! must not.
//!
//! The suites belong to PostgreSQL's source package. `tests/conformance/fetch` brings them, for `make conformance`
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use causeway_testkit::{Causeway, Sandbox, SandboxConfig};
use tokio::process::Command;
use tokio::time::timeout;

/// How long one suite may take.
const LIMIT: Duration = Duration::from_mins(15);

/// How long a step of an isolation test may take, in seconds, before it is given up.
const STEP_LIMIT: &str = "60";

/// The tests that may, and must, come out differently.
const DIFFERENCES: &str = include_str!("../conformance/differences.tsv");

/// One of the two suites.
#[derive(Clone, Copy)]
struct Suite {
    name: &'static str,
    program: &'static str,
    schedule: &'static str,
    /// How many tests may be listed as different.
    allowance: usize,
}

const REGRESS: Suite =
    Suite { name: "regress", program: "pg_regress", schedule: "parallel_schedule", allowance: 5 };
const ISOLATION: Suite = Suite {
    name: "isolation",
    program: "pg_isolation_regress",
    schedule: "isolation_schedule",
    allowance: 3,
};

/// What came of a suite: by test whether it passed, and where what it printed is.
struct Results {
    passed: BTreeMap<String, bool>,
    folder: PathBuf,
}

#[tokio::test]
async fn the_regression_suite_comes_out_the_same() {
    compare(REGRESS).await;
}

#[tokio::test]
async fn the_isolation_suite_comes_out_the_same() {
    compare(ISOLATION).await;
}

#[test]
fn few_differences_are_listed_and_each_says_what_forces_it() {
    for suite in [REGRESS, ISOLATION] {
        assert!(listed(suite).len() <= suite.allowance, "{}", suite.name);
    }
    for line in entries() {
        let [suite, _, fact] = line[..] else { panic!("not suite, test and fact: {line:?}") };
        assert!(suite == REGRESS.name || suite == ISOLATION.name, "{suite}");
        assert!(fact.contains("src/") || fact.contains("protocol"), "{fact}");
    }
}

#[test]
fn verdicts_are_read_from_the_report() {
    let report = "# parallel group (2 tests):  a b\n     a    ... ok           12 ms\n\
                  test b_2        ... FAILED       3 ms\n     c ... failed (ignored)   5 ms\n \
                  d  ... FAILED (test process exited with exit code 2)   5 ms\n 1 of 4 tests failed.\n";
    let passed = verdicts(report);
    let names: Vec<_> = passed.iter().map(|(name, passed)| (name.as_str(), *passed)).collect();
    assert_eq!(names, [("a", true), ("b_2", false), ("c", false), ("d", false)]);
}

/// Runs a suite on both, and fails if another set of tests than the listed one differs.
async fn compare(suite: Suite) {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.expect("the servers start");
    let inputs = unpack(&sandbox).await;
    let direct = run(suite, &sandbox, &inputs, ("direct", sandbox.primary().port())).await;
    let causeway = causeway_tests::start_with(&sandbox, "", 3).await;
    // Tests end sessions, drop databases under their readers, and provoke failures.
    causeway.allow_log("");
    let through = run(suite, &sandbox, &inputs, ("through", causeway.port())).await;
    report_pins(&causeway).await;
    causeway.stop().await;

    assert!(direct.passed.len() > 100, "the suite has run: {} tests", direct.passed.len());
    assert!(direct.passed.keys().eq(through.passed.keys()), "the same tests ran on both");
    let differing: BTreeSet<&str> =
        direct.passed.keys().filter(|test| differs(test, &direct, &through)).map(String::as_str).collect();
    let listed: BTreeSet<&str> = listed(suite).into_iter().collect();
    eprintln!(
        "{}: {} tests, {} pass direct; listed as different: {listed:?}",
        suite.name,
        direct.passed.len(),
        direct.passed.values().filter(|passed| **passed).count()
    );
    let unlisted: Vec<&str> = differing.difference(&listed).copied().collect();
    for test in &unlisted {
        eprintln!("{}", difference(test, &direct, &through).await);
    }
    let same: Vec<&str> = listed.difference(&differing).copied().collect();
    assert!(unlisted.is_empty(), "{}: {unlisted:?} differ and are not listed", suite.name);
    assert!(same.is_empty(), "{}: {same:?} are listed as different and are not", suite.name);
    sandbox.stop().await.expect("the servers stop");
}

/// The suites where the account of the servers can read, write and load them.
async fn unpack(sandbox: &Sandbox) -> PathBuf {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/conformance/suites.tar");
    let archive = File::open(&archive)
        .unwrap_or_else(|error| panic!("{}: {error}; tests/conformance/fetch makes it", archive.display()));
    let mut tar = Command::from(sandbox.command(Path::new("tar")));
    tar.arg("-x").current_dir(sandbox.directory()).stdin(archive).kill_on_drop(true);
    assert!(tar.status().await.expect("tar runs").success(), "the suites are unpacked");
    sandbox.directory().to_owned()
}

/// Runs a suite against a port.
async fn run(suite: Suite, sandbox: &Sandbox, inputs: &Path, (name, port): (&str, u16)) -> Results {
    let input = inputs.join(suite.name);
    let folder = inputs.join(format!("{}-{name}", suite.name));
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let mut mkdir = Command::from(sandbox.command(Path::new("mkdir")));
    assert!(mkdir.arg(&folder).status().await.expect("mkdir runs").success(), "a folder for the results");
    let mut command = Command::from(sandbox.command(&input.join(suite.program)));
    command
        .args([option("inputdir", &input), option("outputdir", &folder)])
        .args([option("dlpath", &inputs.join("regress")), option("bindir", sandbox.binaries().directory())])
        .args([option("schedule", &input.join(suite.schedule)), format!("--port={port}")])
        .args(["--host=127.0.0.1", "--user", sandbox.superuser(), "--max-concurrent-tests=20"])
        .env("PGISOLATIONTIMEOUT", STEP_LIMIT)
        .env("HOME", &folder)
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = timeout(LIMIT, command.output()).await.expect("the suite ends in time").expect("it runs");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = verdicts(&report);
    // Beyond failed tests, something else may have gone wrong.
    let failed = passed.values().any(|passed| !passed);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || failed, "{} {name}: {report}\n{errors}", suite.program);
    Results { passed, folder }
}

/// The verdicts of a report: `test NAME ... ok 12 ms` or `FAILED`.
fn verdicts(report: &str) -> BTreeMap<String, bool> {
    let verdict = |line: &str| {
        let (name, verdict) = line.split_once(" ... ")?;
        let name = name.split_whitespace().next_back()?;
        Some((name.to_owned(), verdict.starts_with("ok")))
    };
    report.lines().filter_map(verdict).collect()
}

/// Whether a test came out differently: what passes has printed what is expected, of which there may be several forms.
fn differs(test: &str, direct: &Results, through: &Results) -> bool {
    match (direct.passed.get(test), through.passed.get(test)) {
        (Some(true), Some(true)) => false,
        (Some(false), Some(false)) => printed(test, direct) != printed(test, through),
        _ => true,
    }
}

fn printed(test: &str, results: &Results) -> Vec<u8> {
    fs::read(output_of(test, results)).unwrap_or_default()
}

fn output_of(test: &str, results: &Results) -> PathBuf {
    results.folder.join("results").join(format!("{test}.out"))
}

/// The lines in which a test came out differently.
async fn difference(test: &str, direct: &Results, through: &Results) -> String {
    let mut diff = Command::new("diff");
    diff.arg("-U3").args([output_of(test, direct), output_of(test, through)]);
    let output = diff.output().await.expect("diff runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tells what the sessions were pinned by: passing by pinning everything would show here.
async fn report_pins(causeway: &Causeway) {
    let text = causeway.http_get("/metrics").await.body;
    let counts = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name) && !line.ends_with(" 0"));
        lines.fold(String::new(), |all, line| all + "\n  " + line)
    };
    eprintln!("pins:{}", counts("causeway_pins_total"));
}

fn entries() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = DIFFERENCES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

fn listed(suite: Suite) -> Vec<&'static str> {
    entries().filter(|entry| entry[0] == suite.name).map(|entry| entry[1]).collect()
}

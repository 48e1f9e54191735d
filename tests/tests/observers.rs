//! What watches Causeway from outside: the rules for Prometheus, the dashboard for Grafana, exporters made for PgBouncer.
//!
//! `tests/observers/install` brings promtool and an exporter; what is not there is left out, and said so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use causeway_tests::{Place, through};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

const RULES: &str = "deploy/prometheus/causeway.rules.yaml";
const RULES_TEST: &str = "deploy/prometheus/causeway.rules.test.yaml";
const DASHBOARD: &str = "deploy/grafana/causeway.json";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn observers(path: &str) -> PathBuf {
    root().join("target/observers").join(path)
}

/// From the installer's folder, or from the system.
fn promtool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = std::env::split_paths(&path).map(|folder| folder.join("promtool"));
    [observers("usr/bin/promtool")].into_iter().chain(system).find(|file| file.is_file())
}

async fn succeeds(program: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(root()).output().await.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}:\n{text}", program.display());
}

/// Words that begin like Causeway's metrics.
fn metrics_of(text: &str) -> BTreeSet<String> {
    let part = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let words = text.split(|character| !part(character)).filter(|word| word.starts_with("causeway_"));
    words.map(str::to_owned).collect()
}

fn exists(name: &str) -> bool {
    let known = |name: &str| causeway::metrics::METRICS.iter().any(|metric| metric.name == name);
    known(name) || ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end).is_some_and(known))
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    for file in [RULES, RULES_TEST, DASHBOARD] {
        let names = metrics_of(&read(file));
        assert!(names.len() > 10, "{file}: {names:?}");
        let wrong: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
        assert!(wrong.is_empty(), "{file}: {wrong:?}");
    }
}

#[test]
fn every_alert_has_a_test_and_an_entry_in_the_runbooks() {
    let rules = read(RULES);
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let runbooks = read("docs/runbooks.md");
    let entries: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, entries);
    let tests = read(RULES_TEST);
    for alert in alerts {
        assert!(rules.contains(&format!("docs/runbooks.md#{}", alert.to_lowercase())), "{alert}");
        let raised = tests
            .split("eval_time")
            .any(|test| test.contains(&format!("alertname: {alert}\n")) && test.contains("exp_alerts"));
        assert!(raised, "{alert} is raised in no test");
    }
}

fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    targets
        .chain(annotations)
        .map(|target| target["expr"].as_str().expect("an expression").to_owned())
        .collect()
}

#[tokio::test]
async fn promtool_accepts_rules_dashboard_and_metrics() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 20);
    let Some(promtool) = promtool() else {
        eprintln!("left out: there is no promtool; tests/observers/install brings it");
        return;
    };
    succeeds(&promtool, &["check", "rules", RULES]).await;
    succeeds(&promtool, &["test", "rules", RULES_TEST]).await;
    // As rules, the expressions of the dashboard are parsed too.
    let plain = |text: &str| {
        ["$instance", "$database"]
            .iter()
            .fold(text.replace("$__rate_interval", "5m"), |text, name| text.replace(name, ".*"))
    };
    let rules: Vec<Value> = expressions
        .iter()
        .enumerate()
        .map(|(i, text)| serde_json::json!({"record": format!("panel_{i}"), "expr": plain(text)}))
        .collect();
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("dashboard.yaml");
    let text = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    fs::write(&file, text).expect("the file can be written");
    succeeds(&promtool, &["check", "rules", file.to_str().expect("UTF-8")]).await;
}

/// Debian's exporter asks as tools for PgBouncer do: SHOW LISTS, STATS, POOLS and DATABASES, as a user who may only look.
#[tokio::test]
async fn an_exporter_for_pgbouncer_works_unchanged() {
    let modules = observers("usr/lib/python3/dist-packages");
    if !modules.join("prometheus_pgbouncer_exporter").is_dir() {
        eprintln!("left out: the exporter for PgBouncer is not there; tests/observers/install brings it");
        return;
    }
    through("admin: { stats_users: [postgres] }\n", async |place: &Place| {
        let [port]: [u16; 1] =
            causeway_testkit::sandbox::free_ports(1).expect("a free port").try_into().expect("one port");
        let mut exporter = Command::new("/usr/bin/python3")
            .args([
                "-m",
                "prometheus_pgbouncer_exporter",
                "--host",
                "127.0.0.1",
                "--pgbouncer-host",
                "127.0.0.1",
            ])
            .args(["--port", &port.to_string(), "--pgbouncer-port", &place.port().to_string()])
            .args(["--pgbouncer-user", "postgres"])
            .env("PYTHONPATH", &modules)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 runs");
        let deadline = Instant::now() + Duration::from_secs(30);
        let url = format!("http://127.0.0.1:{port}/metrics");
        let text = loop {
            let answer = Command::new("curl").args(["-sf", &url]).output().await.expect("curl runs");
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            if text.contains("pgbouncer_requests_total{") {
                break text;
            }
            assert!(Instant::now() < deadline, "the exporter shows nothing: {text}");
            sleep(Duration::from_millis(200)).await;
        };
        let value = |series: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(series))
                .unwrap_or_else(|| panic!("{series}:\n{text}"));
            line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
        };
        assert!(value(&format!("pgbouncer_requests_total{{database=\"{}\"", place.database())) >= 1.0);
        assert!(value("pgbouncer_used_clients") >= 1.0);
        assert!(value("pgbouncer_pool_size{database=\"*\"") >= 1.0);
        exporter.kill().await.expect("the exporter ends");
    })
    .await;
}

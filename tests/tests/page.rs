//! The status page: its JSON, the page itself in a browser without a screen, and `causeway top`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use causeway_testkit::{Causeway, Sandbox, SandboxConfig, StopMode};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

const LIMIT: Duration = Duration::from_mins(1);

async fn document(causeway: &Causeway) -> Value {
    let answer = causeway.http_get("/status.json").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn node<'a>(document: &'a Value, name: &str) -> &'a Value {
    let nodes = document["clusters"][0]["nodes"].as_array().expect("nodes");
    nodes.iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("{name}: {nodes:?}"))
}

async fn wait_for(causeway: &Causeway, what: &str, fulfilled: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let document = document(causeway).await;
        if fulfilled(&document) {
            return document;
        }
        assert!(Instant::now() < deadline, "{what}: {document:#}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn has_event(document: &Value, kind: &str, text: &str) -> bool {
    let events = document["events"].as_array().expect("events");
    events
        .iter()
        .any(|event| event["kind"] == kind && event["text"].as_str().is_some_and(|own| own.contains(text)))
}

/// Debian's name of it first.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// What the page has drawn, after its script has asked for the JSON.
async fn drawn(browser: &Path, causeway: &Causeway, width: u32) -> String {
    let profile = tempfile::tempdir().expect("a folder for the browser");
    let running = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--virtual-time-budget=3000",
        ])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(format!("http://127.0.0.1:{}/", causeway.http_port()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, running).await.expect("the browser ends").expect("the browser runs");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("the page is UTF-8")
}

#[tokio::test]
async fn the_page_shows_what_happens() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(1)).await.expect("the servers start");
    let causeway = causeway_tests::start(&sandbox, "").await;
    for part in ["node", "replica", "lost", "refused", "57P0", "serve"] {
        causeway.allow_log(part);
    }
    causeway_tests::reads_use_replicas(&causeway, "postgres", "SELECT count(*) FROM pg_class").await;
    let before = wait_for(&causeway, "a curve", |document| {
        document["history"]["at"].as_array().is_some_and(|at| at.len() > 1)
    });
    let before = before.await;
    assert_eq!(
        (&node(&before, "pg-0")["role"], &node(&before, "pg-1")["role"]),
        (&"primary".into(), &"replica".into())
    );
    assert!(before["saved"]["queries"].as_u64() >= Some(1), "{before:#}");
    assert!(before["routing"].as_array().is_some_and(|routing| !routing.is_empty()), "{before:#}");
    let page = causeway.http_get("/").await;
    assert!(
        page.head.to_ascii_lowercase().contains("content-security-policy: default-src 'none'"),
        "{}",
        page.head
    );

    sandbox.node("pg-1").expect("the replica").stop(StopMode::Fast).await.expect("it stops");
    let after =
        wait_for(&causeway, "the event", |document| has_event(document, "node_state", "pg-1 is down")).await;
    assert_eq!(node(&after, "pg-1")["state"], "down");
    causeway.reload("clusters: {}\n").await;
    causeway.allow_log("reload");
    causeway.allow_log("");
    wait_for(&causeway, "the reload", |document| has_event(document, "reload_refused", "")).await;

    the_browser_draws(&causeway).await;
    the_terminal_shows(&causeway).await;
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

async fn the_browser_draws(causeway: &Causeway) {
    // A browser takes tens of seconds of two busy cores.
    if std::env::var_os("CAUSEWAY_BROWSER").is_none() {
        eprintln!("left out: the page in a browser, which `make page` tries");
        return;
    }
    let browser = browser().expect("CAUSEWAY_BROWSER is set, so there is a browser");
    for width in [390, 1280] {
        let page = drawn(&browser, causeway, width).await;
        for part in [
            "data-drawn=",
            "data-node=\"pg-0\" data-state=\"serving\" data-role=\"primary\"",
            "data-node=\"pg-1\" data-state=\"down\" data-role=\"replica\"",
            "✕ down",
            "data-kind=\"node_state\"",
            "A reload was refused",
            "aria-label=\"Queries a second: ",
            "% of queries",
        ] {
            assert!(page.contains(part), "{part}, {width} px:\n{page}");
        }
    }
}

async fn the_terminal_shows(causeway: &Causeway) {
    let program = std::fs::read_link(format!("/proc/{}/exe", causeway.pid())).expect("the running program");
    let run = async |address: String| {
        Command::new(&program).args(["top", "--once", "--address", &address]).output().await.expect("it runs")
    };
    let output = run(format!("http://127.0.0.1:{}/", causeway.http_port())).await;
    let screen = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{screen}");
    for part in ["replicas answered", "● serving", "✕ down", "A reload was refused", "where statements go"]
    {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    assert!(!screen.contains('\x1b'), "no colours but on a terminal");
    let nobody = run("127.0.0.1:1".to_owned()).await;
    assert_eq!(nobody.status.code(), Some(69));
}

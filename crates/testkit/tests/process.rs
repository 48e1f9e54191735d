//! Causeway as a process, under the kit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking; the lint exempts test functions alone")]

use std::panic::AssertUnwindSafe;

use causeway_testkit::wire::summary;
use causeway_testkit::{Causeway, Sandbox, SandboxConfig, Signal, yaml_for};

/// A primary alone: with nothing else to say, the log is the kit's business only.
async fn primary() -> Sandbox {
    Sandbox::start(SandboxConfig::default()).await.unwrap()
}

#[tokio::test]
async fn it_serves_reloads_and_stops() {
    let sandbox = primary().await;
    let yaml = yaml_for(&sandbox);
    let causeway = Causeway::start(&yaml).await;
    let mut client = causeway.client("postgres", "postgres").await;
    assert_eq!(summary(&client.query("SELECT 1").await), "T D C Z(I)");
    assert!(causeway.rss_bytes() > 1 << 20);
    assert!(causeway.open_fds() > 3);
    assert!(causeway.threads() >= 1);
    assert_eq!(causeway.http_get("/livez").await.status, 200);
    let metrics = causeway.metrics().await;
    assert!(metrics.names().iter().any(|name| name.starts_with("causeway_")), "{}", metrics.text());
    causeway.reload(&format!("{yaml}pool: {{ size: 3 }}\n")).await;
    assert!(causeway.metric("causeway_config_reloads_total", &[("result", "success")]).await >= 1.0);
    client.terminate().await;
    causeway.stop().await;
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_its_log() {
    let refusal = Causeway::try_start("no_such_key: 1\n").await.unwrap_err();
    assert_eq!(refusal.status.code(), Some(78), "{refusal}");
    assert!(refusal.log.contains("no_such_key"), "{refusal}");
}

#[tokio::test]
async fn a_complaint_in_the_log_fails_the_test() {
    let sandbox = primary().await;
    let yaml = yaml_for(&sandbox);
    let causeway = Causeway::start(&yaml).await;
    causeway.reload(&format!("{yaml}no_such_key: 1\n")).await;
    causeway.wait_for_log("no_such_key").await;
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(causeway)));
    let message = *dropped.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("causeway complained:") && message.contains("no_such_key"), "{message}");
}

#[tokio::test]
async fn an_expected_complaint_does_not() {
    let sandbox = primary().await;
    let yaml = yaml_for(&sandbox);
    let causeway = Causeway::start(&yaml).await;
    causeway.allow_log("no_such_key");
    causeway.reload(&format!("{yaml}no_such_key: 1\n")).await;
    causeway.wait_for_log("no_such_key").await;
}

#[tokio::test]
async fn a_crash_fails_the_test() {
    let sandbox = primary().await;
    let causeway = Causeway::start(&yaml_for(&sandbox)).await;
    causeway.signal(Signal::KILL);
    while causeway.is_running() {
        tokio::task::yield_now().await;
    }
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(causeway)));
    let message = *dropped.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("causeway ended by itself: signal: 9"), "{message}");
}

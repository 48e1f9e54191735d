//! S-AS: what a server sends unasked.

use std::time::Duration;

use causeway_testkit::wire::{Client, summary};
use causeway_testkit::{Sandbox, SandboxConfig};
use causeway_tests::{ONE_CONNECTION, Place, everywhere, start, tags};
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn s_as_02_notices_go_to_the_client_whose_statement_runs() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        let raise = "DO $$ BEGIN RAISE NOTICE 'for a'; RAISE WARNING 'also'; END $$";
        for _ in 0..5 {
            let answer = a.query(raise).await;
            assert_eq!(summary(&answer), "N(00000) N(01000) C Z(I)");
            assert_eq!(answer[0].field(b'M'), Some("for a"));
            assert_eq!(summary(&b.query("SELECT 1").await), "T D C Z(I)");
            assert_eq!(summary(&a.execute(raise, &[]).await), "1 2 n N(00000) N(01000) C Z(I)");
        }
        assert_eq!(summary(&a.query("ROLLBACK").await), "N(25P01) C Z(I)");
        b.expect_silence(Duration::from_millis(50)).await;
    })
    .await;
}

#[tokio::test]
async fn s_as_02_a_reported_setting_changes_on_the_server() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(1)).await.expect("the servers start");
    let causeway = start(&sandbox, "pool: { size: 2 }\n").await;
    let mut idle = Client::login(causeway.port(), "postgres", "postgres").await;
    let (mut chosen, _) = Client::login_with(
        causeway.port(),
        &[("user", "postgres"), ("database", "postgres"), ("TimeZone", "Asia/Tokyo")],
    )
    .await;
    idle.one("SELECT 1").await;
    for (round, zone) in ["Europe/Berlin", "America/Lima", "Europe/Berlin"].into_iter().enumerate() {
        for node in sandbox.nodes() {
            node.configure("TimeZone", zone).await.expect("the setting is changed");
        }
        sandbox.primary().sql("postgres", "SELECT pg_reload_conf()").await.expect("it is read again");
        sandbox.replicas()[0].sql("postgres", "SELECT pg_reload_conf()").await.expect("it is read again");
        for _ in 0..20 {
            // Logins at that moment, and sessions that chose a value of their own.
            let mut new = Client::login(causeway.port(), "postgres", "postgres").await;
            assert_eq!(new.one("SELECT 1").await, "1");
            assert_eq!(chosen.one("SHOW TimeZone").await, "Asia/Tokyo");
            assert_eq!(chosen.parameter("TimeZone"), Some("Asia/Tokyo"), "round {round}");
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while idle.one("SELECT current_setting('TimeZone') FROM pg_class LIMIT 1 FOR UPDATE").await != zone {
            assert!(Instant::now() < deadline, "an idle session still does not see {zone}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn s_as_01_a_listener_hears_what_is_notified() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let (mut a, mut c) = (place.client().await, place.client().await);
        assert_eq!(tags(&a.query("LISTEN ev").await), ["LISTEN"]);
        for number in 0..20 {
            c.query(&format!("NOTIFY ev, '{number}'")).await;
        }
        for number in 0..20 {
            let event = a.recv().await;
            assert_eq!(event.tag, b'A', "{event:?}");
            let (_, channel, payload) = event.notification();
            assert_eq!((channel.as_str(), payload), ("ev", number.to_string()));
        }
        // Not in the middle of its own transaction.
        a.query("BEGIN").await;
        c.query("SELECT pg_notify('ev', 'later')").await;
        assert_eq!(summary(&a.query("SELECT 1").await), "T D C Z(T)");
        assert_eq!(summary(&a.query("COMMIT").await), "C A(ev) Z(I)");
        assert_eq!(tags(&a.query("UNLISTEN *").await), ["UNLISTEN"]);
        c.query("NOTIFY ev, 'unheard'").await;
        a.expect_silence(Duration::from_millis(100)).await;
        assert_eq!(summary(&c.query("SELECT 1").await), "T D C Z(I)");
    })
    .await;
}

//! S-CX: cancel requests.

use std::time::Duration;

use causeway_testkit::wire::request::{cancel_packet, query};
use causeway_testkit::wire::{Client, Key, cancel, summary};
use causeway_tests::{ONE_CONNECTION, Place, count, everywhere, tags, through};
use tokio::time::sleep;

/// Sleeps on the primary.
fn sleep_on_primary(seconds: &str) -> String {
    format!("SELECT pg_sleep({seconds}) FROM shop.item WHERE id = 1 FOR UPDATE")
}

#[tokio::test]
async fn s_cx_01_a_cancel_arrives_after_the_server_changed_hands() {
    through(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        let mut cancelled = 0;
        for round in 0..40 {
            a.send(&[query(&sleep_on_primary("0.05"))]).await;
            sleep(Duration::from_millis(10)).await;
            b.send(&[query(&sleep_on_primary("0.05"))]).await;
            // From well before the end of A's statement to just after it.
            sleep(Duration::from_millis(25 + round / 2)).await;
            let nothing = cancel(place.port(), &a.key()).await;
            assert!(nothing.is_empty(), "{nothing:?}");
            match summary(&a.until_ready().await).as_str() {
                "T D C Z(I)" => {}
                "T E(57014) Z(I)" | "E(57014) Z(I)" => cancelled += 1,
                other => panic!("A: {other}"),
            }
            assert_eq!(summary(&b.until_ready().await), "T D C Z(I)", "round {round}");
        }
        assert!(cancelled > 0, "no cancel came in time");
    })
    .await;
}

#[tokio::test]
async fn s_cx_02_cancel_of_a_client_still_waiting_in_the_queue() {
    through(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        b.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
        a.send(&[query("INSERT INTO shop.audit(note) VALUES ('queued')")]).await;
        a.expect_silence(Duration::from_millis(100)).await;
        assert!(cancel(place.port(), &a.key()).await.is_empty());
        assert_eq!(summary(&a.until_ready().await), "E(57014) Z(I)");
        assert_eq!(tags(&b.query("COMMIT").await), ["COMMIT"]);
        assert_eq!(a.one("SELECT count(*) FROM shop.audit WHERE note = 'queued'").await, "0");
        assert_eq!(tags(&a.query("INSERT INTO shop.audit(note) VALUES ('later')").await), ["INSERT 0 1"]);
    })
    .await;
}

#[tokio::test]
async fn s_cx_03_what_the_cancel_connection_gets_back() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        // Idle: nothing happens to anyone.
        b.send(&[query(&sleep_on_primary("0.3"))]).await;
        sleep(Duration::from_millis(50)).await;
        assert!(cancel(place.port(), &a.key()).await.is_empty());
        assert_eq!(summary(&b.until_ready().await), "T D C Z(I)");
        assert_eq!(a.one("SELECT 'undisturbed'").await, "undisturbed");
        // A key that nobody has.
        let unknown = Key { pid: 1, secret: vec![1, 2, 3, 4] };
        assert!(cancel(place.port(), &unknown).await.is_empty());
        // Running, on the primary and as a read that may run elsewhere.
        for sql in [sleep_on_primary("30"), "SELECT pg_sleep(30)".to_owned()] {
            a.send(&[query(&sql)]).await;
            sleep(Duration::from_millis(200)).await;
            assert!(cancel(place.port(), &a.key()).await.is_empty());
            let answer = summary(&a.until_ready().await);
            assert!(["E(57014) Z(I)", "T E(57014) Z(I)"].contains(&&*answer), "{sql}: {answer}");
            assert_eq!(a.one("SELECT 'in step'").await, "in step");
        }
        // In a transaction: cancelled there, and still in it.
        a.query("BEGIN").await;
        a.send(&[query("SELECT pg_sleep(30)")]).await;
        sleep(Duration::from_millis(200)).await;
        assert!(cancel(place.port(), &a.key()).await.is_empty());
        let answer = summary(&a.until_ready().await);
        assert!(["E(57014) Z(E)", "T E(57014) Z(E)"].contains(&&*answer), "{answer}");
        assert_eq!(tags(&a.query("ROLLBACK").await), ["ROLLBACK"]);
    })
    .await;
}

#[tokio::test]
async fn s_cx_04_a_wrong_secret() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.send(&[query(&sleep_on_primary("1.5"))]).await;
        sleep(Duration::from_millis(100)).await;
        let mut key = a.key();
        for last in key.secret.iter_mut().rev().take(1) {
            *last ^= 1;
        }
        for _ in 0..100 {
            assert!(cancel(place.port(), &key).await.is_empty());
        }
        let right = cancel_packet(&a.key());
        let mut truncated = right[..12].to_vec();
        truncated[3] = 12;
        let mut long = right.clone();
        long.extend([0; 300]);
        long[2..4].copy_from_slice(&[1, 60]);
        for packet in [truncated, long] {
            let mut other = Client::connect(place.port()).await;
            other.send_bytes(&packet).await;
            let answer = other.until_eof().await;
            assert!(place.is_direct() || answer.is_empty(), "{answer:?}");
        }
        assert_eq!(summary(&a.until_ready().await), "T D C Z(I)");
        if !place.is_direct() {
            let ignored = count(place.causeway(), "causeway_cancels_total", &[("result", "ignored")]).await;
            assert!(ignored >= 100, "{ignored} were counted");
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancel_at_a_peer_reaches_the_client_of_the_other() {
    through("", async |place: &Place| {
        let own = place.port();
        // Its peers are the other one and itself, as where all have the same file.
        let yaml = causeway_testkit::yaml_for(place.sandbox());
        let other = causeway_tests::start_yaml(
            place.sandbox(),
            &format!("{yaml}peers: [\"127.0.0.1:{own}\"]\n"),
            place.sandbox().nodes().len(),
        )
        .await;
        let mut client = place.client().await;
        client.send(&[query(&sleep_on_primary("60"))]).await;
        sleep(Duration::from_millis(100)).await;
        assert!(cancel(other.port(), &client.key()).await.is_empty());
        assert_eq!(summary(&client.until_ready().await), "T E(57014) Z(I)");
        // One that nobody knows ends there.
        let mut wrong = client.key();
        wrong.secret[0] ^= 1;
        assert!(cancel(other.port(), &wrong).await.is_empty());
        assert_eq!(client.one("SELECT 1").await, "1");
        let passed_on = [("result", "passed_on")];
        assert_eq!(count(&other, "causeway_cancels_total", &passed_on).await, 2);
        assert_eq!(count(place.causeway(), "causeway_cancels_total", &passed_on).await, 0);
        other.stop().await;
    })
    .await;
}

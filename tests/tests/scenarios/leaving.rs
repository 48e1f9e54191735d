//! S-DC: clients that leave at bad moments.

use std::time::Duration;

use causeway_testkit::wire::request::{query, terminate};
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{ONE_CONNECTION, Place, everywhere, tags, through, value};
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn s_dc_01_a_client_leaves_inside_a_transaction() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        for way in ["close", "reset", "terminate"] {
            let mut a = place.client().await;
            a.query("BEGIN").await;
            assert_eq!(tags(&a.query("INSERT INTO shop.audit(note) VALUES ('ghost')").await), ["INSERT 0 1"]);
            match way {
                "close" => drop(a),
                "reset" => a.reset(),
                _ => a.terminate().await,
            }
            let mut b = place.client().await;
            let ghosts = "SELECT count(*) FROM shop.audit WHERE note='ghost'";
            assert_eq!(b.one(ghosts).await, "0", "{way}");
            // A statement that only the primary may answer, and not inside anyone's transaction.
            assert_eq!(
                tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await),
                ["UPDATE 1"],
                "{way}"
            );
            let alone = "SELECT now() = statement_timestamp() FROM shop.item WHERE id = 1 FOR UPDATE";
            assert_eq!(b.one(alone).await, "t", "{way}");
            let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND state LIKE 'idle in transaction%'";
            place.admin_until(open, "0").await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_leaves_before_it_is_answered() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND state LIKE 'idle in transaction%'";
        let update = "UPDATE shop.item SET qty = qty WHERE id = 1";
        for round in 0..30 {
            let mut a = place.client().await;
            a.send(&[query("BEGIN"), query(update)]).await;
            match round % 3 {
                0 => drop(a),
                1 => a.reset(),
                _ => a.send(&[terminate()]).await,
            }
        }
        place.admin_until(open, "0").await;
        // The one server connection, and the row, are free.
        let mut b = place.client().await;
        assert_eq!(tags(&b.query(update).await), ["UPDATE 1"]);
    })
    .await;
}

#[tokio::test]
async fn s_dc_02_a_client_leaves_in_the_middle_of_a_result() {
    through(ONE_CONNECTION, async |place: &Place| {
        for (number, lock) in ["", " FOR UPDATE"].into_iter().enumerate() {
            let mut a = Client::connect_slow(place.port(), 4096).await;
            a.startup(&[("user", "postgres"), ("database", place.database())]).await;
            let big = format!(
                "SELECT repeat('x',1000) FROM (SELECT 1 FROM shop.item WHERE id = 1{lock}) i, \
                 generate_series(1,200000)"
            );
            a.send(&[query(&big)]).await;
            assert_eq!(summary(&a.until(b'D').await), "T D");
            a.reset();
            let left = Instant::now();
            let mut b = place.client().await;
            for _ in 0..4 {
                let answer = b.query("SELECT 1").await;
                assert_eq!((summary(&answer).as_str(), value(&answer)), ("T D C Z(I)", "1".to_owned()));
            }
            assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
            assert!(
                left.elapsed() < Duration::from_secs(5),
                "B waited {:?} in round {number}",
                left.elapsed()
            );
        }
    })
    .await;
}

#[tokio::test]
async fn s_dc_03_an_aborted_transaction_is_not_handed_on() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        for begin in ["BEGIN", "BEGIN READ ONLY"] {
            let mut a = place.client().await;
            a.query(begin).await;
            assert_eq!(summary(&a.query("SELECT 1/0").await), "E(22012) Z(E)");
            a.terminate().await;
            let mut b = place.client().await;
            for _ in 0..4 {
                assert_eq!(summary(&b.query("SELECT 1").await), "T D C Z(I)");
            }
            assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
        }
    })
    .await;
}

#[tokio::test]
async fn clients_that_leave_free_their_place_in_the_queue() {
    through(ONE_CONNECTION, async |place: &Place| {
        let mut holder = place.client().await;
        holder.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
        for _ in 0..20 {
            let mut waiting = place.client().await;
            waiting.send(&[query("INSERT INTO shop.audit(note) VALUES ('gone')")]).await;
            sleep(Duration::from_millis(10)).await;
            waiting.reset();
        }
        let mut b = place.client().await;
        b.send(&[query("INSERT INTO shop.audit(note) VALUES ('stayed')")]).await;
        sleep(Duration::from_millis(100)).await;
        holder.query("COMMIT").await;
        assert_eq!(tags(&b.until_ready().await), ["INSERT 0 1"]);
        assert_eq!(b.one("SELECT string_agg(note, ',') FROM shop.audit").await, "stayed");
    })
    .await;
}

/// A client of the console has nothing under way that a drain would have to wait for.
#[tokio::test]
async fn a_client_of_the_console_does_not_hold_up_a_drain() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let causeway = causeway_tests::start(sandbox, "admin: { users: [postgres] }\n").await;
    let mut console = causeway.client("postgres", "causeway").await;
    console.query("SHOW STATE").await;
    let asked = tokio::time::Instant::now();
    causeway.stop().await;
    assert!(asked.elapsed() < std::time::Duration::from_secs(5), "{:?}", asked.elapsed());
}

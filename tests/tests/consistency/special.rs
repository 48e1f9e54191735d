//! What is looked for one by one: T13 to T15, what the primary is asked, and how many reads replicas answer.

use std::time::Duration;

use causeway_testkit::history::{self, Level};
use causeway_testkit::wire::Client as Wire;
use causeway_testkit::{Causeway, Node};
use causeway_tests::{count, rows, value};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Client, Habits, Records, served};
use crate::stage::{KEYS, Stage};
use crate::{number, verdict};

async fn session(causeway: &Causeway) -> Wire {
    Wire::login(causeway.port(), "postgres", "postgres").await
}

/// T13. Where a page of the log begins, the insert position lies behind its header, and no record ends there.
#[tokio::test]
async fn a_read_at_a_page_boundary_is_answered_by_a_replica() {
    let stage = Stage::start("consistency: { wait: 3s, fallback: primary }\n").await;
    let mut clients = [session(&stage.routers[0]).await, session(&stage.routers[1]).await];
    // A record in seven ends where its page does.
    let align = "DO $$ BEGIN
        FOR n IN 1..4000 LOOP
            PERFORM pg_logical_emit_message(false, 'c', repeat('x', n % 23));
            EXIT WHEN mod(pg_current_wal_insert_lsn() - '0/0'::pg_lsn, 8192) = 24;
        END LOOP; END $$";
    let position = "SELECT mod(pg_current_wal_insert_lsn() - '0/0'::pg_lsn, 8192), pg_current_wal_insert_lsn() \
                    FROM pg_sleep(0.5)";
    let mut hits = 0;
    for _ in 0..10 {
        stage.primary(align).await;
        // By then it is flushed, and nobody has the primary write more.
        let before = stage.primary(position).await;
        for client in &mut clients {
            let begun = Instant::now();
            let answer = client.query("SELECT node(), value FROM register WHERE key = 0").await;
            let node = served(rows(&answer)[0][0].as_deref().unwrap_or_default());
            assert!(node.replica, "at {before} the primary answered after {:?}", begun.elapsed());
        }
        hits += u32::from(before.starts_with("24|") && before == stage.primary(position).await);
        if hits == 2 {
            break;
        }
    }
    assert_eq!(hits, 2, "the log did not stay where a page begins");
    drop(clients);
    stage.stop().await;
}

/// T14. A read that is in conflict with replay ends with an error or with every row once, never with a splice.
#[tokio::test]
async fn a_recovery_conflict_never_splices_an_answer() {
    let stage = Stage::start("").await;
    for replica in stage.sandbox.replicas() {
        let done = replica.configure("max_standby_streaming_delay", "200ms").await;
        done.expect("the setting is taken");
    }
    let (mut whole, mut failed) = (0, 0);
    for round in 0..3 {
        let readers = stage.routers.iter().map(async |router| {
            let mut client = session(router).await;
            client
                .query("/* causeway: consistency=eventual */ SELECT id, pg_sleep(0.0003), node() FROM long")
                .await
        });
        let conflict = async {
            sleep(Duration::from_millis(300)).await;
            stage.primary("UPDATE long SET filler = repeat('y', 100)").await;
            stage.primary("VACUUM long").await;
        };
        let (answers, ()) = tokio::join!(futures_util::future::join_all(readers), conflict);
        for answer in answers {
            let mut ids: Vec<u64> = rows(&answer)
                .iter()
                .map(|row| row[0].as_deref().unwrap_or_default().parse().expect("an id"))
                .collect();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), all, "round {round}: a row came twice");
            if answer.iter().any(|message| message.tag == b'E') {
                failed += 1;
            } else {
                assert_eq!(all, 3000, "round {round}");
                whole += 1;
            }
        }
    }
    assert_eq!(whole + failed, 6);
    stage.stop().await;
}

/// T15. An entry that is filled anew after its notification is never filled with what it was before.
#[tokio::test]
async fn a_cache_refilled_after_a_notification_is_fresh() {
    let stage = Stage::start("").await;
    let [one, other] = &stage.routers;
    let (mut listener, mut reader, mut writer) =
        (session(other).await, session(other).await, session(one).await);
    listener.query("LISTEN changed").await;
    for n in 1..=60 {
        let write = format!("BEGIN; UPDATE register SET value = {n} WHERE key = 1; NOTIFY changed; COMMIT");
        let (_, notified) = tokio::join!(writer.query(&write), listener.recv());
        assert_eq!(notified.tag, b'A');
        let shown = value(&reader.query("SELECT value FROM register WHERE key = 1").await);
        assert_eq!(shown, n.to_string());
    }
    drop((listener, reader, writer));
    stage.stop().await;
}

/// Zero stale reads by sending all of them to the primary would be no result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_answer_most_reads() {
    let stage = Stage::start("").await;
    let time = Duration::from_secs(number("CAUSEWAY_SHARE_SECONDS", 4));
    for (rate, least) in [(0, 0.97), (50, 0.6), (1000, 0.0)] {
        let reading =
            Habits { writes: 0, pause: Duration::from_millis(2), cluster_only: true, asynchronous: false };
        stage.reset().await;
        let until = Instant::now() + time;
        let readers: Vec<_> =
            (0..KEYS).map(|id| tokio::spawn(Client::new(&stage, id, reading, 1).work(until))).collect();
        let written = write_at(stage.sandbox.primary(), rate, until).await;
        let mut records = Records::default();
        for reader in readers {
            records.add(reader.await.expect("a reader ends"));
        }
        // Past the routers, so that the history does not know what was written.
        records.events.retain(|event| event.key != KEYS);
        let name = format!("{rate} writes a second wanted, {written} made in {time:?}");
        let figures = verdict::judge(&stage, &name, 1, records).await;
        assert!(figures.share() >= least, "{name}: {figures:?}");
    }
    stage.stop().await;
}

/// I12 and I14: probes do not grow with the reads, and who needs none sends none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_the_primary_is_bounded() {
    let stage = Stage::start("").await;
    let router = &stage.routers[0];
    let probes = async || count(router, "causeway_probes_total", &[("kind", "fence")]).await;
    let nudges = async || count(router, "causeway_nudges_total", &[]).await;
    for (name, level) in
        [("session", Level::Session), ("router", Level::Router), ("eventual", Level::Eventual)]
    {
        let mut client = session(router).await;
        let read = format!("/* causeway: consistency={name} */ SELECT value FROM register WHERE key = 0");
        // A Causeway that has just started does not know what was written before, and a connection counts once its
        // server was asked again.
        client.query(&read).await;
        sleep(Duration::from_millis(600)).await;
        client.query(&read).await;
        let before = probes().await;
        for _ in 0..200 {
            client.query(&read).await;
        }
        assert_eq!(history::idle(level, 200, probes().await - before), []);
    }
    let (before, begun) = ((probes().await, nudges().await), Instant::now());
    let readers = (0..16).map(async |_| {
        let mut client = session(router).await;
        for _ in 0..100 {
            client.query("SELECT value FROM register WHERE key = 0").await;
        }
    });
    futures_util::future::join_all(readers).await;
    let spending = history::Spending {
        elapsed: begun.elapsed(),
        probes: probes().await - before.0,
        pipeline: 1,
        round_trip: Duration::from_micros(200),
        nudges: nudges().await - before.1,
        nudge_interval: Duration::from_millis(50),
    };
    assert_eq!(history::spent(&spending), []);
    assert!(spending.probes < 1600, "reads share probes: {spending:?}");
    stage.stop().await;
}

/// I15: what has an effect on a replica, or means something else there, is the primary's.
#[tokio::test]
async fn what_only_the_primary_may_answer_reaches_no_replica() {
    let stage = Stage::start("").await;
    let router = &stage.routers[0];
    let mut client = session(router).await;
    let labels = [("database", "postgres"), ("role", "replica")];
    let mut placements = Vec::new();
    for sql in [
        "SELECT pg_advisory_lock(7)",
        "SELECT pg_advisory_unlock(7)",
        "SELECT value FROM register WHERE key = 0 FOR UPDATE",
        "SELECT value FROM register WHERE key = 0 FOR KEY SHARE",
        "LISTEN changed",
        "NOTIFY changed",
        "UNLISTEN *",
        "SELECT nextval(pg_get_serial_sequence('counted', 'id'))",
        "SELECT pg_is_in_recovery()",
        "WITH w AS (UPDATE register SET value = value WHERE key = 0 RETURNING value) SELECT value FROM w",
        "EXPLAIN ANALYZE UPDATE register SET value = value WHERE key = 0",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; SELECT value FROM register WHERE key = 0; COMMIT",
    ] {
        let before = count(router, "causeway_queries_total", &labels).await;
        client.query(sql).await;
        let on_replicas = count(router, "causeway_queries_total", &labels).await - before;
        placements.push(history::Placement { sql: sql.to_owned(), on_replicas });
    }
    assert_eq!(history::placed(&placements), []);
    drop(client);
    stage.stop().await;
}

/// Writes so often a second, past the routers and to a register that nobody reads; the answer is how often it did.
async fn write_at(primary: &Node, rate: u32, until: Instant) -> u64 {
    let mut writer = Wire::login(primary.port(), "postgres", "postgres").await;
    let (begun, mut written) = (Instant::now(), 0);
    let Some(pause) = Duration::from_secs(1).checked_div(rate) else {
        tokio::time::sleep_until(until).await;
        return 0;
    };
    let sql = format!("UPDATE register SET value = value + 1 WHERE key = {KEYS}");
    while Instant::now() < until {
        let due = begun + pause * u32::try_from(written).expect("a short run");
        tokio::time::sleep_until(due).await;
        timeout(Duration::from_secs(20), writer.query(&sql)).await.expect("a write ends");
        written += 1;
    }
    written
}

//! T8 and T9: a replica is promoted while clients work.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use causeway_testkit::StopMode;
use causeway_testkit::history::{Moment, Op};
use causeway_tests::serving;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Records};
use crate::stage::{KEYS, Stage};
use crate::{MIXED, number, verdict};

/// Within this time routers have noticed a newer timeline: the interval of the checks, a round trip, and a busy machine.
const NOTICED: Moment = 1_500_000;

fn clients(stage: &Arc<Stage>, until: Instant, seed: u64) -> Vec<JoinHandle<Records>> {
    (0..KEYS).map(|id| tokio::spawn(Client::new(stage, id, MIXED, seed).work(until))).collect()
}

async fn records(clients: Vec<JoinHandle<Records>>) -> Records {
    let mut records = Records::default();
    for client in clients {
        records.add(client.await.expect("a client ends"));
    }
    records
}

/// Nothing is lost when the old primary has sent everything, and nothing that was acknowledged is missed afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_promotion_loses_nothing() {
    let (stage, seed) = (Stage::start("").await, number("CAUSEWAY_SEED", 1));
    let until = Instant::now() + Duration::from_secs(8);
    let clients = clients(&stage, until, seed);
    sleep(Duration::from_secs(2)).await;
    let [old, new, other] = stage.sandbox.nodes() else { panic!("three nodes") };
    old.stop(StopMode::Fast).await.expect("it stops");
    new.promote().await.expect("it is promoted");
    stage.promoted(1);
    other.follow(new).await.expect("it follows");
    let promoted = stage.now();
    let records = records(clients).await;
    let after = records.events.iter().filter(|event| event.invoked > promoted + NOTICED);
    let writes = after.clone().filter(|event| matches!(event.op, Op::Write(_))).count();
    let reads = after.filter(|event| event.served.is_some_and(|served| served.replica)).count();
    assert!(writes > 0, "nothing was written after the promotion");
    for router in &stage.routers {
        serving(router, 2).await;
    }
    verdict::judge(&stage, "clean promotion", seed, records).await;
    assert!(reads > 0, "no replica answered after the promotion");
    stage.stop().await;
}

/// The old primary has acknowledged what the new one lacks, lives on, and goes on to write; a replica stays with it. What
/// is lost is no part of the history; what comes afterwards is as ever, and the old primary has no part in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lossy_promotion_leaves_the_old_primary_out() {
    let (stage, seed) = (Stage::start("").await, number("CAUSEWAY_SEED", 1));
    // Which values have been committed, by whom.
    let log = "CREATE TABLE log (key int, value bigint, at timestamptz DEFAULT clock_timestamp());
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO log VALUES (new.key, new.value); RETURN new; END';
        CREATE TRIGGER note AFTER UPDATE ON register FOR EACH ROW EXECUTE FUNCTION note()";
    stage.primary(log).await;
    stage.recovered().await;
    let until = Instant::now() + Duration::from_secs(10);
    let clients = clients(&stage, until, seed);
    sleep(Duration::from_secs(2)).await;
    let [old, new, other] = stage.sandbox.nodes() else { panic!("three nodes") };
    for sql in ["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"] {
        new.sql("postgres", sql).await.expect("it stops receiving");
    }
    sleep(Duration::from_millis(500)).await;
    let promoted = stage.now();
    new.promote().await.expect("it is promoted");
    stage.promoted(1);
    // Numerically beyond the new primary, and replayed by the replica that stays.
    let bulk = "INSERT INTO bulk SELECT n, repeat('x', 200) FROM generate_series(1, 20000) AS n";
    old.sql("postgres", bulk).await.expect("the old primary goes on");
    // Prepared here, committed there: nobody else would end it.
    stage.roll_back_prepared().await;
    sleep(Duration::from_micros(NOTICED)).await;
    let count = "SELECT count(*) FROM log";
    let before = old.sql("postgres", count).await.expect("it answers");
    let noticed = stage.now();
    let mut records = records(clients).await;
    assert_eq!(
        old.sql("postgres", count).await.expect("it answers"),
        before,
        "the old primary was written to"
    );
    let outdated = [old.port(), other.port()];
    let late = records.events.iter().filter(|event| event.invoked > noticed);
    let wrong = late.clone().find(|event| event.served.is_some_and(|served| outdated.contains(&served.node)));
    assert_eq!(wrong, None, "CAUSEWAY_SEED={seed}: an outdated node has answered");
    let writes = late.filter(|event| matches!(event.op, Op::Write(_))).count();
    assert!(writes > 0, "nothing was written after the promotion");
    let found = stage.primary("SELECT key, value FROM log").await;
    let kept: HashSet<(u32, u64)> = found.lines().filter_map(entry).collect();
    records.events.retain(|event| match event.op {
        Op::Write(value) => kept.contains(&(event.key, value)),
        // Some routers know of the new timeline before others.
        Op::Read(value) => {
            let between = event.completed > promoted && event.invoked < noticed;
            !between && (value == 0 || kept.contains(&(event.key, value)))
        }
        Op::Told => true,
    });
    // Effects and lists of the old primary are lost as well.
    records.executions.clear();
    records.snapshots.clear();
    records.transactions.clear();
    verdict::judge(&stage, "lossy promotion", seed, records).await;
    stage.stop().await;
}

fn entry(line: &str) -> Option<(u32, u64)> {
    let (key, value) = line.split_once('|')?;
    Some((key.parse().ok()?, value.parse().ok()?))
}

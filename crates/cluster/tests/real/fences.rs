//! What a fence and an observation promise to a reader.

use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_routing::{Fence, NodeId};
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;

use crate::Rig;

/// As a reader waits: for a fence sent after `since`, then for the replica to cover it.
async fn covered(cluster: &Cluster, node: NodeId, since: Instant) -> Fence {
    let mut progress = cluster.progress();
    loop {
        let fence = cluster.fence_since(since);
        let observation = cluster.view().node(node).and_then(|node| node.observation);
        if let Some(fence) = fence.filter(|fence| observation.is_some_and(|seen| seen.covers(fence))) {
            return fence;
        }
        cluster.need_fence();
        progress.changed().await.expect("the cluster lives");
    }
}

async fn shown(replica: &Client, value: i64) -> bool {
    replica
        .query_one("SELECT count(*) FROM kept WHERE v = $1", &[&value])
        .await
        .expect("a count")
        .get::<_, i64>(0)
        == 1
}

/// `commits` in a row, each read back from the replica as soon as that is proven to be possible.
async fn read_own_writes(rig: &Rig, settings: &str, commits: i64) -> Duration {
    let primary = rig.session("pg-0").await;
    let replica = rig.session("pg-1").await;
    primary.batch_execute(settings).await.expect("a setting");
    let begun = Instant::now();
    for value in 0..commits {
        primary.execute("INSERT INTO kept VALUES ($1)", &[&value]).await.expect("a commit");
        let acknowledged = Instant::now();
        let fence = timeout(Duration::from_secs(15), covered(&rig.cluster, NodeId(1), acknowledged)).await;
        let fence = fence.unwrap_or_else(|_| panic!("never covered: {:#?}", rig.cluster.view()));
        assert!(shown(&replica, value).await, "fence {fence:?} was covered, row {value} is not there");
    }
    begun.elapsed() / u32::try_from(commits).expect("few")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_covered_fence_means_that_the_row_is_there() {
    let rig = Rig::start(1).await;
    let mean = read_own_writes(&rig, "SET synchronous_commit = on", 200).await;
    assert!(mean < Duration::from_millis(100), "a waiting reader is served at the active interval: {mean:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_cover_asynchronous_commits() {
    let rig = Rig::start(1).await;
    let mean = read_own_writes(&rig, "SET synchronous_commit = off", 50).await;
    assert!(mean < Duration::from_millis(150), "the primary is made to flush: {mean:?}");
}

#[tokio::test]
async fn an_open_transaction_on_a_quiet_primary_holds_no_reader_up() {
    let rig = Rig::start(1).await;
    let primary = rig.session("pg-0").await;
    // Its records are behind every fence taken from now on, and nothing flushes them.
    primary.batch_execute("BEGIN; INSERT INTO kept VALUES (1)").await.unwrap();
    let fence = timeout(Duration::from_secs(2), covered(&rig.cluster, NodeId(1), Instant::now())).await;
    assert!(fence.is_ok(), "not covered in time: {:#?}", rig.cluster.view());
}

#[tokio::test]
async fn a_probe_under_way_does_not_count() {
    let rig = Rig::start(1).await;
    let since = Instant::now();
    assert_eq!(rig.cluster.fence_since(since), None, "no probe was sent at or after now");
    rig.cluster.need_fence();
    let begun = Instant::now();
    let fence = timeout(Duration::from_secs(5), covered(&rig.cluster, NodeId(1), since)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(240), "it was not sooner than the idle interval");
    assert_eq!(rig.cluster.fence_since(since), Some(fence));
    assert_eq!(rig.cluster.fence_since(Instant::now()), None);
}

#[tokio::test]
async fn nobody_is_polled_actively_when_nobody_waits() {
    let rig = Rig::start(1).await;
    rig.cluster.need_fence();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut progress = rig.cluster.progress();
    progress.mark_unchanged();
    let before = *progress.borrow();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answers = *progress.borrow() - before;
    // Two nodes at four probes a second.
    assert!((4..=12).contains(&answers), "{answers} answers in a second");
}

#[tokio::test]
async fn a_position_behind_a_page_header_is_reached() {
    let rig = Rig::start(1).await;
    let primary = rig.session("pg-0").await;
    let insert = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8";
    let message = "SELECT pg_logical_emit_message(false, 'causeway', repeat('x', $1))";
    // What a message takes beyond its text, found out by making one; records begin at multiples of 8.
    let position = async || primary.query_one(insert, &[]).await.expect("a position").get::<_, i64>(0);
    let mut taken = 64;
    for attempt in 0.. {
        assert!(attempt < 200, "no record ended at the end of a page");
        let before = position().await;
        let room = 8192 - before % 8192;
        let length = i32::try_from((room - taken).max(8)).unwrap();
        primary.query(message, &[&length]).await.unwrap();
        let after = position().await;
        if after % 8192 == 24 {
            break;
        }
        // Within one page this is exact; a record that crosses pages says nothing.
        if after / 8192 == before / 8192 {
            taken = after - before - i64::from(length) / 8 * 8;
        }
    }
    let page = u64::try_from(position().await / 8192 * 8192).unwrap();
    let fence =
        timeout(Duration::from_secs(5), covered(&rig.cluster, NodeId(1), Instant::now())).await.unwrap();
    assert_eq!(fence.lsn.0, page, "the last record ends before the header");
}

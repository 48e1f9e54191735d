//! Reads as a session makes them: a fence, a replica that covers it, and then the statement.

use std::collections::HashMap;
use std::time::Duration;

use causeway_cluster::{Cluster, Need};
use causeway_routing::{Fence, NodeId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::Client;

use crate::Rig;

/// A replica that covers `fence`; `None` at the deadline.
pub(crate) async fn covering(cluster: &Cluster, fence: Fence, deadline: Instant) -> Option<NodeId> {
    loop {
        let view = cluster.view();
        let covers = |seen: causeway_routing::Observation| seen.covers(&fence);
        let node = view.nodes.iter().find(|node| node.serves_reads() && node.observation.is_some_and(covers));
        if let Some(node) = node {
            return Some(node.id);
        }
        let need = Need { fence, node: None, since: None, until: deadline };
        timeout_at(deadline, cluster.position(need)).await.ok()?.ok()?;
    }
}

/// Writes on one connection, reads on others.
pub(crate) struct Reader {
    writer: Client,
    replicas: HashMap<NodeId, (Client, Instant)>,
    written: i64,
    pub(crate) served: HashMap<NodeId, u32>,
}

impl Reader {
    pub(crate) async fn new(rig: &Rig, settings: &str) -> Self {
        let writer = rig.session("pg-0").await;
        writer.batch_execute(settings).await.expect("a setting");
        let mut replicas = HashMap::new();
        for (node, id) in rig.sandbox.nodes().iter().zip(0..).skip(1) {
            replicas.insert(NodeId(id), (rig.session(node.name()).await, Instant::now()));
        }
        let next = "SELECT coalesce(max(v), 0) FROM kept";
        let written = writer.query_one(next, &[]).await.expect("a number").get(0);
        Self { writer, replicas, written, served: HashMap::new() }
    }

    /// One write and its read; how long the read waited for a fence and a replica.
    pub(crate) async fn cycle(&mut self, cluster: &Cluster) -> Duration {
        self.written += 1;
        self.writer.execute("INSERT INTO kept VALUES ($1)", &[&self.written]).await.expect("a commit");
        let arrived = Instant::now();
        let deadline = arrived + Duration::from_secs(15);
        let fence = timeout_at(deadline, cluster.fence(arrived)).await.expect("a fence").expect("it lives");
        let node = covering(cluster, fence, deadline).await;
        let node = node.unwrap_or_else(|| panic!("{fence:?} is never covered: {:#?}", cluster.view()));
        let (replica, opened) = &self.replicas[&node];
        if cluster.observed(node).is_none_or(|observed| observed.requested < *opened) {
            let need = Need { fence, node: Some(node), since: Some(*opened), until: deadline };
            timeout_at(deadline, cluster.position(need)).await.expect("in time").expect("it is seen");
        }
        let waited = arrived.elapsed();
        let seen = replica.query_one("SELECT count(*) FROM kept WHERE v = $1", &[&self.written]).await;
        let seen: i64 = seen.expect("a count").get(0);
        assert_eq!(seen, 1, "{node:?} covers {fence:?} and does not show row {}", self.written);
        *self.served.entry(node).or_default() += 1;
        waited
    }
}

/// Lets one replica at a time stand still for a moment, again and again.
async fn disturb(rig: &Rig, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let replicas = [rig.session("pg-1").await, rig.session("pg-2").await];
    loop {
        let replica = &replicas[random.random_range(0..2)];
        replica.batch_execute("SELECT pg_wal_replay_pause()").await.expect("it pauses");
        sleep(Duration::from_millis(random.random_range(0..40))).await;
        replica.batch_execute("SELECT pg_wal_replay_resume()").await.expect("it goes on");
        sleep(Duration::from_millis(random.random_range(0..40))).await;
    }
}

#[tokio::test]
async fn a_thousand_reads_see_what_was_written_just_before() {
    let rig = Rig::start(2).await;
    let mut readers = [
        Reader::new(&rig, "SET synchronous_commit = on").await,
        Reader::new(&rig, "SET synchronous_commit = off").await,
    ];
    readers[1].written += 1_000_000;
    let reads = async {
        for cycle in 0..1000 {
            // One in twenty is asynchronous: those wait for a nudge.
            readers[usize::from(cycle % 20 == 0)].cycle(&rig.cluster).await;
        }
    };
    tokio::select! {
        () = reads => {}
        () = disturb(&rig, 1) => unreachable!(),
    }
    let served = |id| readers.iter().filter_map(|reader| reader.served.get(&NodeId(id))).sum::<u32>();
    assert!(served(1) > 0 && served(2) > 0 && served(1) + served(2) == 1000, "{} {}", served(1), served(2));
    let totals = rig.cluster.totals();
    assert!(totals.nudges > 0 && totals.fences_unflushed > 0, "{totals:?}");
    assert_eq!((totals.lsn_regressions, totals.epoch_changes), (0, 0), "{totals:?}");
}

#[tokio::test]
async fn tails_that_nobody_flushes_are_reached_soon() {
    let rig = Rig::start(2).await;
    let mut reader = Reader::new(&rig, "SET synchronous_commit = off").await;
    // The first opens the connection that nudges.
    reader.cycle(&rig.cluster).await;
    let mut waits = Vec::new();
    for _ in 0..10 {
        sleep(Duration::from_millis(60)).await;
        waits.push(reader.cycle(&rig.cluster).await);
    }
    waits.sort_unstable();
    println!("asynchronous commits were covered after {waits:?}");
    assert!(waits[5] < Duration::from_millis(100), "{waits:?}");

    let writer = rig.session("pg-0").await;
    waits.clear();
    for _ in 0..10 {
        sleep(Duration::from_millis(60)).await;
        writer.batch_execute("BEGIN; INSERT INTO kept VALUES (0)").await.unwrap();
        let begun = Instant::now();
        let fence = rig.cluster.fence(begun).await.unwrap();
        assert!(covering(&rig.cluster, fence, begun + Duration::from_secs(10)).await.is_some());
        waits.push(begun.elapsed());
        writer.batch_execute("ROLLBACK").await.unwrap();
    }
    waits.sort_unstable();
    println!("beside an open transaction fences were covered after {waits:?}");
    assert!(waits[5] < Duration::from_millis(100), "{waits:?}");
}

/// How many of so many tails the primary was made to flush, and how long readers waited for each on average.
async fn tails(rig: &Rig, leave: impl AsyncFn()) -> (u64, Duration) {
    const TAILS: u32 = 40;
    let before = rig.cluster.totals().nudges;
    let mut waited = Duration::ZERO;
    for _ in 0..TAILS {
        leave().await;
        let begun = Instant::now();
        let fence = rig.cluster.fence(begun).await.expect("the cluster lives");
        assert!(covering(&rig.cluster, fence, begun + Duration::from_secs(10)).await.is_some());
        waited += begun.elapsed();
    }
    (rig.cluster.totals().nudges - before, waited / TAILS)
}

/// Nothing a second that writers do not cause costs transaction ids; nobody waits long for those that they do.
#[tokio::test]
async fn the_primary_is_made_to_flush_as_often_as_others_commit() {
    let rig = Rig::start(1).await;
    let writer = rig.session("pg-0").await;
    writer.batch_execute("SET synchronous_commit = off").await.unwrap();
    let commit = async || writer.batch_execute("INSERT INTO kept VALUES (0)").await.unwrap();
    // The first opens the connection that nudges; a busy machine may take its time now and then.
    let mut soon = false;
    for _ in 0..5 {
        let (nudges, waited) = tails(&rig, commit).await;
        println!("{nudges} nudges for 40 commits, waits of {waited:?}");
        assert!(nudges <= 42, "{nudges}");
        soon |= waited < Duration::from_millis(30);
        if soon {
            break;
        }
    }
    assert!(soon, "as if there were one in 50 ms");

    // Records without a transaction are worth one in 50 ms.
    let message = "SELECT pg_logical_emit_message(false, 'test', '')";
    let emit = async || writer.batch_execute(message).await.unwrap();
    let begun = Instant::now();
    let (nudges, waited) = tails(&rig, emit).await;
    println!("{nudges} nudges for 40 messages in {:?}, waits of {waited:?}", begun.elapsed());
    let most = begun.elapsed().as_millis() / 50 + 2;
    assert!(u128::from(nudges) <= most, "{nudges} in {:?}", begun.elapsed());
}

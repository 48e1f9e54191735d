//! Where fences come from.

use std::time::Duration;

use causeway_cluster::{Cluster, FenceSource, Instance, ProbeKind};
use causeway_routing::{Fence, NodeId};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::SimpleQueryMessage;

use crate::reads::{Reader, covering};
use crate::{Rig, config};

async fn source_becomes(cluster: &Cluster, source: FenceSource) -> Option<String> {
    let begun = Instant::now();
    while cluster.fence_source().0 != source {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is {:?}", cluster.fence_source());
        sleep(Duration::from_millis(5)).await;
    }
    cluster.fence_source().1.map(|why| why.to_string())
}

fn reconfigured(rig: &Rig, source: FenceSource) {
    let mut config = config(&rig.sandbox);
    config.fence_source = source;
    config.catalogue_refresh = Duration::from_millis(100);
    rig.cluster.reconfigure(config);
}

async fn fence_in_time(cluster: &Cluster) -> Fence {
    let answer = timeout(Duration::from_secs(5), cluster.fence(Instant::now())).await;
    answer.expect("a fence in time").expect("the cluster lives")
}

#[tokio::test]
async fn flush_is_refused_wherever_asynchronous_commit_is_seen() {
    let rig = Rig::start(1).await;
    assert_eq!(rig.cluster.fence_source(), (FenceSource::Insert, None));
    reconfigured(&rig, FenceSource::Flush);
    assert_eq!(source_becomes(&rig.cluster, FenceSource::Flush).await, None);
    let primary = rig.session("pg-0").await;
    let mut reader = Reader::new(&rig, "SET synchronous_commit = on").await;
    for _ in 0..100 {
        reader.cycle(&rig.cluster).await;
    }
    for (sets, resets, says) in [
        (
            "CREATE ROLE \"Some\"; ALTER ROLE \"Some\" SET synchronous_commit = false",
            "DROP ROLE \"Some\"",
            "asynchronous commit is set for role \"Some\"",
        ),
        (
            "ALTER DATABASE postgres SET synchronous_commit = off",
            "ALTER DATABASE postgres RESET synchronous_commit",
            "asynchronous commit is set for database postgres",
        ),
        (
            "CREATE FUNCTION quick() RETURNS void LANGUAGE sql SET synchronous_commit = off AS ''",
            "DROP FUNCTION quick()",
            "asynchronous commit is set for function public.quick()",
        ),
        (
            "ALTER ROLE watcher SET synchronous_commit = on",
            "ALTER ROLE watcher RESET synchronous_commit",
            "a setting of the monitor's own role or database hides whether the server commits asynchronously",
        ),
        (
            "ALTER SYSTEM SET synchronous_commit = off",
            "ALTER SYSTEM RESET synchronous_commit",
            "the server commits asynchronously",
        ),
    ] {
        // Settings of a role take effect in new sessions.
        let again = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'watcher'";
        for statement in sets.split("; ").chain(["SELECT pg_reload_conf()", again]) {
            primary.batch_execute(statement).await.unwrap();
        }
        assert_eq!(source_becomes(&rig.cluster, FenceSource::Insert).await.as_deref(), Some(says));
        for statement in [resets, "SELECT pg_reload_conf()", again] {
            primary.batch_execute(statement).await.unwrap();
        }
        source_becomes(&rig.cluster, FenceSource::Flush).await;
    }
}

#[tokio::test]
async fn a_flush_position_inside_a_record_is_reached() {
    let rig = Rig::start(1).await;
    reconfigured(&rig, FenceSource::Flush);
    source_becomes(&rig.cluster, FenceSource::Flush).await;
    let primary = rig.session("pg-0").await;
    // What is written out for want of buffers ends at the end of a page, in the middle of a record.
    primary.batch_execute("BEGIN; INSERT INTO kept SELECT generate_series(1, 200000)").await.unwrap();
    let begun = Instant::now();
    let fence = fence_in_time(&rig.cluster).await;
    covering(&rig.cluster, fence, begun + Duration::from_secs(5)).await.expect("it is covered");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn commits_are_fences_whatever_the_writers_do() {
    let rig = Rig::start(2).await;
    reconfigured(&rig, FenceSource::Commit);
    source_becomes(&rig.cluster, FenceSource::Commit).await;
    let mut reader = Reader::new(&rig, "SET synchronous_commit = off").await;
    for _ in 0..200 {
        reader.cycle(&rig.cluster).await;
    }
    let totals = rig.cluster.totals();
    assert!(totals.probes_of(ProbeKind::Commit) >= 200, "{totals:?}");
    assert_eq!((totals.probes_of(ProbeKind::Fence), totals.nudges), (0, 0), "{totals:?}");
}

#[tokio::test]
async fn a_lost_synchronous_standby_stops_commit_fences_and_nothing_else() {
    let rig = Rig::start(1).await;
    reconfigured(&rig, FenceSource::Commit);
    source_becomes(&rig.cluster, FenceSource::Commit).await;
    fence_in_time(&rig.cluster).await;
    let primary = rig.session("pg-0").await;
    let standbys = async |names: &str| {
        for statement in
            [&*format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"), "SELECT pg_reload_conf()"]
        {
            primary.batch_execute(statement).await.unwrap();
        }
        sleep(Duration::from_millis(200)).await;
    };
    standbys("nobody").await;
    let waiting = rig.cluster.fence(Instant::now());
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(1500), &mut waiting).await.is_err(), "nobody acknowledges it");
    let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'watcher'";
    let connections: i64 = primary.query_one(count, &[]).await.unwrap().get(0);
    assert!(connections <= 3, "one for the probe, one for commits, at most one more: {connections}");
    assert_eq!(rig.cluster.view().primary, Some(NodeId(0)), "the probe has its own connection");

    // Other fences need no standby, and neither does making the primary flush.
    reconfigured(&rig, FenceSource::Auto);
    let other = rig.session("pg-0").await;
    other.batch_execute("SET synchronous_commit = off; BEGIN; INSERT INTO kept VALUES (1)").await.unwrap();
    let fence = fence_in_time(&rig.cluster).await;
    covering(&rig.cluster, fence, Instant::now() + Duration::from_secs(2)).await.expect("it was flushed");
    assert!(waiting.await.is_ok(), "it was given one of the others");

    reconfigured(&rig, FenceSource::Commit);
    let waiting = rig.cluster.fence(Instant::now());
    standbys("").await;
    timeout(Duration::from_secs(5), waiting).await.expect("it goes on").unwrap();
}

#[tokio::test]
async fn a_commit_that_was_told_not_to_wait_is_no_fence() {
    let rig = Rig::start(1).await;
    reconfigured(&rig, FenceSource::Commit);
    source_becomes(&rig.cluster, FenceSource::Commit).await;
    let primary = rig.session("pg-0").await;
    for statement in ["ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"] {
        primary.batch_execute(statement).await.unwrap();
    }
    sleep(Duration::from_millis(200)).await;
    let mut waiting = rig.cluster.fence(Instant::now());
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let begun = Instant::now();
    let mut canceled = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        canceled += primary.query(cancel, &[]).await.unwrap().len();
        sleep(Duration::from_millis(20)).await;
    }
    assert!(canceled > 0);
    assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "it may not be on the standby");
}

#[tokio::test]
async fn a_connection_can_tell_which_server_it_has_reached() {
    let rig = Rig::start(2).await;
    let instance = async |name: &str| {
        let answer = rig.session(name).await.simple_query(Instance::QUERY).await.unwrap();
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..4).map(|column| row.get(column)).collect::<Vec<_>>()),
            _ => None,
        });
        Instance::from_row(&row.unwrap()).unwrap()
    };
    for (id, name) in ["pg-1", "pg-2"].into_iter().enumerate() {
        let id = NodeId(u16::try_from(id).unwrap() + 1);
        assert_eq!(rig.cluster.observed(id).unwrap().instance, instance(name).await);
    }
    assert_eq!(rig.cluster.primary_instance(), Some(instance("pg-0").await));
    assert_ne!(instance("pg-1").await, instance("pg-2").await);
    let deadline = Instant::now() + Duration::from_secs(10);
    let former = instance("pg-1").await;
    rig.node("pg-1").restart().await.unwrap();
    let mut progress = rig.cluster.progress();
    let renewed = progress
        .wait_for(|_| rig.cluster.observed(NodeId(1)).is_some_and(|observed| observed.instance != former));
    timeout_at(deadline, renewed).await.expect("in time").unwrap();
    assert_eq!(rig.cluster.observed(NodeId(1)).unwrap().instance, instance("pg-1").await);
}

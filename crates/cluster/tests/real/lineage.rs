//! Where a promoted server's timeline comes from.

use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_routing::{Bound, Fate, Fence, Lineage, Lsn, NodeId, Switch};
use causeway_sandbox::StopMode;
use tokio::time::{Instant, sleep};

use crate::{Rig, config};

fn lineage(cluster: &Cluster) -> Lineage {
    Lineage::clone(cluster.view().lineage.as_ref().expect("a lineage is known"))
}

/// The same position, learnt in both ways: the watcher has no attribute REPLICATION at first.
#[tokio::test]
async fn a_timelines_past_is_learnt_with_and_without_its_history() {
    let rig = Rig::start(2).await;
    let before = rig.cluster.era();
    let primary = rig.session("pg-0").await;
    primary.batch_execute("INSERT INTO kept VALUES (1)").await.unwrap();
    let written = Instant::now();
    rig.cluster.wrote();
    rig.sandbox.replicas_caught_up().await.unwrap();
    primary.batch_execute("ALTER ROLE watcher REPLICATION; SELECT pg_switch_wal()").await.unwrap();
    rig.sandbox.replicas_caught_up().await.unwrap();
    primary.batch_execute("ALTER ROLE watcher NOREPLICATION").await.unwrap();
    rig.sandbox.replicas_caught_up().await.unwrap();
    sleep(config(&rig.sandbox).interval).await;
    let late = Instant::now();
    rig.node("pg-2").follow(rig.node("pg-1")).await.unwrap();
    rig.node("pg-1").promote().await.unwrap();
    rig.until("the promoted node is the primary", |view| view.primary == Some(NodeId(1))).await;
    assert!(rig.cluster.era() > before);
    let told = lineage(&rig.cluster);
    assert_eq!((told.timeline, told.ancestors.len(), told.settled), (2, 1, true));
    let Switch { timeline: 1, lsn } = told.ancestors[0] else { panic!("it left timeline 1: {told:?}") };

    // What was written before is bounded by what the old primary has shown soon after.
    let Bound::At(fence) = rig.cluster.bound(before, written) else { panic!("a bound is known") };
    assert!(fence.lsn <= lsn && told.fate(&fence) == Fate::Carried(Fence { timeline: 2, ..fence }));
    let beyond = Fence { lsn: Lsn(lsn.0 + 1), ..fence };
    assert_eq!(told.fate(&beyond), Fate::Lost);
    // The old primary goes on to be asked, so that what came last is bounded as well.
    let deadline = Instant::now() + Duration::from_secs(5);
    while rig.cluster.bound(before, late) == Bound::Unknown {
        assert!(Instant::now() < deadline, "the old primary shows a position");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.cluster.bound(rig.cluster.era(), late), Bound::Same);

    // After a restart only the history file knows.
    rig.node("pg-1").restart().await.unwrap();
    let stranger = Cluster::start(config(&rig.sandbox));
    assert!(stranger.wait_settled(Instant::now() + Duration::from_secs(5)).await);
    assert_eq!(stranger.view().primary, Some(NodeId(1)));
    assert!(lineage(&stranger).ancestors.is_empty(), "nothing tells the watcher");
    assert_eq!(lineage(&rig.cluster), told, "what was known stays known");
    rig.session("pg-1").await.batch_execute("ALTER ROLE watcher REPLICATION").await.unwrap();
    let entitled = Cluster::start(config(&rig.sandbox));
    assert!(entitled.wait_settled(Instant::now() + Duration::from_secs(5)).await);
    assert_eq!(lineage(&entitled), told);

    // By way of the next timeline, both are in the history.
    rig.node("pg-0").stop(StopMode::Immediate).await.unwrap();
    rig.sandbox.caught_up_with(rig.node("pg-1")).await.unwrap();
    rig.node("pg-2").promote().await.unwrap();
    rig.until("the other node is the primary", |view| view.primary == Some(NodeId(2))).await;
    let ancestors = lineage(&rig.cluster).ancestors;
    assert_eq!((ancestors.len(), ancestors[0], ancestors[1].timeline), (2, told.ancestors[0], 2));
}

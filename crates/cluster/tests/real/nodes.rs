//! Roles, states and lag.

use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_routing::{NodeId, NodeState, Role};
use causeway_sandbox::StopMode;
use tokio::time::Instant;

use crate::{Rig, config, state};

#[tokio::test]
async fn a_paused_replay_is_lag_until_it_resumes() {
    let rig = Rig::start(2).await;
    let mut strict = config(&rig.sandbox);
    strict.max_lag = Duration::from_millis(600);
    rig.cluster.reconfigure(strict);
    let replica = rig.session("pg-1").await;
    replica.batch_execute("SELECT pg_wal_replay_pause()").await.unwrap();
    // The last record may be on its way still; paused is paused only once the server says so.
    while replica.query_one("SELECT pg_get_wal_replay_pause_state()", &[]).await.unwrap().get::<_, &str>(0)
        != "paused"
    {}
    let primary = rig.session("pg-0").await;
    primary.batch_execute("INSERT INTO kept VALUES (1)").await.unwrap();
    rig.until("the paused replica lags", |view| state(view, 1) == NodeState::Lagging).await;
    let view = rig.cluster.view();
    let lag = view.nodes[1].lag.unwrap();
    assert!(lag > Duration::from_millis(600) && lag < Duration::from_secs(5), "{lag:?}");
    assert!(view.nodes[1].lag_bytes.unwrap() > 0);
    assert_eq!((state(&view, 0), state(&view, 2)), (NodeState::Serving, NodeState::Serving));
    assert_eq!(view.nodes[2].lag, Some(Duration::ZERO), "caught up with an idle primary is no lag");
    replica.batch_execute("SELECT pg_wal_replay_resume()").await.unwrap();
    rig.until("it serves again", |view| state(view, 1) == NodeState::Serving).await;
}

#[tokio::test]
async fn a_killed_replica_is_down_in_time_and_comes_back() {
    let rig = Rig::start(2).await;
    rig.node("pg-2").kill_postmaster().await.unwrap();
    let took = rig.until("the killed replica is down", |view| state(view, 2) == NodeState::Down).await;
    let config = config(&rig.sandbox);
    assert!(took < config.interval + config.timeout, "{took:?}");
    assert_eq!(rig.cluster.view().primary, Some(NodeId(0)));
    assert!(rig.cluster.view().nodes[2].observation.is_none());
    assert!(rig.cluster.reason(NodeId(2)).is_some());
    rig.node("pg-2").start().await.unwrap();
    rig.until("it serves again", |view| state(view, 2) == NodeState::Serving).await;
}

#[tokio::test]
async fn a_stopped_server_that_keeps_its_connections_is_down_in_time() {
    let rig = Rig::start(1).await;
    rig.node("pg-1").pause().unwrap();
    let took = rig.until("the frozen replica is down", |view| state(view, 1) == NodeState::Down).await;
    let config = config(&rig.sandbox);
    assert!(took < config.interval + config.timeout + Duration::from_millis(500), "{took:?}");
    rig.node("pg-1").resume().unwrap();
    rig.until("it serves again", |view| state(view, 1) == NodeState::Serving).await;
}

#[tokio::test]
async fn promotion_moves_the_primary_and_refuses_the_old_one() {
    let rig = Rig::start(2).await;
    let lineage = rig.cluster.epoch().unwrap();
    let mut changes = rig.cluster.subscribe();
    rig.node("pg-1").promote().await.unwrap();
    rig.until("the promoted node is the primary", |view| view.primary == Some(NodeId(1))).await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let view = rig.cluster.view();
    assert_eq!((view.nodes[0].role, state(&view, 0)), (Role::Primary, NodeState::Refused));
    assert_eq!(
        (view.nodes[2].role, state(&view, 2)),
        (Role::Replica, NodeState::Refused),
        "it follows the old one"
    );
    let epoch = rig.cluster.epoch().unwrap();
    assert_eq!((epoch.system_id, epoch.timeline), (lineage.system_id, lineage.timeline + 1));
    assert_eq!(epoch.writer.unwrap().name.as_ref(), "pg-1");
    assert_eq!(view.fence.unwrap().timeline, lineage.timeline + 1);

    // The old primary and its replica go on, past the numbers of the new timeline.
    let old = rig.session("pg-0").await;
    old.batch_execute("INSERT INTO kept SELECT generate_series(1, 20000)").await.unwrap();
    let fence = view.fence.unwrap();
    rig.until("the numbers are past the fence", |view| {
        view.nodes[2].observation.is_some_and(|o| o.lsn > fence.lsn)
    })
    .await;
    let view = rig.cluster.view();
    assert!(!view.nodes[2].observation.unwrap().covers(&fence));
    assert_eq!((state(&view, 2), view.nodes[2].lag_bytes), (NodeState::Refused, None));
    assert_eq!(view.fence.unwrap().timeline, fence.timeline, "the old primary gives no fence");
    // Its lost rows are in the way of following the new one, other than by a new copy.
    rig.node("pg-2").rebuild(rig.node("pg-1")).await.unwrap();
    rig.until("the other replica follows", |view| state(view, 2) == NodeState::Serving).await;
    // Out of sight, the new timeline is not forgotten.
    rig.node("pg-1").stop(StopMode::Immediate).await.unwrap();
    rig.until("there is no primary", |view| view.primary.is_none() && state(view, 1) == NodeState::Down)
        .await;
    let view = rig.cluster.view();
    assert_eq!((state(&view, 0), state(&view, 2)), (NodeState::Refused, NodeState::Serving));

    // A new process that was told refuses the old primary as well; one that was not takes it.
    let mut alone = config(&rig.sandbox);
    alone.nodes.truncate(1);
    let told = Cluster::start(alone.clone());
    told.remember(rig.cluster.epoch().unwrap());
    assert!(told.wait_settled(Instant::now() + Duration::from_secs(5)).await);
    assert_eq!((told.view().primary, state(&told.view(), 0)), (None, NodeState::Refused));
    told.accept_lineage();
    assert_eq!(told.view().primary, Some(NodeId(0)));
}

#[tokio::test]
async fn a_broken_monitor_connection_changes_no_state() {
    let rig = Rig::start(1).await;
    let mut changes = rig.cluster.subscribe();
    let requested = rig.cluster.observed(NodeId(1)).unwrap().requested;
    for name in ["pg-0", "pg-1"] {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'watcher'";
        assert_eq!(rig.session(name).await.query(kill, &[]).await.unwrap().len(), 1);
    }
    rig.until("the replica is seen again", |view| {
        view.nodes[1].observation.is_some()
            && rig.cluster.observed(NodeId(1)).is_some_and(|o| o.requested > requested)
    })
    .await;
    assert_eq!(state(&rig.cluster.view(), 1), NodeState::Serving);
    assert_eq!(rig.cluster.view().primary, Some(NodeId(0)));
    let still = !changes.has_changed().unwrap();
    assert!(still, "the data plane was disturbed: {:?}", *changes.borrow_and_update());
}

#[tokio::test]
async fn a_crash_restart_forgets_what_was_replayed() {
    let rig = Rig::start(1).await;
    let primary = rig.session("pg-0").await;
    primary.batch_execute("INSERT INTO kept SELECT generate_series(1, 1000)").await.unwrap();
    let before = rig.cluster.observed(NodeId(1)).unwrap();
    // One backend killed hard: the postmaster stays, everything else restarts.
    let victim = rig.session("pg-1").await;
    let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let pid = u32::try_from(pid).unwrap();
    causeway_sandbox::signal(pid, causeway_sandbox::Signal::KILL).unwrap();
    rig.until("the monitor lost it", |view| view.nodes[1].observation.is_none()).await;
    rig.until("the replica is back", |view| {
        state(view, 1) == NodeState::Serving && view.nodes[1].observation.is_some()
    })
    .await;
    let after = rig.cluster.observed(NodeId(1)).unwrap();
    assert_eq!(after.instance, before.instance, "the start time does not tell");
    assert!(after.requested > before.requested);
}

#[tokio::test]
async fn nodes_come_and_go_with_the_configuration() {
    let rig = Rig::start(2).await;
    let mut fewer = config(&rig.sandbox);
    let last = fewer.nodes.pop().unwrap();
    fewer.nodes.swap(0, 1);
    fewer.nodes[0].weight = 7;
    rig.cluster.reconfigure(fewer.clone());
    let view = rig.cluster.view();
    assert_eq!(view.nodes.len(), 2);
    assert_eq!(
        (view.primary, view.nodes[0].weight, state(&view, 0)),
        (Some(NodeId(1)), 7, NodeState::Serving)
    );
    fewer.nodes.push(last);
    rig.cluster.reconfigure(fewer);
    assert_eq!(state(&rig.cluster.view(), 2), NodeState::Unknown);
    rig.until("the added node serves", |view| state(view, 2) == NodeState::Serving).await;

    rig.cluster.shutdown();
    let activity = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'watcher'";
    let session = rig.session("pg-0").await;
    let begun = Instant::now();
    while session.query_one(activity, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "a monitor outlived its cluster");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn unreachable_nodes_settle_too() {
    let ports = causeway_sandbox::free_ports(2).unwrap();
    let node = |port: u16| causeway_cluster::NodeConfig {
        name: port.to_string().into(),
        host: "127.0.0.1".to_owned(),
        port,
        weight: 1,
        tls: None,
        levels: causeway_routing::Levels::ALL,
    };
    let monitor = causeway_cluster::Monitor {
        user: "watcher".to_owned(),
        password: None,
        database: "postgres".to_owned(),
    };
    let cluster =
        Cluster::start(causeway_cluster::Config::new("main", ports.into_iter().map(node).collect(), monitor));
    assert!(cluster.wait_settled(Instant::now() + Duration::from_secs(5)).await);
    let view = cluster.view();
    assert_eq!((view.primary, state(&view, 0), state(&view, 1)), (None, NodeState::Down, NodeState::Down));
    assert!(cluster.reason(NodeId(0)).unwrap().contains("refused"), "{:?}", cluster.reason(NodeId(0)));
}

#[tokio::test]
async fn a_role_without_rights_over_a_unix_socket() {
    let rig = Rig::start(1).await;
    rig.node("pg-0").sql("postgres", "CREATE ROLE nobody LOGIN").await.unwrap();
    rig.sandbox.replicas_caught_up().await.unwrap();
    let mut config = config(&rig.sandbox);
    config.monitor.user = "nobody".to_owned();
    for node in &mut config.nodes {
        node.host = rig.sandbox.socket_directory().to_str().unwrap().to_owned();
    }
    let cluster = Cluster::start(config);
    let mut progress = cluster.progress();
    let serves = progress.wait_for(|_| state(&cluster.view(), 1) == NodeState::Serving);
    tokio::time::timeout(Duration::from_secs(10), serves).await.expect("it serves").unwrap();
    let view = cluster.view();
    assert_eq!(view.primary, Some(NodeId(0)));
    assert_eq!(view.nodes[1].observation.unwrap().timeline, view.fence.unwrap().timeline);
}

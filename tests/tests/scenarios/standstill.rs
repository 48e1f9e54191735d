//! Nodes that stand still: nothing breaks, and nothing is answered.

use std::time::Duration;

use causeway_testkit::relay::FaultRelay;
use causeway_testkit::wire::request::query;
use causeway_testkit::wire::{Client, summary};
use causeway_testkit::{Sandbox, SandboxConfig, yaml_through};
use causeway_tests::{count, reads_use_replicas, start_yaml};
use tokio::time::{Instant, sleep};

/// What a black-holed node may cost a read at most: the bound that docs/operations.md gives, and what a busy machine adds.
const BOUND: Duration = Duration::from_secs(6);

async fn reads_on(causeway: &causeway_testkit::Causeway, node: &str) -> u64 {
    count(causeway, "causeway_queries_total", &[("backend", node), ("role", "replica")]).await
}

#[tokio::test]
async fn a_replica_that_answers_nothing_costs_no_client_an_error() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.expect("the servers start");
    let tables = "CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one')";
    sandbox.primary().sql("postgres", tables).await.expect("the table is made");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let mut relay = FaultRelay::start(&sandbox.node("pg-1").expect("the first replica").address()).await;
    let addresses: Vec<String> =
        sandbox.nodes().iter().map(causeway_testkit::sandbox::Node::address).collect();
    let addresses = [addresses[0].clone(), relay.address(), addresses[2].clone()];
    let yaml = yaml_through(&sandbox, &addresses) + "pool: { size: 4 }\n";
    let causeway = start_yaml(&sandbox, &yaml, 3).await;
    causeway.allow_log("the node does not serve");
    reads_use_replicas(&causeway, "postgres", "SELECT note FROM t WHERE id = 1").await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(causeway.client("postgres", "postgres").await);
    }
    // Reads are under way on both replicas when one of them falls silent, and more come.
    for client in &mut clients {
        client.send(&[query("SELECT note FROM t, pg_sleep(0.5) WHERE id = 1")]).await;
    }
    sleep(Duration::from_millis(150)).await;
    let before = reads_on(&causeway, "pg-1").await;
    relay.black_hole();
    let silent = Instant::now();
    for client in &mut clients {
        assert_eq!(summary(&client.until_ready().await), "T D C Z(I)");
    }
    assert!(silent.elapsed() < BOUND, "{:?}", silent.elapsed());
    let worst = slowest_reads(&mut clients).await;
    assert!(worst < BOUND, "{worst:?}");
    assert!(count(&causeway, "causeway_retries_total", &[]).await > 0);
    // It is not asked as long as it is silent, and asked again afterwards.
    assert!(reads_on(&causeway, "pg-1").await <= before + 8);
    relay.heal();
    let deadline = Instant::now() + Duration::from_secs(20);
    let healed = reads_on(&causeway, "pg-1").await;
    while reads_on(&causeway, "pg-1").await < healed + 5 {
        slowest_reads(&mut clients).await;
        assert!(Instant::now() < deadline, "the replica is used again");
    }
    // One that takes no new connections, though its monitor finds it well, is left alone after a few attempts.
    relay.refuse().await;
    let mut newcomer = causeway.client("postgres", "template1").await;
    newcomer.query("SELECT 1").await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let ejections = [("backend", "pg-1")];
    while count(&causeway, "causeway_backend_ejections_total", &ejections).await == 0 {
        assert_eq!(newcomer.one("SELECT count(*) FROM pg_class WHERE false").await, "0");
        assert!(Instant::now() < deadline, "the replica is left alone");
    }
    assert_eq!(causeway.metric("causeway_backend_state", &[("state", "serving")]).await.to_string(), "3");
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// Every client reads twenty times; returns how long the slowest read took.
async fn slowest_reads(clients: &mut [Client]) -> Duration {
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        for client in &mut *clients {
            let asked = Instant::now();
            assert_eq!(client.one("SELECT note FROM t WHERE id = 1").await, "one");
            worst = worst.max(asked.elapsed());
        }
    }
    worst
}

//! What is done to the servers and to the ways between while clients work.

use std::time::Duration;

use causeway_testkit::relay::{Direction, Faults};
use causeway_testkit::sandbox::signal;
use causeway_testkit::{Node, Signal};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep};
use tokio_postgres::NoTls;

use crate::stage::Stage;

/// The disturbances, by the numbers of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// T1.
    Nothing,
    /// T2: bulk loads beside.
    BulkLoad,
    /// T3: replay is paused on one replica, then on both.
    PausedReplay,
    /// T4: a replica applies two seconds late.
    LateReplica,
    /// T5: a walreceiver is frozen while commits wait for its replica.
    FrozenReceiver,
    /// T6: a process of a replica is killed, and the server restarts itself.
    KilledChild,
    /// T7: a replica is killed as a whole, and started again.
    KilledServer,
    /// T12: a transaction has logged something and stays open.
    IdleTransaction,
    /// T18: the ways to the servers are slow, swallow everything for a while, or are reset.
    BadNetwork,
}

/// All of them.
pub(crate) const ALL: [Fault; 9] = [
    Fault::Nothing,
    Fault::BulkLoad,
    Fault::PausedReplay,
    Fault::LateReplica,
    Fault::FrozenReceiver,
    Fault::KilledChild,
    Fault::KilledServer,
    Fault::IdleTransaction,
    Fault::BadNetwork,
];

// === impl Fault ===

impl Fault {
    /// Disturbs until then, and puts everything right again.
    pub(crate) async fn disturb(self, stage: &Stage, until: Instant, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while Instant::now() < until {
            let pause = Duration::from_millis(random.random_range(100..700));
            sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            let replica = &stage.sandbox.replicas()[random.random_range(0..2)];
            match self {
                Self::Nothing => {}
                Self::BulkLoad => {
                    stage
                        .primary(
                            "INSERT INTO bulk SELECT n, repeat('x', 200) FROM generate_series(1, 20000) AS n",
                        )
                        .await;
                }
                Self::PausedReplay => paused_replay(stage, &mut random).await,
                Self::LateReplica => {
                    configure(replica, "recovery_min_apply_delay", "2s").await;
                    sleep(Duration::from_millis(1500)).await;
                    configure(replica, "recovery_min_apply_delay", "0").await;
                }
                Self::FrozenReceiver => frozen_receiver(stage, replica).await,
                Self::KilledChild => killed_child(replica, &mut random).await,
                Self::KilledServer => {
                    replica.kill_postmaster().await.expect("it is running");
                    sleep(Duration::from_millis(200)).await;
                    replica.start().await.expect("it starts again");
                }
                Self::IdleTransaction => idle_transaction(stage, random.random_bool(0.5)).await,
                Self::BadNetwork => bad_network(stage, &mut random).await,
            }
        }
    }
}

async fn configure(node: &Node, name: &str, value: &str) {
    node.configure(name, value).await.unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
}

async fn paused_replay(stage: &Stage, random: &mut StdRng) {
    let replicas = stage.sandbox.replicas();
    let count = random.random_range(1..=replicas.len());
    for replica in replicas.iter().take(count) {
        replica.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("replay obeys");
    }
    // Until then it goes on with the record at hand.
    for replica in replicas.iter().take(count) {
        for _ in 0..50 {
            let state = replica.sql("postgres", "SELECT pg_get_wal_replay_pause_state()").await;
            if state.is_ok_and(|state| state.trim() == "paused") {
                break;
            }
        }
    }
    sleep(Duration::from_millis(random.random_range(100..800))).await;
    for replica in replicas {
        replica.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("replay obeys");
    }
}

/// The other replica shows what the primary has not acknowledged.
async fn frozen_receiver(stage: &Stage, replica: &Node) {
    let receiver = replica.sql("postgres", "SELECT pid FROM pg_stat_wal_receiver").await;
    let Ok(receiver) = receiver.expect("the replica answers").trim().parse() else { return };
    configure(stage.sandbox.primary(), "synchronous_standby_names", "2 (*)").await;
    if signal(receiver, Signal::STOP).is_ok() {
        sleep(Duration::from_millis(500)).await;
        signal(receiver, Signal::CONT).expect("it is stopped, not gone");
    }
    configure(stage.sandbox.primary(), "synchronous_standby_names", "").await;
}

async fn killed_child(replica: &Node, random: &mut StdRng) {
    // Without the startup process the server would not recover but end.
    let children =
        "SELECT pid FROM pg_stat_activity WHERE backend_type <> 'startup' AND pid <> pg_backend_pid()";
    let Ok(children) = replica.sql("postgres", children).await else { return };
    let children: Vec<u32> = children.lines().filter_map(|pid| pid.trim().parse().ok()).collect();
    let Some(child) = children.get(random.random_range(0..children.len().max(1))) else { return };
    if signal(*child, Signal::KILL).is_err() {
        return;
    }
    // It ends all others and begins to recover; then it lets clients in again.
    let deadline = Instant::now() + Duration::from_secs(30);
    sleep(Duration::from_millis(300)).await;
    while replica.sql("postgres", "SELECT 1").await.is_err() {
        assert!(Instant::now() < deadline, "{} does not recover", replica.name());
        sleep(Duration::from_millis(50)).await;
    }
}

async fn idle_transaction(stage: &Stage, large: bool) {
    let login =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", stage.sandbox.primary().port());
    let (client, connection) = tokio_postgres::connect(&login, NoTls).await.expect("the primary");
    let driver = tokio::spawn(async move { drop(connection.await) });
    let rows = if large { 30_000 } else { 1 };
    let insert =
        format!("BEGIN; INSERT INTO bulk SELECT n, repeat('x', 200) FROM generate_series(1, {rows}) AS n");
    client.simple_query(&insert).await.expect("an open transaction");
    sleep(Duration::from_secs(1)).await;
    client.simple_query("ROLLBACK").await.expect("it is open");
    drop(client);
    driver.await.expect("the connection ends");
}

async fn bad_network(stage: &Stage, random: &mut StdRng) {
    let relay = &stage.relays[random.random_range(0..stage.relays.len())];
    let time = Duration::from_millis(random.random_range(100..600));
    match random.random_range(0..3) {
        0 => relay.delay(Duration::from_millis(15)),
        1 => {
            let direction = if random.random_bool(0.5) { Direction::ToServer } else { Direction::ToClient };
            relay.faults(direction, Faults { hold: true, ..Faults::default() });
        }
        _ => relay.reset_all(),
    }
    sleep(time).await;
    relay.heal();
}

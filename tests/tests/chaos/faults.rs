//! What can go wrong.

use std::time::Duration;

use causeway_testkit::relay::Direction;
use causeway_testkit::{Signal, sandbox};
use tokio::time::sleep;

use crate::Random;
use crate::stage::Stage;

/// What goes wrong while the tellers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A replica ends without a word, and starts again.
    ReplicaKilled,
    /// A replica stands still for a while (SIGSTOP).
    ReplicaStopped,
    /// Nothing gets through to a replica for a while.
    ReplicaSilent,
    /// Every session on the primary is ended by an operator.
    BackendsTerminated,
    /// One server process is killed: the primary ends all others, and recovers.
    BackendKilled,
    /// The primary ends without a word, and starts again.
    PrimaryKilled,
    /// The primary ends without a word, and the standby with the most is promoted.
    Promotion,
    /// The server takes hardly any connections.
    ConnectionLimit,
    /// Every byte comes late.
    Latency,
    /// Every byte comes alone.
    ByteWise,
    /// Every connection is reset.
    Resets,
    /// Every connection is closed in one direction.
    HalfClosed,
}

const ALL: [Fault; 12] = [
    Fault::ReplicaKilled,
    Fault::ReplicaStopped,
    Fault::ReplicaSilent,
    Fault::BackendsTerminated,
    Fault::BackendKilled,
    Fault::PrimaryKilled,
    Fault::Promotion,
    Fault::ConnectionLimit,
    Fault::Latency,
    Fault::ByteWise,
    Fault::Resets,
    Fault::HalfClosed,
];

/// All of them, in an order of the seed's.
pub(crate) fn in_order(random: &mut Random) -> Vec<Fault> {
    let mut left = ALL.to_vec();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let index = usize::try_from(random.below(left.len() as u64)).expect("a position");
        order.push(left.swap_remove(index));
    }
    order
}

// === impl Fault ===

impl Fault {
    /// Whether another node can serve every read, so that none may fail.
    pub(crate) fn spares_reads(self) -> bool {
        matches!(
            self,
            Self::ReplicaKilled | Self::ReplicaStopped | Self::ReplicaSilent | Self::Latency | Self::ByteWise
        )
    }

    /// Strikes within the first half of `time`, and is over soon after it.
    pub(crate) async fn strike(self, stage: &mut Stage, time: Duration, random: &mut Random) {
        sleep(time / 4).await;
        let chosen = usize::try_from(random.below(2)).expect("a position");
        match self {
            Self::None => {}
            Self::ReplicaKilled => {
                let replica = stage.replicas()[chosen];
                replica.kill_postmaster().await.expect("it can be killed");
                sleep(time / 4).await;
                replica.start().await.expect("it starts again");
            }
            Self::ReplicaStopped => {
                let replica = stage.replicas()[chosen];
                replica.pause().expect("it can be stopped");
                sleep(time).await;
                replica.resume().expect("it goes on");
            }
            Self::ReplicaSilent => {
                let index = (stage.primary + 1 + chosen) % 3;
                stage.relays[index].black_hole();
                sleep(time).await;
                stage.relays[index].heal();
            }
            Self::BackendsTerminated => {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                stage.ask("postgres", sql).await;
            }
            Self::BackendKilled => {
                let sql = "SELECT pid FROM pg_stat_activity WHERE usename = 'bank' LIMIT 1";
                if let Ok(pid) = stage.ask("postgres", sql).await.trim().parse() {
                    // It may have ended by itself.
                    sandbox::signal(pid, Signal::KILL).ok();
                }
            }
            Self::PrimaryKilled => {
                stage.primary().kill_postmaster().await.expect("it can be killed");
                sleep(time / 4).await;
                stage.primary().start().await.expect("it starts again");
            }
            Self::Promotion => promote(stage).await,
            Self::ConnectionLimit => {
                stage.ask("postgres", "ALTER DATABASE bank CONNECTION LIMIT 2").await;
                Box::pin(Self::BackendsTerminated.strike(stage, Duration::ZERO, random)).await;
                sleep(time / 2).await;
                stage.ask("postgres", "ALTER DATABASE bank CONNECTION LIMIT -1").await;
            }
            Self::Latency => relays(stage, time, |relay| relay.delay(Duration::from_millis(20))).await,
            Self::ByteWise => relays(stage, time, causeway_testkit::relay::FaultRelay::byte_wise).await,
            Self::Resets => stage.relays.iter().for_each(causeway_testkit::relay::FaultRelay::reset_all),
            Self::HalfClosed => {
                let direction = if chosen == 0 { Direction::ToServer } else { Direction::ToClient };
                stage.relays.iter().for_each(|relay| relay.half_close(direction));
            }
        }
    }
}

async fn relays(stage: &Stage, time: Duration, fault: impl Fn(&causeway_testkit::relay::FaultRelay)) {
    stage.relays.iter().for_each(fault);
    sleep(time / 2).await;
    stage.relays.iter().for_each(causeway_testkit::relay::FaultRelay::heal);
}

/// What was acknowledged is on one of the two standbys, so it is on the one that has received more.
async fn promote(stage: &mut Stage) {
    stage.primary().kill_postmaster().await.expect("it can be killed");
    let nodes = stage.sandbox.nodes();
    let standbys: Vec<usize> = (0..nodes.len()).filter(|index| *index != stage.primary).collect();
    let mut best = (0_u64, standbys[0]);
    for index in standbys {
        let sql = "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn";
        let received = nodes[index].sql("postgres", sql).await.expect("a standby answers");
        best = best.max((received.trim().parse().expect("a position"), index));
    }
    let (new, former) = (best.1, stage.primary);
    nodes[new].promote().await.expect("it is promoted");
    for (index, node) in nodes.iter().enumerate() {
        if index == former {
            node.rebuild(&nodes[new]).await.expect("the former primary becomes a standby");
        } else if index != new {
            node.follow(&nodes[new]).await.expect("the other standby follows");
        }
    }
    stage.primary = new;
}

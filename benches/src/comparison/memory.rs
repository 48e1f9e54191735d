//! Memory with idle clients.

use std::time::Duration;

use super::rounds::Plan;
use super::{Memory, Results};
use crate::lab::client::Client;
use crate::lab::idle::{connect, raise_open_files};
use crate::lab::peer::{Kind, Launch, Peer};
use crate::lab::process::memory_of_tree;
use crate::lab::stage::Stage;
use crate::lab::{Failure, pause};

/// How many clients there are at each look.
const CLIENTS: [usize; 3] = [0, 1000, 10_000];
/// After this, what a login leaves behind is gone.
const REST: Duration = Duration::from_secs(2);

/// Whether a proxy can hold thousands of clients: those that have a server connection for each can't.
fn takes_part(kind: Kind) -> bool {
    matches!(kind, Kind::Causeway | Kind::CausewayTls | Kind::Pgbouncer | Kind::PgbouncerTls)
}

/// Measures the poolers, each freshly started, so that none has grown before; what fails is noted.
pub fn measure(stage: &Stage, plan: &Plan, results: &mut Results) {
    let most = raise_open_files(CLIENTS.into_iter().max().unwrap_or_default() as u64);
    for kind in plan.peers.iter().copied() {
        if takes_part(kind) {
            if let Err(error) = of_one(stage, plan, (kind, most), results) {
                results.omissions.push(format!("memory of {kind}: {error}"));
            }
        } else if kind != Kind::Direct {
            results.omissions.push(format!("memory of {kind}: it has a server connection for each client"));
        }
    }
}

fn of_one(
    stage: &Stage,
    plan: &Plan,
    (kind, most): (Kind, u64),
    results: &mut Results,
) -> Result<(), Failure> {
    let launch = Launch { extra: &plan.yaml, ..Launch::on(stage, &plan.causeway) };
    let peer = Peer::start(kind, &launch)?;
    let pid = peer.pid().ok_or("a proxy has a process")?;
    let mut clients = Vec::new();
    for wanted in CLIENTS {
        if u64::try_from(wanted)? > most {
            return Err(format!("no {wanted} clients: {most} by the limit of open files").into());
        }
        connect(&mut clients, wanted, || {
            if kind.is_encrypted() {
                Client::connect_encrypted(peer.port())
            } else {
                Client::connect(peer.port())
            }
        })?;
        pause(REST);
        results.memory.push(Memory { peer: kind, clients: clients.len(), bytes: memory_of_tree(pid) });
    }
    drop(clients);
    peer.stop()
}

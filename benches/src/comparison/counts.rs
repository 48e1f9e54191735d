//! What is counted in short runs of its own: system calls, since that costs time, and which servers reads go to.

use std::time::Duration;

use super::cells::{Cell, Work};
use super::rounds::{Bench, Plan, float};
use super::{Count, Results, Split};
use crate::lab::peer::{Kind, Peer};
use crate::lab::pgbench::Protocol;
use crate::lab::syscalls::Counter;
use crate::lab::{Failure, pause};

const MIB: f64 = 1024.0 * 1024.0;

/// After so long an idle session has reported what it has read (`PGSTAT_IDLE_INTERVAL` in `pgstat.c` is 10 s).
const REPORTED: Duration = Duration::from_secs(11);

/// Counts the calls of every proxy for every cell where they mean something; what fails is noted.
pub fn count(bench: &Bench<'_>, plan: &Plan, results: &mut Results) {
    let counted = plan.cells.iter().filter(|cell| !matches!(cell.work, Work::Paced | Work::Dump));
    for cell in counted {
        for peer in plan.peers.iter().filter(|peer| **peer != Kind::Direct) {
            match one(bench, plan, cell, *peer) {
                Ok(count) => results.counts.extend(count),
                Err(error) => {
                    results
                        .omissions
                        .push(format!("system calls of {peer} for {}: not measured: {error}", cell.name));
                }
            }
        }
    }
}

fn one(bench: &Bench<'_>, plan: &Plan, cell: &Cell, name: Kind) -> Result<Option<Count>, Failure> {
    let Some(peer) = bench.peer(cell.work, name) else { return Ok(None) };
    let counter = Counter::start(&peer.pids())?;
    let done = bench.work(cell.work, peer, plan.seconds)?;
    let calls = counter.finish()?;
    let amount = if cell.work.is_bulk() { done.amount / MIB } else { done.amount };
    Ok(Some(Count { cell: cell.name.clone(), peer: name, amount, calls }))
}

/// Counts the reads of each server during `pgbench -S` through each proxy; what fails is noted.
pub fn split(bench: &Bench<'_>, plan: &Plan, results: &mut Results) {
    let work = Work::Select { protocol: Protocol::Simple, clients: 16 };
    if !plan.cells.iter().any(|cell| cell.work == work) {
        return;
    }
    pause(REPORTED);
    for name in &plan.peers {
        let Some(peer) = bench.peer(work, *name) else { continue };
        match reads_by_server(bench, peer, work) {
            Ok(reads) => results.splits.push(Split { peer: *name, reads }),
            Err(error) => results.omissions.push(format!("split of {name}: {error}")),
        }
    }
}

fn reads_by_server(bench: &Bench<'_>, peer: &Peer, work: Work) -> Result<Vec<f64>, Failure> {
    let before = bench.stage.reads()?;
    bench.work(work, peer, 1)?;
    pause(REPORTED);
    let after = bench.stage.reads()?;
    Ok(after.into_iter().zip(before).map(|(after, before)| float(after.saturating_sub(before))).collect())
}

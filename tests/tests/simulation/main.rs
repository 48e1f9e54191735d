//! The shipped code for fences, positions and levels against a model of PostgreSQL's replication, on virtual time.
//!
//! What is modelled: commits that are inserted, flushed, shown and acknowledged one after the other, asynchronous ones
//! among them; pages of the log; replicas that stall, and that crash and begin again further back; a primary that is cut
//! off, goes on, and is replaced. `CAUSEWAY_SEEDS` runs so many seeds (200), `CAUSEWAY_SEED` begins with another one
//! than 1.

mod drive;
mod node;
mod world;

use std::io::Write as _;

use causeway_cluster::simulation::Fault as ClusterFault;
use causeway_proxy::simulation::Fault as ProxyFault;
use drive::{Report, Trial};

/// Runs a trial on a runtime of its own, whose clock moves when there is nothing else to do.
fn run(trial: Trial) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(drive::run(trial))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}: {error}")))
}

#[test]
fn nothing_stale_in_any_seed() {
    seeds(Trial::default());
}

#[test]
fn nothing_stale_where_reads_run_ahead() {
    seeds(Trial { overlap: true, ..Trial::default() });
}

fn seeds(trial: Trial) {
    let first = number("CAUSEWAY_SEED").unwrap_or(1);
    let seeds = number("CAUSEWAY_SEEDS").unwrap_or(200);
    let (mut reads, mut by_replicas) = (0, 0);
    for seed in (first..).take(usize::try_from(seeds).expect("a number of seeds")) {
        let report = run(Trial { seed, ..trial });
        assert!(report.violations.is_empty(), "CAUSEWAY_SEED={seed}: {:#?}", report.violations);
        reads += report.reads;
        by_replicas += report.by_replicas;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{seeds} seeds from {first}: replicas answered {by_replicas} of {reads} reads at cluster")
        .expect("standard output");
    // Zero stale by sending everything to the primary is no result.
    assert!(by_replicas * 2 > reads, "replicas answered {by_replicas} of {reads}");
}

/// Each known bug, in the code that is shipped, is found by the same checks.
#[test]
fn every_known_bug_is_found() {
    let cluster = [
        ClusterFault::ProbeReused,
        ClusterFault::FlushOfAsynchronous,
        ClusterFault::HeadersCounted,
        ClusterFault::TimelinesIgnored,
        ClusterFault::PositionsKept,
        ClusterFault::YoungConnections,
    ];
    let proxy = [
        ProxyFault::Forgetful,
        ProxyFault::PrimaryForgotten,
        ProxyFault::DirtySinceSent,
        ProxyFault::CheckedAlongside,
        ProxyFault::ShownSince,
    ];
    let cluster = cluster.map(|fault| Trial { cluster: Some(fault), ..Trial::default() });
    let proxy = proxy.map(|fault| {
        let overlap = fault == ProxyFault::ShownSince;
        Trial { proxy: Some(fault), overlap, ..Trial::default() }
    });
    let survivors: Vec<_> = cluster.iter().chain(&proxy).filter(|trial| !is_found(**trial)).collect();
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}

fn is_found(trial: Trial) -> bool {
    let found = (1..=1000).find_map(|seed| {
        let report = run(Trial { seed, ..trial });
        report.violations.into_iter().next().map(|violation| (seed, violation))
    });
    let mut out = std::io::stdout().lock();
    match &found {
        Some((seed, violation)) => writeln!(out, "{trial:?}: seed {seed}: {violation}"),
        None => writeln!(out, "{trial:?}: not found"),
    }
    .expect("standard output");
    found.is_some()
}

//! The rounds: every cell by every proxy, one after another, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::time::Instant;

use super::cells::{Cell, PACE, Work};
use super::{Results, Sample};
use crate::lab::Failure;
use crate::lab::client::{Client, large_buffer};
use crate::lab::peer::{Kind, Launch, Peer};
use crate::lab::pgbench::{Length, Pgbench, Protocol};
use crate::lab::process::{Usage, machine_busy_ns, processors};
use crate::lab::stage::{Stage, client_environment};

/// What `make bench` runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How often everything is measured.
    pub rounds: u32,
    /// For how long, where that can be chosen.
    pub seconds: u32,
    /// What is measured.
    pub cells: Vec<Cell>,
    /// By which proxies.
    pub peers: Vec<Kind>,
    /// The built Causeway.
    pub causeway: PathBuf,
    /// More top-level YAML for it.
    pub yaml: String,
    /// Whether system calls are counted.
    pub calls: bool,
    /// Whether memory with idle clients is measured.
    pub memory: bool,
}

/// The servers, the proxies before them, and what clients need.
#[derive(Debug)]
pub struct Bench<'a> {
    pub(super) stage: &'a Stage,
    peers: BTreeMap<Kind, Peer>,
    script: PathBuf,
    logs: PathBuf,
}

/// What a piece of work came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    /// Transactions or bytes.
    pub(super) amount: f64,
    rate: f64,
    latency_us: [f64; 2],
}

impl<'a> Bench<'a> {
    /// Starts every proxy in every configuration that the plan needs; one that does not start is left out and noted.
    ///
    /// # Errors
    ///
    /// When no directory can be made beside the servers.
    pub fn start(stage: &'a Stage, plan: &Plan, results: &mut Results) -> Result<Self, Failure> {
        let launch = Launch { extra: &plan.yaml, ..Launch::on(stage, &plan.causeway) };
        let wanted =
            plan.cells.iter().flat_map(|cell| plan.peers.iter().filter_map(|peer| cell.work.kind(*peer)));
        let mut peers = BTreeMap::new();
        for kind in wanted.collect::<BTreeSet<_>>() {
            match Peer::start(kind, &launch) {
                Ok(peer) => drop(peers.insert(kind, peer)),
                Err(error) => results.omissions.push(format!("{kind}: {error}")),
            }
        }
        let directory = stage.scratch("clients")?;
        let (script, logs) = (directory.join("one.sql"), directory.join("logs"));
        fs::create_dir(&logs)?;
        fs::write(&script, "SELECT 1;\n")?;
        Ok(Self { stage, peers, script, logs })
    }

    /// Runs all rounds. A proxy that fails at a cell is left out of it from then on, and that is noted.
    pub fn run(&self, plan: &Plan, results: &mut Results) {
        let mut failed = BTreeSet::new();
        // In the round before the first, pools open their connections and caches fill; it does not count.
        for round in 0..=plan.rounds {
            eprintln!("round {round} of {}", plan.rounds);
            for (place, cell) in plan.cells.iter().enumerate() {
                let first = usize::try_from(round).unwrap_or_default() + place;
                for turn in 0..plan.peers.len() {
                    let Some(peer) = plan.peers.get((first + turn) % plan.peers.len()) else { continue };
                    if failed.contains(&(&cell.name, *peer)) {
                        continue;
                    }
                    let seconds = if round == 0 { 1 } else { plan.seconds };
                    match self.measure(cell, *peer, (round, seconds)) {
                        Ok(Some(sample)) if round > 0 => results.samples.push(sample),
                        // It may take longer than that to open its connections.
                        _ if round == 0 => {}
                        Ok(_) => {}
                        Err(error) => {
                            results.omissions.push(format!("{}, {peer}, round {round}: {error}", cell.name));
                            failed.insert((&cell.name, *peer));
                        }
                    }
                }
            }
        }
    }

    /// The running proxy that does this work under that name.
    pub(super) fn peer(&self, work: Work, peer: Kind) -> Option<&Peer> {
        self.peers.get(&work.kind(peer)?)
    }

    fn measure(
        &self,
        cell: &Cell,
        name: Kind,
        (round, seconds): (u32, u32),
    ) -> Result<Option<Sample>, Failure> {
        let Some(peer) = self.peer(cell.work, name) else { return Ok(None) };
        let own = || Usage::of(std::process::id());
        let servers =
            || self.stage.pids().into_iter().map(Usage::of_tree).fold(Usage::default(), |a, b| a + b);
        let began = (Instant::now(), peer.usage(), servers(), own(), machine_busy_ns());
        let done = self.work(cell.work, peer, seconds)?;
        let busy = machine_busy_ns().saturating_sub(began.4);
        let (proxy, server, own) = (peer.usage() - began.1, servers() - began.2, own() - began.3);
        let foreign = busy.saturating_sub(proxy.total_ns + server.total_ns + own.total_ns);
        let available = began.0.elapsed().as_secs_f64() * 1e9 * float(processors() as u64);
        Ok(Some(Sample {
            cell: cell.name.clone(),
            peer: name,
            round,
            amount: done.amount,
            rate: done.rate,
            proxy_ns: [proxy.total_ns, proxy.user_ns, proxy.system_ns].map(float),
            server_ns: float(server.total_ns),
            switches: float(proxy.switches),
            latency_us: done.latency_us,
            foreign: float(foreign) / available * 100.0,
        }))
    }

    /// Does the work once through the proxy.
    pub(super) fn work(&self, work: Work, peer: &Peer, seconds: u32) -> Result<Done, Failure> {
        let length = Length::Seconds(seconds);
        let mut pgbench = match work {
            Work::Select { protocol, clients } => Pgbench::new(protocol, clients, length),
            Work::One { clients } => Pgbench {
                script: Some(self.script.clone()),
                ..Pgbench::new(Protocol::Simple, clients, length)
            },
            Work::Reconnect => Pgbench { reconnect: true, ..Pgbench::new(Protocol::Simple, 4, length) },
            Work::Paced => Pgbench {
                paced: Some((PACE, self.logs.clone())),
                ..Pgbench::new(Protocol::Simple, 1, length)
            },
            Work::Rows(bytes) => return receive(peer, &format!("SELECT * FROM s{bytes}")),
            Work::Copy(bytes) => return receive(peer, &format!("COPY s{bytes} TO STDOUT")),
            Work::Dump => return dump(&self.stage.program("pg_dump"), peer),
        };
        pgbench.tls = peer.kind().is_encrypted();
        let outcome = pgbench.run(peer.port())?;
        let percentile = |percent: usize| {
            let at = outcome.latencies_us.len().saturating_sub(1) * percent / 100;
            outcome.latencies_us.get(at).copied().map_or(0.0, float)
        };
        let latency_us = [percentile(50), percentile(99)];
        Ok(Done { amount: float(outcome.transactions), rate: outcome.rate, latency_us })
    }
}

/// A client that receives and does nothing else.
fn receive(peer: &Peer, sql: &str) -> Result<Done, Failure> {
    let mut buffer = large_buffer();
    let encrypted = peer.kind().is_encrypted();
    let mut client =
        if encrypted { Client::connect_encrypted(peer.port())? } else { Client::connect(peer.port())? };
    let began = Instant::now();
    let received = client.run(sql, &mut buffer)?;
    let bytes = float(received.bytes);
    Ok(Done { amount: bytes, rate: bytes / 1e6 / began.elapsed().as_secs_f64(), ..Done::default() })
}

fn dump(program: &Path, peer: &Peer) -> Result<Done, Failure> {
    let mut command = Command::new(program);
    client_environment(&mut command, peer.port());
    command.args(["-t", "pgbench_accounts", "-t", "s100", "-f", "/dev/null"]).stdin(Stdio::null());
    let began = Instant::now();
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("pg_dump: {}", String::from_utf8_lossy(&output.stderr).trim_end()).into());
    }
    Ok(Done { amount: 1.0, rate: 1.0 / began.elapsed().as_secs_f64(), ..Done::default() })
}

#[expect(clippy::cast_precision_loss, reason = "times and counts of a measurement are far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

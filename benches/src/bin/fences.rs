//! What consistent reads cost: the primary's CPU, probes a second, and latency beside reads that need not be consistent.
//!
//! The reads are pgbench's lookups by the simple protocol, at a level that each names in its comment, so that one Causeway
//! serves all levels. The primary's CPU is that of all its processes, those that send the log to replicas included.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use causeway_benches::lab::client::Client;
use causeway_benches::lab::distance::put_away;
use causeway_benches::lab::metrics::Metrics;
use causeway_benches::lab::peer::{Kind, Launch, Peer};
use causeway_benches::lab::process::Usage;
use causeway_benches::lab::stage::Stage;
use causeway_benches::lab::{DATABASE, pause};
use clap::Parser;
use tokio::time::Instant;

/// What consistent reads cost.
#[derive(Debug, Parser)]
struct Options {
    /// How long each is measured.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How many clients read at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    clients: Vec<usize>,
    /// Milliseconds added to the way from Causeway to the primary and back.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.5])]
    delays: Vec<f64>,
    /// The built Causeway.
    #[arg(long, default_value = "target/release/causeway")]
    causeway: PathBuf,
    /// More top-level YAML for Causeway's configuration.
    #[arg(long, default_value = "")]
    yaml: String,
}

/// Some reads.
#[derive(Debug, Default)]
struct Reads {
    /// How long each took, in seconds, in order.
    times: Vec<f64>,
    /// Together.
    elapsed: f64,
    /// Milliseconds of CPU that the primary has used meanwhile.
    primary_ms: f64,
    /// Fence probes.
    probes: f64,
    /// Statements that replicas have answered.
    by_replicas: f64,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fences: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<()> {
    let stage = Stage::start()?;
    let outcome = tables(options, &stage);
    stage.stop()?;
    outcome
}

fn tables(options: &Options, stage: &Stage) -> Outcome<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| added ms | Causeways | clients | reads/s on the primary | its CPU ms for 1,000 | reads/s at cluster |\
                   by replicas | its CPU ms for 1,000 | of the former | probes/s |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for delay in &options.delays {
        let peers = (0..3).map(|_| start(options, stage, *delay)).collect::<Outcome<Vec<_>>>()?;
        let one = peers.get(..1).unwrap_or_default();
        for clients in &options.clients {
            writeln!(out, "{}", cost(options, stage, *delay, one, *clients)?)?;
            out.flush()?;
        }
        // As many clients at each.
        writeln!(out, "{}", cost(options, stage, *delay, &peers, 16)?)?;
        out.flush()?;
        for peer in peers {
            peer.stop()?;
        }
    }
    let peer = start(options, stage, 0.0)?;
    latencies(options, stage, &peer)?;
    let idle = idle(options, stage, &peer);
    peer.stop()?;
    idle
}

fn start(options: &Options, stage: &Stage, delay: f64) -> Outcome<Peer> {
    let mut launch = Launch { extra: &options.yaml, ..Launch::on(stage, &options.causeway) };
    if delay > 0.0
        && let Some(primary) = launch.servers.first_mut()
    {
        primary.port = put_away(primary.port, Duration::from_secs_f64(delay / 2e3))?;
    }
    let peer = Peer::start(Kind::Causeway, &launch)?;
    let (mut client, deadline) = (Client::connect(peer.port())?, Instant::now() + Duration::from_secs(20));
    // Until the catalogue is known and the replicas have shown what they have, the primary answers.
    while replica_queries(&peer)? < 1.0 {
        client.run(&read("cluster", 1), &mut [0; 1024])?;
        if Instant::now() > deadline {
            return Err(format!("replicas answer nothing: {}", peer.log()).into());
        }
        pause(Duration::from_millis(5));
    }
    Ok(peer)
}

fn cost(options: &Options, stage: &Stage, delay: f64, peers: &[Peer], clients: usize) -> Outcome<String> {
    let primary = measure(options, stage, peers, ("primary", clients))?;
    let cluster = measure(options, stage, peers, ("cluster", clients))?;
    let (dear, cheap) = (primary.primary_for_1000(), cluster.primary_for_1000());
    Ok(format!(
        "| {delay} | {} | {} | {:.0} | {dear:.2} | {:.0} | {:.2} % | {cheap:.2} | {:.1} % | {:.0} |",
        peers.len(),
        clients * peers.len(),
        primary.rate(),
        cluster.rate(),
        cluster.by_replicas * 100.0 / cluster.count(),
        cheap * 100.0 / dear,
        cluster.probes / cluster.elapsed,
    ))
}

fn latencies(options: &Options, stage: &Stage, peer: &Peer) -> Outcome<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\n| writes/s | clients | eventual p50 us | cluster p50 us | times | cluster p99 us |")?;
    writeln!(out, "|---:|---:|---:|---:|---:|---:|")?;
    for writes in [0_u32, 50] {
        for clients in &options.clients {
            let peers = std::slice::from_ref(peer);
            let port = stage.primary().port();
            let (lax, strict) = thread::scope(|scope| {
                let (done, stopped) = std::sync::mpsc::sync_channel::<()>(1);
                let writer = scope.spawn(move || write_at(port, writes, &stopped));
                let both = measure(options, stage, peers, ("eventual", *clients))
                    .and_then(|lax| Ok((lax, measure(options, stage, peers, ("cluster", *clients))?)));
                drop(done);
                let written = writer.join().map_err(|_| "the writer panicked")?;
                written?;
                both
            })?;
            let times = strict.quantile(0.5) / lax.quantile(0.5);
            writeln!(
                out,
                "| {writes} | {clients} | {:.0} | {:.0} | {times:.2} | {:.0} |",
                lax.quantile(0.5),
                strict.quantile(0.5),
                strict.quantile(0.99)
            )?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Writes so often a second until the other end of the channel is gone.
fn write_at(port: u16, rate: u32, stopped: &std::sync::mpsc::Receiver<()>) -> io::Result<()> {
    let Some(interval) = Duration::from_secs(1).checked_div(rate) else { return Ok(()) };
    let mut client = Client::connect(port)?;
    while stopped.recv_timeout(interval) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        client.run("UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1", &mut [0; 1024])?;
    }
    Ok(())
}

/// Sessions that only read ask the primary nothing.
fn idle(options: &Options, stage: &Stage, peer: &Peer) -> Outcome<()> {
    for level in ["session", "router", "eventual"] {
        // A Causeway that has just been written through, or started, asks once.
        let mut client = Client::connect(peer.port())?;
        for _ in 0..3 {
            client.run(&read(level, 1), &mut [0; 1024])?;
        }
        let reads = measure(options, stage, std::slice::from_ref(peer), (level, 4))?;
        let (count, probes) = (reads.count(), reads.probes);
        writeln!(io::stdout(), "\n{count} reads at level {level} and no writes: {probes} fence probes")?;
        if probes > 0.0 {
            return Err(format!("{probes} probes for reads at level {level} of an idle database").into());
        }
    }
    Ok(())
}

fn read(level: &str, account: usize) -> String {
    format!("/* causeway: consistency={level} */ SELECT abalance FROM pgbench_accounts WHERE aid = {account}")
}

fn replica_queries(peer: &Peer) -> Outcome<f64> {
    let database = format!("database=\"{DATABASE}\"");
    Ok(Metrics::read(peer.http_port())?.sum("causeway_queries_total", &[&database, "role=\"replica\""]))
}

/// Reads at a level, with so many clients at each of the peers.
fn measure(
    options: &Options,
    stage: &Stage,
    peers: &[Peer],
    (level, clients): (&str, usize),
) -> Outcome<Reads> {
    let counts = || -> Outcome<(f64, f64)> {
        let mut sums = (0.0, 0.0);
        for peer in peers {
            let metrics = Metrics::read(peer.http_port())?;
            sums.0 += metrics.sum("causeway_probes_total", &["kind=\"fence\""]);
            sums.1 += replica_queries(peer)?;
        }
        Ok(sums)
    };
    let pid = stage.primary().pid().ok_or("the primary is gone")?;
    let clients = peers
        .iter()
        .flat_map(|peer| (0..clients).map(|_| Client::connect(peer.port())))
        .collect::<io::Result<Vec<_>>>()?;
    let (before, used, begun) = (counts()?, Usage::of_tree(pid), Instant::now());
    let deadline = begun + Duration::from_secs_f64(options.seconds);
    let threads: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(index, client)| {
            let level = level.to_owned();
            thread::spawn(move || read_until(client, &level, index, deadline))
        })
        .collect();
    let mut reads = Reads::default();
    for thread in threads {
        reads.times.extend(thread.join().map_err(|_| "a client panicked")??);
    }
    reads.elapsed = begun.elapsed().as_secs_f64();
    reads.primary_ms = milliseconds((Usage::of_tree(pid) - used).total_ns);
    let after = counts()?;
    (reads.probes, reads.by_replicas) = (after.0 - before.0, after.1 - before.1);
    reads.times.sort_by(f64::total_cmp);
    Ok(reads)
}

fn read_until(mut client: Client, level: &str, index: usize, deadline: Instant) -> io::Result<Vec<f64>> {
    let (mut times, mut buffer) = (Vec::new(), [0; 4096]);
    let mut account = index * 7919;
    loop {
        account = (account + 104_729) % 1_000_000;
        let begun = Instant::now();
        if begun >= deadline {
            return Ok(times);
        }
        client.run(&read(level, account + 1), &mut buffer)?;
        times.push(begun.elapsed().as_secs_f64());
    }
}

// === impl Reads ===

impl Reads {
    #[expect(clippy::cast_precision_loss, reason = "reads of a few seconds")]
    fn count(&self) -> f64 {
        self.times.len() as f64
    }

    fn rate(&self) -> f64 {
        self.count() / self.elapsed
    }

    fn primary_for_1000(&self) -> f64 {
        self.primary_ms * 1000.0 / self.count()
    }

    /// Microseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into a list of that many"
    )]
    fn quantile(&self, part: f64) -> f64 {
        self.times.get((self.count() * part) as usize).map_or(f64::NAN, |time| time * 1e6)
    }
}

#[expect(clippy::cast_precision_loss, reason = "CPU time of a few seconds")]
fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

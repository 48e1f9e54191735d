//! Large reads through the real session path, from a server that runs ahead: MB a second, CPU and instructions, and
//! how many receives they take.
//!
//! The rows come from a thread of this process that writes pieces of 8 KiB, as PostgreSQL does, as fast as they are
//! taken; the client receives and does nothing else. A PostgreSQL server answers logins and Causeway's monitors only.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_benches::lab::callgrind::{Profile, wrapper};
use causeway_benches::lab::client::{Client, large_buffer};
use causeway_benches::lab::fast_server::{FastServer, query};
use causeway_benches::lab::peer::{Kind, Launch, Peer, Server, is_installed};
use causeway_benches::lab::process::Usage;
use causeway_benches::lab::stage::{ROW_BYTES, Stage, TABLE_BYTES};
use causeway_benches::lab::syscalls::Counter;
use clap::Parser;
use tokio::time::Instant;

const MIB: f64 = 1024.0 * 1024.0;
/// What is read once and three times under valgrind: the difference is twice this.
const COUNTED_BYTES: usize = 8 * 1024 * 1024;

/// Large reads from a server that runs ahead.
#[derive(Debug, Parser)]
struct Options {
    /// How often each is measured; the table has medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bytes of a row as a DataRow message.
    #[arg(long, value_delimiter = ',', default_values_t = ROW_BYTES)]
    rows: Vec<usize>,
    /// The proxies: direct, causeway, pgbouncer, haproxy.
    #[arg(long, value_delimiter = ',', default_value = "direct,causeway,pgbouncer,haproxy")]
    peers: Vec<String>,
    /// Counts Causeway's and PgBouncer's instructions under valgrind instead of times.
    #[arg(long)]
    instructions: bool,
    /// The built Causeway.
    #[arg(long, default_value = "target/release/causeway")]
    causeway: PathBuf,
    /// More top-level YAML for Causeway's configuration.
    #[arg(long, default_value = "")]
    yaml: String,
}

/// One read.
#[derive(Debug, Clone, Copy)]
struct Read {
    mb_per_second: f64,
    /// CPU of the proxy, seconds a GB: all, in user mode, in the kernel.
    cpu: [f64; 3],
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read_large_table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let stage = Stage::start()?;
    let server = FastServer::start(stage.primary().port())?;
    let fast = Server { name: "fast".to_owned(), port: server.port() };
    let launch =
        Launch { servers: vec![fast], extra: &options.yaml, ..Launch::on(&stage, &options.causeway) };
    let known = [Kind::Direct, Kind::Causeway, Kind::Pgbouncer, Kind::Haproxy];
    let kinds: Vec<_> = known
        .into_iter()
        .filter(|kind| options.peers.contains(&kind.to_string()) && is_installed(*kind))
        .collect();
    if options.instructions {
        instructions(options, &stage, &launch, &kinds)?;
    } else {
        times(options, &launch, &kinds)?;
    }
    stage.stop()
}

fn times(options: &Options, launch: &Launch<'_>, kinds: &[Kind]) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let peers = kinds.iter().map(|kind| Peer::start(*kind, launch)).collect::<Result<Vec<_>, _>>()?;
    writeln!(
        out,
        "| bytes a row | | MB/s | of direct | CPU s/GB | user | kernel | receives a MiB | sends a MiB |"
    )?;
    writeln!(out, "|---:|---|---:|---:|---:|---:|---:|---:|---:|")?;
    for row_bytes in &options.rows {
        let sql = query(*row_bytes, TABLE_BYTES / row_bytes);
        let mut reads: Vec<Vec<Read>> = peers.iter().map(|_| Vec::new()).collect();
        // The first round warms up.
        for round in 0..=options.rounds {
            for (peer, reads) in peers.iter().zip(&mut reads) {
                let read = read(peer, &sql)?;
                reads.extend((round > 0).then_some(read));
            }
        }
        let rate = |reads: &[Read]| median(reads.iter().map(|read| read.mb_per_second));
        let direct = peers.iter().zip(&reads).find(|(peer, _)| peer.kind() == Kind::Direct);
        let direct = direct.map(|(_, reads)| rate(reads));
        for (peer, reads) in peers.iter().zip(&reads) {
            let [all, user, kernel] =
                [0, 1, 2].map(|part: usize| median(reads.iter().map(|read| read.cpu[part])));
            let calls = calls(peer, &sql).unwrap_or_else(|error| {
                eprintln!("system calls of {}: not measured: {error}", peer.kind());
                "- | -".to_owned()
            });
            let of_direct = direct.map_or("-".to_owned(), |direct| format!("{:.2}", rate(reads) / direct));
            writeln!(
                out,
                "| {row_bytes} | {} | {:.0} | {of_direct} | {all:.2} | {user:.2} | {kernel:.2} | {calls} |",
                peer.kind(),
                rate(reads)
            )?;
            out.flush()?;
        }
    }
    Ok(())
}

fn read(peer: &Peer, sql: &str) -> Result<Read, Box<dyn Error>> {
    let mut buffer = large_buffer();
    let mut client = Client::connect(peer.port())?;
    let (before, began) = (peer.usage(), Instant::now());
    let bytes = float(client.run(sql, &mut buffer)?.bytes);
    let seconds = began.elapsed().as_secs_f64();
    let Usage { total_ns, user_ns, system_ns, .. } = peer.usage() - before;
    // Nanoseconds a byte are seconds a GB. The kernel splits in steps of 10 ms what it counts in nanoseconds.
    let all = float(total_ns) / bytes;
    let share = |part: u64| if part == 0 { 0.0 } else { all * float(part) / float(user_ns + system_ns) };
    Ok(Read { mb_per_second: bytes / 1e6 / seconds, cpu: [all, share(user_ns), share(system_ns)] })
}

fn calls(peer: &Peer, sql: &str) -> Result<String, Box<dyn Error>> {
    if peer.pid().is_none() {
        return Ok("- | -".to_owned());
    }
    let mut client = Client::connect(peer.port())?;
    let counter = Counter::start(&peer.pids())?;
    let bytes = float(client.run(sql, &mut large_buffer())?.bytes);
    let calls = counter.finish()?;
    let per_mib = |calls: u64| float(calls) / bytes * MIB;
    Ok(format!("{:.1} | {:.1}", per_mib(calls.receive), per_mib(calls.send)))
}

fn instructions(
    options: &Options,
    stage: &Stage,
    launch: &Launch<'_>,
    kinds: &[Kind],
) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let scratch = stage.scratch("callgrind")?;
    writeln!(out, "| bytes a row | | instructions a MiB | a row |\n|---:|---|---:|---:|")?;
    for row_bytes in &options.rows {
        for kind in kinds.iter().filter(|kind| matches!(kind, Kind::Causeway | Kind::Pgbouncer)) {
            let sql = query(*row_bytes, COUNTED_BYTES / row_bytes);
            let once = counted(launch, &scratch, *kind, (&sql, 1))?;
            let thrice = counted(launch, &scratch, *kind, (&sql, 3))?;
            let mib = 2.0 * float(COUNTED_BYTES as u64) / MIB;
            let per_mib = float(thrice.saturating_sub(once)) / mib;
            let per_row = per_mib * float(*row_bytes as u64) / MIB;
            writeln!(out, "| {row_bytes} | {kind} | {per_mib:.0} | {per_row:.1} |")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Instructions of a proxy that starts, passes the rows so often, and ends.
fn counted(
    launch: &Launch<'_>,
    scratch: &Path,
    kind: Kind,
    (sql, times): (&str, usize),
) -> Result<u64, Box<dyn Error>> {
    let file = scratch.join(format!("{kind}-{times}"));
    let peer = Peer::start(kind, &Launch { wrapper: wrapper(&file), ..launch.clone() })?;
    let mut client = Client::connect(peer.port())?;
    let mut buffer = large_buffer();
    for _ in 0..times {
        client.run(sql, &mut buffer)?;
    }
    drop(client);
    peer.stop()?;
    Ok(Profile::read(&file, false)?.total)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "bytes and times of a read are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

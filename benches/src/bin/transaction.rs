//! Counts the instructions in user mode that a proxy takes for a transaction of `pgbench -S`, by valgrind, and prints
//! them as a Markdown table: a figure that a busy machine does not disturb.
//!
//! Each figure is the difference of two runs of different length, so that what a proxy does once cancels out. Causeway
//! looks at its servers every two seconds instead of four times a second, since valgrind makes transactions some fifty
//! times slower but time not.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_benches::lab::callgrind::{Profile, wrapper};
use causeway_benches::lab::peer::{Kind, Launch, Peer, is_installed};
use causeway_benches::lab::pgbench::{Length, Pgbench, Protocol};
use causeway_benches::lab::stage::Stage;
use clap::Parser;

/// User instructions per transaction of `pgbench -S`, under valgrind.
#[derive(Debug, Parser)]
struct Options {
    /// How many clients run at a time.
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Transactions of each client in the short run.
    #[arg(long, default_value_t = 100)]
    short: u32,
    /// Transactions of each client in the long run.
    #[arg(long, default_value_t = 700)]
    long: u32,
    /// The proxies: causeway, pgbouncer.
    #[arg(long, value_delimiter = ',', default_value = "causeway,pgbouncer")]
    peers: Vec<String>,
    /// The protocols: simple, extended, prepared.
    #[arg(long, value_delimiter = ',', default_value = "simple,extended,prepared")]
    protocols: Vec<String>,
    /// How many functions to list for each of Causeway's figures, callees left out and included.
    #[arg(long, default_value_t = 0)]
    functions: usize,
    /// The built Causeway.
    #[arg(long, default_value = "target/release/causeway")]
    causeway: PathBuf,
    /// More top-level YAML for Causeway's configuration.
    #[arg(long, default_value = "")]
    yaml: String,
}

/// What one transaction costs.
#[derive(Debug, Default)]
struct Cost {
    total: f64,
    own: Vec<(f64, String)>,
    inclusive: Vec<(f64, String)>,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transaction: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let stage = Stage::start()?;
    let scratch = stage.scratch("callgrind")?;
    let protocols =
        Protocol::ALL.into_iter().filter(|protocol| options.protocols.contains(&protocol.to_string()));
    let mut profiles = Vec::new();
    writeln!(out, "| proxy | protocol | clients | instructions per transaction |\n|---|---|---:|---:|")?;
    for protocol in protocols {
        for kind in [Kind::Causeway, Kind::Pgbouncer] {
            if !options.peers.contains(&kind.to_string()) || !is_installed(kind) {
                continue;
            }
            // PgBouncer 1.18 has no prepared statements in transaction pooling.
            let session = kind == Kind::Pgbouncer && protocol == Protocol::Prepared;
            let kind = if session { Kind::PgbouncerSession } else { kind };
            let cost = cost(options, &stage, &scratch, (kind, protocol))?;
            writeln!(out, "| {kind} | {protocol} | {} | {:.0} |", options.clients, cost.total)?;
            out.flush()?;
            profiles.push((kind, protocol, cost));
        }
    }
    for (kind, protocol, cost) in profiles.iter().filter(|(_, _, cost)| !cost.own.is_empty()) {
        for (title, functions) in [("by itself", &cost.own), ("with what it calls", &cost.inclusive)] {
            writeln!(out, "\n{kind}, {protocol}: instructions per transaction of a function {title}\n")?;
            writeln!(out, "| instructions | function |\n|---:|---|")?;
            for (count, name) in functions.iter().take(options.functions) {
                writeln!(out, "| {count:.0} | `{name}` |")?;
            }
        }
    }
    stage.stop()
}

fn cost(
    options: &Options,
    stage: &Stage,
    scratch: &Path,
    (kind, protocol): (Kind, Protocol),
) -> Result<Cost, Box<dyn Error>> {
    let run = |length: u32| {
        let file = scratch.join(format!("{kind}-{protocol}-{length}"));
        let launch =
            Launch { wrapper: wrapper(&file), extra: &options.yaml, ..Launch::on(stage, &options.causeway) };
        let peer = Peer::start(kind, &launch)?;
        let outcome =
            Pgbench::new(protocol, options.clients, Length::Transactions(length)).run(peer.port())?;
        peer.stop()?;
        let profile = Profile::read(&file, options.functions > 0 && kind == Kind::Causeway)?;
        Ok::<_, Box<dyn Error>>((outcome.transactions, profile))
    };
    let (few, short) = run(options.short)?;
    let (many, long) = run(options.long)?;
    let transactions = f64::from(u32::try_from(many.checked_sub(few).ok_or("the long run is the shorter")?)?);
    let per = |more: u64, less: u64| as_float(more.saturating_sub(less)) / transactions;
    let by_function = |long: &BTreeMap<String, u64>, short: &BTreeMap<String, u64>| {
        let each = long
            .iter()
            .map(|(name, count)| (per(*count, short.get(name).copied().unwrap_or_default()), name.clone()));
        let mut all: Vec<_> = each.collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all
    };
    Ok(Cost {
        total: per(long.total, short.total),
        own: by_function(&long.own, &short.own),
        inclusive: by_function(&long.inclusive, &short.inclusive),
    })
}

#[expect(clippy::cast_precision_loss, reason = "instructions of a run are far below 2^53")]
fn as_float(count: u64) -> f64 {
    count as f64
}

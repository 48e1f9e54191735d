//! `make bench`: Causeway beside a direct connection, `HAProxy`, `PgBouncer` and Pgpool-II.

use std::path::PathBuf;
use std::process::ExitCode;

use causeway_benches::comparison::cells;
use causeway_benches::comparison::rounds::{Bench, Plan};
use causeway_benches::comparison::{Results, counts, memory, report};
use causeway_benches::lab::Failure;
use causeway_benches::lab::idle::raise_open_files;
use causeway_benches::lab::peer::{Kind, is_installed};
use causeway_benches::lab::stage::Stage;
use clap::Parser;

/// What can be asked for with `--only` beside the cells.
const CALLS: &str = "calls";
const MEMORY: &str = "memory";

/// Measures proxies on the same work, round by round beside each other, and writes a report.
#[derive(Debug, Parser)]
struct Options {
    /// How often everything is measured; fewer than 15 establish nothing.
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Seconds of a measurement, where that can be chosen.
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Names of cells, or how they begin; also `calls` (system calls of these cells) and `memory`. Default: everything.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The proxies: direct, causeway, pgbouncer, haproxy, pgpool.
    #[arg(long, value_delimiter = ',', default_value = "direct,causeway,pgbouncer,haproxy,pgpool")]
    peers: Vec<String>,
    /// Also Causeway and PgBouncer with TLS towards their clients.
    #[arg(long)]
    tls: bool,
    /// Where the report goes.
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// The built Causeway.
    #[arg(long, default_value = "target/release/causeway")]
    causeway: PathBuf,
    /// More top-level YAML for Causeway's configuration.
    #[arg(long, default_value = "")]
    yaml: String,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut results = Results::default();
    let plan = plan(options, &mut results)?;
    // Two hundred clients, twice, for each proxy that is started.
    raise_open_files(2000);
    let stage = Stage::start()?;
    if plan.cells.iter().any(|cell| cell.work.reads_tables()) {
        stage.fill_tables()?;
    }
    let bench = Bench::start(&stage, &plan, &mut results)?;
    bench.run(&plan, &mut results);
    if plan.calls {
        counts::count(&bench, &plan, &mut results);
    }
    counts::split(&bench, &plan, &mut results);
    drop(bench);
    if plan.memory {
        memory::measure(&stage, &plan, &mut results);
    }
    report::write(&options.out, &stage, &plan, &results)?;
    eprintln!("written: {}", options.out.join("comparison.md").display());
    stage.stop()
}

fn plan(options: &Options, results: &mut Results) -> Result<Plan, Failure> {
    let all = cells::all();
    let is_whole = |word: &str| all.iter().any(|cell| cell.name == word);
    let chosen = |name: &str, word: &str| name == word || !is_whole(word) && name.starts_with(word);
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|word| chosen(name, word));
    let known = [
        (Kind::Direct, None),
        (Kind::Causeway, Some(Kind::CausewayTls)),
        (Kind::Pgbouncer, Some(Kind::PgbouncerTls)),
        (Kind::Haproxy, None),
        (Kind::Pgpool, None),
    ];
    let chosen = known.into_iter().filter(|(plain, _)| options.peers.contains(&plain.to_string()));
    let peers = chosen.flat_map(|(plain, tls)| [Some(plain), tls.filter(|_| options.tls)]).flatten();
    let (peers, missing): (Vec<_>, Vec<_>) = peers.partition(|peer| is_installed(*peer));
    results.omissions.extend(missing.iter().map(|peer| format!("{peer}: not installed (benches/install)")));
    if peers.is_empty() {
        return Err("no proxy of that name".into());
    }
    let cells: Vec<_> = all.iter().filter(|cell| wanted(&cell.name)).cloned().collect();
    // Calls are counted of the cells that were asked for, and if none was, of all that tell.
    let (calls, memory) = (wanted(CALLS), wanted(MEMORY));
    if cells.is_empty() && !memory {
        return Err(format!("no cell of that name; there are {}", names()).into());
    }
    let (rounds, seconds) = (options.rounds, options.seconds);
    let (causeway, yaml) = (options.causeway.clone(), options.yaml.clone());
    Ok(Plan { rounds, seconds, cells, peers, causeway, yaml, calls, memory })
}

fn names() -> String {
    let cells: Vec<_> = cells::all().iter().map(|cell| cell.name.clone()).collect();
    [&cells.join(", "), CALLS, MEMORY].join(", ")
}

//! The command line.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::{LogFormat, LogLevel};
use crate::exit::Exit;
use crate::serve::{self, Options, Program};
use crate::{check, dev, epoch, import, password, route, schema, top, version};

/// A connection-pooling PostgreSQL proxy that makes streaming replicas safe to read from.
///
/// Without a command it serves, as `causeway run` does.
#[derive(Debug, Parser)]
#[command(name = "causeway", version = version::VERSION, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done, 64 usage, 69 cannot listen or start, 70 internal error, 78 wrong \
    configuration, 124 transactions cut at the end of shutdown_timeout."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct Common {
    /// The YAML file.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "/etc/causeway/causeway.yaml")]
    config: PathBuf,
    /// The least severe events that are logged, instead of log.level.
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// How events are written, instead of log.format.
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves clients until SIGTERM or SIGINT; SIGHUP reloads the configuration, SIGUSR2 has a new process take over.
    Run,
    /// Reads the configuration and prints every mistake in it.
    Check(CheckArgs),
    /// Says where a statement would run, and why, without running it.
    Route(RouteArgs),
    /// Shows or replaces the lineage that is kept of each cluster, while Causeway is stopped.
    #[command(subcommand)]
    Epoch(EpochCommand),
    /// Shows a running Causeway in the terminal: nodes, routing, pools, events. Ctrl-C ends it.
    Top(TopArgs),
    /// Prints the YAML that means what a PgBouncer's configuration means, as far as there is such a thing.
    ImportPgbouncer {
        /// PgBouncer's configuration, commonly /etc/pgbouncer/pgbouncer.ini.
        file: PathBuf,
    },
    /// Reads a password from standard input and prints its SCRAM-SHA-256 verifier, as CREATE ROLE and the key of a user take it.
    HashPassword,
    /// Prints the JSON Schema of the YAML file, for editors.
    Schema,
    /// Prints the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Prints the manual page.
    Man,
    /// Starts a throw-away primary with streaming replicas and serves them.
    Dev(DevArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Asks the servers, too: whether they can be reached, what they are, what their settings mean for Causeway.
    #[arg(long)]
    live: bool,
}

#[derive(Debug, Args)]
struct RouteArgs {
    /// The database.
    #[arg(long)]
    database: String,
    /// The user.
    #[arg(long)]
    user: String,
    /// Prints one JSON object with the keys class, target and reason.
    #[arg(long)]
    json: bool,
    /// A statement that ran before in the same session; may be repeated.
    #[arg(long, value_name = "SQL")]
    pre: Vec<String>,
    /// The statement.
    #[arg(last = true, required = true)]
    sql: String,
}

#[derive(Debug, Subcommand)]
enum EpochCommand {
    /// Prints the lineage kept of each cluster, or of one.
    Show {
        /// The cluster.
        cluster: Option<String>,
    },
    /// Takes the cluster as it is now, after an upgrade, a restore, or a failover that went wrong: asks the nodes, and
    /// keeps the lineage of the primary that answers. A running Causeway is told on its console instead.
    Accept {
        /// The cluster.
        cluster: String,
    },
}

#[derive(Debug, Args)]
struct TopArgs {
    /// Where Causeway serves HTTP, instead of the key http of the configuration.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Seconds from one look to the next.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Draws once and ends, as it does anyway when standard output is no terminal.
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Args)]
struct DevArgs {
    /// Where the servers' data live and stay; otherwise a temporary directory that is deleted.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// How many replicas.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=8))]
    replicas: u8,
    /// The port for clients, on the loopback address.
    #[arg(long, default_value_t = 6432)]
    port: u16,
    /// The port for metrics and health, on the loopback address.
    #[arg(long, default_value_t = 9127)]
    http_port: u16,
}

/// Does what the arguments say; the first is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // clap prints the short version for both flags otherwise, and the commit belongs to it.
    if matches!(arguments.get(1..), Some([flag]) if flag == "-V" || flag == "--version") {
        say(format_args!("causeway {}\n", version::long()));
        return Exit::Done;
    }
    let Cli { common, command } = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is no reason to fail.
            drop(error.print());
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    let options = Options {
        file: common.config,
        log_level: common.log_level,
        log_format: common.log_format,
        successor: Program::running().ok(),
    };
    match command {
        None | Some(Command::Run) => serve::run(&options),
        Some(Command::Check(CheckArgs { live })) => check::run(&options, live),
        Some(Command::Route(route)) => {
            let RouteArgs { database, user, json, pre, sql } = route;
            route::run(&options, &route::Question { database, user, json, pre, sql })
        }
        Some(Command::Epoch(EpochCommand::Show { cluster })) => epoch::show(&options, cluster.as_deref()),
        Some(Command::Epoch(EpochCommand::Accept { cluster })) => epoch::accept(&options, &cluster),
        Some(Command::Top(TopArgs { address, interval, once })) => {
            top::run(&options, &top::Wishes { address, interval: Duration::from_secs(interval), once })
        }
        Some(Command::ImportPgbouncer { file }) => import::run(&file),
        Some(Command::HashPassword) => password::run(),
        Some(Command::Schema) => {
            say(schema::text());
            Exit::Done
        }
        Some(Command::Completions { shell }) => printed(|out| {
            clap_complete::generate(shell, &mut Cli::command(), "causeway", out);
            Ok(())
        }),
        Some(Command::Man) => printed(|out| clap_mangen::Man::new(Cli::command()).render(out)),
        Some(Command::Dev(dev)) => {
            let DevArgs { directory, replicas, port, http_port } = dev;
            dev::run(&options, &dev::Wishes { directory, replicas: usize::from(replicas), port, http_port })
        }
    }
}

/// Writes to memory first: a closed pipe is no reason to panic.
fn printed(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Exit {
    let mut text = Vec::new();
    if let Err(error) = write(&mut text) {
        complain(&error);
        return Exit::Panicked;
    }
    say(String::from_utf8_lossy(&text));
    Exit::Done
}

/// Prints to standard output.
pub(crate) fn say(text: impl Display) {
    // Whoever closed the pipe does not want to know.
    drop(write!(std::io::stdout().lock(), "{text}"));
}

/// Prints a line to standard error.
pub(crate) fn complain(message: &dyn Display) {
    // There is nowhere left to complain.
    drop(writeln!(std::io::stderr().lock(), "{message}"));
}

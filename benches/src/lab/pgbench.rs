//! pgbench as the client.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use causeway_sandbox::Binaries;

use super::Failure;
use super::stage::client_environment;

/// How statements are sent, as pgbench's `-M` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// One Query each, constants inlined.
    Simple,
    /// Parse, Bind, Describe, Execute, Sync.
    Extended,
    /// Parse once, then Bind, Describe, Execute, Sync.
    Prepared,
}

/// How long a run is.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// So many transactions by each client.
    Transactions(u32),
    /// So many seconds.
    Seconds(u32),
}

/// A run of pgbench.
#[derive(Debug, Clone)]
pub struct Pgbench {
    /// How statements are sent.
    pub protocol: Protocol,
    /// How many clients.
    pub clients: u32,
    /// How long.
    pub length: Length,
    /// A script instead of `-S`'s.
    pub script: Option<PathBuf>,
    /// Whether each transaction is a connection of its own.
    pub reconnect: bool,
    /// Transactions a second, instead of as many as possible, and an empty directory for the log of latencies.
    pub paced: Option<(u32, PathBuf)>,
    /// Whether the connections are encrypted.
    pub tls: bool,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Transactions done, none of which failed.
    pub transactions: u64,
    /// Transactions a second; the first connections are not counted as time unless each transaction has its own.
    pub rate: f64,
    /// Latencies in microseconds, ascending; empty unless paced.
    pub latencies_us: Vec<u64>,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        })
    }
}

impl Pgbench {
    /// `pgbench -S` in this protocol.
    pub fn new(protocol: Protocol, clients: u32, length: Length) -> Self {
        Self { protocol, clients, length, script: None, reconnect: false, paced: None, tls: false }
    }

    /// Makes and fills pgbench's tables; `address` is `host:port`.
    ///
    /// # Errors
    ///
    /// When pgbench fails.
    pub fn initialise(address: &str, scale: u32) -> Result<(), Failure> {
        let port = address.rsplit(':').next().ok_or("an address has a port")?.parse()?;
        let mut command = Command::new(Binaries::find()?.program("pgbench"));
        client_environment(&mut command, port);
        command.args(["-i", "-q", "-s", &scale.to_string()]);
        run(&mut command).map(drop)
    }

    /// Runs it against the port.
    ///
    /// # Errors
    ///
    /// When pgbench fails, or says that a transaction has.
    pub fn run(&self, port: u16) -> Result<Outcome, Failure> {
        let mut command = Command::new(Binaries::find()?.program("pgbench"));
        client_environment(&mut command, port);
        if self.tls {
            command.env("PGSSLMODE", "require");
        }
        command.args(["-n", "-M", &self.protocol.to_string(), "-c", &self.clients.to_string()]);
        // One thread for each processor of the machine it shares.
        command.args(["-j", &self.clients.min(2).to_string()]);
        match self.length {
            Length::Transactions(count) => command.args(["-t", &count.to_string()]),
            Length::Seconds(seconds) => command.args(["-T", &seconds.to_string()]),
        };
        match &self.script {
            Some(script) => command.arg("-f").arg(script),
            None => command.arg("-S"),
        };
        if self.reconnect {
            command.arg("-C");
        }
        if let Some((rate, directory)) = &self.paced {
            command.args(["-R", &rate.to_string(), "-l"]).current_dir(directory);
        }
        let mut outcome = parse(&run(&mut command)?)?;
        if let Some((_, directory)) = &self.paced {
            outcome.latencies_us = latencies(directory)?;
        }
        Ok(outcome)
    }
}

fn run(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("pgbench: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()).into())
}

fn parse(report: &str) -> Result<Outcome, Failure> {
    let value = |start: &str| {
        let rest = report.lines().find_map(|line| line.strip_prefix(start));
        rest.and_then(|rest| rest.trim_start().split([' ', '/']).next())
            .ok_or(format!("no {start:?} in: {report}"))
    };
    if value("number of failed transactions:").is_ok_and(|failed| failed != "0") {
        return Err(format!("transactions failed: {report}").into());
    }
    Ok(Outcome {
        transactions: value("number of transactions actually processed:")?.parse()?,
        rate: value("tps =")?.parse()?,
        latencies_us: Vec::new(),
    })
}

/// Reads and removes the logs. With a rate, pgbench counts latency from the moment a transaction was due; what it was
/// late itself is in the last column, and taken off, since it is the client's.
fn latencies(directory: &Path) -> Result<Vec<u64>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        for line in fs::read_to_string(&path)?.lines() {
            // client transaction latency script seconds microseconds lag
            let field = |at| line.split(' ').nth(at).and_then(|field| field.parse::<u64>().ok());
            let (latency, lag) = (field(2).ok_or("a latency")?, field(6).ok_or("a lag")?);
            found.push(latency.saturating_sub(lag));
        }
        fs::remove_file(&path)?;
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "transaction type: <builtin: select only>\nnumber of clients: 16\n\
        number of transactions actually processed: 58213\nnumber of failed transactions: 0 (0.000%)\n\
        latency average = 0.549 ms\ninitial connection time = 12.1 ms\n\
        tps = 29131.871 (without initial connection time)\n";

    #[test]
    fn a_report_is_read() {
        let outcome = parse(REPORT).unwrap();
        assert_eq!((outcome.transactions, outcome.rate), (58213, 29131.871));
        assert!(parse(&REPORT.replace("transactions: 0", "transactions: 3")).is_err());
        assert!(parse("pgbench (15.8)\n").is_err());
        assert_eq!(parse(&REPORT.replace("58213", "16000/16000")).unwrap().transactions, 16000);
    }

    #[test]
    fn what_the_client_was_late_is_no_latency() {
        let directory = tempfile::tempdir().unwrap();
        let log = "0 1 150 0 1700000000 123 60\n0 2 90 0 1700000000 623 20\n";
        fs::write(directory.path().join("pgbench_log.1"), log).unwrap();
        assert_eq!(latencies(directory.path()).unwrap(), [70, 90]);
        assert!(latencies(directory.path()).unwrap().is_empty());
    }
}

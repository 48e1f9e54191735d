//! The comparison of Causeway with other proxies on the same work, round by round beside each other.

pub mod bars;
pub mod cells;
pub mod counts;
mod environment;
mod figures;
pub mod memory;
mod plot;
pub mod report;
pub mod rounds;
mod statistics;

use crate::lab::peer::Kind;
use crate::lab::syscalls::Calls;

/// One measurement: a cell's work through a proxy, in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The cell's name.
    pub cell: String,
    /// The proxy under its plain name, however it was configured for the cell.
    pub peer: Kind,
    /// From 1 on.
    pub round: u32,
    /// Transactions done, or bytes received.
    pub amount: f64,
    /// Transactions a second, or MB (10^6 bytes) a second.
    pub rate: f64,
    /// CPU time of the proxy in nanoseconds: all, in user mode, in the kernel.
    pub proxy_ns: [f64; 3],
    /// CPU time of all servers, nanoseconds.
    pub server_ns: f64,
    /// Context switches of the proxy.
    pub switches: f64,
    /// Latencies in microseconds, the middle one and the 99th of a hundred; 0 unless the work was paced.
    pub latency_us: [f64; 2],
    /// Which share of the machine's CPU something else used, in percent.
    pub foreign: f64,
}

/// System calls of a proxy for a cell's work.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// The cell's name.
    pub cell: String,
    /// The proxy.
    pub peer: Kind,
    /// Transactions, or MiB.
    pub amount: f64,
    /// The calls.
    pub calls: Calls,
}

/// Memory of a proxy with idle clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// The proxy.
    pub peer: Kind,
    /// How many clients there were.
    pub clients: usize,
    /// Bytes (PSS) of all its processes.
    pub bytes: u64,
}

/// Which servers the reads of a proxy's clients went to.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The proxy.
    pub peer: Kind,
    /// How many reads each server did, the primary first.
    pub reads: Vec<f64>,
}

/// All that was measured.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// By rounds.
    pub samples: Vec<Sample>,
    /// In short runs of their own.
    pub counts: Vec<Count>,
    /// By short runs of their own as well.
    pub splits: Vec<Split>,
    /// By freshly started proxies.
    pub memory: Vec<Memory>,
    /// What could not be measured, and why.
    pub omissions: Vec<String>,
}

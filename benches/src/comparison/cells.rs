//! The kinds of work.

use std::fmt;

use crate::lab::peer::Kind;
use crate::lab::pgbench::Protocol;
use crate::lab::stage::ROW_BYTES;

/// Transactions a second of the client whose latency is taken: below half of what the slowest proxy can do for one.
pub const PACE: u32 = 500;

/// What a cell's client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `pgbench -S`.
    Select {
        /// How statements are sent.
        protocol: Protocol,
        /// By how many clients.
        clients: u32,
    },
    /// `SELECT 1` by so many clients, simple protocol.
    One {
        /// By how many clients.
        clients: u32,
    },
    /// `pgbench -S -C`: a connection for each transaction, four clients.
    Reconnect,
    /// `pgbench -S -R` by one client.
    Paced,
    /// `SELECT *` from a table of rows of so many bytes.
    Rows(usize),
    /// `COPY .. TO STDOUT` of such a table.
    Copy(usize),
    /// `pg_dump` of two tables.
    Dump,
}

/// A kind of work with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// As in the raw results and on the command line.
    pub name: String,
    /// What is done.
    pub work: Work,
}

/// All of them.
pub fn all() -> Vec<Cell> {
    let select = |clients| Protocol::ALL.into_iter().map(move |protocol| Work::Select { protocol, clients });
    let one = [Work::Reconnect, Work::One { clients: 200 }, Work::Paced];
    let tables = ROW_BYTES.into_iter().map(Work::Rows).chain(ROW_BYTES.into_iter().map(Work::Copy));
    let works = select(16).chain(select(1)).chain(one).chain(tables).chain([Work::Dump]);
    works.map(|work| Cell { name: work.to_string(), work }).collect()
}

impl Work {
    /// Whether its amount is bytes, and not transactions.
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Rows(_) | Self::Copy(_))
    }

    /// Whether the tables for large reads are needed.
    pub fn reads_tables(self) -> bool {
        self.is_bulk() || self == Self::Dump
    }

    /// The rest would only show again what these do.
    fn tells_of_tls(self) -> bool {
        matches!(self, Self::Select { clients: 16, .. } | Self::Reconnect | Self::Paced | Self::Rows(_))
    }

    /// How a proxy is configured for this work; `None` where it does not take part.
    pub fn kind(self, peer: Kind) -> Option<Kind> {
        match (peer, self) {
            // PgBouncer 1.18 has no prepared statements in transaction pooling.
            (Kind::PgbouncerTls, Self::Select { protocol: Protocol::Prepared, .. }) => None,
            (Kind::CausewayTls | Kind::PgbouncerTls, _) => self.tells_of_tls().then_some(peer),
            (Kind::Pgbouncer, Self::Select { protocol: Protocol::Prepared, .. }) => {
                Some(Kind::PgbouncerSession)
            }
            (Kind::Pgpool, Self::One { .. }) => Some(Kind::PgpoolWide),
            (peer, _) => Some(peer),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select { protocol, clients } => write!(f, "{protocol}-{clients}"),
            Self::One { clients } => write!(f, "one-{clients}"),
            Self::Reconnect => f.write_str("connect-4"),
            Self::Paced => f.write_str("paced-1"),
            Self::Rows(bytes) => write!(f, "rows-{bytes}"),
            Self::Copy(bytes) => write!(f, "copy-{bytes}"),
            Self::Dump => f.write_str("dump"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let cells = all();
        let names: BTreeSet<_> = cells.iter().map(|cell| cell.name.clone()).collect();
        assert_eq!(names.len(), cells.len());
        assert!(names.contains("prepared-16") && names.contains("copy-8000"));
    }
}

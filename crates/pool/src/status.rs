//! What a pool tells of itself.

use std::time::Duration;

use tokio::time::Instant;

use crate::address::Address;
use crate::reason::CloseReason;

/// A pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Connections ready to be lent.
    pub idle: usize,
    /// Connections lent, or held back while a cancel request is on its way to them.
    pub active: usize,
    /// Connections being opened.
    pub connecting: usize,
    /// Checkouts waiting.
    pub waiting: usize,
    /// The most connections there may be.
    pub size: usize,
    /// For how long the oldest of the waiting checkouts has waited.
    pub oldest_wait: Option<Duration>,
}

/// An open connection at one moment.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// What it is doing.
    pub state: ServerState,
    /// The server's process.
    pub process_id: i32,
    /// When connecting began.
    pub connected_at: Instant,
    /// When it was last lent or given back.
    pub last_used: Instant,
    /// Where it leads, resolved.
    pub address: Address,
    /// Transactions counted with [`count_transaction`](crate::ServerConn::count_transaction).
    pub transactions: u64,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It waits to be lent.
    Idle,
    /// It is lent.
    Active,
    /// It was given back and waits for the end of a cancel request.
    BeingCanceled,
}

/// What a pool has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections opened, verified and taken in.
    pub opened: u64,
    /// Attempts to open one that failed.
    pub failed: u64,
    /// Time spent on successful attempts.
    pub connecting: Duration,
    /// Checkouts that had to wait, however briefly.
    pub waited: u64,
    /// Checkouts that were given up at their deadline.
    pub timed_out: u64,
    /// Checkouts refused because the queue was full.
    pub refused: u64,
    pub(crate) closed: [u64; CloseReason::ALL.len()],
}

// === impl ServerState ===

impl ServerState {
    /// The label, as `SHOW SERVERS` prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::BeingCanceled => "being_canceled",
        }
    }
}

// === impl Totals ===

impl Totals {
    /// Connections closed, by reason; every reason, even those that never occurred.
    pub fn closed(&self) -> impl Iterator<Item = (CloseReason, u64)> {
        CloseReason::ALL
            .into_iter()
            .map(|reason| (reason, self.closed.get(reason.index()).copied().unwrap_or(0)))
    }
}

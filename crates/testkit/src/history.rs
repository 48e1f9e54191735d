//! Histories of what clients did and were told, and what must hold of them.
//!
//! Each key of a register has one writer at a time, whose values increase, so that what a read must show is the greatest
//! value in a prefix of the acknowledgements: no check searches, all are O(n log n). A failed check says which invariant of
//! `docs/consistency.md` is broken and by what.

mod conduct;
mod registers;
mod snapshots;
#[cfg(test)]
mod tests;

use std::fmt;

pub use conduct::{
    Execution, Loss, Placement, Publication, Reign, Spending, executed, idle, lost_once, placed, proven,
    published, reigns, spent, waited,
};
pub use registers::{Findings, going_back, registers};
pub use snapshots::{Snapshot, Transaction, prefixes, transactions};

/// Microseconds since the beginning of a run, of one clock.
pub type Moment = u64;

/// When what has no end ended: an operation whose outcome nobody knows may take effect at any later time.
pub const NEVER: Moment = Moment::MAX;

/// Whose writes a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Everything acknowledged to anybody.
    Cluster,
    /// Everything acknowledged through the same router.
    Router,
    /// The session's own writes, and what it has read before.
    Session,
    /// Everything acknowledged so long before the read began.
    Bounded(Moment),
    /// Nothing in particular.
    Eventual,
    /// Everything, by the primary.
    Primary,
    /// Everything acknowledged before the token was asked for, which was then.
    After(Moment),
}

/// What was done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// This value was written.
    Write(u64),
    /// This value was read; 0 is what was there before the first write.
    Read(u64),
    /// The session was told that what it wrote or read may be lost. The key says nothing.
    Told,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged, or answered.
    Done,
    /// It had no effect, and never will.
    Failed,
    /// It may have, or may still take effect.
    Unknown,
    /// It was acknowledged by a primary that has lost it since: replication was asynchronous.
    Lost,
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The node's place in the cluster.
    pub node: u16,
    /// Whether it was in recovery.
    pub replica: bool,
}

/// On what grounds a replica was let answer; known of simulated runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Timeline and position that the read had to see.
    pub fence: (u32, u64),
    /// When the fence's probe was sent.
    pub probed: Moment,
    /// Timeline and position that the replica was known to have replayed.
    pub observed: (u32, u64),
    /// When that was asked for.
    pub requested: Moment,
    /// When the connection was opened on which the read went.
    pub opened: Moment,
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who; a session does one thing after another.
    pub session: u32,
    /// Through which router.
    pub router: u16,
    /// On which key.
    pub key: u32,
    /// What.
    pub op: Op,
    /// At which level, if it was a read.
    pub level: Level,
    /// When it was about to be sent.
    pub invoked: Moment,
    /// When its end was known; [`NEVER`] if it is not.
    pub completed: Moment,
    /// How it ended.
    pub outcome: Outcome,
    /// Who answered, if that is known.
    pub served: Option<Served>,
    /// On what grounds, if that is known.
    pub proof: Option<Proof>,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number.
    pub invariant: u8,
    /// What breaks it.
    pub text: String,
}

// === impl Event ===

impl Event {
    /// What was read, by a read that was answered.
    fn value_read(&self) -> Option<u64> {
        match (self.op, self.outcome) {
            (Op::Read(value), Outcome::Done) => Some(value),
            _ => None,
        }
    }

    fn on_replica(&self) -> bool {
        self.served.is_some_and(|served| served.replica)
    }
}

// === impl Violation ===

impl Violation {
    fn new(invariant: u8, text: String) -> Self {
        Self { invariant, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I{}: {}", self.invariant, self.text)
    }
}

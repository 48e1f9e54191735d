//! What a pool knows of its connections while they are lent.

use std::sync::Arc;

use tokio::time::Instant;

use crate::conn::{Card, ServerConn};
use crate::lease::LeaseNumber;

/// The open connections of a pool, each at a position that it keeps.
#[derive(Default)]
pub(crate) struct Slots {
    entries: Vec<Option<Slot>>,
    vacant: Vec<usize>,
}

/// What the pool knows of one open connection.
pub(crate) struct Slot {
    pub(crate) card: Arc<Card>,
    /// The number of the lease it is out on; no number is given twice.
    pub(crate) lease: Option<u64>,
    pub(crate) last_used: Instant,
    /// It is a client's own: see [`Seat`](crate::Seat).
    pub(crate) seated: bool,
    /// Cancel requests for its lease on their way to the server.
    pub(crate) cancels: u32,
    /// A cancel request was sent and its end not seen: it may still strike.
    pub(crate) doubtful: bool,
    /// The connection itself, given back while a cancel request was on its way.
    pub(crate) parked: Option<Box<ServerConn>>,
}

// === impl Slots ===

impl Slots {
    /// The position the next [`Self::occupy`] will use.
    pub(crate) fn next(&self) -> usize {
        self.vacant.last().copied().unwrap_or(self.entries.len())
    }

    /// Fills [`Self::next`].
    pub(crate) fn occupy(&mut self, slot: Slot) {
        match self.vacant.pop() {
            Some(position) => self.entries[position] = Some(slot),
            None => self.entries.push(Some(slot)),
        }
    }

    /// Empties a position.
    pub(crate) fn vacate(&mut self, position: usize) -> Option<Slot> {
        let slot = self.entries.get_mut(position)?.take()?;
        self.vacant.push(position);
        Some(slot)
    }

    pub(crate) fn slot(&mut self, position: usize) -> Option<&mut Slot> {
        self.entries.get_mut(position)?.as_mut()
    }

    /// The slot of a lease that still lasts.
    pub(crate) fn lent(&mut self, number: LeaseNumber) -> Option<&mut Slot> {
        self.slot(number.slot).filter(|slot| slot.lease == Some(number.lease))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.entries.iter().flatten()
    }
}

//! Seats: which server process a client was told is its own.
//!
//! A client knows its session by the process id of the server: it compares notifications with it, looks itself up in
//! `pg_stat_activity` and `pg_locks`, and others end or wait for it by that number. As long as there are no more
//! clients than connections, each can be given the number of a process that is nobody else's, and be served by it.

#![allow(clippy::vec_box, reason = "as in the pool's state, which this reaches into")]

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::conn::{Card, ServerConn};
use crate::lease::Lease;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::state::State;

/// The mark that one server connection is a client's own, until this is dropped or the connection is closed.
///
/// It gives no right to the connection: others borrow it while it is idle and nothing else is.
pub struct Seat {
    shared: Weak<Shared>,
    slot: usize,
    card: Arc<Card>,
}

/// Who waits for a connection to be opened that will be its own.
pub(crate) type Seeker = oneshot::Sender<Seat>;

/// What looking for a seat gave.
enum Seating {
    Found(usize, Arc<Card>),
    /// A connection will be opened.
    Soon(oneshot::Receiver<Seat>),
    Full,
}

// === impl Pool ===

impl Pool {
    /// Finds a connection that is nobody's own: an idle one, or a new one if there is room. Never waits for others to
    /// give theirs back; `None` if all are taken, or none can be opened before `deadline`.
    ///
    /// Cancel-safe: connecting goes on without the caller.
    pub async fn seat(&self, deadline: Instant) -> Option<Seat> {
        let shared = self.shared();
        let seating = shared.lock().find_seat(Instant::now());
        match seating {
            Seating::Found(slot, card) => Some(Seat { shared: Arc::downgrade(shared), slot, card }),
            Seating::Soon(seat) => {
                shared.pump();
                timeout_at(deadline, seat).await.ok()?.ok()
            }
            Seating::Full => None,
        }
    }

    /// [`Pool::try_checkout`], which lends the connection of this seat if that is idle.
    pub fn try_checkout_seat(&self, seat: &Seat) -> Option<Lease> {
        let shared = self.shared();
        if !std::ptr::eq(Arc::as_ptr(shared), seat.shared.as_ptr()) {
            return self.try_checkout();
        }
        let conn = shared.lock().take_seat(seat.slot, &seat.card);
        match conn {
            Some(conn) => shared.lend(conn).or_else(|| self.try_checkout()),
            None => self.try_checkout(),
        }
    }
}

// === impl State ===

impl State {
    fn find_seat(&mut self, now: Instant) -> Seating {
        if self.is_closed() {
            return Seating::Full;
        }
        let (idle, slots) = self.idle_and_slots();
        for conn in idle.iter().rev() {
            let number = conn.place().slot;
            if let Some(slot) = slots.slot(number).filter(|slot| !slot.seated) {
                slot.seated = true;
                return Seating::Found(number, Arc::clone(&slot.card));
            }
        }
        // Every connection that is opened seats one of those who seek.
        let room = self.config.size.saturating_sub(self.slots().len());
        if self.seekers.len() >= room || self.is_backing_off(now) {
            return Seating::Full;
        }
        let (sender, receiver) = oneshot::channel();
        self.seekers.push_back(sender);
        Seating::Soon(receiver)
    }

    fn take_seat(&mut self, number: usize, card: &Arc<Card>) -> Option<Box<ServerConn>> {
        let slot = self.slots().slot(number)?;
        if !Arc::ptr_eq(&slot.card, card) || slot.lease.is_some() || slot.parked.is_some() {
            return None;
        }
        self.take_idle_at(|conn| conn.place().slot == number)
    }

    /// The seeker for whom a new connection is.
    pub(crate) fn next_seeker(&mut self, number: usize) -> Option<Seeker> {
        if !self.seekers.is_empty() {
            self.slots().slot(number)?.seated = true;
        }
        self.seekers.pop_front()
    }

    fn leave_seat(&mut self, number: usize, card: &Arc<Card>) {
        if let Some(slot) = self.slots().slot(number).filter(|slot| Arc::ptr_eq(&slot.card, card)) {
            slot.seated = false;
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Gives a connection just opened to whoever has sought one for longest and still does.
    pub(crate) fn seat(self: &Arc<Self>, conn: &ServerConn) {
        let slot = conn.place().slot;
        loop {
            let Some(seeker) = self.lock().next_seeker(slot) else { return };
            let seat = Seat { shared: Arc::downgrade(self), slot, card: Arc::clone(conn.card()) };
            // One that has left hands it back, and dropping it frees the connection for the next.
            if seeker.send(seat).is_ok() {
                return;
            }
        }
    }
}

// === impl Seat ===

impl Seat {
    /// The process behind the connection, as it calls itself.
    pub fn process_id(&self) -> i32 {
        self.card.process_id
    }

    /// Whether this is the connection behind a lease.
    pub fn is_of(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.card, lease.card())
    }

    /// Lends the connection if it is idle and nobody waits for one.
    pub fn try_checkout(&self) -> Option<Lease> {
        let shared = self.shared.upgrade()?;
        let conn = shared.lock().take_seat(self.slot, &self.card)?;
        shared.lend(conn)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("process_id", &self.process_id()).finish_non_exhaustive()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().leave_seat(self.slot, &self.card);
        }
    }
}

//! A connection on loan.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::time::Instant;

use crate::cancel::CancelHandle;
use crate::conn::ServerConn;
use crate::reason::CloseReason;
use crate::shared::Shared;

/// A lease by number, in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseNumber {
    pub(crate) slot: usize,
    pub(crate) lease: u64,
}

/// A server connection on loan: exclusive until it is checked in, discarded or dropped.
///
/// Dropping it discards the connection: only a borrower that vouches for its state can give it back.
#[must_use = "a lease that is dropped discards its connection"]
pub struct Lease {
    conn: Option<Box<ServerConn>>,
    shared: Arc<Shared>,
    /// Whether it reached a borrower. Until then nobody can have touched the connection.
    delivered: bool,
}

// === impl Lease ===

impl Lease {
    pub(crate) fn delivered(conn: Box<ServerConn>, shared: Arc<Shared>) -> Self {
        Self { conn: Some(conn), shared, delivered: true }
    }

    /// A lease for a waiter that may leave before it gets it.
    pub(crate) fn on_its_way(conn: Box<ServerConn>, shared: Arc<Shared>) -> Self {
        Self { conn: Some(conn), shared, delivered: false }
    }

    pub(crate) fn deliver(mut self) -> Self {
        self.delivered = true;
        self
    }

    pub(crate) fn into_conn(mut self) -> Option<Box<ServerConn>> {
        self.conn.take()
    }

    /// Gives the connection back.
    ///
    /// The borrower vouches that it is quiescent (every answer that was owed has been read), outside a transaction, and
    /// in the state its books say. It goes straight to the oldest waiter, if there is one; if it is past its lifetime,
    /// or the pool was reconfigured, resized or closed, it is closed instead. While a [`CancelHandle`] of this lease
    /// is at work the connection is held back.
    pub fn checkin(self) {
        self.checkin_at(Instant::now());
    }

    /// [`Self::checkin`] for a borrower that has just read the clock.
    pub fn checkin_at(mut self, now: Instant) {
        let Some(mut conn) = self.conn.take() else { return };
        // Bytes read and not consumed are either the server's asides or the proof that it is not quiescent.
        let settled = if conn.inbound.is_empty() { Ok(()) } else { conn.settle() };
        match settled {
            Ok(()) => self.shared.place(conn, now),
            Err(reason) => self.shared.retire(conn, reason),
        }
    }

    /// Closes the connection.
    pub fn discard(mut self, reason: CloseReason) {
        if let Some(conn) = self.conn.take() {
            self.shared.retire(conn, reason);
        }
    }

    /// The means for others to cancel what runs on the connection, as long as this lease lasts. Takes no lock.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(&self.shared, self.number(), self.card())
    }

    /// By what its pool knows this lease: costs nothing, unlike a [`CancelHandle`], which
    /// [`Pool::cancel_handle`](crate::Pool::cancel_handle) makes of it.
    pub fn number(&self) -> LeaseNumber {
        LeaseNumber { slot: self.place().slot, lease: self.lease() }
    }
}

impl Deref for Lease {
    type Target = ServerConn;

    fn deref(&self) -> &ServerConn {
        self.conn
            .as_deref()
            .expect("invariant: the connection is taken only by methods that consume the lease")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut ServerConn {
        self.conn
            .as_deref_mut()
            .expect("invariant: the connection is taken only by methods that consume the lease")
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.conn).finish()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        if self.delivered {
            self.shared.retire(conn, CloseReason::Abandoned);
        } else {
            self.shared.place(conn, Instant::now());
        }
    }
}

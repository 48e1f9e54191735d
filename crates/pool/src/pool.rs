//! The pool as its users see it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::cancel::CancelHandle;
use crate::config::Config;
use crate::error::CheckoutError;
use crate::lease::{Lease, LeaseNumber};
use crate::quota::Quota;
use crate::reason::CloseReason;
use crate::shared::Shared;
use crate::state::Entry;
use crate::status::{ServerInfo, Status, Totals};

/// The server connections of one (node, database, user). Clones are the same pool.
///
/// Connections are opened on demand. When the last clone and the last lease are gone, everything idle is closed.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// A place in the queue, which is given up when this is dropped.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: u64,
    reply: oneshot::Receiver<Result<Lease, CheckoutError>>,
}

// === impl Pool ===

impl Pool {
    /// A pool that has no connection yet.
    pub fn new(config: Config) -> Self {
        Self { shared: Shared::new(config) }
    }

    /// Lends the most recently used idle connection, unless somebody waits; never waits itself.
    ///
    /// Makes no system call unless the connection has something to be read: then what the server said while it was
    /// idle decides whether it is lent or replaced by the next.
    pub fn try_checkout(&self) -> Option<Lease> {
        loop {
            let conn = self.shared.lock().take_idle()?;
            if let Some(lease) = self.shared.lend(conn) {
                return Some(lease);
            }
        }
    }

    /// Lends the connection to one server process if it is idle and nobody waits: for what only that process can tell.
    pub fn try_checkout_to(&self, process_id: i32) -> Option<Lease> {
        let conn = self.shared.lock().take_idle_to(process_id)?;
        self.shared.lend(conn)
    }

    /// The means to cancel what runs under a lease of this pool; `None` once that is over.
    pub fn cancel_handle(&self, number: LeaseNumber) -> Option<CancelHandle> {
        let card = Arc::clone(&self.shared.lock().slots().lent(number)?.card);
        Some(CancelHandle::new(&self.shared, number, &card))
    }

    /// Lends a connection: an idle one, or the first that is given back or opened once all who came earlier have
    /// theirs. Must be called within a tokio runtime with time and input/output enabled.
    ///
    /// Cancel-safe: dropping the future leaves the queue, and a connection that was already on its way to this caller
    /// goes to the next. Connecting goes on without the caller.
    ///
    /// # Errors
    ///
    /// [`CheckoutError::QueueFull`] and [`CheckoutError::Closed`] at once; [`CheckoutError::Timeout`] at `deadline`;
    /// [`CheckoutError::Connect`] when an attempt to open a connection failed and this caller is the oldest in the
    /// queue, or when nothing is open and the last attempt failed a moment ago.
    pub async fn checkout(&self, deadline: Instant) -> Result<Lease, CheckoutError> {
        let since = Instant::now();
        let mut waiting = loop {
            let entry = self.shared.lock().enter(since)?;
            match entry {
                Entry::Idle(conn) => {
                    if let Some(lease) = self.shared.lend(conn) {
                        return Ok(lease);
                    }
                }
                Entry::Queued { ticket, reply } => break Waiting { shared: &self.shared, ticket, reply },
            }
        };
        self.shared.pump();
        match timeout_at(deadline, &mut waiting.reply).await {
            Ok(answer) => answer.unwrap_or(Err(CheckoutError::Closed)).map(Lease::deliver),
            Err(_elapsed) => waiting.give_up(since),
        }
    }

    /// Puts a new configuration in place.
    ///
    /// Sizes and times apply at once: idle connections beyond the new size are closed now, lent ones at checkin. If the
    /// address, database, user, password, start-up parameters or verification query changed, no connection opened
    /// before is lent again. A closed pool stays closed.
    pub fn reconfigure(&self, config: Config) {
        let unfit = self.shared.lock().reconfigure(config);
        for (conn, reason) in unfit {
            self.shared.retire(conn, reason);
        }
        self.shared.pump();
    }

    /// Lends no connection again that is open now: idle ones are closed at once, lent ones at checkin. For use after
    /// something on the server changed under them, such as a role's settings, or before a database is dropped.
    pub fn recycle(&self, reason: CloseReason) {
        let outdated = self.shared.lock().outdate(reason);
        for (conn, reason) in outdated {
            self.shared.retire(conn, reason);
        }
        self.shared.pump();
    }

    /// Ends the pool: checkouts, waiting or new, get [`CheckoutError::Closed`], idle connections are closed at once and
    /// lent ones at checkin. The first reason stands.
    pub fn close(&self, reason: CloseReason) {
        let (idle, waiters) = self.shared.lock().close(reason);
        for waiter in waiters {
            // One that has left in the meantime needs no answer.
            waiter.refuse(CheckoutError::Closed);
        }
        for conn in idle {
            self.shared.retire(conn, reason);
        }
        self.shared.pump();
    }

    /// The bound over several pools that keeps this one from opening connections, if there is one.
    pub fn reached_quota(&self) -> Option<Arc<Quota>> {
        self.config().quotas.iter().find(|quota| quota.is_reached()).map(Arc::clone)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How the pool stands.
    pub fn status(&self) -> Status {
        let now = Instant::now();
        self.shared.lock().status(now)
    }

    /// Every open connection.
    pub fn servers(&self) -> Vec<ServerInfo> {
        self.shared.lock().servers()
    }

    /// What the pool has counted.
    pub fn totals(&self) -> Totals {
        self.shared.lock().totals
    }

    /// The configuration in place.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.shared.lock().config)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("config", &self.config()).field("status", &self.status()).finish()
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    /// The deadline has passed; what arrived in the same moment counts.
    fn give_up(mut self, since: Instant) -> Result<Lease, CheckoutError> {
        self.reply.close();
        match self.reply.try_recv() {
            Ok(answer) => answer.map(Lease::deliver),
            Err(_nothing) => {
                self.shared.lock().totals.timed_out += 1;
                Err(CheckoutError::Timeout { waited: since.elapsed() })
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = self.shared.lock().leave(self.ticket);
        // The sender is dropped here, with the mutex released.
        drop(left);
    }
}

#[cfg(test)]
mod tests;

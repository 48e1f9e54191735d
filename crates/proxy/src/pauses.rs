//! Databases whose clients wait until an operator lets them go on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use causeway_pool::CloseReason;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::Proxy;
use crate::client::{Client, End};
use crate::lease::Denied;
use crate::registry::ClientState;

/// From one look for busy server connections to the next.
const POLL: Duration = Duration::from_millis(20);

/// What is paused.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// Whether anything is: all that a statement looks at while nothing is.
    any: AtomicBool,
    paused: Mutex<Paused>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Paused {
    all: bool,
    databases: BTreeSet<Box<str>>,
}

// === impl Pauses ===

impl Default for Pauses {
    fn default() -> Self {
        Self { any: AtomicBool::default(), paused: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Pauses {
    /// Whether the clients of this database wait.
    pub(crate) fn hold(&self, database: &str) -> bool {
        self.any.load(Ordering::Acquire) && {
            let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
            paused.all || paused.databases.contains(database)
        }
    }

    fn change(&self, change: impl FnOnce(&mut Paused)) {
        {
            let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut paused);
            self.any.store(paused.all || !paused.databases.is_empty(), Ordering::Release);
        }
        self.changes.send_modify(|version| *version += 1);
    }
}

// === impl Proxy ===

impl Proxy {
    /// Lets no client of the database, or of any for `None`, have a server connection; waits until none is in use and
    /// closes them. Dropping the future leaves the pause in force.
    ///
    /// False if somebody let the clients go on in the meantime.
    pub async fn pause(&self, database: Option<&str>) -> bool {
        self.shared.pauses.change(|paused| match database {
            None => paused.all = true,
            Some(database) => {
                paused.databases.insert(database.into());
            }
        });
        loop {
            if !self.is_paused(database) {
                return false;
            }
            let pools = self.shared.pools.all();
            let own = || pools.iter().filter(|pool| database.is_none_or(|own| *pool.key.database == *own));
            own().for_each(|pool| pool.pool.recycle(CloseReason::Recycled));
            if own().all(|pool| pool.pool.status().active == 0) {
                return true;
            }
            sleep(POLL).await;
        }
    }

    /// Lets the clients of the database go on, or for `None` those of all. False if it was not paused by itself.
    pub fn resume(&self, database: Option<&str>) -> bool {
        let mut was = true;
        self.shared.pauses.change(|paused| match database {
            None => *paused = Paused::default(),
            Some(database) => was = paused.databases.remove(database),
        });
        was
    }

    /// Waits until no server connection to the node is in use, and closes them. Dropping the future leaves those that are.
    pub async fn leave_node(&self, cluster: &str, node: &str) {
        loop {
            let pools = self.shared.pools.all();
            let own = || pools.iter().filter(|pool| *pool.key.cluster == *cluster && *pool.key.node == *node);
            own().for_each(|pool| pool.pool.recycle(CloseReason::Recycled));
            if own().all(|pool| pool.pool.status().active == 0) {
                return;
            }
            sleep(POLL).await;
        }
    }

    /// Whether the database is paused, by itself or with all; for `None`, whether all are.
    pub fn is_paused(&self, database: Option<&str>) -> bool {
        match database {
            Some(database) => self.shared.pauses.hold(database),
            None => self.shared.pauses.paused.lock().unwrap_or_else(PoisonError::into_inner).all,
        }
    }
}

// === impl Client ===

impl Client {
    /// Waits while the database is paused, as long as for a server connection.
    pub(crate) async fn wait_for_resume(&mut self) -> Result<Result<(), Denied>, End> {
        let deadline = Instant::now() + self.home.checkout_timeout;
        let mut changes = self.shared.pauses.changes.subscribe();
        while self.shared.pauses.hold(&self.home.database) {
            if Instant::now() >= deadline {
                let message = format!("database \"{}\" is paused", self.home.database);
                let report = ErrorReport::error(SqlState::CANNOT_CONNECT_NOW, message)
                    .with_hint("An operator has paused it; RESUME on the console ends that.");
                return Ok(Err(Denied::Report(report)));
            }
            self.entry.clear_cancel();
            self.entry.enter(ClientState::Waiting);
            let next = timeout_at(deadline, changes.changed());
            let waited = Box::pin(self.wait(next)).await;
            self.entry.enter(ClientState::Active);
            // A passed deadline is seen above.
            waited?.ok();
        }
        Ok(Ok(()))
    }
}

//! The asynchronous half of a pool: what is done once the mutex is released.

use std::error::Error;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Config;
use crate::conn::{Opened, ServerConn};
use crate::connect;
use crate::error::{CheckoutError, ConnectError};
use crate::housekeeping;
use crate::lease::Lease;
use crate::quota::Quotas;
use crate::reason::CloseReason;
use crate::state::{Placement, Plan, State};

/// A pool's state and the bell of its housekeeping task.
///
/// Nothing is sent, spawned, closed or dropped while the mutex is held: all of these can run foreign code that comes
/// back here.
pub(crate) struct Shared {
    state: Mutex<State>,
    quotas: Quotas,
    bell: Arc<Notify>,
}

/// The right to open one connection, counted as connecting. Dropped unused, the attempt has failed.
pub(crate) struct Ticket {
    shared: Weak<Shared>,
    generation: u64,
    began: Instant,
    used: bool,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new_cyclic(|pool| {
            let quotas = Quotas::new(&config.quotas, pool);
            let state = Mutex::new(State::new(config, quotas.clone()));
            Self { state, quotas, bell: Arc::new(Notify::new()) }
        })
    }

    /// Holds the state. A panic under the mutex leaves it as consistent as each single step does.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a connection taken from the idle ones, if it is still fit for that.
    pub(crate) fn lend(self: &Arc<Self>, mut conn: Box<ServerConn>) -> Option<Lease> {
        match conn.settle() {
            Ok(()) => Some(Lease::delivered(conn, Arc::clone(self))),
            Err(reason) => {
                self.retire(conn, reason);
                None
            }
        }
    }

    /// Gives a free connection to whoever is next.
    pub(crate) fn place(self: &Arc<Self>, mut conn: Box<ServerConn>, now: Instant) {
        loop {
            let (placement, keep) = {
                let mut state = self.lock();
                let placement = state.place(conn, now);
                (placement, state.has_idle() && !state.kept)
            };
            match placement {
                Placement::HandOff(waiter, free) => {
                    let lease = Lease::on_its_way(free, Arc::clone(self));
                    match waiter.grant(lease).map_err(Lease::into_conn) {
                        Err(Some(back)) => conn = back,
                        Ok(()) | Err(None) => return,
                    }
                }
                Placement::Kept => {
                    if keep {
                        self.keep_house();
                    }
                    return;
                }
                Placement::Retire(conn, reason) => {
                    self.retire(conn, reason);
                    return;
                }
            }
        }
    }

    /// Closes a connection, and opens another if somebody waits for one.
    pub(crate) fn retire(self: &Arc<Self>, conn: Box<ServerConn>, reason: CloseReason) {
        let slot = conn.place().slot;
        // Closed first and counted afterwards: never more sockets than the books show.
        conn.close(reason);
        let plan = {
            let mut state = self.lock();
            state.vacate(slot, reason);
            state.plan(Instant::now())
        };
        self.carry_out(plan);
        self.quotas.offer();
    }

    /// Opens connections for those who wait, if there is room.
    pub(crate) fn pump(self: &Arc<Self>) {
        let plan = self.lock().plan(Instant::now());
        self.carry_out(plan);
    }

    pub(crate) fn carry_out(self: &Arc<Self>, plan: Plan) {
        drop(plan.unseated);
        for (waiter, error) in plan.refused {
            // Nobody there is as well: a waiter that has left needs no answer.
            waiter.refuse(error);
        }
        if plan.keep {
            self.keep_house();
        }
        for _ in 0..plan.connects {
            self.connect();
        }
        if plan.starved {
            // What was taken of one bound before another was found to be reached is free again.
            self.quotas.offer();
            let spare = self.quotas.richest().and_then(|pool| {
                let conn = pool.lock().take_spare()?;
                Some((pool, conn))
            });
            if let Some((pool, conn)) = spare {
                pool.retire(conn, CloseReason::Quota);
            }
        }
    }

    /// Opens a connection in a task of its own, so that a client that leaves does not end it.
    fn connect(self: &Arc<Self>) {
        let (config, generation) = {
            let state = self.lock();
            (Arc::clone(&state.config), state.generation())
        };
        let ticket = Ticket { shared: Arc::downgrade(self), generation, began: Instant::now(), used: false };
        // Outside of a runtime there is nobody to poll the attempt: the ticket is dropped and the attempt has failed.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // A door that is closed lets everybody through: it is only there to keep a queue.
                let _right = match &config.door {
                    Some(door) => door.acquire().await.ok(),
                    None => None,
                };
                let outcome = connect::open(&config).await;
                ticket.redeem(outcome);
            });
        }
    }

    fn connected(self: &Arc<Self>, opened: Opened, generation: u64) {
        let conn = self.lock().admit(opened, generation, Instant::now());
        self.seat(&conn);
        self.place(conn, Instant::now());
        // The limit on simultaneous attempts may have kept others from being made.
        self.pump();
    }

    fn connect_failed(self: &Arc<Self>, error: &ConnectError, generation: u64, began: Instant) {
        let sqlstate = error.sqlstate().map(String::from_utf8_lossy);
        tracing::debug!(error = error as &dyn Error, ?sqlstate, "could not open a server connection");
        let mut told = self.lock().connect_failed(error, generation, began, Instant::now());
        while let Some(waiter) = told.take() {
            if !waiter.refuse(CheckoutError::Connect(error.clone())) {
                told = self.lock().oldest_waiter();
            }
        }
        self.pump();
        self.quotas.offer();
    }

    /// Sees to it that the housekeeping task runs and looks again.
    fn keep_house(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let was_kept = {
            let mut state = self.lock();
            mem::replace(&mut state.kept, true)
        };
        if was_kept {
            self.bell.notify_one();
        } else {
            runtime.spawn(housekeeping::run(Arc::downgrade(self), Arc::clone(&self.bell)));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The housekeeping task finds the pool gone and ends.
        self.bell.notify_one();
    }
}

// === impl Ticket ===

impl Ticket {
    fn redeem(mut self, outcome: Result<Opened, ConnectError>) {
        self.used = true;
        let Some(shared) = self.shared.upgrade() else {
            if let Ok(opened) = outcome {
                opened.close();
            }
            return;
        };
        match outcome {
            Ok(opened) => shared.connected(opened, self.generation),
            Err(error) => shared.connect_failed(&error, self.generation, self.began),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.used
            && let Some(shared) = self.shared.upgrade()
        {
            shared.connect_failed(&ConnectError::Aborted, self.generation, self.began);
        }
    }
}

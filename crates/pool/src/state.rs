//! The books of a pool: who waits, what is idle, what may be opened. Synchronous; of input and output it knows only
//! whether the runtime's driver has noticed something.

#![allow(clippy::vec_box, reason = "a connection is some hundred bytes long and moves with every lease")]

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backoff::{Backoff, Random};
use crate::config::Config;
use crate::conn::{Opened, Place, ServerConn};
use crate::error::{CheckoutError, ConnectError};
use crate::lease::Lease;
use crate::quota::Quotas;
use crate::reason::CloseReason;
use crate::seats::Seeker;
use crate::slots::{Slot, Slots};
use crate::status::{ServerInfo, ServerState, Status, Totals};

/// What stands behind a pool's mutex.
///
/// Invariants between two calls: `open() + connecting` does not exceed the configured size unless that has shrunk
/// since; nobody waits while something is idle.
pub(crate) struct State {
    pub(crate) config: Arc<Config>,
    generation: u64,
    /// Why connections of an earlier generation are closed.
    outdated: CloseReason,
    closed: Option<CloseReason>,
    /// Ready to be lent, the most recently used last.
    idle: Vec<Box<ServerConn>>,
    slots: Slots,
    /// Every connection that is open or being opened counts against these.
    quotas: Quotas,
    connecting: usize,
    waiters: VecDeque<Waiter>,
    /// Those for whom a connection of their own is being opened.
    pub(crate) seekers: VecDeque<Seeker>,
    tickets: u64,
    leases: u64,
    backoff: Backoff,
    random: Random,
    /// The age below which no connection is past its lifetime, whatever its jitter.
    shortest_life: Duration,
    pub(crate) totals: Totals,
    /// Whether the housekeeping task runs.
    pub(crate) kept: bool,
}

/// A checkout in the queue.
pub(crate) struct Waiter {
    ticket: u64,
    since: Instant,
    reply: oneshot::Sender<Result<Lease, CheckoutError>>,
}

/// Where a connection that is free goes.
pub(crate) enum Placement {
    /// To the oldest waiter.
    HandOff(Waiter, Box<ServerConn>),
    /// To the others that are idle, or to its slot until a cancel request is over.
    Kept,
    /// Out.
    Retire(Box<ServerConn>, CloseReason),
}

/// What a checkout that cannot be served at once meets.
pub(crate) enum Entry {
    /// Something idle after all.
    Idle(Box<ServerConn>),
    /// A place in the queue.
    Queued { ticket: u64, reply: oneshot::Receiver<Result<Lease, CheckoutError>> },
}

/// What has to be done once the mutex is released.
#[derive(Default)]
pub(crate) struct Plan {
    /// How many connections to open; they are counted as connecting already.
    pub(crate) connects: usize,
    /// Waiters that are told an error.
    pub(crate) refused: Vec<(Waiter, CheckoutError)>,
    /// Those who sought a connection of their own, and get none.
    pub(crate) unseated: VecDeque<Seeker>,
    /// Whether a bound over several pools keeps somebody waiting.
    pub(crate) starved: bool,
    /// Whether the housekeeping task has something to wait for.
    pub(crate) keep: bool,
}

// === impl State ===

impl State {
    pub(crate) fn new(config: Config, quotas: Quotas) -> Self {
        Self {
            random: Random::new(config.seed),
            shortest_life: shortest_life(&config),
            config: Arc::new(config),
            generation: 0,
            outdated: CloseReason::Reconfigured,
            closed: None,
            idle: Vec::new(),
            slots: Slots::default(),
            quotas,
            connecting: 0,
            waiters: VecDeque::new(),
            seekers: VecDeque::new(),
            tickets: 0,
            leases: 0,
            backoff: Backoff::default(),
            totals: Totals::default(),
            kept: false,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The most recently used idle connection, unless somebody waits. It counts as lent from here on.
    pub(crate) fn take_idle(&mut self) -> Option<Box<ServerConn>> {
        if !self.waiters.is_empty() {
            return None;
        }
        let mut conn = self.idle.pop()?;
        self.lend(&mut conn);
        Some(conn)
    }

    /// The idle connection to this server process, unless somebody waits.
    pub(crate) fn take_idle_to(&mut self, process_id: i32) -> Option<Box<ServerConn>> {
        self.take_idle_at(|conn| conn.process_id() == process_id)
    }

    /// The most recently used idle connection that fits, unless somebody waits.
    pub(crate) fn take_idle_at(&mut self, fits: impl Fn(&ServerConn) -> bool) -> Option<Box<ServerConn>> {
        if !self.waiters.is_empty() {
            return None;
        }
        let at = self.idle.iter().rposition(|conn| fits(conn))?;
        let mut conn = self.idle.remove(at);
        self.lend(&mut conn);
        Some(conn)
    }

    /// Starts a new lease of a connection.
    fn lend(&mut self, conn: &mut ServerConn) {
        self.leases += 1;
        if let Some(slot) = self.slots.slot(conn.place().slot) {
            slot.lease = Some(self.leases);
        }
        conn.set_lease(self.leases);
    }

    /// A checkout that found nothing idle: queues it.
    pub(crate) fn enter(&mut self, now: Instant) -> Result<Entry, CheckoutError> {
        if self.closed.is_some() {
            return Err(CheckoutError::Closed);
        }
        if let Some(conn) = self.take_idle() {
            return Ok(Entry::Idle(conn));
        }
        // With nothing open and nothing on its way, waiting out the backoff could only end in the same error.
        if self.slots.len() + self.connecting == 0
            && let Some(error) = self.backoff.error(now)
        {
            return Err(CheckoutError::Connect(error.clone()));
        }
        // Those for whom connections are or will be opened do not wait for others to give theirs back.
        let room = self.config.size.saturating_sub(self.slots.len());
        if self.waiters.len() >= self.config.max_waiters.saturating_add(room) {
            self.totals.refused += 1;
            return Err(CheckoutError::QueueFull { waiters: self.waiters.len() });
        }
        let (reply, receiver) = oneshot::channel();
        self.tickets += 1;
        self.totals.waited += 1;
        self.waiters.push_back(Waiter { ticket: self.tickets, since: now, reply });
        Ok(Entry::Queued { ticket: self.tickets, reply: receiver })
    }

    /// Takes a checkout out of the queue, if it is still there.
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waiter> {
        let position = self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.waiters.remove(position)
    }

    /// Takes in a connection just opened; it counts as lent until it is placed.
    pub(crate) fn admit(&mut self, opened: Opened, generation: u64, now: Instant) -> Box<ServerConn> {
        self.connecting -= 1;
        if generation == self.generation {
            self.backoff.clear();
        }
        self.totals.opened += 1;
        self.totals.connecting += now.saturating_duration_since(opened.card.begun_at);
        let jitter = u16::try_from(self.random.below(1 << 16)).unwrap_or(0);
        let place = Place { slot: self.slots.next(), generation, jitter };
        let mut conn = Box::new(ServerConn::new(opened, self.config.max_statements, place));
        self.slots.occupy(Slot {
            card: Arc::clone(conn.card()),
            lease: None,
            seated: false,
            last_used: now,
            cancels: 0,
            doubtful: false,
            parked: None,
        });
        self.lend(&mut conn);
        conn
    }

    /// An attempt to open a connection has failed. Returns the waiter that is told.
    pub(crate) fn connect_failed(
        &mut self,
        error: &ConnectError,
        generation: u64,
        began: Instant,
        now: Instant,
    ) -> Option<Waiter> {
        self.connecting -= 1;
        self.quotas.release(1);
        self.totals.failed += 1;
        // The failure of a configuration that has been replaced says nothing about the present one.
        if generation != self.generation || self.closed.is_some() {
            return None;
        }
        self.backoff.failed(began, now, error.clone(), &mut self.random);
        // A server without room for one more connection still serves those we have: the queue waits for them.
        if error.is_server_full() && self.slots.len() > 0 {
            return None;
        }
        self.waiters.pop_front()
    }

    pub(crate) fn oldest_waiter(&mut self) -> Option<Waiter> {
        self.waiters.pop_front()
    }

    /// Finds the place of a connection whose lease has ended well.
    pub(crate) fn place(&mut self, mut conn: Box<ServerConn>, now: Instant) -> Placement {
        let Place { slot, generation, .. } = conn.place();
        let Some(slot) = self.slots.slot(slot) else {
            return Placement::Retire(conn, CloseReason::UnknownState);
        };
        slot.lease = None;
        slot.last_used = now;
        if slot.cancels > 0 {
            slot.parked = Some(conn);
            return Placement::Kept;
        }
        let ending = if slot.doubtful {
            Some(CloseReason::CancelUncertain)
        } else if generation != self.generation {
            Some(self.outdated)
        } else if self.is_oversized() {
            Some(CloseReason::Resized)
        } else if conn.age(now) >= self.shortest_life && conn.is_expired(now, self.config.lifetime) {
            Some(CloseReason::Lifetime)
        } else if self.quotas.claim(self.waiters.front().map(|waiter| waiter.since)) {
            Some(CloseReason::Quota)
        } else {
            None
        };
        if let Some(reason) = self.closed.or(ending) {
            return Placement::Retire(conn, reason);
        }
        if conn.books.statements.limit() != self.config.max_statements {
            conn.books.statements.set_limit(self.config.max_statements);
        }
        let Some(waiter) = self.waiters.pop_front() else {
            self.idle.push(conn);
            return Placement::Kept;
        };
        if self.waiters.is_empty() {
            self.quotas.forget();
        }
        self.lend(&mut conn);
        Placement::HandOff(waiter, conn)
    }

    fn is_oversized(&self) -> bool {
        self.slots.len() + self.connecting > self.config.size
    }

    /// A connection has been closed.
    pub(crate) fn vacate(&mut self, slot: usize, reason: CloseReason) {
        let gone = self.slots.vacate(slot).is_some();
        if gone {
            self.quotas.release(1);
        }
        if gone && let Some(count) = self.totals.closed.get_mut(reason.index()) {
            *count += 1;
        }
    }

    /// Decides on connections to open for those who wait.
    pub(crate) fn plan(&mut self, now: Instant) -> Plan {
        let mut plan = Plan::default();
        // Nobody is there to be told: nothing is woken by this.
        self.seekers.retain(|seeker| !seeker.is_closed());
        if self.closed.is_some() || self.is_backing_off(now) {
            plan.unseated = mem::take(&mut self.seekers);
        }
        // Each attempt under way will serve one of them.
        let unserved = (self.waiters.len() + self.seekers.len()).saturating_sub(self.connecting);
        if unserved == 0 || self.closed.is_some() {
            return plan;
        }
        if self.is_backing_off(now) {
            if self.slots.len() + self.connecting == 0
                && let Some(error) = self.backoff.lasting_error(now)
            {
                let error = CheckoutError::Connect(error.clone());
                plan.refused = self.waiters.drain(..).map(|waiter| (waiter, error.clone())).collect();
            } else {
                plan.keep = true;
            }
            return plan;
        }
        let room = self.config.size.saturating_sub(self.slots.len() + self.connecting);
        let at_once = self.config.max_connecting.max(1).saturating_sub(self.connecting);
        let wanted = unserved.min(room).min(at_once);
        plan.connects = self.quotas.take(wanted, self.waiters.front().map(|waiter| waiter.since));
        self.connecting += plan.connects;
        if plan.connects < wanted {
            // A client gets a connection of its own only where nobody else is short of one.
            plan.unseated = mem::take(&mut self.seekers);
            plan.starved = !self.waiters.is_empty();
        }
        plan
    }

    /// Puts a new configuration in place. Returns the idle connections that are not fit for it.
    pub(crate) fn reconfigure(&mut self, config: Config) -> Vec<(Box<ServerConn>, CloseReason)> {
        let same = self.config.same_identity(&config);
        self.shortest_life = shortest_life(&config);
        self.config = Arc::new(config);
        if !same {
            return self.outdate(CloseReason::Reconfigured);
        }
        let excess =
            (self.slots.len() + self.connecting).saturating_sub(self.config.size).min(self.idle.len());
        self.idle.drain(..excess).map(|conn| (conn, CloseReason::Resized)).collect()
    }

    /// Starts a new generation: what is open now is not lent again. Returns the idle connections.
    pub(crate) fn outdate(&mut self, reason: CloseReason) -> Vec<(Box<ServerConn>, CloseReason)> {
        self.generation += 1;
        self.outdated = reason;
        self.backoff.clear();
        mem::take(&mut self.idle).into_iter().map(|conn| (conn, reason)).collect()
    }

    /// Closes the pool. Returns the idle connections and the waiters.
    pub(crate) fn close(&mut self, reason: CloseReason) -> (Vec<Box<ServerConn>>, VecDeque<Waiter>) {
        self.closed.get_or_insert(reason);
        (mem::take(&mut self.idle), mem::take(&mut self.waiters))
    }

    /// Since when the longest unused connection is idle that nobody in this pool waits for.
    pub(crate) fn idle_since(&mut self) -> Option<Instant> {
        let slot = self.idle.first().filter(|_| self.waiters.is_empty())?.place().slot;
        self.slots.slot(slot).map(|slot| slot.last_used)
    }

    /// Takes that out.
    pub(crate) fn take_spare(&mut self) -> Option<Box<ServerConn>> {
        self.idle_since()?;
        let mut conn = self.idle.remove(0);
        self.lend(&mut conn);
        Some(conn)
    }

    /// Takes out the idle connections that are too old, too long idle, or have been sent something; the last without
    /// a reason, since only reading tells.
    pub(crate) fn sweep(&mut self, now: Instant) -> Vec<(Box<ServerConn>, Option<CloseReason>)> {
        let mut idle = Vec::with_capacity(self.idle.len());
        let mut out = Vec::new();
        for conn in mem::take(&mut self.idle) {
            let last_used = self.slots.slot(conn.place().slot).map_or(now, |slot| slot.last_used);
            let idle_timeout = self.config.idle_timeout;
            if conn.is_expired(now, self.config.lifetime) {
                out.push((conn, Some(CloseReason::Lifetime)));
            } else if !idle_timeout.is_zero() && now.saturating_duration_since(last_used) >= idle_timeout {
                out.push((conn, Some(CloseReason::IdleTimeout)));
            } else if conn.is_suspect() {
                out.push((conn, None));
            } else {
                idle.push(conn);
            }
        }
        self.idle = idle;
        for (conn, _) in &mut out {
            self.lend(conn);
        }
        out
    }

    /// When housekeeping has to look again: at `regular` at the latest while something is idle, and when a backoff
    /// ends that somebody waits for. `None`: not until something happens.
    pub(crate) fn next_look(&self, now: Instant, regular: Instant) -> Option<Instant> {
        let retry = self.backoff.until(now).filter(|_| !self.waiters.is_empty());
        if self.idle.is_empty() {
            return retry;
        }
        let expiry = self.idle.iter().filter_map(|conn| conn.expires_at(self.config.lifetime)).min();
        [Some(regular), retry, expiry].into_iter().flatten().min()
    }

    pub(crate) fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    pub(crate) fn idle_and_slots(&mut self) -> (&[Box<ServerConn>], &mut Slots) {
        (&self.idle, &mut self.slots)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether no connection is opened yet, since the last attempt has failed.
    pub(crate) fn is_backing_off(&self, now: Instant) -> bool {
        self.backoff.until(now).is_some()
    }

    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(crate) fn status(&self, now: Instant) -> Status {
        Status {
            idle: self.idle.len(),
            active: self.slots.len() - self.idle.len(),
            connecting: self.connecting,
            waiting: self.waiters.len(),
            size: self.config.size,
            oldest_wait: self.waiters.front().map(|waiter| now.saturating_duration_since(waiter.since)),
        }
    }

    pub(crate) fn servers(&self) -> Vec<ServerInfo> {
        let info = |slot: &Slot| ServerInfo {
            state: match (&slot.parked, slot.lease) {
                (Some(_), _) => ServerState::BeingCanceled,
                (None, Some(_)) => ServerState::Active,
                (None, None) => ServerState::Idle,
            },
            process_id: slot.card.process_id,
            connected_at: slot.card.opened_at,
            last_used: slot.last_used,
            address: slot.card.peer.clone(),
            transactions: slot.card.transactions.load(Ordering::Relaxed),
        };
        self.slots.iter().map(info).collect()
    }
}

fn shortest_life(config: &Config) -> Duration {
    if config.lifetime.is_zero() {
        Duration::MAX
    } else {
        config.lifetime.saturating_sub(config.lifetime / 10)
    }
}

impl Drop for State {
    /// Attempts under way that find the pool gone close what they have opened.
    fn drop(&mut self) {
        self.quotas.release(self.slots.len() + self.connecting);
    }
}

// === impl Waiter ===

impl Waiter {
    /// Hands a lease over; gives it back if the waiter has gone.
    pub(crate) fn grant(self, lease: Lease) -> Result<(), Lease> {
        match self.reply.send(Ok(lease)) {
            Err(Ok(lease)) => Err(lease),
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }

    /// Tells an error; whether anybody was there to hear it.
    pub(crate) fn refuse(self, error: CheckoutError) -> bool {
        self.reply.send(Err(error)).is_ok()
    }
}

//! How long clients may take: over a statement, a transaction, or doing nothing.
//!
//! Nothing of this costs a statement a timer or a reading of the clock. One task counts time for all sessions in steps,
//! each session counts what it begins, and the task wakes those that have been at the same for too long. They
//! look again themselves: what the task has seen may have ended meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use tokio::time::Instant;

use crate::Proxy;
use crate::client::{Client, End};
use crate::config::Timeouts;
use crate::registry::{ClientEntry, ClientState};
use crate::relay::CANCEL_TIMEOUT;

/// The shortest and the longest step.
const STEPS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Since when something goes on: as the counting task has seen it, so never before it began.
#[derive(Debug, Default)]
struct Mark {
    /// Counts up whenever something else begins.
    turn: AtomicU64,
    /// The turn that was seen last, and when: milliseconds of the counted time.
    seen: AtomicU64,
    seen_at: AtomicU64,
}

/// When a client began what it does.
#[derive(Debug, Default)]
pub(crate) struct Since {
    state: Mark,
    transaction: Mark,
    in_transaction: AtomicBool,
}

/// What a client has taken too long over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// A statement, which can be cancelled.
    Query(Duration),
    /// A statement that was to be cancelled, and goes on.
    Uncancelled(Duration),
    Transaction(Duration),
    IdleInTransaction(Duration),
    Idle(Duration),
}

// === impl Mark ===

impl Mark {
    /// One task calls this: the session's own.
    fn begin(&self) {
        self.turn.store(self.turn.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn observe(&self, now: u64) {
        let turn = self.turn.load(Ordering::Relaxed);
        if self.seen.load(Ordering::Relaxed) != turn {
            self.seen_at.store(now, Ordering::Relaxed);
            self.seen.store(turn, Ordering::Relaxed);
        }
    }

    fn since(&self) -> Option<u64> {
        let known = self.seen.load(Ordering::Relaxed) == self.turn.load(Ordering::Relaxed);
        known.then(|| self.seen_at.load(Ordering::Relaxed))
    }
}

// === impl Since ===

impl Since {
    /// Something else begins.
    pub(crate) fn begin(&self) {
        self.state.begin();
    }

    /// Whether a transaction is open after what has been done just now.
    pub(crate) fn transaction(&self, open: bool) {
        if self.in_transaction.load(Ordering::Relaxed) == open {
            return;
        }
        self.in_transaction.store(open, Ordering::Relaxed);
        self.transaction.begin();
        // It began with its first statement.
        if let Some(since) = self.state.since() {
            self.transaction.observe(since);
        }
    }

    /// Notes what goes on `now`.
    pub(crate) fn observe(&self, now: u64) {
        self.state.observe(now);
        self.transaction.observe(now);
    }

    /// What has taken longer than it may, `now`, if anything has.
    pub(crate) fn overdue(&self, state: ClientState, now: u64, timeouts: &Timeouts) -> Option<Overdue> {
        let since = self.state.since();
        let in_transaction = self.in_transaction.load(Ordering::Relaxed);
        let transaction = in_transaction.then(|| self.transaction.since()).flatten();
        let beyond = |since: Option<u64>, timeout: Duration| {
            let over = |since: u64| Duration::from_millis(now.saturating_sub(since)) > timeout;
            !timeout.is_zero() && since.is_some_and(over)
        };
        let Timeouts { query, transaction: of_transaction, idle_in_transaction, client_idle } = *timeouts;
        let active = state == ClientState::Active;
        let began = transaction.or(since.filter(|_| active));
        if beyond(began, of_transaction) {
            return Some(Overdue::Transaction(of_transaction));
        }
        let (timeout, overdue): (_, fn(Duration) -> Overdue) = match state {
            ClientState::Active if beyond(since, query.saturating_add(CANCEL_TIMEOUT)) => {
                (query, Overdue::Uncancelled)
            }
            ClientState::Active => (query, Overdue::Query),
            ClientState::InTransaction => (idle_in_transaction, Overdue::IdleInTransaction),
            ClientState::Idle | ClientState::Pinned => (client_idle, Overdue::Idle),
            // That has a deadline of its own.
            ClientState::Waiting => return None,
        };
        beyond(since, timeout).then(|| overdue(timeout))
    }
}

// === impl Overdue ===

impl Overdue {
    /// What the client is told, in PostgreSQL's words where it has such a timeout.
    pub(crate) fn report(self) -> ErrorReport {
        let fatal = |code, message: &'static str, key: &str, limit: Duration| {
            ErrorReport::fatal(code, message)
                .with_detail(format!("timeouts.{key} is {} ms.", limit.as_millis()))
        };
        match self {
            Self::Query(limit) => {
                let message = "canceling statement due to query timeout";
                ErrorReport::error(SqlState::QUERY_CANCELED, message)
                    .with_detail(format!("timeouts.query_timeout is {} ms.", limit.as_millis()))
                    .with_hint(
                        "Give the statement less to do, or raise the timeout for this user or database.",
                    )
            }
            Self::Uncancelled(limit) => fatal(
                SqlState::QUERY_CANCELED,
                "terminating connection due to query timeout",
                "query_timeout",
                limit,
            )
            .with_hint("The server was asked to cancel the statement, and did not do so in time."),
            Self::Transaction(limit) => fatal(
                SqlState::TRANSACTION_TIMEOUT,
                "terminating connection due to transaction timeout",
                "transaction_timeout",
                limit,
            )
            .with_hint("Split the transaction, or raise the timeout for this user or database."),
            Self::IdleInTransaction(limit) => fatal(
                SqlState::IDLE_IN_TRANSACTION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
                "idle_in_transaction_timeout",
                limit,
            )
            .with_hint("End transactions before doing something else."),
            Self::Idle(limit) => fatal(
                SqlState::IDLE_SESSION_TIMEOUT,
                "terminating connection due to idle-session timeout",
                "client_idle_timeout",
                limit,
            )
            .with_hint("Connect again when there is something to do."),
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// Ends what takes longer than the configuration in force allows. Goes on until it is dropped; without it there are
    /// no such timeouts.
    pub async fn enforce_timeouts(&self) {
        let clients = &self.shared.clients;
        let mut counted = Instant::now();
        loop {
            let snapshot = self.snapshot();
            let shortest = snapshot.shortest_timeout();
            let step = shortest.map_or(STEPS.1, |timeout| (timeout / 10).clamp(STEPS.0, STEPS.1));
            tokio::time::sleep(step).await;
            let now = Instant::now();
            clients.count_time(now - counted);
            counted = now;
            if shortest.is_none() {
                continue;
            }
            for entry in clients.all() {
                entry.since.observe(entry.counted_time());
                let timeouts = snapshot.timeouts(&entry.database, &entry.user);
                if entry.overdue(&timeouts).is_some() {
                    entry.look_at_clock();
                }
            }
        }
    }
}

// === impl Client ===

impl Client {
    /// Looks whether the session has taken too long, if it was told to.
    ///
    /// # Errors
    ///
    /// When it has, and must end for that. A statement is cancelled first.
    pub(crate) fn look_at_clock(&mut self) -> Result<(), End> {
        if !self.entry.takes_look_at_clock() {
            return Ok(());
        }
        let timeouts = self.shared.snapshot.load().timeouts(&self.entry.database, &self.entry.user);
        match self.entry.overdue(&timeouts) {
            None => Ok(()),
            Some(overdue @ Overdue::Query(_)) => {
                if self.session.time_out(overdue.report()) {
                    self.forward_cancel();
                }
                Ok(())
            }
            Some(overdue) => Err(End::Overdue(overdue.report())),
        }
    }
}

impl ClientEntry {
    /// What the client has taken too long over.
    pub(crate) fn overdue(&self, timeouts: &Timeouts) -> Option<Overdue> {
        self.since.overdue(self.state(), self.counted_time(), timeouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_state_has_its_own_limit_and_zero_is_none() {
        let since = Since::default();
        let timeouts = Timeouts {
            query: SECOND,
            transaction: Duration::ZERO,
            idle_in_transaction: SECOND * 2,
            client_idle: SECOND * 3,
        };
        since.begin();
        assert_eq!(since.overdue(ClientState::Active, 9999, &timeouts), None, "not seen yet");
        since.observe(500);
        since.observe(900);
        let at = |state, now| since.overdue(state, now, &timeouts);
        assert_eq!(at(ClientState::Active, 1500), None);
        assert_eq!(at(ClientState::Active, 1501), Some(Overdue::Query(SECOND)));
        assert_eq!(at(ClientState::Active, 6501), Some(Overdue::Uncancelled(SECOND)));
        assert_eq!(at(ClientState::InTransaction, 2500), None);
        assert_eq!(at(ClientState::InTransaction, 2501), Some(Overdue::IdleInTransaction(SECOND * 2)));
        assert_eq!(at(ClientState::Pinned, 3500), None);
        assert_eq!(at(ClientState::Idle, 3501), Some(Overdue::Idle(SECOND * 3)));
        assert_eq!(at(ClientState::Waiting, u64::MAX), None);
        assert_eq!(since.overdue(ClientState::Active, u64::MAX, &Timeouts::default()), None);
    }

    #[test]
    fn a_transaction_counts_from_its_first_statement() {
        let since = Since::default();
        let timeouts = Timeouts { transaction: SECOND, ..Timeouts::default() };
        since.begin();
        since.observe(100);
        since.transaction(true);
        since.begin();
        since.observe(900);
        since.transaction(true);
        assert_eq!(since.overdue(ClientState::InTransaction, 1100, &timeouts), None);
        let over = Some(Overdue::Transaction(SECOND));
        assert_eq!(since.overdue(ClientState::InTransaction, 1101, &timeouts), over);
        since.transaction(false);
        assert_eq!(since.overdue(ClientState::Idle, 9999, &timeouts), None);
        // One statement alone is a transaction, too.
        assert_eq!(since.overdue(ClientState::Active, 1901, &timeouts), over);
    }
}

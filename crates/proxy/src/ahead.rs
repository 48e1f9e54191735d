//! Reads that run while the primary is asked what they must see.
//!
//! The replica that is read shows, by a position known before, everything known to have been acknowledged. If nothing more
//! was, the fence that comes says so, and the answer, of which nobody has seen a byte, is good; otherwise it is thrown
//! away, and the read waits its turn as any other does. Position first, read second: the other way round says nothing.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_routing::router::{Decision, Request, Requirement, Router, Target};
use causeway_routing::{Fence, Kind, Level, Load, NodeId, Observation, Role, View};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::client::{Client, abandon};
use crate::config::Overlap;
use crate::consistency::{Choice, Missing, Question};
use crate::control::ControlPlane;
use crate::faults::Fault;
use crate::memory::{Memory, Must};
use crate::metrics::{OverlapOutcome, ReadOutcome};
use crate::session::Outcome;
use crate::socket::Socket as _;

/// How long the end of an answer that was for nothing is waited for before its connection is given up.
const DRAIN: Duration = Duration::from_millis(5);
/// At most so many reads wait for their fence after one that ran for nothing.
const LONGEST_PAUSE: u32 = 63;

/// A session's reads of this kind.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    running: Option<Running>,
    /// Not later than the end of the running one's time, if it is set at all: set anew only when it has rung, so that it
    /// costs nothing for each read.
    timer: Option<Pin<Box<Sleep>>>,
    pace: Pace,
}

/// How often it pays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// So many reads are still to wait for their fences.
    resting: u32,
    /// So many did after the last one that ran for nothing.
    pause: u32,
}

/// What a read that runs ahead hangs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    pub(crate) node: NodeId,
    pub(crate) decision: Decision,
    /// The read must see what was acknowledged before.
    pub(crate) since: Instant,
    /// What the replica had replayed before the read was sent.
    known: Observation,
}

#[derive(Debug)]
struct Running {
    guess: Guess,
    level: Level,
    until: Instant,
    asked: bool,
}

// === impl Pace ===

impl Pace {
    /// Whether the next read should run ahead.
    pub(crate) fn begins(&mut self) -> bool {
        let rests = self.resting > 0;
        self.resting = self.resting.saturating_sub(1);
        !rests
    }

    pub(crate) fn ended(&mut self, covered: bool) {
        if covered {
            self.pause /= 2;
        } else {
            self.pause = (self.pause * 2 + 1).min(LONGEST_PAUSE);
            self.resting = self.pause;
        }
    }
}

// === impl Missing ===

impl Missing {
    /// A replica on which the read may run although it is not known yet what it must see: one that shows all that is known
    /// of so far.
    pub(crate) fn guess(&self, asked: &Question<'_>, loads: &[Load], random: u64) -> Option<Guess> {
        let (Must::Since(since), None) = (self.must, self.fence) else { return None };
        let newest = self.view.fence.filter(|_| self.view.primary.is_some())?;
        let Question { verdict, level, serializable, excluded, .. } = *asked;
        let requirement = Requirement::Fence(newest);
        let request = Request { verdict, level, requirement, serializable, excluded };
        let decision = Router.route(&request, &self.view, loads, random);
        let Target::Replica(node) = decision.target else { return None };
        let known = self.view.node(node)?.observation?;
        Some(Guess { node, decision, since, known })
    }
}

// === impl Guess ===

impl Guess {
    /// Whether the read has shown what it must; `None` as long as nobody knows.
    pub(crate) fn covered(
        &self,
        memory: &mut Memory,
        view: &View,
        control: &dyn ControlPlane,
    ) -> Option<bool> {
        match memory.requirement(Must::Since(self.since), view, control) {
            Requirement::Fence(fence) => Some(self.covers(&fence, memory, view)),
            Requirement::None | Requirement::Unknown => None,
        }
    }

    fn covers(&self, fence: &Fence, memory: &Memory, view: &View) -> bool {
        let since_then = || view.node(self.node).and_then(|node| node.observation);
        let known = if memory.faults.has(Fault::ShownSince) { since_then() } else { Some(self.known) };
        known.is_some_and(|known| known.covers(fence))
    }
}

// === impl Client ===

impl Client {
    /// Has a connection for a read of which it is not known what it must see, if that is worth the try.
    pub(crate) fn run_ahead(&mut self, missing: &Missing, excluded: &[NodeId]) -> bool {
        let until = self.arrived + self.home.consistency.wait;
        let tries = self.home.consistency.overlap == Overlap::Auto
            && excluded.is_empty()
            && self.session.demand().kind == Kind::Read
            && self.session.may_run_again()
            && self.ahead.pace.begins();
        if !tries || Instant::now() >= until {
            return false;
        }
        let Some((guess, level)) = self.guess(missing, excluded) else { return false };
        let Some(pool) = self.home.pool(&self.shared, guess.node) else { return false };
        let Some(lease) = self.try_checkout(&pool, Role::Replica) else { return false };
        // What would have to be put right first is more than a guess is worth.
        if !self.home.control.holds(guess.node, &lease) || !self.session.is_set_up_on(&lease.books) {
            lease.checkin();
            return false;
        }
        let metrics = pool.metrics(Role::Replica);
        metrics.checkouts.add(1);
        metrics.checkout_wait.record(Duration::ZERO);
        let choice =
            Choice { decision: guess.decision, counts: None, fence: None, continues: None, permit: None };
        self.take(lease, pool, Role::Replica, choice);
        self.ahead.running = Some(Running { guess, level, until, asked: false });
        true
    }

    /// Ready when it is known, or will not be in time, whether the running read shows what it must; false if it does not.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(running) = &self.ahead.running else { return Poll::Ready(true) };
        let (guess, asked, until) = (running.guess, running.asked, running.until);
        loop {
            let view = self.home.view();
            if let Some(covered) = guess.covered(&mut self.memory, &view, &*self.home.control) {
                let outcome = if covered { OverlapOutcome::Covered } else { OverlapOutcome::Discarded };
                return Poll::Ready(self.ran_ahead(outcome));
            }
            if asked || self.home.control.wake_at_fence(guess.since, cx.waker()) {
                break;
            }
        }
        if let Some(running) = &mut self.ahead.running {
            running.asked = true;
        }
        let timer = self.ahead.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(self.ran_ahead(OverlapOutcome::Late));
            }
            timer.as_mut().reset(until);
        }
        Poll::Pending
    }

    fn guess(&mut self, missing: &Missing, excluded: &[NodeId]) -> Option<(Guess, Level)> {
        let (asked, random) = (self.question(excluded), self.draw());
        let (_, loads) = self.home.loads();
        missing.guess(&asked, loads, random).map(|guess| (guess, asked.level))
    }

    fn ran_ahead(&mut self, outcome: OverlapOutcome) -> bool {
        let covered = outcome == OverlapOutcome::Covered;
        self.ahead.pace.ended(covered);
        if let Some(running) = self.ahead.running.take() {
            self.home.metrics.ran_ahead(outcome);
            if covered {
                self.home.metrics.read(running.level, ReadOutcome::Direct, self.arrived.elapsed());
                self.home.metrics.stale(running.level, Duration::ZERO);
            }
        }
        covered
    }

    /// A read has run for nothing; it is to run again.
    pub(crate) async fn void_ahead(&mut self) {
        self.running = None;
        let clean = self.to_server.is_empty() && timeout(DRAIN, self.drain_answer()).await == Ok(true);
        self.answer.clear();
        self.to_server.clear();
        // Nobody was answered.
        let _uncounted = self.session.take_counts();
        let clean = self.session.start_over() && clean;
        self.started = Instant::now();
        if clean {
            self.checkin(self.started);
        } else if let Some(held) = self.held.take() {
            tokio::spawn(abandon(held, false));
        }
    }

    /// Reads an answer that nobody gets to its end. False if the connection is of no further use.
    async fn drain_answer(&mut self) -> bool {
        let Some(held) = &mut self.held else { return false };
        let server = &mut *held.lease;
        loop {
            let scan = self.session.answer(server.inbound.filled(), &mut server.books, &mut self.answer);
            let Ok(scan) = scan else { return false };
            server.inbound.consume(scan.consumed);
            for (name, value) in self.session.take_reported() {
                server.parameter_status(&name, &value);
            }
            match scan.outcome {
                Outcome::More => {}
                Outcome::Done => return server.inbound.is_empty(),
                Outcome::Retry { reusable, .. } => return reusable,
                Outcome::Fatal | Outcome::SettingsRefused => return false,
            }
            self.answer.clear();
            match poll_fn(|cx| server.stream.poll_fill(cx, &mut server.inbound)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_run_for_nothing_are_tried_more_and_more_rarely() {
        let mut pace = Pace::default();
        let mut tries = 0;
        for _ in 0..1000 {
            if pace.begins() {
                tries += 1;
                pace.ended(false);
            }
        }
        assert!((15..30).contains(&tries), "{tries}");
        for _ in 0..LONGEST_PAUSE {
            pace.begins();
        }
        for _ in 0..10 {
            assert!(pace.begins());
            pace.ended(true);
        }
        pace.ended(false);
        assert!(!pace.begins() && pace.begins(), "one miss among many hits costs one read");
    }
}

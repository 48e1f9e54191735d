//! What a session's reads must see, and the wait until a replica shows it.

use std::sync::Arc;
use std::time::Duration;

use causeway_pool::Lease;
use causeway_routing::resolve::Verdict;
use causeway_routing::router::{Decision, Request, Requirement, Router, Target};
use causeway_routing::{Fence, Kind, Level, Load, NodeId, NodeView, Reason, Role, View};
use rand::Rng as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, End};
use crate::config::{Fallback, PoolMode};
use crate::control::{ControlPlane, Need};
use crate::faults::Fault;
use crate::lease::Denied;
use crate::memory::{Memory, Must, carried};
use crate::metrics::ReadOutcome;
use crate::registry::ClientState;
use crate::session::Demand;
use reports::{fell_behind, not_shown, too_many_fallbacks};

/// How long the primary is taken to cover a token that it was found to cover: a change of primary takes longer to be
/// made.
const PROOF_KEPT: Duration = Duration::from_millis(100);

/// What a decision is asked for.
pub(crate) struct Question<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) level: Level,
    pub(crate) arrived: Instant,
    pub(crate) serializable: bool,
    pub(crate) excluded: &'a [NodeId],
}

/// What a read waits for.
pub(crate) enum Sight {
    Fence(Instant),
    Position(Need),
    /// No replica is left to wait for.
    Nothing,
}

/// A read that no replica is known to be able to serve yet.
pub(crate) struct Missing {
    level: Level,
    pub(crate) must: Must,
    /// What it must see, if that is known.
    pub(crate) fence: Option<Fence>,
    /// Where it goes instead.
    pub(crate) decision: Decision,
    pub(crate) view: Arc<View>,
}

/// Where a unit goes.
pub(crate) struct Choice {
    pub(crate) decision: Decision,
    /// It is a read that had to see something, at this level.
    pub(crate) counts: Option<Level>,
    /// What the read must see there, if it is one that must see something.
    pub(crate) fence: Option<Fence>,
    /// When this replica answered the session's last read, if that alone is why it may answer the next.
    pub(crate) continues: Option<Instant>,
    /// The right to put a read that no replica could serve on the primary.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

// === impl Memory ===

impl Memory {
    /// Where a unit goes, by what is known now.
    pub(crate) fn choose(
        &mut self,
        asked: &Question<'_>,
        view: Arc<View>,
        control: &dyn ControlPlane,
        loads: &[Load],
        random: u64,
    ) -> Result<Choice, Missing> {
        let (level, reads) = (asked.level, asked.verdict.kind == Kind::Read);
        self.faults.asked(asked.arrived);
        let must = if reads { self.must(level, asked.arrived, control) } else { Must::Nothing };
        let requirement = self.requirement(must, &view, control);
        let fence = match requirement {
            Requirement::Fence(fence) => Some(fence),
            Requirement::None | Requirement::Unknown => None,
        };
        if level == Level::Session
            && reads
            && !asked.serializable
            && let Some(node) = self.same_replica(&view, asked.excluded)
        {
            let decision = Decision { target: Target::Replica(node), reason: Reason::Read };
            let (fence, continues) = (self.fence.map(|(_, fence)| fence), self.last_read());
            return Ok(Choice { decision, counts: None, fence, continues, permit: None });
        }
        let Question { verdict, serializable, excluded, .. } = *asked;
        let request = Request { verdict, level, requirement, serializable, excluded };
        let decision = Router.route(&request, &view, loads, random);
        // A token has to be held against the primary too: it may be of another lineage, or of the future.
        let unproven = matches!((must, decision.target), (Must::Token(_), Target::Primary(_)));
        if decision.reason == Reason::Fence || unproven {
            return Err(Missing { level, must, fence, decision, view });
        }
        let counts = (!matches!(must, Must::Nothing)).then_some(level);
        Ok(Choice { decision, counts, fence, continues: None, permit: None })
    }
}

// === impl Missing ===

impl Missing {
    /// What would make another decision possible. A replica that is excluded, or not for this level, would not, however
    /// far it is: waiting for any of them would be over at once, again and again.
    pub(crate) fn sight(&self, until: Instant, excluded: &[NodeId]) -> Sight {
        let may = |node: &NodeView| node.serves_reads_at(self.level) && !excluded.contains(&node.id);
        let narrow = self.view.nodes.iter().any(|node| node.serves_reads() && !may(node));
        let node = self.view.nodes.iter().find(|node| may(node)).filter(|_| narrow).map(|node| node.id);
        match (self.must, self.fence) {
            _ if node.is_none() && (narrow || !excluded.is_empty()) => Sight::Nothing,
            (_, Some(fence)) => Sight::Position(Need { fence, node, since: None, until }),
            (Must::Since(moment), None) => Sight::Fence(moment),
            (Must::Nothing | Must::Token(_), None) => Sight::Nothing,
        }
    }
}

// === impl Choice ===

impl Choice {
    /// Whether a connection of that age may answer. A crash restart moves replay back and ends all connections: one from
    /// before the last read proves that there was none since.
    pub(crate) fn goes_on(&self, opened_at: Instant, holds: impl Fn() -> bool) -> bool {
        self.continues.is_none_or(|read| opened_at < read && holds())
    }
}

// === impl Client ===

impl Client {
    /// Where the gathered unit goes, once what it must see is known to be there, or is not in time.
    pub(crate) async fn choose(&mut self, excluded: &[NodeId]) -> Result<Result<Choice, Denied>, End> {
        if let Some(report) = self.account_if_due().await? {
            return Ok(Err(Denied::Report(report)));
        }
        match self.choose_now(excluded) {
            Ok(choice) => {
                self.count_read(&choice, ReadOutcome::Direct);
                match self.unproven_token(&choice) {
                    None => Ok(Ok(choice)),
                    Some(token) => self.prove(token, choice).await,
                }
            }
            Err(missing) => self.choose_later(missing, excluded).await,
        }
    }

    /// The session's token, if the primary is about to answer and may not cover it. Settings can always be changed.
    pub(crate) fn unproven_token(&self, choice: &Choice) -> Option<Fence> {
        let (Level::After(token), Target::Primary(_)) = (self.level(), choice.decision.target) else {
            return None;
        };
        let lately = |at: Instant| self.arrived.saturating_duration_since(at) < PROOF_KEPT;
        let proven = self.memory.proven.is_some_and(|(proven, at)| proven == token && lately(at));
        (!proven && self.session.demand().kind != Kind::Session).then_some(token)
    }

    async fn prove(&mut self, token: Fence, choice: Choice) -> Result<Result<Choice, Denied>, End> {
        if self.primary_covers(token).await? {
            self.memory.proven = Some((token, Instant::now()));
            return Ok(Ok(choice));
        }
        let view = self.home.control.view();
        let report = not_shown(Level::After(token), Some(token), &view, self.arrived.elapsed());
        Ok(Err(Denied::Report(report)))
    }

    async fn choose_later(
        &mut self,
        mut missing: Missing,
        excluded: &[NodeId],
    ) -> Result<Result<Choice, Denied>, End> {
        let mut from = self.arrived;
        loop {
            if self.home.control.view().primary.is_none() {
                // There is nobody to tell what the read must see, nor to fall back to.
                if !self.wait_for_change(self.arrived + self.home.primary_wait).await? {
                    self.count_outcome(self.level(), ReadOutcome::Failed);
                    return Ok(Err(Denied::Report(self.no_primary())));
                }
                from = Instant::now();
                if let Some(report) = self.account_if_due().await? {
                    return Ok(Err(Denied::Report(report)));
                }
            } else if !self.await_sight(&missing, excluded, from).await? {
                return self.fall_back(missing).await;
            }
            match self.choose_now(excluded) {
                Ok(choice) => {
                    self.count_read(&choice, ReadOutcome::Waited);
                    return Ok(Ok(choice));
                }
                Err(again) => missing = again,
            }
        }
    }

    /// Where the unit goes by what is known now. Counts nothing: the choice may come to nothing.
    pub(crate) fn choose_now(&mut self, excluded: &[NodeId]) -> Result<Choice, Missing> {
        let view = self.home.view();
        if self.home.mode == PoolMode::Session {
            let decision = Decision { target: Target::Primary(view.primary), reason: Reason::Pinned };
            return Ok(Choice { decision, counts: None, fence: None, continues: None, permit: None });
        }
        let (asked, random) = (self.question(excluded), self.draw());
        let (control, loads) = self.home.loads();
        self.memory.choose(&asked, view, control, loads, random)
    }

    /// What the decision about the gathered unit is to be asked for.
    pub(crate) fn question<'a>(&self, excluded: &'a [NodeId]) -> Question<'a> {
        let verdict = verdict(self.session.demand());
        let serializable = self.session.settings.serializable();
        Question { verdict, level: self.level(), arrived: self.arrived, serializable, excluded }
    }

    /// What a decision's chance is.
    pub(crate) fn draw(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Whose writes the gathered unit must see.
    pub(crate) fn level(&self) -> Level {
        self.session.level().unwrap_or(self.home.level)
    }

    /// A fence that covers everything acknowledged so far; `None` if there is none in time.
    pub(crate) async fn ask_fence(&mut self) -> Result<Option<Fence>, End> {
        let until = self.arrived + self.home.checkout_timeout;
        let fence = self.home.control.fence(self.arrived);
        self.entry.enter(ClientState::Waiting);
        let fence = Box::pin(self.wait(timeout_at(until, fence))).await;
        self.entry.enter(ClientState::Active);
        Ok(fence?.ok().and_then(Result::ok))
    }

    /// Counts a read that had to see something.
    pub(crate) fn count_read(&self, choice: &Choice, outcome: ReadOutcome) {
        if let Some(level) = choice.counts {
            self.count_outcome(level, outcome);
        }
    }

    /// Counts how old what this node shows is at most, if it is a replica.
    pub(crate) fn count_staleness(&self, (node, role): (NodeId, Role)) {
        if role == Role::Replica
            && let Some(shown) = self.home.control.shown_up_to(node)
        {
            self.home.metrics.stale(self.level(), self.arrived.saturating_duration_since(shown));
        }
    }

    fn count_outcome(&self, level: Level, outcome: ReadOutcome) {
        self.home.metrics.read(level, outcome, self.arrived.elapsed());
    }

    /// Waits for a fence, or for a replica to reach it; false when that takes too long, counted from a moment.
    async fn await_sight(
        &mut self,
        missing: &Missing,
        excluded: &[NodeId],
        from: Instant,
    ) -> Result<bool, End> {
        let until = self.waits_until(from);
        if Instant::now() >= until {
            return Ok(false);
        }
        match missing.sight(until, excluded) {
            Sight::Position(need) => {
                let reached = self.home.control.position(&need);
                self.wait_until(until, reached).await
            }
            Sight::Fence(moment) => {
                let found = self.home.control.fence(moment);
                self.wait_until(until, found).await
            }
            Sight::Nothing => Ok(false),
        }
    }

    /// How long a read waits for a replica, counted from a moment.
    fn waits_until(&self, from: Instant) -> Instant {
        let budget = match self.home.consistency.fallback {
            Fallback::Wait => self.home.checkout_timeout,
            Fallback::Primary | Fallback::Error => self.home.consistency.wait,
        };
        from + budget
    }

    /// Whether something came in time.
    pub(crate) async fn wait_until<T>(
        &mut self,
        until: Instant,
        event: tokio::sync::oneshot::Receiver<T>,
    ) -> Result<bool, End> {
        self.entry.enter(ClientState::Waiting);
        let outcome = self.wait(timeout_at(until, event)).await;
        self.entry.enter(ClientState::Active);
        // The wait is not the node's.
        self.started = Instant::now();
        Ok(matches!(outcome?, Ok(Ok(_))))
    }

    /// No replica has shown in time what the read must see.
    async fn fall_back(&mut self, missing: Missing) -> Result<Result<Choice, Denied>, End> {
        let (level, Missing { fence, decision, view, .. }) = (self.level(), missing);
        if self.home.consistency.fallback != Fallback::Primary {
            self.count_outcome(level, ReadOutcome::Failed);
            return Ok(Err(Denied::Report(not_shown(level, fence, &view, self.arrived.elapsed()))));
        }
        if let Level::After(token) = level
            && !self.primary_covers(token).await?
        {
            self.count_outcome(level, ReadOutcome::Failed);
            return Ok(Err(Denied::Report(not_shown(level, fence, &view, self.arrived.elapsed()))));
        }
        self.count_outcome(level, ReadOutcome::FellBack);
        // Replicas that fall behind must not turn all of their reads on the primary at once: the rest queue.
        let permits = Arc::clone(&self.home.fallbacks);
        let deadline = self.started + self.home.checkout_timeout;
        let permit = match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => match Box::pin(self.wait(timeout_at(deadline, permits.acquire_owned()))).await? {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) | Err(_) => return Ok(Err(Denied::Report(too_many_fallbacks()))),
            },
        };
        Ok(Ok(Choice { decision, counts: None, fence, continues: None, permit: Some(permit) }))
    }

    /// Whether the primary has what a token covers: it may be another than the one that gave it.
    async fn primary_covers(&mut self, token: Fence) -> Result<bool, End> {
        let now = self.ask_fence().await?;
        let token = carried(token, &self.home.control.view());
        Ok(now.is_some_and(|now| {
            now.system_id == token.system_id && now.timeline == token.timeline && now.lsn >= token.lsn
        }))
    }

    /// Whether a replica is known to show, over this connection, what the read must see; waits for it if need be.
    pub(crate) async fn may_serve(
        &mut self,
        lease: &Lease,
        node: NodeId,
        choice: &Choice,
    ) -> Result<bool, End> {
        if !self.goes_on(lease, node, choice) {
            return Ok(false);
        }
        self.shows(lease, node, choice.fence).await
    }

    /// [`Self::may_serve`] without a wait.
    pub(crate) fn may_serve_now(&mut self, lease: &Lease, node: NodeId, choice: &Choice) -> bool {
        self.goes_on(lease, node, choice)
            && choice.fence.is_none_or(|fence| self.shows_now(lease, node, fence))
    }

    fn goes_on(&self, lease: &Lease, node: NodeId, choice: &Choice) -> bool {
        choice.goes_on(lease.opened_at(), || self.home.control.holds(node, lease))
    }

    async fn shows(&mut self, lease: &Lease, node: NodeId, fence: Option<Fence>) -> Result<bool, End> {
        match fence {
            Some(_) if self.memory.faults.has(Fault::CheckedAlongside) => Ok(true),
            Some(fence) if !self.shows_now(lease, node, fence) => {
                Box::pin(self.shows_later(lease, node, fence)).await
            }
            Some(_) | None => Ok(true),
        }
    }

    async fn shows_later(&mut self, lease: &Lease, node: NodeId, fence: Fence) -> Result<bool, End> {
        // The wait for the connection may have been longer, and is over.
        let until = Instant::now() + self.home.consistency.wait;
        let need = Need { fence, node: Some(node), since: Some(lease.opened_at()), until };
        let reached = self.home.control.position(&need);
        Ok(self.wait_until(until, reached).await? && self.shows_now(lease, node, fence))
    }

    fn shows_now(&mut self, lease: &Lease, node: NodeId, fence: Fence) -> bool {
        let view = self.home.view();
        let seen = view.node(node).and_then(|node| node.observation);
        seen.is_some_and(|seen| seen.covers(&fence)) && self.home.control.holds(node, lease)
    }

    /// In a transaction on a replica each statement takes a new snapshot, and may be the first after a write that it must
    /// see (READ COMMITTED, `GetTransactionSnapshot` in `src/backend/utils/time/snapmgr.c`).
    pub(crate) async fn follow_on(&mut self) -> Result<(), End> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let (level, until) = (self.level(), self.arrived + self.home.consistency.wait);
        let must = self.memory.must(level, self.arrived, &*self.home.control);
        // Its own replica's past is no question here.
        let must = if level == Level::Session { Must::Nothing } else { must };
        let shown = loop {
            let view = self.home.control.view();
            match self.memory.requirement(must, &view, &*self.home.control) {
                Requirement::None => break Ok(true),
                Requirement::Fence(fence) => break self.shows(&held.lease, held.id, Some(fence)).await,
                Requirement::Unknown => {}
            }
            let Must::Since(moment) = must else { break Ok(true) };
            let found = self.home.control.fence(moment);
            match self.wait_until(self.waits_until(self.arrived), found).await {
                Ok(true) if Instant::now() < until => {}
                Ok(_) => break Ok(false),
                Err(end) => break Err(end),
            }
        };
        let (node, waited) = (Arc::clone(&held.pool.key.node), self.arrived.elapsed());
        self.held = Some(held);
        if shown? { Ok(()) } else { Err(End::Report(fell_behind(level, &node, waited))) }
    }
}

fn verdict(demand: Demand) -> Verdict {
    // The unit as a whole is a read or it is not; only a read has a requirement to go by.
    let kind = if demand.replica { Kind::Read } else { Kind::Write };
    Verdict { kind, reason: demand.reason }
}

mod reports;

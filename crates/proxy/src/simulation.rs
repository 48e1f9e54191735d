//! Reads without sockets: the decisions of a session, for a simulated cluster.
//!
//! What must be seen, where a read may go and whether a connection may answer is decided by the code that serves clients;
//! only the waits in between are spelled out again, since there they have a client's socket to mind.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use causeway_routing::resolve::Verdict;
use causeway_routing::router::Target;
use causeway_routing::{Fence, Kind, Level, NodeId, Reason, Role};
use tokio::time::{Instant, timeout_at};

use crate::ahead::{Guess, Pace};
use crate::consistency::{Choice, Missing, Question, Sight};
use crate::control::{ControlPlane, Need};
pub use crate::faults::Fault;
use crate::memory::Memory;

/// The servers of a simulated cluster, as a session's connections reach them.
pub trait Servers {
    /// A connection from a pool.
    type Connection;
    /// What a read shows.
    type Shown;

    /// Takes or opens a connection; `None` if the node accepts none.
    fn checkout(&self, node: NodeId) -> impl Future<Output = Option<Self::Connection>>;

    /// When it was opened.
    fn opened_at(&self, connection: &Self::Connection) -> Instant;

    /// Whether what is known of the node holds for this connection to it.
    fn holds(&self, node: NodeId, connection: &Self::Connection) -> bool;

    /// Reads; `None` if the connection is lost.
    fn read(&self, connection: &mut Self::Connection) -> impl Future<Output = Option<Self::Shown>>;
}

/// A read that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<T> {
    /// What it has shown.
    pub shown: T,
    /// The node that answered.
    pub node: NodeId,
    /// Whether it was chosen as a replica.
    pub replica: bool,
    /// What it had to show.
    pub fence: Option<Fence>,
}

/// A client's session.
#[derive(Debug)]
pub struct Session<C> {
    memory: Memory,
    control: Arc<C>,
    wait: Duration,
    /// Where reads run before it is known what they must see.
    pace: Option<Pace>,
}

// === impl Session ===

impl<C: ControlPlane> Session<C> {
    /// A session that has done nothing yet and waits for replicas for so long, with this bug in it.
    pub fn new(control: Arc<C>, wait: Duration, fault: Option<Fault>) -> Self {
        let mut memory = Memory::default();
        memory.faults.fault = fault;
        Self { memory, control, wait, pace: None }
    }

    /// From now on reads run before it is known what they must see, where that promises something.
    pub fn overlap(&mut self) {
        self.pace = Some(Pace::default());
    }

    /// A write is about to be sent to the primary.
    pub fn writes(&mut self) {
        self.memory.faults.asked(Instant::now());
    }

    /// A write was acknowledged, has failed, or nobody knows: to be called before anybody is told.
    pub fn wrote(&mut self) {
        let now = Instant::now();
        self.control.wrote(now);
        self.memory.wrote(now);
    }

    /// Reads at a level. `None` if no node could answer.
    pub async fn read<S: Servers>(
        &mut self,
        level: Level,
        servers: &S,
        random: u64,
    ) -> Option<Answer<S::Shown>> {
        let arrived = Instant::now();
        let until = arrived + self.wait;
        let mut excluded = Vec::new();
        let mut tries = true;
        loop {
            let verdict = Verdict { kind: Kind::Read, reason: Reason::Read };
            let asked = Question { verdict, level, arrived, serializable: false, excluded: &excluded };
            let target = match self.memory.choose(&asked, self.control.view(), &*self.control, &[], random) {
                Ok(choice) => {
                    if let Target::Replica(node) = choice.decision.target {
                        match self.on_replica(servers, node, &choice).await {
                            Some(answer) => return Some(answer),
                            None => excluded.push(node),
                        }
                        continue;
                    }
                    choice.decision.target
                }
                Err(missing)
                    if std::mem::take(&mut tries) && self.pace.as_mut().is_some_and(Pace::begins) =>
                {
                    if let Some(guess) = missing.guess(&asked, &[], random)
                        && let Some(answer) = self.ahead(servers, guess, until).await
                    {
                        return Some(answer);
                    }
                    continue;
                }
                Err(missing) if self.memory.faults.has(Fault::CheckedAlongside) => {
                    if let Some(answer) = self.checked_alongside(servers, &missing, until).await {
                        return Some(answer);
                    }
                    missing.decision.target
                }
                Err(missing) if self.comes(&missing, until, &excluded).await => continue,
                Err(missing) => missing.decision.target,
            };
            let Target::Primary(Some(node)) = target else { return None };
            let shown = servers.read(&mut servers.checkout(node).await?).await?;
            self.memory.answered((node, Role::Primary), false, arrived, Instant::now());
            return Some(Answer { shown, node, replica: false, fence: None });
        }
    }

    async fn on_replica<S: Servers>(
        &mut self,
        servers: &S,
        node: NodeId,
        choice: &Choice,
    ) -> Option<Answer<S::Shown>> {
        let mut connection = servers.checkout(node).await?;
        let opened = servers.opened_at(&connection);
        if !choice.goes_on(opened, || servers.holds(node, &connection)) {
            return None;
        }
        if let Some(fence) = choice.fence
            && !self.shows(servers, node, &connection, fence)
        {
            let until = Instant::now() + self.wait;
            let need = Need { fence, node: Some(node), since: Some(opened), until };
            let reached = timeout_at(until, self.control.position(&need)).await;
            if !matches!(reached, Ok(Ok(()))) || !self.shows(servers, node, &connection, fence) {
                return None;
            }
        }
        let shown = servers.read(&mut connection).await?;
        self.memory.answered((node, Role::Replica), false, opened, Instant::now());
        Some(Answer { shown, node, replica: true, fence: choice.fence })
    }

    /// Reads while it is asked what the read must see.
    async fn ahead<S: Servers>(
        &mut self,
        servers: &S,
        guess: Guess,
        until: Instant,
    ) -> Option<Answer<S::Shown>> {
        let mut connection = servers.checkout(guess.node).await?;
        let opened = servers.opened_at(&connection);
        if !servers.holds(guess.node, &connection) {
            return None;
        }
        let fence = async {
            poll_fn(|cx| {
                let waits = self.control.wake_at_fence(guess.since, cx.waker());
                if waits { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        };
        let (shown, told) = tokio::join!(servers.read(&mut connection), timeout_at(until, fence));
        let covered = guess.covered(&mut self.memory, &self.control.view(), &*self.control);
        let covered = covered.is_some_and(|covered| covered && told.is_ok());
        if let Some(pace) = &mut self.pace {
            pace.ended(covered);
        }
        let shown = shown.filter(|_| covered)?;
        self.memory.answered((guess.node, Role::Replica), false, opened, Instant::now());
        let fence = self.memory.fence.map(|(_, fence)| fence);
        Some(Answer { shown, node: guess.node, replica: true, fence })
    }

    fn shows<S: Servers>(&self, servers: &S, node: NodeId, connection: &S::Connection, fence: Fence) -> bool {
        let view = self.control.view();
        let seen = view.node(node).and_then(|node| node.observation);
        seen.is_some_and(|seen| seen.covers(&fence)) && servers.holds(node, connection)
    }

    /// Waits for what is missing; false when it takes too long.
    async fn comes(&self, missing: &Missing, until: Instant, excluded: &[NodeId]) -> bool {
        if Instant::now() >= until {
            return false;
        }
        match missing.sight(until, excluded) {
            Sight::Position(need) => {
                matches!(timeout_at(until, self.control.position(&need)).await, Ok(Ok(())))
            }
            Sight::Fence(moment) => matches!(timeout_at(until, self.control.fence(moment)).await, Ok(Ok(_))),
            Sight::Nothing => false,
        }
    }

    /// The bug of that name.
    async fn checked_alongside<S: Servers>(
        &mut self,
        servers: &S,
        missing: &Missing,
        until: Instant,
    ) -> Option<Answer<S::Shown>> {
        let replica = missing.view.nodes.iter().find(|node| node.role == Role::Replica)?.id;
        let mut connection = servers.checkout(replica).await?;
        let shown = servers.read(&mut connection).await?;
        let fence = match missing.sight(until, &[]) {
            Sight::Position(need) => need.fence,
            Sight::Fence(moment) => timeout_at(until, self.control.fence(moment)).await.ok()?.ok()?,
            Sight::Nothing => return None,
        };
        let since = Some(servers.opened_at(&connection));
        let need = Need { fence, node: Some(replica), since, until };
        timeout_at(until, self.control.position(&need)).await.ok()?.ok()?;
        Some(Answer { shown, node: replica, replica: true, fence: Some(fence) })
    }
}

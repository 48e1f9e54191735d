//! From a unit's demand to a server connection: routing, checkout, and what happens when there is none.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use causeway_pool::{CheckoutError, CloseReason, ConnectError, Lease};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::router::Target;
use causeway_routing::{NodeId, PinReason, Role};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::client::{Client, End};
use crate::consistency::Choice;
use crate::control::ControlPlane;
use crate::failover::is_of_use;
use crate::home::Home;
use crate::metrics::{DecisionTarget, ReadOutcome};
use crate::pools::NodePool;
use crate::registry::ClientState;
use crate::socket::Socket;

/// A server connection in this session's hands.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    pub(crate) pool: Arc<NodePool>,
    pub(crate) id: NodeId,
    pub(crate) role: Role,
    /// In which era it was taken.
    pub(crate) era: u64,
    /// The right to read on the primary in place of a replica.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

/// Why a unit gets no server connection. The session goes on, unless the server's own FATAL says otherwise.
#[derive(Debug)]
pub(crate) enum Denied {
    /// In Causeway's words.
    Report(ErrorReport),
    /// In the server's: the body of its `ErrorResponse`.
    Verbatim(Arc<[u8]>),
}

// === impl Client ===

impl Client {
    /// Finds a server connection for the gathered unit.
    pub(crate) async fn acquire(&mut self, excluded: &mut Vec<NodeId>) -> Result<Result<(), Denied>, End> {
        if self.acquire_at_once(excluded) {
            return Ok(Ok(()));
        }
        // What waits is large, and what need not wait does not have room for it.
        Box::pin(self.acquire_later(excluded)).await
    }

    /// The usual case: all that is to be known is known, and a connection is idle. False if something has to be waited for.
    fn acquire_at_once(&mut self, excluded: &[NodeId]) -> bool {
        if self.home.is_outdated(&self.shared)
            || self.memory.era != self.home.control.era()
            || self.shared.pauses.hold(&self.home.database)
        {
            return false;
        }
        let choice = match self.choose_now(excluded) {
            Ok(choice) => choice,
            Err(missing) => return self.run_ahead(&missing, excluded),
        };
        let (id, role) = match choice.decision.target {
            Target::Replica(id) => (id, Role::Replica),
            Target::Primary(Some(id)) if self.unproven_token(&choice).is_none() => (id, Role::Primary),
            Target::Primary(_) | Target::Local => return false,
        };
        let Some(pool) = self.home.pool(&self.shared, id) else { return false };
        let Some(mut lease) = self.try_checkout(&pool, role) else { return false };
        let fit = match role {
            Role::Replica => self.may_serve_now(&lease, id, &choice),
            _ => self.leads(&mut lease, id),
        };
        if !fit {
            lease.checkin();
            return false;
        }
        let metrics = pool.metrics(role);
        metrics.checkouts.add(1);
        metrics.checkout_wait.record(std::time::Duration::ZERO);
        self.count_read(&choice, ReadOutcome::Direct);
        self.count_staleness((id, role));
        self.take(lease, pool, role, choice);
        true
    }

    /// Goes on with a connection that was chosen.
    pub(crate) fn take(&mut self, lease: Lease, pool: Arc<NodePool>, role: Role, choice: Choice) {
        let target = if role == Role::Replica { DecisionTarget::Replica } else { DecisionTarget::Primary };
        self.home.metrics.decided(target, choice.decision.reason);
        let (id, era) = (pool.id, self.home.control.era());
        self.hold(Held { lease, pool, id, role, era, _permit: choice.permit });
    }

    async fn acquire_later(&mut self, excluded: &mut Vec<NodeId>) -> Result<Result<(), Denied>, End> {
        if self.home.is_outdated(&self.shared) && !self.move_home() {
            let message = format!("database \"{}\" is no longer configured", self.home.database);
            return Err(End::Report(ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, message)));
        }
        if let Err(denied) = self.wait_for_resume().await? {
            return Ok(Err(denied));
        }
        let primary_deadline = self.started + self.home.primary_wait;
        loop {
            let choice = match self.choose(excluded).await? {
                Ok(choice) => choice,
                Err(denied) => return Ok(Err(denied)),
            };
            let (id, role) = match choice.decision.target {
                Target::Replica(id) => (id, Role::Replica),
                Target::Primary(Some(id)) => (id, Role::Primary),
                Target::Primary(None) | Target::Local => {
                    if self.wait_for_change(primary_deadline).await? {
                        continue;
                    }
                    return Ok(Err(Denied::Report(self.no_primary())));
                }
            };
            let Some(pool) = self.home.pool(&self.shared, id) else { continue };
            match self.checkout(&pool, role).await? {
                // It may have gone while the connection was waited for: who waits on it now would not be told again.
                Ok(lease) if !is_of_use(&*self.home.control, id, role) => {
                    lease.checkin();
                    excluded.push(id);
                }
                Ok(lease) => match self.examine(lease, (id, role), &choice).await? {
                    Some(lease) => {
                        self.count_staleness((id, role));
                        self.take(lease, pool, role, choice);
                        return Ok(Ok(()));
                    }
                    None if role == Role::Replica => excluded.push(id),
                    None if self.wait_for_change(primary_deadline).await? => {}
                    None => return Ok(Err(Denied::Report(self.no_primary()))),
                },
                Err(error) => {
                    if let Some(denied) = self.refused(error, &pool, role, excluded) {
                        return Ok(Err(denied));
                    }
                    if role == Role::Primary && !self.wait_for_change(primary_deadline).await? {
                        return Ok(Err(Denied::Report(self.no_primary())));
                    }
                }
            }
        }
    }

    /// Whether a connection leads where it should: to a replica that shows what the unit must see, or to the primary.
    async fn examine(
        &mut self,
        mut lease: Lease,
        (id, role): (NodeId, Role),
        choice: &Choice,
    ) -> Result<Option<Lease>, End> {
        if role == Role::Replica {
            if self.may_serve(&lease, id, choice).await? {
                return Ok(Some(lease));
            }
            // It may be a server that has restarted, or another one behind the same name.
            lease.checkin();
        } else {
            if self.leads(&mut lease, id) {
                return Ok(Some(lease));
            }
            lease.discard(CloseReason::RoleChanged);
            self.home.control.node_failed(id);
        }
        Ok(None)
    }

    /// An idle connection: on the primary, the client's own before any other.
    pub(crate) fn try_checkout(&self, pool: &NodePool, role: Role) -> Option<Lease> {
        match &self.seat {
            Some(seat) if role == Role::Primary => pool.pool.try_checkout_seat(seat),
            _ => pool.pool.try_checkout(),
        }
    }

    /// Takes a connection from a pool, waiting for one if need be.
    async fn checkout(
        &mut self,
        pool: &Arc<NodePool>,
        role: Role,
    ) -> Result<Result<Lease, CheckoutError>, End> {
        let metrics = pool.metrics(role);
        metrics.checkouts.add(1);
        if let Some(lease) = self.try_checkout(pool, role) {
            metrics.checkout_wait.record(std::time::Duration::ZERO);
            return Ok(Ok(lease));
        }
        let asked = self.started;
        self.entry.clear_cancel();
        self.entry.enter(ClientState::Waiting);
        // Waiting is rare, and what waits is large: only those who do have the room for it.
        let checkout = pool.pool.checkout(asked + self.home.checkout_timeout);
        let control = Arc::clone(&self.home.control);
        let lease = Box::pin(self.wait(unless_out(checkout, control, pool.id, role))).await;
        self.entry.enter(ClientState::Active);
        // The wait is not the node's.
        self.started = Instant::now();
        metrics.checkout_wait.record(self.started - asked);
        let lease = lease?;
        if let Err(CheckoutError::Timeout { .. }) = lease {
            metrics.checkout_timeouts.add(1);
        }
        Ok(lease)
    }

    /// What a failed checkout means: `None` if another node, or a later attempt, may serve.
    fn refused(
        &mut self,
        error: CheckoutError,
        pool: &NodePool,
        role: Role,
        excluded: &mut Vec<NodeId>,
    ) -> Option<Denied> {
        let error = match error {
            CheckoutError::Timeout { waited } => return Some(Denied::Report(pool_timeout(pool, waited))),
            CheckoutError::QueueFull { waiters } => return Some(Denied::Report(queue_full(pool, waiters))),
            // Reconfigured away under us: the next decision finds another.
            CheckoutError::Closed => {
                excluded.push(pool.id);
                return None;
            }
            CheckoutError::Connect(error) => error,
        };
        if role == Role::Replica {
            // A login that a replica refuses may only not have been replayed there; the primary has the last word.
            tracing::debug!(node = %pool.key.node, %error, "no connection to a replica");
            self.home.control.node_failed(pool.id);
            if is_the_servers(&error) {
                pool.load.failed(Instant::now(), rand::random());
            }
            excluded.push(pool.id);
            return None;
        }
        match error {
            ConnectError::Refused(body) if !is_starting(&body) => Some(Denied::Verbatim(body)),
            ConnectError::Handshake(_) | ConnectError::Verification(_) => {
                Some(Denied::Report(unreachable(pool, &error)))
            }
            _ => {
                self.home.control.node_failed(pool.id);
                None
            }
        }
    }

    /// Waits until something about the nodes has changed; false if that did not happen in time.
    pub(crate) async fn wait_for_change(&mut self, deadline: Instant) -> Result<bool, End> {
        let mut changes = self.home.control.changes();
        changes.mark_unchanged();
        // Not every failure shows as a change of state: look again now and then.
        let pause = deadline.min(Instant::now() + std::time::Duration::from_millis(100));
        self.entry.enter(ClientState::Waiting);
        let change = tokio::time::timeout_at(pause, async move { changes.changed().await.is_ok() });
        let waited = Box::pin(self.wait(change)).await;
        self.entry.enter(ClientState::Active);
        waited?.ok();
        Ok(Instant::now() < deadline)
    }

    /// Waits for something other than bytes, and for the client's leaving.
    pub(crate) async fn wait<F: Future>(&mut self, future: F) -> Result<F::Output, End> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            let interrupts = self.entry.interrupts();
            if interrupts.kill {
                return Poll::Ready(Err(End::killed()));
            }
            if interrupts.cancel {
                self.entry.clear_cancel();
                return Poll::Ready(Err(End::Cancelled));
            }
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.poll_client_gone(cx)
        })
        .await
    }

    fn poll_client_gone<T>(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<T, End>> {
        // What it sends meanwhile waits in the buffer, and beyond that in the socket.
        while self.inbound.len() < crate::socket::BUFFER_LEN && !self.input_ended {
            match self.stream.poll_fill(cx, &mut self.inbound) {
                Poll::Ready(Ok(0)) => self.input_ended = true,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(End::ClientIo(error))),
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    fn hold(&mut self, held: Held) {
        self.entry.lend(&held.pool, held.lease.number());
        self.held = Some(held);
    }

    /// What `currval` and `lastval` tell belongs to the connection on which this session advanced a sequence last: takes
    /// that if it is idle, and nobody has advanced one there since.
    pub(crate) fn return_to_sequences(&mut self) {
        if self.held.is_none()
            && let Some((pool, process_id)) = self.sequences_at.clone()
            && self.home.control.view().primary == Some(pool.id)
            && let Some(mut lease) = pool.pool.try_checkout_to(process_id)
        {
            let (id, era) = (pool.id, self.home.control.era());
            if self.leads(&mut lease, id) {
                self.hold(Held { lease, pool, id, role: Role::Primary, era, _permit: None });
            } else {
                lease.discard(CloseReason::RoleChanged);
            }
        }
        let own = Some(self.entry.key.process_id);
        let found = self.held.as_ref().is_some_and(|held| held.lease.books.sequences_of == own);
        self.session.finds_own_sequences(found);
    }

    /// Gives the server connection back: its session is in the state that its books say.
    pub(crate) fn checkin(&mut self, now: Instant) {
        if let Some(mut held) = self.held.take() {
            crate::socket::give_back(&mut held.lease.inbound);
            held.lease.checkin_at(now);
        }
    }

    /// Closes the server connection: its session cannot be given to anyone else.
    pub(crate) fn discard(&mut self, reason: CloseReason) {
        if let Some(held) = self.held.take() {
            held.lease.discard(reason);
        }
    }

    /// Goes over to the configuration now in force; false if that no longer has this database.
    fn move_home(&mut self) -> bool {
        let found = Home::find(&self.shared, &self.home.database, &self.home.user);
        let kept = found.is_some();
        if let Some(home) = found {
            self.home = home;
            self.memory.moved();
        }
        kept
    }
}

/// A connection, unless the node drops out while it is waited for: opening one to a node that answers nothing takes as long
/// as `pool.connect_timeout`, and there may be another node by then.
async fn unless_out(
    checkout: impl Future<Output = Result<Lease, CheckoutError>>,
    control: Arc<dyn ControlPlane>,
    id: NodeId,
    role: Role,
) -> Result<Lease, CheckoutError> {
    let out = async {
        let mut changes = control.changes();
        while is_of_use(&*control, id, role) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        lease = checkout => lease,
        () = out => Err(CheckoutError::Closed),
    }
}

/// Whether a failed login tells something of the server, and not of the role that logs in.
fn is_the_servers(error: &ConnectError) -> bool {
    error.sqlstate().is_none_or(|code| code.starts_with(b"53") || code.starts_with(b"58"))
}

fn is_starting(body: &[u8]) -> bool {
    let code = causeway_protocol::backend::error_fields(body).map(|fields| fields.code());
    code.is_ok_and(|code| code == SqlState::CANNOT_CONNECT_NOW)
}

/// The wait for a server connection was cut short.
pub(crate) fn cancelled() -> ErrorReport {
    ErrorReport::error(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

fn pool_timeout(pool: &NodePool, waited: std::time::Duration) -> ErrorReport {
    let report =
        ErrorReport::error(SqlState::TOO_MANY_CONNECTIONS, "no server connection became free in time");
    if let Some(quota) = pool.pool.reached_quota() {
        return report
            .with_detail(format!(
                "Waited {} ms (pool.checkout_timeout); {} is {}.",
                waited.as_millis(),
                quota.name(),
                quota.limit()
            ))
            .with_hint("Raise this limit, or end transactions sooner.");
    }
    report
        .with_detail(format!(
            "Waited {} ms (pool.checkout_timeout) for one of {} connections to node \"{}\".",
            waited.as_millis(),
            pool.pool.status().size,
            pool.key.node
        ))
        .with_hint("Raise pool.size, or end transactions sooner.")
}

fn queue_full(pool: &NodePool, waiters: usize) -> ErrorReport {
    ErrorReport::error(SqlState::TOO_MANY_CONNECTIONS, "too many clients wait for a server connection")
        .with_detail(format!("{waiters} (pool.max_waiters) wait for node \"{}\".", pool.key.node))
        .with_hint("Raise pool.size, or end transactions sooner.")
}

fn unreachable(pool: &NodePool, error: &ConnectError) -> ErrorReport {
    ErrorReport::error(SqlState::CANNOT_CONNECT, format!("could not log in at node \"{}\"", pool.key.node))
        .with_detail(error.to_string())
}

/// Whether what a statement leaves behind is of no use on a replica, to which the session does not return after its
/// transaction. What the others leave goes with the connection.
pub(crate) fn means_nothing_on_a_replica(reason: PinReason) -> bool {
    !matches!(reason, PinReason::Procedure | PinReason::Seed | PinReason::BackendPid)
}

/// A read-only transaction has begun on a replica, and now wants what only the primary can give: on the replica it would
/// seem to work, and mean nothing.
pub(crate) fn wrong_node(node: &str) -> ErrorReport {
    ErrorReport::fatal(
        SqlState::FEATURE_NOT_SUPPORTED,
        "the statement needs the primary, but its read-only transaction runs on a replica",
    )
    .with_detail(format!("The transaction began on node \"{node}\"."))
    .with_hint("Begin the transaction without READ ONLY, or run this statement outside it.")
}

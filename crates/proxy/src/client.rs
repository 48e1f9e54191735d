//! One client's task: what it asks for is gathered, run and answered, one unit after the other.

use std::io;
use std::sync::Arc;

use causeway_pool::{CloseReason, Seat};
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::report::{ErrorReport, Severity};
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{NodeId, PinReason, PinSet, Reason, Role};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use crate::Shared;
use crate::ahead::Ahead;
use crate::config::PoolMode;
use crate::home::Home;
use crate::lease::{Denied, Held, cancelled, means_nothing_on_a_replica, wrong_node};
use crate::load::Running;
use crate::memory::Memory;
use crate::metrics::DecisionTarget;
use crate::pools::NodePool;
use crate::registry::{ClientState, Registration};
use crate::relay::{CANCEL_TIMEOUT, Event, Relayed};
use crate::scratch;
use crate::session::settings::SessionSettings;
use crate::session::{Admitted, Connection, Session, Told};
use crate::socket::{self, ClientStream, Socket};

/// How long a statement that may write, and that nobody waits for any more, keeps its place in the pool.
const ABANDONED_WRITE_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(10);

/// How long a session that has defined code does not rely on a catalogue that may be of before.
const CATALOGUE_LOADED: std::time::Duration = std::time::Duration::from_secs(1);

/// A client that has logged in.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: ClientStream,
    pub(crate) inbound: Buffer,
    /// What the client is still to be sent.
    pub(crate) outbound: Buffer,
    /// What the session machine has for the client, and may still take back.
    pub(crate) answer: Vec<u8>,
    /// What the server is still to be sent.
    pub(crate) to_server: Vec<u8>,
    pub(crate) session: Session,
    pub(crate) home: Home,
    pub(crate) entry: Registration,
    /// The connection to the primary whose process id the client was told.
    pub(crate) seat: Option<Seat>,
    /// That connection has had temporary objects.
    pub(crate) seat_has_schema: bool,
    pub(crate) held: Option<Held>,
    pub(crate) memory: Memory,
    /// The running unit has been answered.
    pub(crate) unit_over: bool,
    /// The client sends nothing more; it may still read.
    pub(crate) input_ended: bool,
    /// Where this session may have advanced a sequence last: the pool and the server's process id.
    pub(crate) sequences_at: Option<(Arc<NodePool>, i32)>,
    /// The running unit, for the load of its node.
    pub(crate) running: Option<Running>,
    /// The pins that others know of.
    pub(crate) pinned: PinSet,
    /// Until then the catalogue may not know what this session has defined.
    pub(crate) defined_until: Option<Instant>,
    /// When the gathered unit arrived: what it reads was to be seen by then.
    pub(crate) arrived: Instant,
    /// The same, or when the unit had what it waited for: the rest of the time is the server's.
    pub(crate) started: Instant,
    /// Reads that run before it is known what they must see.
    pub(crate) ahead: Ahead,
    /// Spreads reads over the replicas.
    pub(crate) random: SmallRng,
}

/// How a session ends, or a unit is cut short.
#[derive(Debug)]
pub(crate) enum End {
    /// The client said goodbye.
    Terminated,
    /// The client is gone.
    ClientLeft,
    /// The client's socket broke.
    ClientIo(io::Error),
    /// The client is told this, and cut off.
    Report(ErrorReport),
    /// The client has been told, by the server.
    Told,
    /// The client has taken longer than it may: it is told this, cut off, and what runs is cancelled.
    Overdue(ErrorReport),
    /// The wait for a server connection was cancelled: the session goes on.
    Cancelled,
}

// === impl End ===

impl End {
    pub(crate) fn killed() -> Self {
        Self::Report(ErrorReport::fatal(
            SqlState::ADMIN_SHUTDOWN,
            "terminating connection due to administrator command",
        ))
    }
}

// === impl Client ===

impl Client {
    /// A session for a client that has been let in.
    pub(crate) fn new(
        shared: Arc<Shared>,
        (stream, inbound): (ClientStream, Buffer),
        home: Home,
        (entry, seat): (Registration, Option<Seat>),
        (settings, told): (SessionSettings, Told),
    ) -> Self {
        let now = Instant::now();
        Self {
            session: Session::new(home.mode, settings, told),
            shared,
            stream,
            inbound,
            outbound: Buffer::default(),
            answer: Vec::new(),
            to_server: Vec::new(),
            memory: Memory::new(home.control.era()),
            home,
            entry,
            seat,
            seat_has_schema: false,
            held: None,
            unit_over: false,
            input_ended: false,
            sequences_at: None,
            running: None,
            pinned: PinSet::default(),
            defined_until: None,
            arrived: now,
            started: now,
            ahead: Ahead::default(),
            random: SmallRng::seed_from_u64(rand::random()),
        }
    }

    /// Serves the client until it leaves or is cut off, in a task of its own: letting somebody in takes a larger one.
    pub(crate) fn start(mut self) {
        // A block, because an async function would hold its argument twice: idle clients are many.
        tokio::spawn(async move {
            std::future::poll_fn(|cx| {
                self.entry.wake_by(cx.waker());
                std::task::Poll::Ready(())
            })
            .await;
            let end = loop {
                if let Err(end) = self.next().await {
                    break end;
                }
            };
            Box::pin(self.leave(end)).await;
        });
    }

    /// One step: waits for input, answers on the spot, or runs a unit.
    async fn next(&mut self) -> Result<(), End> {
        let admitted = if self.inbound.is_empty() {
            Admitted::NeedMore
        } else {
            self.arrived = Instant::now();
            self.started = self.arrived;
            scratch::lend(&mut self.answer);
            scratch::lend(&mut self.to_server);
            self.admit()?
        };
        match admitted {
            Admitted::NeedMore if self.input_ended => Err(End::ClientLeft),
            Admitted::NeedMore => self.idle().await,
            Admitted::Local(consumed) => {
                self.inbound.consume(consumed);
                self.show_answer();
                self.home.metrics.decided(DecisionTarget::Local, Reason::Local);
                Ok(())
            }
            Admitted::Fence(consumed) => {
                self.inbound.consume(consumed);
                let fence = self.ask_fence().await?;
                self.session.show_fence(fence, &mut self.answer);
                self.show_answer();
                Ok(())
            }
            Admitted::Ready => self.run_unit().await,
            Admitted::Terminate => Err(End::Terminated),
        }
    }

    /// Looks at what the client has sent.
    pub(crate) fn admit(&mut self) -> Result<Admitted, End> {
        let defined_lately = self.defined_until.is_some_and(|until| self.started < until);
        let lookups = self.home.lookups(&self.shared, self.started, defined_lately);
        self.session.admit(self.inbound.filled(), &lookups, &mut self.answer).map_err(End::Report)
    }

    /// Nothing is running: waits for the client to want something, and passes on what the server sends unasked.
    async fn idle(&mut self) -> Result<(), End> {
        socket::give_back(&mut self.inbound);
        scratch::give_back(&mut self.answer);
        scratch::give_back(&mut self.to_server);
        if self.held.is_none() && self.entry.interrupts().drain {
            return Err(End::killed());
        }
        let state = self.resting_state();
        self.entry.since.transaction(state == ClientState::InTransaction);
        self.entry.enter(state);
        if self.session.has_unjudged() {
            return Box::pin(self.idle_unjudged()).await;
        }
        if self.session.has_open_unit() {
            return Box::pin(self.idle_in_unit()).await;
        }
        let event = self.event(true).await?;
        self.happened(event)
    }

    /// Something has happened while nothing ran.
    pub(crate) fn happened(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Client => {
                self.entry.enter(ClientState::Active);
                Ok(())
            }
            Event::Server => self.unasked(),
            Event::ServerClosed => self.server_lost().map(|_| ()),
            Event::Interrupted => self.interrupted(),
            // Only a running unit is over.
            Event::Sent | Event::Void => Ok(()),
        }
    }

    fn resting_state(&self) -> ClientState {
        if self.session.status() != TransactionStatus::Idle {
            ClientState::InTransaction
        } else if self.held.is_some() {
            ClientState::Pinned
        } else {
            ClientState::Idle
        }
    }

    fn interrupted(&mut self) -> Result<(), End> {
        self.look()?;
        self.look_at_clock()?;
        let interrupts = self.entry.interrupts();
        self.entry.clear_cancel();
        let free = self.session.status() == TransactionStatus::Idle;
        if interrupts.kill || interrupts.drain && free { Err(End::killed()) } else { Ok(()) }
    }

    /// Runs the gathered unit, again elsewhere if need be, and takes in what it has changed.
    pub(crate) async fn run_unit(&mut self) -> Result<(), End> {
        self.entry.enter(ClientState::Active);
        for database in self.session.take_unused_databases() {
            self.shared.pools.leave_database(&database);
            self.shared.logins.clear();
        }
        if self.held.as_ref().is_some_and(|held| held.role == Role::Replica) && self.session.leaves_replica()
        {
            self.discard(CloseReason::RoleChanged);
        }
        if let Some(held) = &self.held
            && held.role == Role::Replica
            && self.session.status() == TransactionStatus::InTransaction
            && self.session.pinning().iter().any(means_nothing_on_a_replica)
        {
            return Err(End::Report(wrong_node(&held.pool.key.node)));
        }
        if self.session.pinning().contains(PinReason::Sequence) {
            self.home.habits.called_currval();
            self.return_to_sequences();
        }
        let mut excluded = Vec::new();
        loop {
            if self.held.is_none() {
                match self.acquire(&mut excluded).await {
                    Ok(Ok(())) => {}
                    Ok(Err(denied)) => return self.deny(denied),
                    Err(End::Cancelled) => return self.deny(Denied::Report(cancelled())),
                    Err(end) => return Err(end),
                }
            } else {
                self.look()?;
                self.follow_on_replica().await?;
                let pinned = self.session.status() == TransactionStatus::Idle;
                let reason = if pinned { Reason::Pinned } else { Reason::InTransaction };
                let replica = self.held.as_ref().is_some_and(|held| held.role == Role::Replica);
                let target = if replica { DecisionTarget::Replica } else { DecisionTarget::Primary };
                self.home.metrics.decided(target, reason);
            }
            let relayed = self.relay().await?;
            self.unit_over = false;
            match relayed {
                Relayed::Done => {
                    self.finish()?;
                    if self.session.has_questions() && self.held.is_some() {
                        Box::pin(self.inquire()).await?;
                    }
                    return Ok(());
                }
                Relayed::Void => Box::pin(self.void_ahead()).await,
                Relayed::Retry { code, reusable } => {
                    self.remember_refusal(code);
                    self.give_up_attempt(reusable, &mut excluded);
                }
            }
        }
    }

    /// Sees to it that a statement of a transaction on a replica finds there what it must see.
    async fn follow_on_replica(&mut self) -> Result<(), End> {
        let on_replica = self.held.as_ref().is_some_and(|held| held.role == Role::Replica);
        if !on_replica || !self.session.takes_new_snapshot() {
            return Ok(());
        }
        match Box::pin(self.follow_on()).await {
            Err(End::Cancelled) => Err(End::Report(cancelled())),
            other => other,
        }
    }

    /// A replica could not serve the unit, and the client has seen nothing of the attempt.
    fn give_up_attempt(&mut self, reusable: bool, excluded: &mut Vec<NodeId>) {
        excluded.extend(self.held.as_ref().map(|held| held.id));
        self.running = None;
        self.home.metrics.retries.add(1);
        self.answer.clear();
        self.to_server.clear();
        self.session.retry();
        self.started = Instant::now();
        if reusable { self.checkin(self.started) } else { self.discard(CloseReason::UnknownState) }
    }

    /// The unit has been answered.
    fn finish(&mut self) -> Result<(), End> {
        self.running = None;
        let Some(held) = &mut self.held else { return Ok(()) };
        let mut ended = self.session.finish(&mut held.lease.books);
        self.entry.since.transaction(self.session.status() != TransactionStatus::Idle);
        let now = Instant::now();
        let metrics = held.pool.metrics(held.role);
        let latency = now - self.started;
        metrics.query_duration.record(latency);
        held.pool.load.answered(latency);
        if ended.transaction {
            metrics.transactions.add(1);
            held.lease.count_transaction();
        }
        self.memory.answered((held.id, held.role), ended.wrote, self.started, now);
        if ended.wrote {
            held.lease.books.sequences_of = Some(self.entry.key.process_id);
            self.sequences_at = Some((Arc::clone(&held.pool), held.lease.process_id()));
            let leaves = ended.connection == Connection::CheckIn || self.session.has_questions();
            if leaves && self.home.habits.calls_currval() {
                self.session.pin_by(PinReason::Sequence);
                ended.connection = Connection::Keep;
                ended.pinned = Some(PinReason::Sequence);
            }
        }
        if ended.defined {
            self.home.control.definition_seen(&self.home.database);
            self.shared.refusals.forget(&self.home.database);
        }
        if ended.changed_defaults {
            self.shared.pools.recycle();
            self.shared.logins.clear();
        }
        if ended.defined_code {
            self.defined_until = Some(now + CATALOGUE_LOADED);
        }
        if let Some(reason) = ended.pinned {
            self.home.metrics.pinned(reason);
        }
        self.show_pins();
        self.show_answer();
        match ended.connection {
            Connection::Keep => {}
            Connection::CheckIn => self.checkin(now),
            Connection::Discard => self.discard(CloseReason::UnknownState),
        }
        if self.home.mode == PoolMode::Statement && !ended.transaction {
            return Err(End::Report(ErrorReport::fatal(
                SqlState::FEATURE_NOT_SUPPORTED,
                "transaction blocks are not allowed in statement pooling mode",
            )));
        }
        Ok(())
    }

    /// No server connection is to be had for the unit.
    fn deny(&mut self, denied: Denied) -> Result<(), End> {
        match denied {
            Denied::Verbatim(body) => {
                encode::raw(&mut self.answer, causeway_protocol::backend::tag::ERROR_RESPONSE, &body);
                self.show_answer();
                Err(End::Told)
            }
            // A transaction that has begun for the client cannot be taken back.
            Denied::Report(report) if self.session.holds_begin() => Err(End::Report(report)),
            Denied::Report(report) => {
                let consumed = self.session.refuse(&report, self.inbound.len(), &mut self.answer);
                self.inbound.consume(consumed);
                self.show_answer();
                Ok(())
            }
        }
    }

    /// Makes what the session machine has for the client final.
    pub(crate) fn show_answer(&mut self) {
        if !self.answer.is_empty() {
            self.outbound.extend(&self.answer);
            self.answer.clear();
        }
    }

    /// The session is over: the server connection is let go of, and the client told why.
    async fn leave(&mut self, end: End) {
        let reason = match &end {
            End::Terminated | End::ClientLeft | End::ClientIo(_) | End::Cancelled => CloseReason::ClientGone,
            End::Report(_) => CloseReason::UnknownState,
            End::Overdue(_) => CloseReason::Deadline,
            End::Told => CloseReason::ServerFatal,
        };
        if matches!(end, End::Terminated | End::ClientLeft)
            && self.session.is_resting()
            && self.can_be_reset()
        {
            self.reset().await;
        } else if self.running.is_some()
            && !self.session.awaits_client()
            && let Some(held) = self.held.take()
        {
            tokio::spawn(abandon(held, self.session.lost() && !matches!(end, End::Overdue(_))));
        }
        self.discard(reason);
        self.close_seat_with_schema();
        if let End::Report(report) | End::Overdue(report) = &end {
            let report = report.clone().with_severity(Severity::Fatal);
            encode::error_response(&mut self.answer, &report);
            self.show_answer();
        }
        if let End::ClientIo(error) = &end {
            tracing::debug!(client = self.entry.key.process_id, %error, "client connection broke");
        }
        if !matches!(end, End::ClientIo(_)) {
            self.flush_last().await;
        }
        self.shared.metrics.process.disconnects.add(1);
        self.inbound.consume(usize::MAX);
        socket::give_back(&mut self.inbound);
        self.outbound.consume(usize::MAX);
        socket::give_back(&mut self.outbound);
        for vector in [&mut self.answer, &mut self.to_server] {
            vector.clear();
            scratch::give_back(vector);
        }
    }
}

/// Waits for a server to end what nobody waits for any more: until then its connection counts in the pool, so that
/// impatient clients do not pile up work there. A read is cancelled; what may write runs to its end, as it would without
/// a pool.
pub(crate) async fn abandon(mut held: Held, writes: bool) {
    if !writes && let Err(error) = held.lease.cancel_handle().cancel(Instant::now() + CANCEL_TIMEOUT).await {
        tracing::debug!(%error, "cancel request failed");
    }
    let patience = if writes { ABANDONED_WRITE_TIMEOUT } else { CANCEL_TIMEOUT };
    let over = async {
        let server = &mut *held.lease;
        loop {
            // ReadyForQuery ends a message stream, and so what is read: the body of another message that happens to
            // end alike only closes the connection earlier.
            let ready = matches!(server.inbound.filled(), [.., b'Z', 0, 0, 0, 5, b'I' | b'T' | b'E']);
            if ready {
                return;
            }
            server.inbound.consume(server.inbound.len().saturating_sub(8));
            let read = std::future::poll_fn(|cx| server.stream.poll_fill(cx, &mut server.inbound)).await;
            if !matches!(read, Ok(n) if n > 0) {
                return;
            }
        }
    };
    if tokio::time::timeout(patience, over).await.is_err() {
        tracing::info!(node = %held.pool.key.node, "a statement that nobody waits for still runs");
    }
    held.lease.discard(CloseReason::ClientGone);
}

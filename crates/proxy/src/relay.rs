//! Bytes between a client and the server that works for it: one read, one look, one write.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_pool::CloseReason;
use causeway_protocol::buffer::Buffer;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use tokio::time::Instant;

use crate::client::{Client, End};
use crate::session::{Admitted, Outcome};
use crate::socket::{self, BUFFER_LEN, ClientStream, Socket};

/// What follows an answer of the proxy's own is copied behind it up to this length, to go out in the same write.
const COPIED_LEN: usize = 8 * 1024;

/// How long a cancel request may take to reach its server.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client that is cut off may take to read why.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The client has sent something.
    Client,
    /// The server has sent something.
    Server,
    /// The unit is over and the server has been sent all that was begun.
    Sent,
    /// The server's stream has ended.
    ServerClosed,
    /// Somebody wants something of the session.
    Interrupted,
    /// What runs does not show what it must.
    Void,
}

/// How a unit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// It has been answered.
    Done,
    /// It has run before it was known what it must see, for nothing.
    Void,
    /// It has to run elsewhere, for what the server said if it said anything; `reusable` tells whether the server connection
    /// is of further use.
    Retry { code: Option<SqlState>, reusable: bool },
}

// === impl Client ===

impl Client {
    /// Sends the gathered unit to the server at hand and relays its answer.
    pub(crate) async fn relay(&mut self) -> Result<Relayed, End> {
        if let Some(held) = &mut self.held {
            let standby = held.role == causeway_routing::Role::Replica;
            self.session.begin(&mut held.lease.books, standby, &mut self.to_server);
            self.running = Some(held.pool.load.start());
        }
        self.send_admitted();
        self.unit_over = false;
        // What the client has sent beyond the admitted may be of this unit.
        self.take_client()?;
        loop {
            match self.event(false).await {
                Ok(Event::Client) => self.take_client()?,
                Ok(Event::Server) => {
                    if let Some(relayed) = self.take_server()? {
                        return Ok(relayed);
                    }
                    self.take_client()?;
                }
                Ok(Event::Sent) => return Ok(Relayed::Done),
                Ok(Event::Void) => return Ok(Relayed::Void),
                Ok(Event::ServerClosed) => {
                    if let Some(relayed) = self.server_lost()? {
                        return Ok(relayed);
                    }
                }
                Ok(Event::Interrupted) => {
                    self.interrupted_at_work()?;
                    if self.waits_in_vain() {
                        return Ok(Relayed::Retry { code: None, reusable: false });
                    }
                }
                Err(end) => return Err(end),
            }
        }
    }

    /// A cancel that came while the client waited for the connection it now has goes on to the server.
    fn interrupted_at_work(&mut self) -> Result<(), End> {
        self.look()?;
        if self.entry.interrupts().kill {
            return Err(End::killed());
        }
        if self.entry.clear_cancel() {
            self.forward_cancel();
        }
        self.look_at_clock()
    }

    /// Has the server cancel what it works at.
    pub(crate) fn forward_cancel(&self) {
        let Some(held) = &self.held else { return };
        let handle = held.lease.cancel_handle();
        tokio::spawn(async move {
            if let Err(error) = handle.cancel(Instant::now() + CANCEL_TIMEOUT).await {
                tracing::debug!(%error, "cancel request failed");
            }
        });
    }

    /// What the server sends while nothing is asked of it: notices, notifications, its last word.
    pub(crate) fn unasked(&mut self) -> Result<(), End> {
        self.take_server().map(|_| ())
    }

    /// Waits until one of the two has sent something, and writes what they are to get. `resting`: no unit runs.
    pub(crate) async fn event(&mut self, resting: bool) -> Result<Event, End> {
        poll_fn(|cx| self.poll_event(cx, resting)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>, resting: bool) -> Poll<Result<Event, End>> {
        let interrupts = self.entry.interrupts();
        let must_look = self.entry.must_look();
        if interrupts.kill || interrupts.cancel || must_look || resting && interrupts.drain && self.is_free()
        {
            return Poll::Ready(Ok(Event::Interrupted));
        }
        if let Err(end) = self.poll_flush(cx) {
            return Poll::Ready(Err(end));
        }
        // Nothing of the answer is looked at before that is known.
        let shows = self.poll_ahead(cx);
        if shows == Poll::Ready(false) {
            return Poll::Ready(Ok(Event::Void));
        }
        if self.unit_over && self.to_server.is_empty() && !self.session.is_passing() {
            return Poll::Ready(Ok(Event::Sent));
        }
        // A client that does not read holds up its server, and takes no more memory than its buffer.
        if self.outbound.is_empty()
            && shows.is_ready()
            && let Some(held) = &mut self.held
        {
            let server = &mut *held.lease;
            match server.stream.poll_fill(cx, &mut server.inbound) {
                Poll::Ready(Ok(n)) if n > 0 => return Poll::Ready(Ok(Event::Server)),
                Poll::Ready(_) => return Poll::Ready(Ok(Event::ServerClosed)),
                Poll::Pending => {}
            }
        }
        let room = resting || !self.session.unit_closed() || self.inbound.len() < BUFFER_LEN;
        if self.to_server.is_empty() && room && !self.input_ended {
            match self.stream.poll_fill(cx, &mut self.inbound) {
                Poll::Ready(Ok(0)) => {
                    // What it has sent before is still carried out, as a server would.
                    self.input_ended = true;
                    return Poll::Ready(Ok(Event::Client));
                }
                Poll::Ready(Ok(_)) => return Poll::Ready(Ok(Event::Client)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(End::ClientIo(error))),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    fn is_free(&self) -> bool {
        self.session.status() == causeway_protocol::backend::TransactionStatus::Idle
    }

    /// Writes what both are to get, as far as their sockets take it.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if !self.to_server.is_empty()
            && let Some(held) = &mut self.held
        {
            match held.lease.stream.poll_drain(cx, &self.to_server) {
                Poll::Ready(Ok(n)) => {
                    held.pool.metrics(held.role).sent_bytes.add(n as u64);
                    self.to_server.drain(..n);
                }
                // Whatever it said before it went is still to be read.
                Poll::Ready(Err(_)) => self.to_server.clear(),
                Poll::Pending => {}
            }
        }
        if !self.outbound.is_empty() {
            match self.stream.poll_drain(cx, self.outbound.filled()) {
                Poll::Ready(Ok(n)) => self.outbound.consume(n),
                Poll::Ready(Err(error)) => return Err(End::ClientIo(error)),
                Poll::Pending => {}
            }
            socket::give_back(&mut self.outbound);
        }
        Ok(())
    }

    /// Turns what has been admitted into bytes for the server.
    fn send_admitted(&mut self) {
        let Some(held) = &mut self.held else { return };
        let arrived = self.inbound.len();
        let books = &mut held.lease.books;
        self.session.emit(self.inbound.filled(), books, &mut self.to_server, &mut self.answer);
        let released = self.session.release(arrived);
        self.inbound.consume(released);
        if !self.session.may_retry() {
            self.show_answer();
        }
    }

    /// Takes what the client has sent while its unit runs, as far as it can be taken now.
    fn take_client(&mut self) -> Result<(), End> {
        while !self.inbound.is_empty() {
            let before = self.inbound.len();
            self.take_client_once()?;
            if before == self.inbound.len() {
                break;
            }
        }
        // The rest of the unit, or of the data that the server copies, will not come.
        if self.input_ended && self.session.awaits_client() && !self.unit_over {
            Err(End::ClientLeft)
        } else {
            Ok(())
        }
    }

    fn take_client_once(&mut self) -> Result<(), End> {
        let passed = self.session.pass_rest(self.inbound.filled(), &mut self.to_server);
        self.inbound.consume(passed);
        if self.session.unit_closed() || self.unit_over {
            if !self.session.may_retry() && !self.unit_over {
                let passed = self.session.pass_copy(self.inbound.filled(), &mut self.to_server);
                self.inbound.consume(passed.map_err(End::Report)?);
            }
            return Ok(());
        }
        if self.session.is_passing() {
            return Ok(());
        }
        match self.admit()? {
            Admitted::Terminate => return Err(End::Terminated),
            // The server has the beginning of this unit: what is complete of it follows.
            Admitted::NeedMore | Admitted::Ready => self.send_admitted(),
            // In the middle of a unit nothing is answered but by its server.
            Admitted::Local(consumed) | Admitted::Fence(consumed) => self.inbound.consume(consumed),
        }
        Ok(())
    }

    /// The server has sent something.
    pub(crate) fn take_server(&mut self) -> Result<Option<Relayed>, End> {
        let Some(held) = &mut self.held else { return Ok(None) };
        let server = &mut *held.lease;
        let scan = match self.session.answer(server.inbound.filled(), &mut server.books, &mut self.answer) {
            Ok(scan) => scan,
            Err(error) => {
                tracing::warn!(node = %held.pool.key.node, %error, "server does not follow the protocol");
                self.discard(CloseReason::Protocol);
                return Err(End::Report(server_gone(self.session.lost())));
            }
        };
        held.pool.metrics(held.role).answered(scan.consumed, &self.session.take_counts());
        for (name, value) in self.session.take_reported() {
            server.parameter_status(&name, &value);
        }
        if self.session.lost() {
            let now = Instant::now();
            self.home.control.wrote(now);
            self.memory.wrote(now);
        }
        let direct = server.inbound.filled().get(scan.direct).unwrap_or_default();
        // What the proxy itself answers is followed by what the server does, in one write if that is short.
        let joined = !self.answer.is_empty() && direct.len() <= COPIED_LEN;
        if joined {
            self.answer.extend_from_slice(direct);
        }
        if !self.session.may_retry() {
            show(&mut self.stream, &mut self.outbound, &self.answer);
            self.answer.clear();
        }
        if !joined {
            show(&mut self.stream, &mut self.outbound, direct);
        }
        server.inbound.consume(scan.consumed);
        let released = self.session.release(self.inbound.len());
        self.inbound.consume(released);
        self.outcome(scan.outcome)
    }

    fn outcome(&mut self, outcome: Outcome) -> Result<Option<Relayed>, End> {
        match outcome {
            Outcome::More => Ok(None),
            // A message of which the server has the beginning is completed first: it may be the rest of a COPY that failed.
            Outcome::Done if self.session.is_passing() || !self.to_server.is_empty() => {
                self.unit_over = true;
                Ok(None)
            }
            Outcome::Done => Ok(Some(Relayed::Done)),
            Outcome::Retry { code, reusable } => {
                tracing::debug!(%code, "a replica could not serve a statement");
                Ok(Some(Relayed::Retry { code: Some(code), reusable }))
            }
            Outcome::Fatal => {
                self.discard(CloseReason::ServerFatal);
                Err(End::Told)
            }
            Outcome::SettingsRefused => {
                let body = self.session.take_injection_failure().unwrap_or_default();
                self.discard(CloseReason::UnknownState);
                Err(End::Report(settings_refused(&body)))
            }
        }
    }

    /// The server's stream has ended without a last word.
    pub(crate) fn server_lost(&mut self) -> Result<Option<Relayed>, End> {
        if let Some(held) = &self.held {
            self.home.control.node_failed(held.id);
            held.pool.load.failed(Instant::now(), rand::random());
        }
        if self.session.lost() {
            self.home.control.wrote(Instant::now());
        }
        if self.session.may_retry() {
            return Ok(Some(Relayed::Retry { code: None, reusable: false }));
        }
        self.discard(CloseReason::ServerClosed);
        Err(End::Report(server_gone(self.session.lost())))
    }

    /// Gives the client a chance to read why it is cut off.
    pub(crate) async fn flush_last(&mut self) {
        let flush = poll_fn(|cx| match self.poll_flush(cx) {
            Ok(()) if !self.outbound.is_empty() => Poll::Pending,
            _ => Poll::Ready(()),
        });
        if tokio::time::timeout(LAST_WORD_TIMEOUT, flush).await.is_err() {
            tracing::debug!(client = self.entry.key.process_id, "client did not read its last message");
        }
    }
}

/// Writes what the client's socket takes at once, from where it stands; only the rest is copied. A broken socket takes
/// nothing: that shows when the rest is to be flushed, with the server's part of the work in order.
fn show(stream: &mut ClientStream, outbound: &mut Buffer, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let written = if outbound.is_empty() { stream.try_write_from(bytes).unwrap_or(0) } else { 0 };
    outbound.extend(bytes.get(written..).unwrap_or_default());
}

pub(crate) fn server_gone(may_have_happened: bool) -> ErrorReport {
    let detail = if may_have_happened {
        "Whether the statement or transaction under way has taken effect is not known."
    } else {
        "Nothing that writes was under way."
    };
    ErrorReport::fatal(SqlState::CONNECTION_FAILURE, "the server closed the connection unexpectedly")
        .with_detail(detail)
}

/// A session whose settings a server refuses cannot go on; the server says why.
fn settings_refused(body: &[u8]) -> ErrorReport {
    let fields = causeway_protocol::backend::error_fields(body);
    let (code, message) = fields.map_or((SqlState::INTERNAL_ERROR, String::new()), |fields| {
        (fields.code(), String::from_utf8_lossy(fields.message()).into_owned())
    });
    ErrorReport::fatal(code, message)
        .with_detail("A setting of this session could not be established on its server connection.")
}

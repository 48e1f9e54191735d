//! A server connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_protocol::backend::{self, tag};
use causeway_protocol::buffer::Buffer;
use causeway_protocol::frame;
use causeway_tls::{ServerStream, Socket as _, TlsClient, buffers};
use tokio::time::Instant;

use crate::address::Address;
use crate::books::Books;
use crate::reason::CloseReason;

/// The longest message that is taken in while a connection is idle: only notices and parameters come then.
const MAX_IDLE_FRAME: usize = 64 * 1024;

/// Reads made before what an idle connection has to say is held to be endless.
const MAX_IDLE_READS: usize = 64;

/// Terminate; it has no body.
const TERMINATE: [u8; 5] = [b'X', 0, 0, 0, 4];

/// Lifetimes are shortened by up to a tenth, in steps of a 65,536th of that.
const JITTER_STEPS: u32 = 10 << 16;

/// An authenticated connection to a server, with the books of its session.
pub struct ServerConn {
    /// The socket.
    pub stream: ServerStream,
    /// What was read from it and not consumed.
    pub inbound: Buffer,
    /// What is known of the state of its session.
    pub books: Books,
    /// For the borrower: when it last made sure of what the connection leads to, in a count of its own; 0 at first.
    pub verified: u64,
    card: Arc<Card>,
    parameters: Parameters,
    facts: Box<[Option<Box<str>>]>,
    place: Place,
    lease: u64,
}

/// What never changes about a connection; known to the pool while it is lent.
pub(crate) struct Card {
    pub(crate) peer: Address,
    /// How it is encrypted, if it is: a cancel request goes the same way.
    pub(crate) encryption: Option<Box<Encryption>>,
    pub(crate) process_id: i32,
    pub(crate) secret_key: Box<[u8]>,
    /// When connecting began.
    pub(crate) begun_at: Instant,
    pub(crate) opened_at: Instant,
    pub(crate) transactions: AtomicU64,
}

/// How a server was reached.
pub(crate) struct Route {
    /// Resolved.
    pub(crate) peer: Address,
    pub(crate) encryption: Option<Box<Encryption>>,
}

/// How a connection is encrypted.
pub(crate) struct Encryption {
    pub(crate) client: TlsClient,
    /// What the server is called.
    pub(crate) host: Arc<str>,
}

/// A connection's place in its pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its slot.
    pub(crate) slot: usize,
    /// The generation of the configuration it was opened under.
    pub(crate) generation: u64,
    /// By how much its lifetime is shortened, as a share of the longest possible shortening.
    pub(crate) jitter: u16,
}

/// Parameters as the server reported them, in the order of their first report.
///
/// Values are in the connection's `client_encoding` and therefore bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(Box<str>, Box<[u8]>)>);

/// A connection that has logged in and has no place in a pool yet.
pub(crate) struct Opened {
    pub(crate) stream: ServerStream,
    pub(crate) inbound: Buffer,
    pub(crate) card: Card,
    pub(crate) parameters: Parameters,
    pub(crate) facts: Box<[Option<Box<str>>]>,
}

// === impl ServerConn ===

impl ServerConn {
    pub(crate) fn new(opened: Opened, max_statements: usize, place: Place) -> Self {
        let Opened { stream, inbound, card, parameters, facts } = opened;
        let books = Books::new(max_statements);
        Self { stream, inbound, books, verified: 0, card: Arc::new(card), parameters, facts, place, lease: 0 }
    }

    /// The process behind the connection, as it calls itself; zero if it did not say.
    pub fn process_id(&self) -> i32 {
        self.card.process_id
    }

    /// The key that a cancel request for this process must show; empty if none was sent.
    pub fn secret_key(&self) -> &[u8] {
        &self.card.secret_key
    }

    /// Where the connection leads, resolved: a cancel request sent there reaches the same server.
    pub fn peer(&self) -> &Address {
        &self.card.peer
    }

    /// When the server had answered the login. Whatever is asked of it on another connection after this and is answered
    /// there holds for this connection as well, as long as this one answers. It would not from when connecting began: a
    /// server that crashes in between goes back, and lets in who has waited at its door.
    pub fn opened_at(&self) -> Instant {
        self.card.opened_at
    }

    /// The row that the pool's verification returned right after login; empty without one.
    pub fn facts(&self) -> &[Option<Box<str>>] {
        &self.facts
    }

    /// The parameters the server reported, up to date as far as [`Self::parameter_status`] was called.
    ///
    /// Names are ASCII; values are in the connection's `client_encoding`.
    pub fn parameters(&self) -> &[(Box<str>, Box<[u8]>)] {
        &self.parameters.0
    }

    /// One parameter the server reported. `PostgreSQL` reports each under one spelling; case matters.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        self.parameters.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Takes in a `ParameterStatus` message that the borrower has read.
    pub fn parameter_status(&mut self, name: &[u8], value: &[u8]) {
        self.parameters.update(name, value);
    }

    /// Counts a finished transaction.
    pub fn count_transaction(&self) {
        self.card.transactions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The number of the lease it is out on.
    pub(crate) fn lease(&self) -> u64 {
        self.lease
    }

    pub(crate) fn set_lease(&mut self, lease: u64) {
        self.lease = lease;
    }

    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// How long ago it was opened.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.card.opened_at)
    }

    /// Whether its share of `lifetime` is over; never when that is zero.
    pub(crate) fn is_expired(&self, now: Instant, lifetime: Duration) -> bool {
        self.expires_at(lifetime).is_some_and(|expires_at| expires_at <= now)
    }

    /// When its share of `lifetime` is over; never when that is zero.
    pub(crate) fn expires_at(&self, lifetime: Duration) -> Option<Instant> {
        let shortening = (lifetime / JITTER_STEPS).saturating_mul(u32::from(self.place.jitter));
        let lifetime = lifetime.saturating_sub(shortening);
        if lifetime.is_zero() { None } else { self.card.opened_at.checked_add(lifetime) }
    }

    /// Whether the driver has noticed something to read, or the end. Makes no system call if not.
    pub(crate) fn is_suspect(&self) -> bool {
        self.stream.is_readable()
    }

    /// Takes in what an idle connection was sent: parameters and notices are consumed, anything else says that it
    /// must not be lent.
    ///
    /// Makes no system call while the driver has noticed nothing to read.
    pub(crate) fn settle(&mut self) -> Result<(), CloseReason> {
        if self.inbound.is_empty() && !self.is_suspect() { Ok(()) } else { self.take_in() }
    }

    #[cold]
    fn take_in(&mut self) -> Result<(), CloseReason> {
        if !self.inbound.is_empty() {
            self.absorb()?;
        }
        for _ in 0..MAX_IDLE_READS {
            match self.stream.try_fill(&mut self.inbound) {
                Ok(0) => return Err(CloseReason::ServerClosed),
                Ok(_) => {
                    self.absorb()?;
                    buffers::give_back(&mut self.inbound);
                }
                Err(error) => match error.kind() {
                    // Half a message now is half a message in front of the next client's answer.
                    io::ErrorKind::WouldBlock if self.inbound.is_empty() && !self.stream.holds_bytes() => {
                        return Ok(());
                    }
                    io::ErrorKind::WouldBlock => return Err(CloseReason::Protocol),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(CloseReason::Io),
                },
            }
        }
        Err(CloseReason::Protocol)
    }

    /// Consumes the complete messages among those read.
    fn absorb(&mut self) -> Result<(), CloseReason> {
        loop {
            let (frame, len) = match frame::split(self.inbound.filled(), MAX_IDLE_FRAME) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(()),
                Err(_) => return Err(CloseReason::Protocol),
            };
            match frame.tag {
                tag::PARAMETER_STATUS => {
                    let (name, value) =
                        backend::parameter_status(frame.body).map_err(|_| CloseReason::Protocol)?;
                    self.parameters.update(name, value);
                }
                tag::NOTICE_RESPONSE => {}
                // The server sends errors of its own accord only to end a session (57P01 and its like).
                tag::ERROR_RESPONSE => return Err(CloseReason::ServerFatal),
                _ => return Err(CloseReason::Protocol),
            }
            self.inbound.consume(len);
        }
    }

    /// Says good-bye, as far as the socket takes it at once, and closes.
    pub(crate) fn close(self, reason: CloseReason) {
        tracing::debug!(
            peer = %self.card.peer,
            process_id = self.card.process_id,
            reason = reason.as_str(),
            "server connection closed"
        );
        if !reason.is_broken() {
            terminate(self.stream);
        }
    }
}

impl fmt::Debug for ServerConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConn")
            .field("peer", &self.card.peer)
            .field("process_id", &self.card.process_id)
            .field("books", &self.books)
            .field("facts", &self.facts)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

// === impl Card ===

impl Card {
    /// Of a connection that has just answered.
    pub(crate) fn new(route: Route, process_id: i32, secret_key: Box<[u8]>, begun_at: Instant) -> Self {
        let Route { peer, encryption } = route;
        let opened_at = Instant::now();
        let transactions = AtomicU64::new(0);
        Self { peer, encryption, process_id, secret_key, begun_at, opened_at, transactions }
    }
}

// === impl Parameters ===

impl Parameters {
    pub(crate) fn update(&mut self, name: &[u8], value: &[u8]) {
        match self.0.iter_mut().find(|(known, _)| known.as_bytes() == name) {
            Some((_, known)) if **known == *value => {}
            Some((_, known)) => *known = value.into(),
            None => self.0.push((String::from_utf8_lossy(name).into(), value.into())),
        }
    }
}

// === impl Opened ===

impl Opened {
    /// Says good-bye and closes a connection for which there is no place.
    pub(crate) fn close(self) {
        terminate(self.stream);
    }
}

/// Best effort: a server that is not told notices when the socket closes.
fn terminate(mut stream: ServerStream) {
    if let Err(error) = stream.try_write_from(&TERMINATE) {
        tracing::trace!(%error, "could not send Terminate");
    }
}

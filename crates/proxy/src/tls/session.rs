//! One client's TLS: plaintext on one side, the socket on the other.
//!
//! All buffers are lent while bytes are in flight: at rest a session holds its keys and nothing else. What is written
//! counts as written when its records are on the socket, not when they are encrypted. So whoever has nothing left to
//! write has nothing left in here either, and needs no wake-up of its own for it.

use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

use causeway_protocol::buffer::Buffer;
use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use tokio::io::ReadBuf;

use super::{ALPN, TlsInfo, TlsServer};
use crate::socket::{self, BUFFER_LEN, RawSocket};

/// The longest record of TLS 1.2, which is longer than that of 1.3: 2^14 bytes and 2,048 of overhead, behind a header
/// (RFC 5246, 6.2.3).
const RECORD_LEN: usize = 5 + 16 * 1024 + 2048;

/// How much of the plaintext is encrypted at a time: four records.
const BATCH_LEN: usize = BUFFER_LEN;

/// The length of a buffer of outgoing records: a batch, what each of its records adds, and a message of TLS's own.
pub(crate) const OUTGOING_LEN: usize = BATCH_LEN + 4 * 64 + 512;

/// A client's session.
pub(crate) struct TlsSession {
    connection: UnbufferedServerConnection,
    incoming: Incoming,
    /// Records that are not on the socket yet.
    outgoing: Buffer,
    /// How many bytes at the front of what is to be written are in `outgoing` already.
    encrypted: usize,
    /// The client sends nothing more.
    closed: bool,
    /// What the client sent was not TLS, or not ours; nothing can be said to it any more.
    broken: bool,
}

/// A TLS session that did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("the connection broke during the TLS handshake: {0}")]
    Io(#[from] io::Error),
    #[error("the client left during the TLS handshake")]
    Left,
    #[error("TLS handshake failed: {0}")]
    Handshake(#[from] rustls::Error),
    #[error("a client that begins with TLS has to ask for \"postgresql\" by ALPN")]
    NoAlpn,
}

/// Bytes that have arrived and are not complete records yet. They are decrypted where they are.
#[derive(Default)]
struct Incoming {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

// === impl TlsSession ===

impl TlsSession {
    /// A session that begins with what has arrived in `input` already.
    pub(crate) fn new(server: &TlsServer, input: &mut Buffer) -> Result<Self, TlsError> {
        let mut incoming = Incoming::default();
        incoming.take(input);
        Ok(Self {
            connection: UnbufferedServerConnection::new(server.config())?,
            incoming,
            outgoing: Buffer::default(),
            encrypted: 0,
            closed: false,
            broken: false,
        })
    }

    /// Completes the handshake. What the client has sent behind it is appended to `plain`.
    pub(crate) fn poll_handshake(
        &mut self,
        socket: &mut impl RawSocket,
        cx: &mut Context<'_>,
        plain: &mut Buffer,
    ) -> Poll<Result<(), TlsError>> {
        loop {
            if let Err(error) = self.advance(plain) {
                self.tell_why(socket);
                return Poll::Ready(Err(error.into()));
            }
            ready!(self.poll_flush(socket, cx))?;
            if !self.connection.is_handshaking() {
                self.incoming.rest();
                return Poll::Ready(Ok(()));
            }
            if self.closed {
                return Poll::Ready(Err(TlsError::Left));
            }
            match self.poll_receive(socket, cx, BUFFER_LEN)? {
                Poll::Ready(0) => return Poll::Ready(Err(TlsError::Left)),
                Poll::Ready(_) => {}
                Poll::Pending => {
                    self.incoming.rest();
                    return Poll::Pending;
                }
            }
        }
    }

    /// What was agreed; `None` before that.
    pub(crate) fn info(&self) -> Option<TlsInfo> {
        if self.connection.is_handshaking() { None } else { TlsInfo::of(&self.connection) }
    }

    /// Whether the client named the protocol inside.
    pub(crate) fn is_postgresql(&self) -> bool {
        self.connection.alpn_protocol() == Some(ALPN)
    }

    /// Whether an earlier session was taken up again.
    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// As [`socket::Socket::poll_fill`]. The end of the stream is zero, whether the client announced it or not: every
    /// message has a length, so that one cut short is known for that.
    pub(crate) fn poll_fill(
        &mut self,
        socket: &mut impl RawSocket,
        cx: &mut Context<'_>,
        plain: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        self.poll_answer(socket, cx)?;
        let before = plain.len();
        let room = if plain.capacity() == 0 { BUFFER_LEN } else { plain.capacity() - before };
        let filled = loop {
            if self.broken {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if !self.incoming.is_empty()
                && let Err(error) = self.advance(plain)
            {
                self.tell_why(socket);
                // What came ahead of it counts.
                if plain.len() == before {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
            }
            if plain.len() > before || self.closed {
                break Ok(plain.len() - before);
            }
            match self.poll_receive(socket, cx, room.max(RECORD_LEN)) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(end) => break end,
                Poll::Pending => {
                    self.incoming.rest();
                    return Poll::Pending;
                }
            }
        };
        self.incoming.rest();
        self.poll_answer(socket, cx)?;
        Poll::Ready(filled)
    }

    /// Encrypts `bytes` and has `write` take the records. Gives how many of `bytes` are on the socket: they are
    /// forgotten in here. The others, of which some may be encrypted already, are to be offered again, first thing.
    pub(crate) fn send(
        &mut self,
        bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut sent = 0;
        loop {
            while !self.outgoing.is_empty() {
                match write(self.outgoing.filled()) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(n)) => self.outgoing.consume(n),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending if sent > 0 => return Poll::Ready(Ok(sent)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            sent += std::mem::take(&mut self.encrypted);
            let rest = bytes.get(sent..).filter(|rest| !rest.is_empty());
            let Some(rest) = rest else { break };
            self.encrypted = self.encrypt(rest)?;
        }
        socket::give_back_outgoing(&mut self.outgoing);
        Poll::Ready(Ok(sent))
    }

    /// Announces the end of the stream, if the socket takes that at once.
    pub(crate) fn say_goodbye(&mut self, socket: &impl RawSocket) {
        // Nothing can follow the half of a record.
        if self.broken || self.connection.is_handshaking() || !self.outgoing.is_empty() {
            return;
        }
        let mut alert = [0; 64];
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(self.incoming.filled());
            let written = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(&mut alert),
                Ok(ConnectionState::PeerClosed) => {
                    self.incoming.discard(discard);
                    continue;
                }
                _ => return,
            };
            if let Some(alert) = written.ok().and_then(|len| alert.get(..len)) {
                // A client that is gone has closed its end already.
                drop(socket.try_write(alert));
            }
            return;
        }
    }

    /// Decrypts every complete record into `plain`, and takes up what the client asks of TLS itself.
    fn advance(&mut self, plain: &mut Buffer) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(self.incoming.filled());
            let at_rest = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        append(plain, record?.payload);
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, &mut self.outgoing)?;
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // Not before anything else: `outgoing` keeps the order.
                    data.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.closed = true;
                    false
                }
                // All that is complete has been looked at.
                Ok(_) => true,
                Err(error) => {
                    self.broken = true;
                    self.incoming.discard(discard);
                    return Err(error);
                }
            };
            self.incoming.discard(discard);
            if at_rest {
                return Ok(());
            }
        }
    }

    /// Encrypts the beginning of `plain` into `outgoing`, which is empty; gives how much that was.
    fn encrypt(&mut self, plain: &[u8]) -> io::Result<usize> {
        let batch = plain.get(..BATCH_LEN).unwrap_or(plain);
        if self.broken {
            return Err(io::ErrorKind::InvalidData.into());
        }
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(self.incoming.filled());
            let done = match state.map_err(io::Error::other)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let mut encrypted =
                        traffic.encrypt(batch, socket::room_for_records(&mut self.outgoing, 1));
                    if let Err(EncryptError::InsufficientSize(size)) = &encrypted {
                        let room = socket::room_for_records(&mut self.outgoing, size.required_size);
                        encrypted = traffic.encrypt(batch, room);
                    }
                    self.outgoing.commit(encrypted.map_err(io::Error::other)?);
                    true
                }
                ConnectionState::EncodeTlsData(data) => {
                    encode(data, &mut self.outgoing).map_err(io::Error::other)?;
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::PeerClosed => {
                    self.closed = true;
                    false
                }
                // The handshake has not come to its end, or both sides have said goodbye.
                _ => return Err(io::ErrorKind::NotConnected.into()),
            };
            self.incoming.discard(discard);
            if done {
                return Ok(batch.len());
            }
        }
    }

    /// Receives once, so that at most `limit` bytes are at hand.
    fn poll_receive(
        &mut self,
        socket: &mut impl RawSocket,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        // Taken on the chance that there is something, and given back at rest.
        if self.incoming.storage.is_empty() {
            self.incoming.storage = socket::lend();
        }
        let room = self.incoming.room(limit);
        if room.is_empty() {
            let problem = "a message of the TLS handshake is too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        let mut space = ReadBuf::new(room);
        ready!(socket.poll_read_into(cx, &mut space))?;
        let received = space.filled().len();
        self.incoming.end += received;
        Poll::Ready(Ok(received))
    }

    /// Writes what TLS itself answers, which must not wait for what the server does. It is left to [`Self::send`] where
    /// that is under way: whoever calls it has to be told when it is done.
    fn poll_answer(&mut self, socket: &mut impl RawSocket, cx: &mut Context<'_>) -> io::Result<()> {
        match self.encrypted {
            0 => match self.poll_flush(socket, cx) {
                Poll::Ready(written) => written,
                Poll::Pending => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn poll_flush(&mut self, socket: &mut impl RawSocket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            match ready!(socket.poll_write_from(cx, self.outgoing.filled()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.outgoing.consume(n),
            }
        }
        socket::give_back_outgoing(&mut self.outgoing);
        Poll::Ready(Ok(()))
    }

    /// Sends the alert that goes with an error, and what was to go ahead of it, if the socket takes that at once.
    fn tell_why(&mut self, socket: &impl RawSocket) {
        loop {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(self.incoming.filled());
            let Ok(ConnectionState::EncodeTlsData(data)) = state else { break };
            let ahead = self.outgoing.len();
            // The connection is not asked again once it has said that: it would go on with what made it fail.
            if encode(data, &mut self.outgoing).is_err() || is_alert(self.outgoing.filled().get(ahead..)) {
                break;
            }
        }
        if self.encrypted == 0
            && !self.outgoing.is_empty()
            && let Ok(written) = socket.try_write(self.outgoing.filled())
        {
            self.outgoing.consume(written);
            socket::give_back_outgoing(&mut self.outgoing);
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("info", &self.info()).finish_non_exhaustive()
    }
}

/// Appends decrypted bytes. A full buffer holds the beginning of a large frame: doubled, it grows few times for it.
fn append(plain: &mut Buffer, bytes: &[u8]) {
    if plain.capacity() == 0 {
        *plain = Buffer::with_storage(socket::lend());
    }
    if plain.capacity() - plain.len() < bytes.len() {
        plain.unfilled(plain.len().max(bytes.len()));
    }
    plain.extend(bytes);
}

fn encode<T>(mut data: EncodeTlsData<'_, T>, outgoing: &mut Buffer) -> Result<(), rustls::Error> {
    let mut encoded = data.encode(socket::room_for_records(outgoing, 1));
    if let Err(EncodeError::InsufficientSize(size)) = &encoded {
        encoded = data.encode(socket::room_for_records(outgoing, size.required_size));
    }
    outgoing.commit(encoded.map_err(|error| rustls::Error::General(error.to_string()))?);
    Ok(())
}

/// Whether a record that TLS itself has made holds an alert: by its type, or, where TLS 1.3 hides that, by its length. An
/// alert has two bytes, and no message of the handshake so few.
fn is_alert(record: Option<&[u8]>) -> bool {
    matches!(record, Some([0x15, ..] | [0x17, _, _, 0, 19, ..]))
}

// === impl Incoming ===

impl Incoming {
    /// Everything in `input`, which is left without storage.
    fn take(&mut self, input: &mut Buffer) {
        let arrived = input.filled();
        if arrived.is_empty() {
            return;
        }
        self.storage = socket::lend();
        if self.storage.len() < arrived.len() {
            self.storage.resize(arrived.len(), 0);
        }
        self.end = arrived.len();
        self.filled().copy_from_slice(arrived);
        input.consume(arrived.len());
        socket::give_back(input);
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Everything, to be decrypted where it is.
    fn filled(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Room behind what is at hand; less if that makes more than `limit`.
    fn room(&mut self, limit: usize) -> &mut [u8] {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let limit = limit.min(self.storage.len()).max(self.end);
        self.storage.get_mut(self.end..limit).unwrap_or_default()
    }

    fn discard(&mut self, n: usize) {
        self.start = self.start.saturating_add(n).min(self.end);
    }

    /// Gives the storage back if nothing is in it.
    fn rest(&mut self) {
        if self.is_empty() && !self.storage.is_empty() {
            (self.start, self.end) = (0, 0);
            socket::put_back(std::mem::take(&mut self.storage));
        }
    }
}

#[cfg(test)]
mod tests;

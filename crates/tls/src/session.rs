//! TLS with one peer, client or server: plaintext on one side, the socket on the other.
//!
//! All buffers are lent while bytes are in flight: at rest a session holds its keys and nothing else. What is written
//! counts as written when its records are on the socket, not when they are encrypted. So whoever has nothing left to
//! write has nothing left in here either, and needs no wake-up of its own for it.

use std::fmt;
use std::io;
use std::ops::DerefMut;
use std::task::{Context, Poll, ready};

use causeway_protocol::buffer::Buffer;
use rustls::HandshakeKind;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus,
};
use tokio::io::ReadBuf;

use crate::ALPN;
use crate::buffers::{self, BUFFER_LEN};
use crate::client::TlsClient;
use crate::error::TlsError;
use crate::incoming::Incoming;
use crate::server::{TlsInfo, TlsServer};
use crate::socket::RawSocket;
use crate::x509;

/// The longest record of TLS 1.2, which is longer than that of 1.3: 2^14 bytes and 2,048 of overhead, behind a header
/// (RFC 5246, 6.2.3).
const RECORD_LEN: usize = 5 + 16 * 1024 + 2048;

/// How much of the plaintext is encrypted at a time: four records.
const BATCH_LEN: usize = BUFFER_LEN;

/// One side of the TLS library, without buffers of its own.
pub trait Side: DerefMut<Target = UnbufferedConnectionCommon<Self::Data>> {
    /// What the library keeps for this side.
    type Data;

    /// Looks at the records in `incoming`.
    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

/// The session of a peer that is a client.
pub type ServerSession = TlsSession<UnbufferedServerConnection>;

/// The session of a peer that is a server.
pub type ClientSession = TlsSession<UnbufferedClientConnection>;

/// A session with one peer.
pub struct TlsSession<C> {
    connection: C,
    incoming: Incoming,
    /// Records that are not on the socket yet.
    outgoing: Buffer,
    /// How many bytes at the front of what is to be written are in `outgoing` already.
    encrypted: usize,
    /// The peer sends nothing more.
    closed: bool,
    /// What the peer sent was not TLS, or not ours; nothing can be said to it any more.
    broken: bool,
}

// === impl Side ===

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

// === impl TlsSession ===

impl ServerSession {
    /// A session that begins with what has arrived in `input` already.
    ///
    /// # Errors
    ///
    /// When the library does not take the configuration.
    pub fn new(server: &TlsServer, input: &mut Buffer) -> Result<Self, TlsError> {
        let mut session = Self::over(UnbufferedServerConnection::new(server.config())?);
        session.incoming.take(input);
        Ok(session)
    }
}

impl ClientSession {
    /// A session with the server that is called `host`: a name or an address.
    pub(crate) fn with_server(client: &TlsClient, host: &str) -> Result<Self, TlsError> {
        // The scope of an address is this host's own affair.
        let name = host.split_once('%').map_or(host, |(address, _scope)| address).to_owned();
        let name = ServerName::try_from(name).map_err(|_| TlsError::Name(host.into()))?;
        Ok(Self::over(UnbufferedClientConnection::new(client.config(), name)?))
    }

    /// What binds a SCRAM exchange to this session (`tls-server-end-point`, RFC 5929); `None` for a certificate whose
    /// signature has no one hash.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        x509::end_point(self.peer_certificate()?)
    }
}

impl<C: Side> TlsSession<C> {
    fn over(connection: C) -> Self {
        Self {
            connection,
            incoming: Incoming::default(),
            outgoing: Buffer::default(),
            encrypted: 0,
            closed: false,
            broken: false,
        }
    }

    /// Completes the handshake. What the peer has sent behind it is appended to `plain`.
    ///
    /// # Errors
    ///
    /// When there will be no session; the socket is of no more use.
    pub fn poll_handshake(
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
    pub fn info(&self) -> Option<TlsInfo> {
        if self.connection.is_handshaking() { None } else { TlsInfo::of(&self.connection) }
    }

    /// Whether the two have named the protocol inside.
    pub fn is_postgresql(&self) -> bool {
        self.connection.alpn_protocol() == Some(ALPN)
    }

    /// Whether an earlier session was taken up again.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The certificate that the peer has shown as its own.
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// Whether bytes that have arrived wait in here for the rest of their record.
    pub fn holds_bytes(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Reads once into `plain`, which has storage afterwards only if there was something to read. Gives the number of
    /// bytes; zero is the end of the stream, whether the peer announced it or not: every message has a length, so that
    /// one cut short is known for that.
    ///
    /// # Errors
    ///
    /// The system's, and `InvalidData` for what is not TLS or not the peer's.
    pub fn poll_fill(
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
    ///
    /// # Errors
    ///
    /// Those of `write`, and the library's.
    pub fn send(
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
        buffers::give_back_outgoing(&mut self.outgoing);
        Poll::Ready(Ok(sent))
    }

    /// Announces the end of the stream, if the socket takes that at once.
    pub fn say_goodbye(&mut self, socket: &impl RawSocket) {
        // Nothing can follow the half of a record.
        if self.broken || self.connection.is_handshaking() || !self.outgoing.is_empty() {
            return;
        }
        let mut alert = [0; 64];
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process(self.incoming.filled());
            let written = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(&mut alert),
                Ok(ConnectionState::PeerClosed) => {
                    self.incoming.discard(discard);
                    continue;
                }
                _ => return,
            };
            if let Some(alert) = written.ok().and_then(|len| alert.get(..len)) {
                // A peer that is gone has closed its end already.
                drop(socket.try_write(alert));
            }
            return;
        }
    }

    /// Decrypts every complete record into `plain`, and takes up what the peer asks of TLS itself.
    fn advance(&mut self, plain: &mut Buffer) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process(self.incoming.filled());
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
            let UnbufferedStatus { discard, state } = self.connection.process(self.incoming.filled());
            let done = match state.map_err(io::Error::other)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let mut encrypted =
                        traffic.encrypt(batch, buffers::room_for_records(&mut self.outgoing, 1));
                    if let Err(EncryptError::InsufficientSize(size)) = &encrypted {
                        let room = buffers::room_for_records(&mut self.outgoing, size.required_size);
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
            self.incoming.storage = buffers::lend();
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
    pub(crate) fn poll_answer(
        &mut self,
        socket: &mut impl RawSocket,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
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
        buffers::give_back_outgoing(&mut self.outgoing);
        Poll::Ready(Ok(()))
    }

    /// Sends the alert that goes with an error, and what was to go ahead of it, if the socket takes that at once.
    fn tell_why(&mut self, socket: &impl RawSocket) {
        loop {
            let UnbufferedStatus { state, .. } = self.connection.process(self.incoming.filled());
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
            buffers::give_back_outgoing(&mut self.outgoing);
        }
    }
}

impl<C: Side> fmt::Debug for TlsSession<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("info", &self.info()).finish_non_exhaustive()
    }
}

/// Appends decrypted bytes. A full buffer holds the beginning of a large frame: doubled, it grows few times for it.
fn append(plain: &mut Buffer, bytes: &[u8]) {
    if plain.capacity() == 0 {
        *plain = Buffer::with_storage(buffers::lend());
    }
    if plain.capacity() - plain.len() < bytes.len() {
        plain.unfilled(plain.len().max(bytes.len()));
    }
    plain.extend(bytes);
}

fn encode<T>(mut data: EncodeTlsData<'_, T>, outgoing: &mut Buffer) -> Result<(), rustls::Error> {
    let mut encoded = data.encode(buffers::room_for_records(outgoing, 1));
    if let Err(EncodeError::InsufficientSize(size)) = &encoded {
        encoded = data.encode(buffers::room_for_records(outgoing, size.required_size));
    }
    outgoing.commit(encoded.map_err(|error| rustls::Error::General(error.to_string()))?);
    Ok(())
}

/// Whether a record that TLS itself has made holds an alert: by its type, or, where TLS 1.3 hides that, by its length. An
/// alert has two bytes, and no message of the handshake so few.
fn is_alert(record: Option<&[u8]>) -> bool {
    matches!(record, Some([0x15, ..] | [0x17, _, _, 0, 19, ..]))
}

#[cfg(test)]
mod tests;

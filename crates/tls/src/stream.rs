//! A socket, and the TLS that has begun on it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use causeway_protocol::buffer::Buffer;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use tokio::io::ReadBuf;
use tokio::net::{TcpStream, UnixStream};

use crate::client::{Attempt, TlsClient};
use crate::error::TlsError;
use crate::server::{TlsInfo, TlsServer};
use crate::session::{ClientSession, ServerSession, Side, TlsSession};
use crate::socket::{PlainSocket, RawSocket, Socket, Unwaking};

/// A socket, and the TLS that has begun on it.
#[derive(Debug)]
pub struct Stream<C: Side> {
    socket: PlainSocket,
    /// Boxed: a connection without TLS pays for a pointer.
    tls: Option<Box<TlsSession<C>>>,
}

/// `SSLRequest`: its length, and the number that no version of the protocol has.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Leads to a client.
pub type ClientStream = Stream<UnbufferedServerConnection>;

/// Leads to a server.
pub type ServerStream = Stream<UnbufferedClientConnection>;

// === impl Stream ===

impl<C: Side> Stream<C> {
    /// Over TCP.
    pub fn over_tcp(stream: TcpStream) -> Self {
        Self { socket: PlainSocket::Tcp(stream), tls: None }
    }

    /// Over a Unix socket.
    pub fn over_unix(stream: UnixStream) -> Self {
        Self { socket: PlainSocket::Unix(stream), tls: None }
    }

    /// The socket beneath.
    pub fn socket(&self) -> &PlainSocket {
        &self.socket
    }

    /// Whether others than this host's kernel can see the bytes. PostgreSQL has no TLS on Unix sockets
    /// (`ProcessStartupPacket` in `src/backend/tcop/backend_startup.c`).
    pub fn is_exposed(&self) -> bool {
        matches!(self.socket, PlainSocket::Tcp(_)) && self.tls.is_none()
    }

    /// The session, if TLS has begun.
    pub fn session(&self) -> Option<&TlsSession<C>> {
        self.tls.as_deref()
    }

    /// What was agreed with the peer, if TLS has begun.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.tls.as_ref().and_then(|session| session.info())
    }

    /// The peer's address; `None` over a Unix socket, or if it is gone.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            PlainSocket::Tcp(stream) => stream.peer_addr().ok(),
            PlainSocket::Unix(_) => None,
        }
    }

    /// Whether something has arrived, be it the end of the stream. Makes no system call while the driver has noticed
    /// nothing.
    pub fn is_readable(&self) -> bool {
        self.socket.is_readable() || self.holds_bytes()
    }

    /// Whether a part of a TLS record has arrived, of which nothing can be read yet.
    pub fn holds_bytes(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.holds_bytes())
    }

    /// As [`Socket::poll_fill`], but nothing is woken when more arrives.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when nothing is at hand; otherwise the system's.
    pub fn try_fill(&mut self, buffer: &mut Buffer) -> io::Result<usize> {
        let mut socket = Unwaking(&self.socket);
        let mut cx = Context::from_waker(Waker::noop());
        let filled = match &mut self.tls {
            None => socket.poll_fill(&mut cx, buffer),
            Some(session) => session.poll_fill(&mut socket, &mut cx, buffer),
        };
        match filled {
            Poll::Ready(filled) => filled,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads at least one byte; zero bytes are the end of the stream. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The system's, and `InvalidData` for what is not TLS.
    pub async fn fill(&mut self, buffer: &mut Buffer) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(cx, buffer)).await
    }

    /// Writes all of `bytes`. Dropping the future leaves open how much was written.
    ///
    /// # Errors
    ///
    /// The system's.
    pub async fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| self.poll_drain(cx, bytes)).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

impl ClientStream {
    /// Takes the server's part in a TLS handshake, of which the beginning may be in `input` already; what the client
    /// sent behind that is there afterwards. Gives the session. Dropping the future, or an error, leaves a stream that
    /// can't be used.
    ///
    /// # Errors
    ///
    /// When there is no session; the client was told by an alert if that was possible at once.
    pub async fn start_tls(
        &mut self,
        server: &TlsServer,
        input: &mut Buffer,
    ) -> Result<&ServerSession, TlsError> {
        let session = self.tls.insert(Box::new(ServerSession::new(server, input)?));
        poll_fn(|cx| session.poll_handshake(&mut self.socket, cx, input)).await?;
        Ok(session)
    }
}

impl ServerStream {
    /// Begins TLS with the server that is called `host`, as far as `attempt` says so. Dropping the future, or an error,
    /// leaves a stream that can't be used.
    ///
    /// # Errors
    ///
    /// When there is no TLS and there has to be, or the server is not whom `client` believes.
    pub async fn negotiate(
        &mut self,
        client: &TlsClient,
        host: &str,
        attempt: Attempt,
    ) -> Result<(), TlsError> {
        if attempt == Attempt::Plain {
            return Ok(());
        }
        self.send_all(&SSL_REQUEST).await?;
        // One byte and no more: what follows is TLS, whoever sent it (CVE-2021-23222).
        let mut answer = [0];
        let mut space = ReadBuf::new(&mut answer);
        poll_fn(|cx| self.socket.poll_read_into(cx, &mut space)).await?;
        match space.filled() {
            [b'S'] => self.start_tls(client, host).await,
            [b'N'] if attempt == Attempt::IfOffered => Ok(()),
            [b'N'] => Err(TlsError::NotOffered),
            [] => Err(TlsError::Left),
            _ => Err(TlsError::Answer),
        }
    }

    /// Takes the client's part in a TLS handshake with the server that is called `host`. Nothing may have been read
    /// that was sent behind the server's consent: whatever comes in clear text then is no handshake. Dropping the
    /// future, or an error, leaves a stream that can't be used.
    ///
    /// # Errors
    ///
    /// When there is no session, or the server is not whom `client` believes.
    pub async fn start_tls(&mut self, client: &TlsClient, host: &str) -> Result<(), TlsError> {
        let session = self.tls.insert(Box::new(ClientSession::with_server(client, host)?));
        // A server speaks first only when it is asked to.
        let mut plain = Buffer::default();
        poll_fn(|cx| session.poll_handshake(&mut self.socket, cx, &mut plain)).await?;
        if plain.is_empty() { Ok(()) } else { Err(TlsError::Unasked) }
    }
}

impl<C: Side> Socket for Stream<C> {
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match &mut self.tls {
            None => self.socket.poll_fill(cx, buffer),
            Some(session) => session.poll_fill(&mut self.socket, cx, buffer),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.tls {
            None => self.socket.poll_drain(cx, bytes),
            Some(session) => session.send(bytes, |records| self.socket.poll_write_from(cx, records)),
        }
    }

    fn try_write_from(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let socket = &self.socket;
        match &mut self.tls {
            None => socket.try_write(bytes),
            Some(session) => {
                let sent = session.send(bytes, |records| match socket.try_write(records) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                    written => Poll::Ready(written),
                });
                match sent {
                    Poll::Ready(sent) => sent,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

impl<C: Side> Drop for Stream<C> {
    /// Every way out passes here, so that no peer takes the end of its stream for an attack.
    fn drop(&mut self) {
        if let Some(session) = &mut self.tls {
            session.say_goodbye(&self.socket);
        }
    }
}

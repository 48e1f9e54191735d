//! The client's socket, and the buffers that are lent to connections while bytes are in flight.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_pool::ServerStream;
use causeway_protocol::buffer::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::tls::session::{OUTGOING_LEN, TlsError, TlsSession};
use crate::tls::{TlsInfo, TlsServer};

/// The size of a lent buffer: several of the 8 KiB pieces in which a server writes, so that one that runs ahead is
/// read in fewer calls.
pub(crate) const BUFFER_LEN: usize = 64 * 1024;

/// How many unused buffers a thread keeps.
const KEPT_BUFFERS: usize = 64;

/// How many unused buffers for TLS records a thread keeps: they are held only from one write to the next.
const KEPT_OUTGOING: usize = 16;

thread_local! {
    /// Buffers that no connection of this thread uses; a connection without data in flight holds none.
    static UNUSED_BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// The same for TLS records on their way out, which are longer than what they hold.
    static UNUSED_OUTGOING: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A client's socket, and the TLS that it has begun.
#[derive(Debug)]
pub(crate) struct ClientStream {
    socket: ClientSocket,
    /// Boxed: a client without TLS pays for a pointer.
    tls: Option<Box<TlsSession>>,
}

#[derive(Debug)]
enum ClientSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket as the kernel has it.
pub(crate) trait RawSocket {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Writes what the socket takes at once; nothing is woken when it takes more.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// A stream of the protocol's bytes, read into a lent buffer.
pub(crate) trait Socket {
    /// Reads once into `buffer`, which has storage afterwards only if there was something to read. Gives the number of
    /// bytes; zero is the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>>;

    /// Writes as much of `bytes` as the socket takes at once; gives how much that was. The rest has to be offered
    /// again, first thing: TLS may have encrypted some of it already.
    fn poll_drain(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// As [`Self::poll_drain`], but nothing is woken when the socket takes more.
    fn try_write_from(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// A buffer's storage from this thread's store.
pub(crate) fn lend() -> Vec<u8> {
    UNUSED_BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_LEN])
}

/// Gives the storage of an empty buffer back.
pub(crate) fn give_back(buffer: &mut Buffer) {
    if let Some(storage) = buffer.take_storage() {
        put_back(storage);
    }
}

/// Takes storage into this thread's store.
pub(crate) fn put_back(storage: Vec<u8>) {
    // One that has grown for a large message is not worth keeping.
    if storage.len() == BUFFER_LEN {
        UNUSED_BUFFERS.with_borrow_mut(|unused| keep(unused, storage, KEPT_BUFFERS));
    }
}

/// Room for `at_least` more bytes of TLS records, with storage from this thread's store.
pub(crate) fn room_for_records(outgoing: &mut Buffer, at_least: usize) -> &mut [u8] {
    if outgoing.capacity() == 0 {
        let storage = UNUSED_OUTGOING.with_borrow_mut(Vec::pop);
        *outgoing = Buffer::with_storage(storage.unwrap_or_else(|| vec![0; OUTGOING_LEN]));
    }
    outgoing.unfilled(at_least)
}

/// As [`give_back`], for TLS records.
pub(crate) fn give_back_outgoing(outgoing: &mut Buffer) {
    if let Some(storage) = outgoing.take_storage().filter(|storage| storage.len() == OUTGOING_LEN) {
        UNUSED_OUTGOING.with_borrow_mut(|unused| keep(unused, storage, KEPT_OUTGOING));
    }
}

fn keep(unused: &mut Vec<Vec<u8>>, storage: Vec<u8>, most: usize) {
    if unused.len() < most {
        unused.push(storage);
    }
}

// === impl Socket ===

impl<S: RawSocket> Socket for S {
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let fresh = buffer.capacity() == 0;
        if fresh {
            *buffer = Buffer::with_storage(lend());
        }
        // A full buffer holds the beginning of a large frame: doubled, it takes few reads to get the rest.
        let full = buffer.len() == buffer.capacity();
        let mut space = ReadBuf::new(buffer.unfilled(if full { buffer.len() } else { 1 }));
        let read = self.poll_read_into(cx, &mut space).map_ok(|()| space.filled().len());
        match read {
            Poll::Ready(Ok(n)) => buffer.commit(n),
            // Taken on the chance that there was something: as cheap as asking first.
            Poll::Pending if fresh => give_back(buffer),
            _ => {}
        }
        read
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Nearly always the socket takes all at once, and then nobody need be woken.
        let mut written = self.try_write(bytes).unwrap_or(0);
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.poll_write_from(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => written += n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if written > 0 => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn try_write_from(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

// === impl ClientStream ===

impl ClientStream {
    pub(crate) fn over_tcp(stream: TcpStream) -> Self {
        Self { socket: ClientSocket::Tcp(stream), tls: None }
    }

    pub(crate) fn over_unix(stream: UnixStream) -> Self {
        Self { socket: ClientSocket::Unix(stream), tls: None }
    }

    /// Whether others than this host's kernel can see the bytes. PostgreSQL has no TLS on Unix sockets
    /// (`ProcessStartupPacket` in `src/backend/tcop/backend_startup.c`).
    pub(crate) fn is_exposed(&self) -> bool {
        matches!(self.socket, ClientSocket::Tcp(_)) && self.tls.is_none()
    }

    /// What was agreed with the client, if it has begun TLS.
    pub(crate) fn tls(&self) -> Option<TlsInfo> {
        self.tls.as_ref().and_then(|session| session.info())
    }

    /// Takes the client's part in a TLS handshake, of which the beginning may be in `input` already; what it sent behind
    /// that is there afterwards. Gives the session. Dropping the future, or an error, leaves a stream that can't be
    /// used.
    pub(crate) async fn start_tls(
        &mut self,
        server: &TlsServer,
        input: &mut Buffer,
    ) -> Result<&TlsSession, TlsError> {
        let session = self.tls.insert(Box::new(TlsSession::new(server, input)?));
        poll_fn(|cx| session.poll_handshake(&mut self.socket, cx, input)).await?;
        Ok(session)
    }
}

impl Socket for ClientStream {
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

impl Drop for ClientStream {
    /// Every way out passes here, so that no client takes the end of its stream for an attack.
    fn drop(&mut self) {
        if let Some(session) = &mut self.tls {
            session.say_goodbye(&self.socket);
        }
    }
}

// === impl ClientSocket ===

impl RawSocket for ClientSocket {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

// === impl ServerStream ===

impl RawSocket for ServerStream {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Self::poll_read(self, cx, buffer)
    }

    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, cx, bytes)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }
}

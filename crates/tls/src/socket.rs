//! Sockets as the kernel has them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_protocol::buffer::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::buffers::{give_back, lend};

/// A socket as the kernel has it.
pub trait RawSocket {
    /// Reads once into `buffer`; registers the task when nothing is at hand.
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Writes from `bytes`; registers the task when the socket takes nothing.
    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Writes what the socket takes at once; nothing is woken when it takes more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when it takes nothing; otherwise the system's.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// A stream of the protocol's bytes, read into a lent buffer.
pub trait Socket {
    /// Reads once into `buffer`, which has storage afterwards only if there was something to read. Gives the number of
    /// bytes; zero is the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>>;

    /// Writes as much of `bytes` as the socket takes at once; gives how much that was. The rest has to be offered
    /// again, first thing: TLS may have encrypted some of it already.
    fn poll_drain(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// As [`Self::poll_drain`], but nothing is woken when the socket takes more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when it takes nothing; otherwise the system's.
    fn try_write_from(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// A connected socket of either kind.
#[derive(Debug)]
pub enum PlainSocket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// A socket whose reads wake nobody.
pub(crate) struct Unwaking<'a>(pub(crate) &'a PlainSocket);

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

// === impl PlainSocket ===

impl PlainSocket {
    /// Whether the driver has noticed something to read, or the end. Makes no system call if not.
    pub(crate) fn is_readable(&self) -> bool {
        match self.try_read(&mut []) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }
}

impl RawSocket for PlainSocket {
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

// === impl Unwaking ===

impl RawSocket for Unwaking<'_> {
    fn poll_read_into(&mut self, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.0.try_read(buffer.initialize_unfilled());
        let read = pending(read)?;
        read.map(|n| {
            buffer.advance(n);
            Ok(())
        })
    }

    fn poll_write_from(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pending(self.0.try_write(bytes))
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }
}

fn pending(done: io::Result<usize>) -> Poll<io::Result<usize>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

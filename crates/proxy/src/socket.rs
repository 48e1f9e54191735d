//! The client's socket, and the buffers that are lent to connections while bytes are in flight.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_pool::ServerStream;
use causeway_protocol::buffer::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The size of a lent buffer: several of the 8 KiB pieces in which a server writes, so that one that runs ahead is
/// read in fewer calls.
pub(crate) const BUFFER_LEN: usize = 64 * 1024;

/// How many unused buffers a thread keeps.
const KEPT_BUFFERS: usize = 64;

thread_local! {
    /// Buffers that no connection of this thread uses; a connection without data in flight holds none.
    static UNUSED_BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A client's socket.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that bytes can be read from into a lent buffer.
pub(crate) trait Socket {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Writes what the socket takes at once; nothing is woken when it takes more.
    fn try_write_from(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Reads once into `buffer`, which has storage afterwards only if there was something to read. Gives the number of
    /// bytes; zero is the end of the stream.
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

    /// Writes as much of `bytes` as the socket takes at once; gives how much that was.
    fn poll_drain(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut written = 0;
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
}

/// A buffer's storage from this thread's store.
fn lend() -> Vec<u8> {
    UNUSED_BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_LEN])
}

/// Gives the storage of an empty buffer back.
pub(crate) fn give_back(buffer: &mut Buffer) {
    let Some(storage) = buffer.take_storage() else { return };
    // One that has grown for a large message is not worth keeping.
    if storage.len() == BUFFER_LEN {
        UNUSED_BUFFERS.with_borrow_mut(|unused| {
            if unused.len() < KEPT_BUFFERS {
                unused.push(storage);
            }
        });
    }
}

// === impl ClientStream ===

impl Socket for ClientStream {
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

    fn try_write_from(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

// === impl ServerStream ===

impl Socket for ServerStream {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Self::poll_read(self, cx, buffer)
    }

    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, cx, bytes)
    }

    fn try_write_from(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

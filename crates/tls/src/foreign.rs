//! TLS over a stream that another library owns.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use causeway_protocol::buffer::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffers;
use crate::client::TlsClient;
use crate::error::TlsError;
use crate::session::ClientSession;
use crate::socket::RawSocket;

/// The client's end of TLS over any stream of bytes.
///
/// As the contract of [`AsyncWrite`] has it, bytes that were not taken are to be offered again, first thing.
pub struct ForeignStream<S> {
    inner: Raw<S>,
    session: ClientSession,
    /// Decrypted, and not read yet.
    plain: Buffer,
}

struct Raw<S>(S);

// === impl ForeignStream ===

impl<S: AsyncRead + AsyncWrite + Unpin> ForeignStream<S> {
    /// Takes the client's part in a TLS handshake with the server that is called `host`. Dropping the future closes
    /// the stream.
    ///
    /// # Errors
    ///
    /// When there is no session, or the server is not whom `client` believes.
    pub async fn connect(client: &TlsClient, host: &str, inner: S) -> Result<Self, TlsError> {
        let session = ClientSession::with_server(client, host)?;
        let mut stream = Self { inner: Raw(inner), session, plain: Buffer::default() };
        poll_fn(|cx| stream.session.poll_handshake(&mut stream.inner, cx, &mut stream.plain)).await?;
        if stream.plain.is_empty() { Ok(stream) } else { Err(TlsError::Unasked) }
    }

    /// The session.
    pub fn session(&self) -> &ClientSession {
        &self.session
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ForeignStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, session, plain } = self.get_mut();
        if plain.is_empty() && ready!(session.poll_fill(inner, cx, plain))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let taken = plain.len().min(buffer.remaining());
        buffer.put_slice(plain.filled().get(..taken).unwrap_or_default());
        plain.consume(taken);
        buffers::give_back(plain);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ForeignStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { inner, session, .. } = self.get_mut();
        session.send(bytes, |records| inner.poll_write_from(cx, records))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { inner, session, .. } = self.get_mut();
        session.poll_answer(inner, cx)?;
        Pin::new(&mut inner.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner.0).poll_shutdown(cx)
    }
}

impl<S> fmt::Debug for ForeignStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignStream").field("session", &self.session).finish_non_exhaustive()
    }
}

// === impl Raw ===

impl<S: AsyncRead + AsyncWrite + Unpin> RawSocket for Raw<S> {
    fn poll_read_into(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }

    fn poll_write_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    /// It has no such thing; alerts are a courtesy.
    fn try_write(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

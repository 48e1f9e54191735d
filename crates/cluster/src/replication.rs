//! A stream that asks for a replication connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Passes everything on, and adds to the start-up packet what the client library has no word for: a session of a
/// `walsender`, which answers replication commands beside SQL (protocol, "Streaming Replication Protocol").
#[derive(Debug)]
pub(crate) struct Introduced<S> {
    inner: S,
    /// What the start-up packet has become; it is sent ahead of everything else.
    packet: Option<Vec<u8>>,
    sent: usize,
}

const PARAMETER: &[u8] = b"replication\0database\0";
/// Length and protocol version.
const HEADER_LEN: usize = 8;

// === impl Introduced ===

impl<S> Introduced<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, packet: None, sent: 0 }
    }
}

impl<S: AsyncWrite + Unpin> Introduced<S> {
    /// Sends what is left of the start-up packet.
    fn poll_packet(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let packet = self.packet.as_deref().unwrap_or_default();
        while let Some(rest) = packet.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
        }
        Poll::Ready(Ok(()))
    }
}

/// `packet`, which must be a whole start-up packet, with one parameter more.
fn introduced(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, parameters) = packet.split_at_checked(HEADER_LEN)?;
    let (length, version) = header.split_first_chunk()?;
    if usize::try_from(u32::from_be_bytes(*length)).ok()? != packet.len() {
        return None;
    }
    let length = u32::try_from(packet.len() + PARAMETER.len()).ok()?;
    Some([&length.to_be_bytes(), version, PARAMETER, parameters].concat())
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Introduced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.packet.is_none() {
            // The library sends it in one piece, and nothing else before the server has answered.
            let packet = introduced(bytes);
            self.packet = Some(packet.ok_or_else(|| io::Error::other("no whole start-up packet"))?);
            // Whatever is not sent at once goes with the flush that follows.
            let _pending = self.poll_packet(cx)?;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_packet(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_packet(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Introduced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn only_the_start_up_packet_is_changed() {
        // A pipe of three bytes: the packet goes in many pieces.
        let (near, mut far) = tokio::io::duplex(3);
        let write = async move {
            let mut stream = Introduced::new(near);
            stream.write_all(b"\0\0\0\x11\0\x03\0\0user\0me\0\0").await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(b"more").await.unwrap();
            stream.flush().await.unwrap();
        };
        let mut read = Vec::new();
        let (read_len, ()) = tokio::join!(far.read_to_end(&mut read), write);
        assert_eq!(read_len.unwrap(), read.len());
        assert_eq!(read, b"\0\0\0\x26\0\x03\0\0replication\0database\0user\0me\0\0more");
    }

    #[tokio::test]
    async fn half_a_packet_is_refused() {
        let mut stream = Introduced::new(Vec::new());
        assert!(stream.write_all(b"\0\0\0\x12\0\x03\0\0user\0me\0\0").await.is_err());
    }
}

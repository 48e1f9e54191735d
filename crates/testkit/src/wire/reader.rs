//! Whole frames out of a byte stream.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// No test has a longer message; a length beyond it means that the stream is out of step.
const LONGEST: usize = 300 << 20;

/// Collects bytes until they make a frame. Dropping a read in the middle loses nothing.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    taken: usize,
}

impl Reader {
    /// The next frame's tag and body, `None` at the end of the stream.
    pub(crate) async fn frame(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            if let Some((tag, length)) = self.header()? {
                let end = self.taken + 1 + length;
                if let Some(body) = self.buffer.get(self.taken + 5..end) {
                    let body = body.to_vec();
                    self.taken = end;
                    return Ok(Some((tag, body)));
                }
            }
            if self.fill(stream).await? == 0 {
                return self.at_end();
            }
        }
    }

    /// The body of a start-up packet, which has no tag; `None` at the end of the stream.
    pub(crate) async fn startup(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Vec<u8>>> {
        loop {
            let waiting = &self.buffer[self.taken..];
            if let Some(length) = waiting.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                if let Some(body) = waiting.get(4..length) {
                    let body = body.to_vec();
                    self.taken += length;
                    return Ok(Some(body));
                }
            }
            if self.fill(stream).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// One byte, as the answer to an `SSLRequest` is; `None` at the end of the stream.
    pub(crate) async fn byte(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
        if self.taken == self.buffer.len() && self.fill(stream).await? == 0 {
            return Ok(None);
        }
        let byte = self.buffer.get(self.taken).copied();
        self.taken += 1;
        Ok(byte)
    }

    fn header(&self) -> io::Result<Option<(u8, usize)>> {
        let Some([tag, a, b, c, d]) = self.buffer[self.taken..].first_chunk::<5>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).map_err(io::Error::other)?;
        if !(4..=LONGEST).contains(&length) {
            let what = format!("a message of type {:?} claims a length of {length}", char::from(*tag));
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some((*tag, length)))
    }

    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.reserve(64 << 10);
        stream.read_buf(&mut self.buffer).await
    }

    fn at_end(&self) -> io::Result<Option<(u8, Vec<u8>)>> {
        if self.buffer.len() == self.taken {
            return Ok(None);
        }
        let what = format!("the stream ended inside a message: {:?}", &self.buffer[self.taken..]);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}

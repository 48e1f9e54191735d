//! Frames: a tag, a length that counts itself, a body.
//!
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

/// Bytes before the body: the tag and the length.
pub const HEADER_LEN: usize = 5;

/// The longest frame PostgreSQL itself takes (`PQ_LARGE_MESSAGE_LIMIT` in `src/include/libpq/libpq.h`), tag included.
pub const MAX_FRAME_LEN: usize = 0x3FFF_FFFF + 1;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What kind of message it is.
    pub tag: u8,
    /// The length of the whole frame in bytes, the tag included.
    pub len: usize,
}

/// A complete frame, borrowed from the buffer it was read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What kind of message it is.
    pub tag: u8,
    /// What follows the length.
    pub body: &'a [u8],
}

/// Consecutive rows at one place of a server's stream: `DataRow` and `CopyData` messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// How many there are, one whose end has not arrived included.
    pub count: u64,
    /// Where they end: where something else begins, or the input stops.
    pub end: usize,
    /// How many bytes of the last one have not arrived.
    pub missing: usize,
}

/// The stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length does not even count itself.
    #[error("invalid message length {len} in message of type {tag:?}")]
    TooShort {
        /// The frame's tag.
        tag: char,
        /// The length as sent.
        len: u32,
    },
    /// The length is over the limit.
    #[error("message of type {tag:?} is {len} bytes long, the limit is {limit}")]
    TooLong {
        /// The frame's tag.
        tag: char,
        /// The length of the frame in bytes.
        len: usize,
        /// The longest that is accepted.
        limit: usize,
    },
}

/// The header at the start of `bytes`, or `None` while it is incomplete.
///
/// # Errors
///
/// When the length is below four or above [`MAX_FRAME_LEN`]: nothing after it can be trusted.
#[inline]
pub fn header(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let sent = u32::from_be_bytes([a, b, c, d]);
    if sent < 4 {
        return Err(FrameError::TooShort { tag: char::from(tag), len: sent });
    }
    let len = usize::try_from(sent).unwrap_or(usize::MAX).saturating_add(1);
    if len > MAX_FRAME_LEN {
        return Err(FrameError::TooLong { tag: char::from(tag), len, limit: MAX_FRAME_LEN });
    }
    Ok(Some(Header { tag, len }))
}

/// The complete frame at the start of `bytes` and its length, or `None` while it is incomplete.
///
/// # Errors
///
/// As [`header`], and when the frame is longer than `limit` bytes.
#[inline]
pub fn split(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(Header { tag, len }) = header(bytes)? else {
        return Ok(None);
    };
    if len > limit {
        return Err(FrameError::TooLong { tag: char::from(tag), len, limit });
    }
    Ok(bytes.get(HEADER_LEN..len).map(|body| (Frame { tag, body }, len)))
}

/// The rows from `at` on, of which only the headers are looked at.
///
/// They end before a message of any other type, before a header that has not wholly arrived, and before one with a
/// length that [`header`] refuses; from an `at` beyond the input on there are none.
pub fn rows(input: &[u8], at: usize) -> Rows {
    let (mut end, mut count) = (at.min(input.len()), 0_u64);
    // Eight bytes at hand, of which a header takes five, are read at once; told as one bound that the compiler follows.
    let limit = input.len().checked_sub(8);
    while limit.is_some_and(|limit| end <= limit) {
        let Some(bytes) = input.get(end..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let Some(len) = row_len(u64::from_be_bytes(*bytes) >> 24) else {
            return Rows { count, end, missing: 0 };
        };
        end = end.wrapping_add(len);
        count = count.wrapping_add(1);
    }
    while let Some(&[tag, a, b, c, d]) = input.get(end..).and_then(|rest| rest.first_chunk()) {
        let Some(len) = row_len(u64::from_be_bytes([0, 0, 0, tag, a, b, c, d])) else { break };
        end = end.wrapping_add(len);
        count = count.wrapping_add(1);
    }
    let missing = end.saturating_sub(input.len());
    Rows { count, end: end.saturating_sub(missing), missing }
}

/// The length of the row whose header these five bytes are; `None` if they are another's, or a wrong one.
#[inline]
fn row_len(header: u64) -> Option<usize> {
    // `D` and `d` differ in one bit. Without it, one comparison tells the tag and whether the length is in bounds.
    const CASE: u64 = 0x20_0000_0000;
    const SHORTEST: u64 = 0x44_0000_0004;
    if (header & !CASE).wrapping_sub(SHORTEST) > LONGEST_BODY {
        return None;
    }
    usize::try_from(header & 0xFFFF_FFFF).ok().map(|sent| sent.wrapping_add(1))
}

/// Bytes of the body of a frame of [`MAX_FRAME_LEN`].
const LONGEST_BODY: u64 = 0x3FFF_FFFB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_is_incomplete() {
        let bytes = b"Q\0\0\0\x0dSELECT 1\0X";
        for cut in 0..14 {
            assert_eq!(split(&bytes[..cut], 100), Ok(None), "{cut}");
        }
        let (frame, len) = split(bytes, 100).unwrap().unwrap();
        assert_eq!((frame.tag, frame.body, len), (b'Q', &b"SELECT 1\0"[..], 14));
    }

    #[test]
    fn bad_lengths_are_refused_before_the_body() {
        assert!(matches!(header(b"Q\0\0\0\x03"), Err(FrameError::TooShort { len: 3, .. })));
        assert!(matches!(header(b"Q\xff\xff\xff\xff"), Err(FrameError::TooLong { .. })));
        assert!(matches!(header(b"d\x3f\xff\xff\xff"), Ok(Some(Header { len: MAX_FRAME_LEN, .. }))));
        assert!(matches!(split(b"p\0\0\x27\x10", 100), Err(FrameError::TooLong { limit: 100, .. })));
    }
}

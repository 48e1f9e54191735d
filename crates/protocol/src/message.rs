//! Reading the body of a message piece by piece.

use memchr::memchr;

use crate::report::ErrorReport;
use crate::sqlstate::SqlState;

/// A message whose body is not what its type says.
///
/// The texts are the ones PostgreSQL gives a client (`src/backend/libpq/pqformat.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {message} message: {problem}")]
pub struct MalformedMessage {
    /// The type of the message.
    pub message: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It ends inside a field.
    #[error("insufficient data left in message")]
    Truncated,
    /// A text has no end.
    #[error("invalid string in message")]
    Unterminated,
    /// Something follows the last field.
    #[error("invalid message format")]
    Trailing,
    /// A field has a value it can't have.
    #[error("invalid {0}")]
    Value(&'static str),
}

/// The type OIDs in a Parse or `ParameterDescription` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a>(&'a [u8]);

/// The format codes in a Bind or Copy*Response message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

/// What is left of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    message: &'static str,
    rest: &'a [u8],
}

/// Where the first NUL is.
///
/// Names are short, and most are empty: what a search of any length takes to get going would be most of their cost.
#[inline]
pub(crate) fn nul(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let Some((first, rest)) = bytes.split_first_chunk::<8>() else {
        return bytes.iter().position(|byte| *byte == 0);
    };
    let eight = u64::from_le_bytes(*first);
    // The lowest bit set is the high bit of the first zero byte; above it there may be others that are none.
    let zeros = eight.wrapping_sub(ONES) & !eight & ONES.wrapping_mul(0x80);
    if zeros != 0 {
        return usize::try_from(zeros.trailing_zeros() >> 3).ok();
    }
    memchr(0, rest).map(|at| at.wrapping_add(8))
}

// === impl MalformedMessage ===

impl MalformedMessage {
    /// What PostgreSQL tells a client that sent such a message.
    pub fn report(&self) -> ErrorReport {
        ErrorReport::error(SqlState::PROTOCOL_VIOLATION, self.problem.to_string())
    }
}

// === impl Oids ===

impl<'a> Oids<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / 4
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The OIDs in order; 0 leaves the type to the server.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (chunks, _) = self.0.as_chunks::<4>();
        chunks.iter().map(|chunk| u32::from_be_bytes(*chunk))
    }

    /// The OIDs as they are on the wire, four bytes each: a key for equality.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

// === impl Formats ===

impl<'a> Formats<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The codes in order: 0 is text, 1 is binary.
    pub fn iter(&self) -> impl Iterator<Item = i16> + use<'a> {
        let (chunks, _) = self.0.as_chunks::<2>();
        chunks.iter().map(|chunk| i16::from_be_bytes(*chunk))
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(message: &'static str, body: &'a [u8]) -> Self {
        Self { message, rest: body }
    }

    #[inline]
    pub(crate) const fn malformed(&self, problem: Problem) -> MalformedMessage {
        MalformedMessage { message: self.message, problem }
    }

    /// Everything that is left.
    #[inline]
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(self.malformed(Problem::Truncated))?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        self.array::<1>().map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i16(&mut self) -> Result<i16, MalformedMessage> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32, MalformedMessage> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], MalformedMessage> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(self.malformed(Problem::Truncated))?;
        self.rest = rest;
        Ok(head)
    }

    /// A text up to its NUL, which is read and not returned.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a [u8], MalformedMessage> {
        let end = nul(self.rest).ok_or(self.malformed(Problem::Unterminated))?;
        let (text, rest) = self.rest.split_at_checked(end).ok_or(self.malformed(Problem::Truncated))?;
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(text)
    }

    /// A value with a length before it; -1 means NULL.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<Option<&'a [u8]>, MalformedMessage> {
        let len = self.i32()?;
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| self.malformed(Problem::Value("length of a value")))?;
        self.bytes(len).map(Some)
    }

    /// A count of two bytes, and that many OIDs.
    pub(crate) fn oids(&mut self) -> Result<Oids<'a>, MalformedMessage> {
        let count = usize::from(self.u16()?);
        self.bytes(count.saturating_mul(4)).map(Oids)
    }

    /// A count of two bytes, and that many format codes.
    pub(crate) fn formats(&mut self) -> Result<Formats<'a>, MalformedMessage> {
        let count = usize::from(self.u16()?);
        self.bytes(count.saturating_mul(2)).map(Formats)
    }

    #[inline]
    pub(crate) const fn end(&self) -> Result<(), MalformedMessage> {
        if self.is_empty() { Ok(()) } else { Err(self.malformed(Problem::Trailing)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nul_is_found_wherever_it_is() {
        for len in 0..40 {
            let none: Vec<u8> = (0..len).map(|i| if i % 2 == 0 { 1 } else { 0x80 }).collect();
            assert_eq!(nul(&none), None);
            for at in 0..none.len() {
                let mut some = none.clone();
                some[at] = 0;
                assert_eq!(nul(&some), Some(at));
                some[at..].fill(0);
                assert_eq!(nul(&some), Some(at));
            }
        }
    }
}

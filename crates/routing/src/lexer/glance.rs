//! Constants and comments found without cutting the text into tokens.

use super::bytes::{DIGIT, IDENT, is};
use super::{Lexer, TokenKind};

/// Something in a text of which only the kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    /// [`TokenKind::String`], [`TokenKind::Integer`] or [`TokenKind::Numeric`]; `None` for a comment.
    pub(crate) kind: Option<TokenKind>,
    /// Its first byte.
    pub(crate) start: usize,
    /// One past its last byte.
    pub(crate) end: usize,
}

// === impl Filling ===

impl Filling {
    /// The first one at or after `at`, which is the beginning of the text or the end of another; `Some(None)` when there is no
    /// more, and `None` when only the lexer can tell.
    ///
    /// What is between two of them is read by the lexer in one way, whatever they are.
    #[expect(clippy::option_option, reason = "not known, or known to be none")]
    pub(crate) fn next(text: &[u8], at: usize) -> Option<Option<Self>> {
        let byte = |at: usize| text.get(at).copied().unwrap_or(0);
        let mut at = at;
        loop {
            at = next_remarkable(text, at);
            let Some(b) = text.get(at).copied() else { return Some(None) };
            let before = at.checked_sub(1).map_or(0, byte);
            match b {
                b'0'..=b'9' if is(before, IDENT) => at = past(text, at, IDENT),
                b'0'..=b'9' if before == b'.' => return None,
                b'0'..=b'9' => {
                    let (kind, end) = Lexer::number_at(text, at);
                    let ends = !is(byte(end), IDENT) && byte(end) != b'.';
                    return ends.then_some(Some(Self { kind: Some(kind), start: at, end }));
                }
                // What is before it may belong to it.
                b'\'' if is(before, IDENT) || before == b'&' => return None,
                b'\'' => {
                    let end = Lexer::string_at(text, at)?;
                    return Some(Some(Self { kind: Some(TokenKind::String), start: at, end }));
                }
                b'"' if before == b'&' => return None,
                b'"' => at = Lexer::quoted_word_at(text, at)?,
                b'$' if is(before, IDENT) => at += 1,
                b'$' if is(byte(at + 1), DIGIT) => {
                    at = past(text, at + 1, DIGIT);
                    // Such bytes are not part of a word, and a `$` among them may begin a string.
                    if is(byte(at), IDENT) {
                        return None;
                    }
                }
                b'$' => return None,
                b'-' if byte(at + 1) == b'-' => {
                    let end = Lexer::new(text).line_comment(at + 2);
                    return Some(Some(Self { kind: None, start: at, end }));
                }
                b'/' if byte(at + 1) == b'*' => {
                    let end = Lexer::new(text).block_comment(at)?;
                    return Some(Some(Self { kind: None, start: at, end }));
                }
                _ => at += 1,
            }
        }
    }
}

fn past(text: &[u8], mut at: usize, mask: u8) -> usize {
    while text.get(at).is_some_and(|b| is(*b, mask)) {
        at += 1;
    }
    at
}

/// Where the next byte is that may begin a constant or a comment, or something in which there may be none, or the end.
fn next_remarkable(text: &[u8], mut at: usize) -> usize {
    while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        // Without a way out: then the compiler looks at all of them at once.
        if bytes.iter().fold(false, |found, b| found | is_remarkable(*b)) {
            break;
        }
        at += 16;
    }
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(|b| is_remarkable(*b)).unwrap_or(rest.len())
}

/// Quotes, `$`, digits, the first bytes of comments, and a few more that make for fewer comparisons.
#[inline]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch would keep the compiler from looking at many at once"
)]
fn is_remarkable(b: u8) -> bool {
    (b.wrapping_sub(b'"') < 6) | (b.wrapping_sub(b'/') < 11) | (b == b'-')
}

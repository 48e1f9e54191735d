//! One name for all statements that differ in their literals alone.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::lexer::{Lexer, Token, TokenKind};

/// The secret of the hash: without it nobody can make two statements share a fingerprint.
#[derive(Clone)]
pub struct Key(pub [u8; 16]);

/// A keyed 128-bit hash of a text's tokens, literals left out wherever they decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// The fingerprint of a text.
///
/// Two texts with the same fingerprint are token for token the same, comments, whitespace, the case of unquoted words
/// and, where [`classify`](crate::classify::classify) never looks at them, literals apart. Literals stay in:
///
/// * when a statement of the text begins with anything but SELECT, VALUES, TABLE, WITH, INSERT, UPDATE, DELETE or
///   MERGE: `EXPLAIN (ANALYZE 0)`, `SET x = 'y'`;
/// * when it mentions `set_config` or `current_setting`, whose class depends on their arguments;
/// * when it has Unicode-escaped identifiers or UESCAPE, whose literal decides what an escaped text means.
pub fn fingerprint(sql: &[u8], key: &Key) -> Fingerprint {
    digest(sql, key, Literals::Fold).or_else(|| digest(sql, key, Literals::Keep)).unwrap_or(Fingerprint(0))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Literals {
    Fold,
    Keep,
}

/// The hash of all tokens; `None` when literals are to be folded and may not be.
fn digest(sql: &[u8], key: &Key, literals: Literals) -> Option<Fingerprint> {
    let mut sink = Sink::new(key);
    // Keeps a text hashed with its literals apart from one without any.
    sink.push(literals as u8);
    let mut begins = true;
    for token in Lexer::new(sql) {
        let text = token.text(sql);
        if literals == Literals::Fold {
            if begins && token.kind != TokenKind::LeftParen && token.kind != TokenKind::Semicolon {
                if !folds_literals(token, text) {
                    return None;
                }
                begins = false;
            }
            match token.kind {
                TokenKind::Semicolon => begins = true,
                TokenKind::UnicodeWord | TokenKind::Invalid | TokenKind::Unterminated => return None,
                TokenKind::Word if decides_by_literal(text) => return None,
                TokenKind::QuotedWord if decides_by_literal(unquoted(text)) => return None,
                _ => {}
            }
        }
        // A token is its kind and, where that leaves anything open, its text and a zero, which no text contains: two
        // different sequences of tokens never give the same bytes.
        let kind = token.kind as u8 + 1;
        match token.kind {
            TokenKind::Word => sink.word(kind, sql, token),
            TokenKind::QuotedWord
            | TokenKind::UnicodeWord
            | TokenKind::Operator
            | TokenKind::Parameter
            | TokenKind::Invalid
            | TokenKind::Unterminated => sink.text(kind, text),
            other if other.is_literal() && literals == Literals::Keep => sink.text(kind, text),
            _ => sink.push(kind),
        }
    }
    Some(sink.finish())
}

fn folds_literals(token: Token, text: &[u8]) -> bool {
    const STARTS: [&[u8]; 8] =
        [b"select", b"with", b"insert", b"update", b"delete", b"values", b"table", b"merge"];
    token.kind == TokenKind::Word && STARTS.iter().any(|start| text.eq_ignore_ascii_case(start))
}

#[inline]
fn decides_by_literal(word: &[u8]) -> bool {
    match word.len() {
        // Whether its literal is an escape character at all decides whether the text can be read.
        7 => word.eq_ignore_ascii_case(b"uescape"),
        10 => word.eq_ignore_ascii_case(b"set_config"),
        15 => word.eq_ignore_ascii_case(b"current_setting"),
        _ => false,
    }
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(text)
}

/// The ASCII letters among eight bytes in lower case, the others as they are.
#[inline]
fn lower(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    // Without their high bits, so that no sum carries into the next byte.
    let low = eight & !HIGH;
    let from_a = low + (0x80 - u64::from(b'A')) * ONES;
    let past_z = low + (0x7f - u64::from(b'Z')) * ONES;
    let upper = !eight & (from_a ^ past_z) & HIGH;
    // 0x80 moved to 0x20, the bit in which the cases differ.
    eight | upper >> 2
}

/// Gathers small pieces, because each write to the hasher costs more than the bytes in it.
struct Sink {
    hasher: SipHasher13,
    buffer: [u8; 256],
    length: usize,
}

// === impl Sink ===

impl Sink {
    fn new(key: &Key) -> Self {
        Self { hasher: SipHasher13::new_with_key(&key.0), buffer: [0; 256], length: 0 }
    }

    fn flush(&mut self) {
        self.hasher.write(self.buffer.get(..self.length).unwrap_or_default());
        self.length = 0;
    }

    #[inline]
    fn push(&mut self, b: u8) {
        if self.length == self.buffer.len() {
            self.flush();
        }
        if let Some(place) = self.buffer.get_mut(self.length) {
            *place = b;
            self.length += 1;
        }
    }

    /// A kind, and room for a text of `n` bytes with the zero after it; `None` when that is too much for the buffer.
    #[inline]
    fn room(&mut self, kind: u8, n: usize) -> Option<&mut [u8]> {
        if self.length + n + 2 > self.buffer.len() {
            self.flush();
        }
        let start = self.length;
        let (first, rest) = self.buffer.get_mut(start..start + n + 2)?.split_first_mut()?;
        *first = kind;
        let (last, text) = rest.split_last_mut()?;
        *last = 0;
        self.length += n + 2;
        Some(text)
    }

    #[inline]
    fn text(&mut self, kind: u8, text: &[u8]) {
        if let Some(room) = self.room(kind, text.len()) {
            room.copy_from_slice(text);
        } else {
            self.hasher.write(&[kind]);
            self.hasher.write(text);
            self.hasher.write(&[0]);
        }
    }

    /// A word regardless of the case of ASCII letters.
    #[inline]
    fn word(&mut self, kind: u8, sql: &[u8], token: Token) {
        if let Some(()) = self.short_word(kind, sql, token) {
            return;
        }
        self.push(kind);
        for b in token.text(sql) {
            self.push(b.to_ascii_lowercase());
        }
        self.push(0);
    }

    /// A word eight bytes at a time, as most are shorter than that; what is copied beyond its end is written over by
    /// what follows. `None`, and nothing done, when the text or the buffer ends too soon for that.
    #[inline]
    fn short_word(&mut self, kind: u8, sql: &[u8], token: Token) -> Option<()> {
        let length = token.end - token.start;
        if length > 16 {
            return None;
        }
        let from: &[u8; 16] = sql.get(token.start..token.start + 16)?.first_chunk()?;
        if self.length + 18 > self.buffer.len() {
            self.flush();
        }
        let to: &mut [u8; 18] = self.buffer.get_mut(self.length..self.length + 18)?.first_chunk_mut()?;
        let [low, high] = [0, 8].map(|i| from.get(i..i + 8).and_then(|half| half.first_chunk::<8>()));
        to[0] = kind;
        to[1..9].copy_from_slice(&lower(u64::from_le_bytes(*low?)).to_le_bytes());
        to[9..17].copy_from_slice(&lower(u64::from_le_bytes(*high?)).to_le_bytes());
        *to.get_mut(1 + length)? = 0;
        self.length += length + 2;
        Some(())
    }

    fn finish(mut self) -> Fingerprint {
        self.flush();
        Fingerprint(self.hasher.finish128().as_u128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key(*b"0123456789abcdef");

    fn same(a: &str, b: &str) -> bool {
        fingerprint(a.as_bytes(), &KEY) == fingerprint(b.as_bytes(), &KEY)
    }

    #[test]
    fn literals_comments_and_case_do_not_count() {
        assert!(same("SELECT a FROM t WHERE id = 1", "select /* x */ A\n from T where ID=22 -- y"));
        assert!(same("SELECT 'a'", "SELECT 'it''s'"));
        assert!(same("WITH x AS (SELECT 1) TABLE x", "WITH x AS (SELECT 2) TABLE x"));
        assert!(same("(SELECT 1); SELECT 2", "(SELECT 3); SELECT 4"));
    }

    #[test]
    fn everything_else_counts() {
        for (a, b) in [
            ("SELECT a", "SELECT \"a\""),
            ("SELECT \"a\"", "SELECT \"A\""),
            ("SELECT 1", "SELECT 1.0"),
            ("SELECT 1", "SELECT '1'"),
            ("SELECT $1", "SELECT $2"),
            ("SELECT a b", "SELECT ab"),
            ("SELECT a - b", "SELECT a + b"),
            ("SELECT a;", "SELECT a"),
            ("SELECT 'x' 'y'", "SELECT 'x'\n'y'"),
            ("SELECT set_config('a', 'b', true)", "SELECT set_config('a', 'b', false)"),
            ("SELECT set_config('a', 'b', 'true')", "SELECT set_config('a', 'b', 'false')"),
            ("SELECT \"set_config\"('a', 'b', 'true')", "SELECT \"set_config\"('a', 'b', 'false')"),
            ("SELECT pg_catalog.current_setting('a')", "SELECT pg_catalog.current_setting('b')"),
            ("SELECT U&\"d!0061ta\" UESCAPE '!'", "SELECT U&\"d!0061ta\" UESCAPE '?'"),
            ("SELECT U&'d!0061ta' UESCAPE '!'", "SELECT U&'d!0061ta' UESCAPE 'long'"),
            ("EXPLAIN (ANALYZE 0) DELETE FROM t", "EXPLAIN (ANALYZE 1) DELETE FROM t"),
            ("SELECT 1; SET a = '1'", "SELECT 1; SET a = '2'"),
            ("; SET a = '1'", "; SET a = '2'"),
            ("SELECT 'a", "SELECT 'b"),
            ("", "SELECT"),
        ] {
            assert!(!same(a, b), "{a} / {b}");
        }
    }

    #[test]
    fn another_key_gives_another_fingerprint() {
        assert_ne!(fingerprint(b"SELECT 1", &KEY), fingerprint(b"SELECT 1", &Key([7; 16])));
    }

    #[test]
    fn eight_bytes_at_once_are_lowered_as_one_by_one() {
        for start in 0..=255_u8 {
            let bytes: [u8; 8] = std::array::from_fn(|i| start.wrapping_add(u8::try_from(i * 31).unwrap()));
            let lowered = lower(u64::from_le_bytes(bytes)).to_le_bytes();
            assert_eq!(lowered, bytes.map(|b| b.to_ascii_lowercase()));
        }
    }

    #[test]
    fn where_a_word_stands_does_not_count() {
        for word in ["a", "Abcdefg", "ABCDEFGH", "abcdefghi", "ABCDEFGHIJKLMNOP", "abcdefghijklmnopq"] {
            let lower = word.to_lowercase();
            for tail in ["", " ", "                          "] {
                assert!(
                    same(&format!("SELECT {word}{tail}"), &format!("SELECT {lower}")),
                    "{word:?}{tail:?}"
                );
            }
            for n in 0..300 {
                let head = "x ".repeat(n);
                assert!(same(
                    &format!("SELECT {head}{word}"),
                    &format!("SELECT {head}{lower} -- and more text here")
                ));
            }
        }
    }

    #[test]
    fn long_pieces_are_hashed_whole() {
        let (a, b) = ("a".repeat(1000), "a".repeat(999) + "b");
        assert!(!same(&format!("SELECT \"{a}\""), &format!("SELECT \"{b}\"")));
        assert!(!same(&format!("SELECT {a}"), &format!("SELECT {b}")));
        assert!(same(&format!("SELECT {a}"), &format!("SELECT {}", a.to_uppercase())));
    }
}

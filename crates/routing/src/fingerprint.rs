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
/// * when it has Unicode-escaped identifiers, whose meaning a following UESCAPE literal decides.
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
                TokenKind::Word | TokenKind::QuotedWord if decides_by_literal(text) => return None,
                _ => {}
            }
        }
        // Every token is its kind, its text and a zero, which no text contains: two different sequences of tokens
        // never give the same bytes.
        sink.push(token.kind as u8 + 1);
        match token.kind {
            TokenKind::Word => sink.extend_folded(text),
            TokenKind::QuotedWord
            | TokenKind::UnicodeWord
            | TokenKind::Operator
            | TokenKind::Parameter
            | TokenKind::Invalid
            | TokenKind::Unterminated => sink.extend(text),
            kind if kind.is_literal() && literals == Literals::Keep => sink.extend(text),
            _ => {}
        }
        sink.push(0);
    }
    Some(sink.finish())
}

fn folds_literals(token: Token, text: &[u8]) -> bool {
    const STARTS: [&[u8]; 8] =
        [b"select", b"with", b"insert", b"update", b"delete", b"values", b"table", b"merge"];
    token.kind == TokenKind::Word && STARTS.iter().any(|start| text.eq_ignore_ascii_case(start))
}

fn decides_by_literal(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(text);
    match text.len() {
        10 => text.eq_ignore_ascii_case(b"set_config"),
        15 => text.eq_ignore_ascii_case(b"current_setting"),
        _ => false,
    }
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

    /// Room for `n` bytes in the buffer; `None` when they are too many for it.
    #[inline]
    fn room(&mut self, n: usize) -> Option<&mut [u8]> {
        if self.length + n > self.buffer.len() {
            self.flush();
        }
        let start = self.length;
        let room = self.buffer.get_mut(start..start + n)?;
        self.length += n;
        Some(room)
    }

    fn extend(&mut self, text: &[u8]) {
        match self.room(text.len()) {
            Some(room) => room.copy_from_slice(text),
            None => self.hasher.write(text),
        }
    }

    fn extend_folded(&mut self, text: &[u8]) {
        match self.room(text.len()) {
            Some(room) => {
                for (to, from) in room.iter_mut().zip(text) {
                    *to = from.to_ascii_lowercase();
                }
            }
            None => text.iter().for_each(|b| self.push(b.to_ascii_lowercase())),
        }
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
    fn long_pieces_are_hashed_whole() {
        let (a, b) = ("a".repeat(1000), "a".repeat(999) + "b");
        assert!(!same(&format!("SELECT \"{a}\""), &format!("SELECT \"{b}\"")));
        assert!(!same(&format!("SELECT {a}"), &format!("SELECT {b}")));
        assert!(same(&format!("SELECT {a}"), &format!("SELECT {}", a.to_uppercase())));
    }
}

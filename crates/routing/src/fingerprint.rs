//! One name for all statements that differ in their literals alone.

#![expect(
    clippy::inline_always,
    reason = "the state of the hash stays in registers only if nothing is called"
)]

mod sip;
mod skeleton;

use sip::Sip;

pub(crate) use skeleton::skeleton;

use crate::lexer::{Lexer, Part, Start, Token, TokenKind, Word, eight, is_alone, start};

/// The secret of the hash: without it nobody can make two statements share a fingerprint.
#[derive(Clone)]
pub struct Key(pub [u8; 16]);

/// A keyed 128-bit hash of a text's tokens, literals left out wherever they decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

// === impl Fingerprint ===

impl Fingerprint {
    /// Half of it, a hash of its own.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "half of the bits are meant")]
    pub(crate) fn half(self) -> u64 {
        self.0 as u64
    }
}

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
    folded(sql, key).unwrap_or_else(|| kept(sql, key))
}

/// The hash of all tokens without the values of literals; `None` when those have to stay in.
pub(crate) fn folded(sql: &[u8], key: &Key) -> Option<Fingerprint> {
    let (mut sink, mut lexer) = begin(Sink::new(key), Lexer::new(sql))?;
    let mut at = lexer.position();
    // What a text mostly consists of is taken here, with everything in registers; the lexer sees to the rest.
    while let Some(b) = sql.get(at).copied() {
        match start(b) {
            Start::Space => at += 1,
            Start::Word if !matches!(byte(sql, at + 1), b'\'' | b'&') => {
                let begin = at;
                let Part { text: head, length } = Word::at(sql, at).head();
                sink.add(head);
                if let Some(length) = length {
                    at += length;
                    continue;
                }
                (sink, at) = sink.rest_of_word(sql, at + 7);
                if DOUBTFUL.contains(&head) && decides_by_literal(sql.get(begin..at).unwrap_or_default()) {
                    return None;
                }
            }
            Start::Byte if b != b';' && is_alone(b, byte(sql, at + 1)) => {
                sink.code(b);
                at += 1;
            }
            _ => {
                (sink, lexer) = other(sink, lexer.skip_to(at))?;
                at = lexer.position();
            }
        }
    }
    Some(sink.finish())
}

#[inline]
fn byte(sql: &[u8], at: usize) -> u8 {
    sql.get(at).copied().unwrap_or(0)
}

/// Takes one token by the lexer. `None` when literals have to stay in.
#[inline(never)]
fn other(sink: Sink, mut lexer: Lexer<'_>) -> Option<(Sink, Lexer<'_>)> {
    let sql = lexer.text();
    let Some(token) = lexer.next() else { return Some((sink, lexer.skip_to(sql.len()))) };
    let keeps = match token.kind {
        TokenKind::UnicodeWord | TokenKind::Invalid | TokenKind::Unterminated => true,
        TokenKind::Word => decides_by_literal(token.text(sql)),
        TokenKind::QuotedWord => decides_by_literal(unquoted(token.text(sql))),
        _ => false,
    };
    if keeps {
        return None;
    }
    let sink = sink.token(sql, token, Literals::Fold);
    if token.kind == TokenKind::Semicolon { begin(sink, lexer) } else { Some((sink, lexer)) }
}

/// Past the parentheses and the first word of a statement; `None` when literals have to stay in.
#[inline(never)]
fn begin(mut sink: Sink, mut lexer: Lexer<'_>) -> Option<(Sink, Lexer<'_>)> {
    let sql = lexer.text();
    for token in lexer.by_ref() {
        let begins = matches!(token.kind, TokenKind::LeftParen | TokenKind::Semicolon);
        if !begins && (token.kind != TokenKind::Word || !folds_literals(token.text(sql))) {
            return None;
        }
        sink = sink.token(sql, token, Literals::Fold);
        if !begins {
            break;
        }
    }
    Some((sink, lexer))
}

/// The hash of all tokens with the values of literals.
pub(crate) fn kept(sql: &[u8], key: &Key) -> Fingerprint {
    let mut sink = Sink::new(key);
    // Keeps a text hashed with its literals apart from one without any.
    sink.code(0x7f);
    for token in Lexer::new(sql) {
        sink = sink.token(sql, token, Literals::Keep);
    }
    sink.finish()
}

/// The text with a `?` for each constant and without comments, to be shown where values are nobody's business.
pub fn without_constants(sql: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(sql.len());
    let mut end = 0;
    for token in Lexer::new(sql) {
        if token.start > end && !shown.is_empty() {
            shown.push(b' ');
        }
        let constant = token.kind.is_string()
            || matches!(
                token.kind,
                TokenKind::Integer
                    | TokenKind::Numeric
                    | TokenKind::BitString
                    | TokenKind::HexString
                    | TokenKind::NationalString
            );
        shown.extend_from_slice(if constant { b"?" } else { token.text(sql) });
        end = token.end;
    }
    shown
}

fn folds_literals(word: &[u8]) -> bool {
    const STARTS: [&[u8]; 8] =
        [b"select", b"with", b"insert", b"update", b"delete", b"values", b"table", b"merge"];
    STARTS.iter().any(|start| word.eq_ignore_ascii_case(start))
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Literals {
    Fold,
    Keep,
}

/// Tokens on their way into the hash, as a sequence of words of which every sequence of tokens has one of its own.
///
/// The lowest byte of a word is a [`code`], or zero. In the other seven a word of the text may begin; while the last byte
/// of it there is not zero, and no text of a word contains zeros, it goes on in the next word, with eight. Behind the code of
/// a token with any other text comes its length, and the text fills up that and as many words as it takes.
#[derive(Clone, Copy)]
struct Sink {
    sip: Sip,
    /// A code that has not been hashed, waiting for a word to go with; zero if none is.
    pending: u64,
}

/// What a token without a text of its own is hashed as, and what goes ahead of one with it: below all operators of one
/// byte, which stand for themselves.
#[inline]
fn code(kind: TokenKind) -> u8 {
    kind as u8 + 1
}

// === impl Sink ===

impl Sink {
    #[inline]
    fn new(key: &Key) -> Self {
        Self { sip: Sip::new(&key.0), pending: 0 }
    }

    #[inline(always)]
    fn code(&mut self, code: u8) {
        if self.pending != 0 {
            self.sip.word(self.pending);
        }
        self.pending = u64::from(code);
    }

    /// Takes in a text in the upper seven bytes, together with the code before it.
    #[inline(always)]
    fn add(&mut self, text: u64) {
        self.sip.word(self.pending | text);
        self.pending = 0;
    }

    /// Takes in what is left of a word behind its head, and gives its end.
    #[inline(always)]
    fn rest_of_word(mut self, sql: &[u8], mut at: usize) -> (Self, usize) {
        loop {
            let Part { text, length } = Word::at(sql, at).whole();
            self.sip.word(text);
            match length {
                Some(length) => return (self, at + length),
                None => at += 8,
            }
        }
    }

    /// A word regardless of the case of ASCII letters.
    fn word(mut self, sql: &[u8], at: usize) -> Self {
        let Part { text, length } = Word::at(sql, at).head();
        self.add(text);
        if length.is_some() { self } else { self.rest_of_word(sql, at + 7).0 }
    }

    #[inline(never)]
    fn token(mut self, sql: &[u8], token: Token, literals: Literals) -> Self {
        match token.kind {
            TokenKind::Word => return self.word(sql, token.start),
            TokenKind::QuotedWord
            | TokenKind::UnicodeWord
            | TokenKind::Parameter
            | TokenKind::Invalid
            | TokenKind::Unterminated => return self.text(sql, token),
            kind if kind.is_literal() && literals == Literals::Keep => return self.text(sql, token),
            kind if kind.is_literal() => self.code(code(kind)),
            // They stand for themselves.
            _ if token.end - token.start == 1 => self.code(sql.get(token.start).copied().unwrap_or(0)),
            TokenKind::Operator => return self.text(sql, token),
            kind => self.code(code(kind)),
        }
        self
    }

    #[inline(never)]
    fn text(mut self, sql: &[u8], token: Token) -> Self {
        /// What is said of the length of a text of more bytes than that.
        const LONG: u64 = 0xff;
        let length = token.end - token.start;
        let told = u64::try_from(length).unwrap_or(u64::MAX);
        // Now nothing is waiting.
        self.code(0);
        let text = eight(sql, token.start) & below(length.min(6));
        self.sip.word(u64::from(code(token.kind)) | told.min(LONG) << 8 | text << 16);
        if told >= LONG {
            self.sip.word(told);
        }
        let mut at = token.start + 6;
        while at < token.end {
            self.sip.word(eight(sql, at) & below(token.end - at));
            at += 8;
        }
        self
    }

    #[inline]
    fn finish(self) -> Fingerprint {
        Fingerprint(self.sip.finish(self.pending))
    }
}

/// A mask of the first `n` bytes of a word.
#[inline]
const fn below(n: usize) -> u64 {
    if n < 8 { (1 << (8 * n)) - 1 } else { u64::MAX }
}

/// Beginnings of the words whose literals decide, as [`Word::head`] has them.
const DOUBTFUL: [u64; 3] =
    [u64::from_le_bytes(*b"\0uescape"), u64::from_le_bytes(*b"\0set_con"), u64::from_le_bytes(*b"\0current")];

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
    fn what_is_shown_has_no_values() {
        for (sql, shown) in [
            ("SELECT a, 1 FROM t WHERE b='x''y' -- z", "SELECT a, ? FROM t WHERE b=?"),
            ("/* secret */ SELECT $1, $$a$$, E'\\n', 1.5e3, X'1f'", "SELECT $1, ?, ?, ?, ?"),
            ("SELECT \"a b\"(/* c */2)", "SELECT \"a b\"( ?)"),
        ] {
            assert_eq!(
                without_constants(sql.as_bytes()).escape_ascii().to_string(),
                shown.escape_default().to_string()
            );
        }
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

use proptest::prelude::*;

use super::*;

fn tokens(text: &str) -> Vec<(TokenKind, &str)> {
    Lexer::new(text.as_bytes()).map(|token| (token.kind, &text[token.start..token.end])).collect()
}

fn kinds(text: &str) -> Vec<TokenKind> {
    tokens(text).into_iter().map(|(kind, _)| kind).collect()
}

fn texts(text: &str) -> Vec<&str> {
    tokens(text).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn comments_end_where_the_server_ends_them() {
    assert_eq!(texts("a -- x\rb -- y\nc"), ["a", "b", "c"]);
    assert_eq!(texts("/* a /* b */ c */ d"), ["d"]);
    assert_eq!(texts("a/**/b"), ["a", "b"]);
    assert_eq!(texts("/*/ x */ y */ 1"), ["y", "*/", "1"]);
    assert_eq!(texts("5--3\n, 6"), ["5", ",", "6"]);
    assert_eq!(kinds("a /* /* */"), [TokenKind::Word, TokenKind::Unterminated]);
    assert_eq!(texts("a\u{b}b\u{c}c"), ["a", "b", "c"]);
}

#[test]
fn operators_are_cut_as_by_the_server() {
    assert_eq!(texts("2 */* c */3"), ["2", "*", "3"]);
    assert_eq!(texts("4 /-- d\n2"), ["4", "/", "2"]);
    assert_eq!(texts("5 - -3"), ["5", "-", "-", "3"]);
    assert_eq!(texts("a<-1"), ["a", "<", "-", "1"]);
    assert_eq!(texts("a @-1"), ["a", "@-", "1"]);
    assert_eq!(texts("a*-+-1"), ["a", "*", "-", "+", "-", "1"]);
    assert_eq!(texts("a ->> 'b' #>> c"), ["a", "->>", "'b'", "#>>", "c"]);
    assert_eq!(texts("a=-1"), ["a", "=", "-", "1"]);
    assert_eq!(
        kinds("a => b := c :: d .. e : f"),
        [
            TokenKind::Word,
            TokenKind::EqualsGreater,
            TokenKind::Word,
            TokenKind::ColonEquals,
            TokenKind::Word,
            TokenKind::Typecast,
            TokenKind::Word,
            TokenKind::DotDot,
            TokenKind::Word,
            TokenKind::Colon,
            TokenKind::Word,
        ]
    );
}

#[test]
fn strings_end_where_the_server_ends_them() {
    assert_eq!(texts("'C:\\'; DELETE"), ["'C:\\'", ";", "DELETE"]);
    assert_eq!(texts("E'C:\\'; DELETE FROM a; --'"), ["E'C:\\'; DELETE FROM a; --'"]);
    assert_eq!(texts("'a'\n'; b'"), ["'a'\n'; b'"]);
    assert_eq!(texts("'a' -- c\n -- d\n  'b'"), ["'a' -- c\n -- d\n  'b'"]);
    assert_eq!(texts("'a' /* c */\n'b'"), ["'a'", "'b'"]);
    assert_eq!(texts("'a' 'b'"), ["'a'", "'b'"]);
    assert_eq!(texts("'it''s' x"), ["'it''s'", "x"]);
    assert_eq!(texts("'a'\n-- c"), ["'a'"]);
    assert_eq!(texts("e'a\\'\n' x"), ["e'a\\'\n'", "x"]);
    assert_eq!(kinds("'a"), [TokenKind::Unterminated]);
    assert_eq!(kinds("e'a\\"), [TokenKind::Unterminated]);
    assert_eq!(
        kinds("B'1' x'1F' N'a' u&'a' U&\"a\" u & b"),
        [
            TokenKind::BitString,
            TokenKind::HexString,
            TokenKind::NationalString,
            TokenKind::UnicodeString,
            TokenKind::UnicodeWord,
            TokenKind::Word,
            TokenKind::Operator,
            TokenKind::Word,
        ]
    );
}

#[test]
fn dollars() {
    assert_eq!(texts("$$a$$ $t$ ; $$ $t$"), ["$$a$$", "$t$ ; $$ $t$"]);
    assert_eq!(texts("$é$ ; $é$"), ["$é$ ; $é$"]);
    assert_eq!(texts("c$$ FROM c$$"), ["c$$", "FROM", "c$$"]);
    assert_eq!(texts("d$1"), ["d$1"]);
    assert_eq!(texts("$1$$a$$"), ["$1", "$$a$$"]);
    assert_eq!(texts("$a$ $b$a$"), ["$a$ $b$a$"]);
    assert_eq!(
        kinds("$1 $a $a$"),
        [TokenKind::Parameter, TokenKind::Invalid, TokenKind::Word, TokenKind::Unterminated]
    );
}

#[test]
fn numbers() {
    use TokenKind::{DotDot, Integer, Numeric, Word};
    assert_eq!(
        kinds("1 1. .5 1.5e-3 1e5 0x1F 0o17 0b11 1_000"),
        [Integer, Numeric, Numeric, Numeric, Numeric, Integer, Integer, Integer, Integer]
    );
    assert_eq!(kinds("1..2"), [Integer, DotDot, Integer]);
    assert_eq!(texts("1e"), ["1", "e"]);
    assert_eq!(kinds("1a"), [Integer, Word]);
    assert_eq!(texts("1_"), ["1", "_"]);
    assert_eq!(texts("0x"), ["0", "x"]);
}

/// Reading the rest of the row for each sign would take minutes.
#[test]
fn a_long_row_of_signs_takes_no_longer_than_other_text() {
    let row = "+-".repeat(1 << 19);
    assert_eq!(Lexer::new(row.as_bytes()).count(), row.len());
    assert_eq!(texts("1*+-+ -+--+"), ["1", "*", "+", "-", "+", "-", "+"]);
    assert_eq!(texts("@+-+1"), ["@+-+", "1"]);
}

proptest! {
    /// Between the tokens there is nothing but whitespace and comments, and the tokens follow each other.
    #[test]
    fn every_byte_is_covered(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        covers(&text)?;
    }

    #[test]
    fn every_byte_of_likely_text_is_covered(text in "([-a'\"$/* \n\\\\eEuU&;.:=<>0-9x(]|--|/\\*|\\*/|\\$\\$|é){0,60}") {
        covers(text.as_bytes())?;
    }
}

fn covers(text: &[u8]) -> Result<(), TestCaseError> {
    let mut position = 0;
    for token in Lexer::new(text) {
        prop_assert!(token.start >= position && token.end > token.start && token.end <= text.len());
        blank(&text[position..token.start])?;
        position = token.end;
    }
    blank(&text[position..])
}

fn blank(gap: &[u8]) -> Result<(), TestCaseError> {
    let mut rest = gap;
    while let [first, tail @ ..] = rest {
        rest = if rest.starts_with(b"--") {
            let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
            &rest[end..]
        } else if rest.starts_with(b"/*") {
            let mut depth = 0;
            let mut at = 0;
            loop {
                if rest[at..].starts_with(b"/*") {
                    depth += 1;
                    at += 2;
                } else if rest[at..].starts_with(b"*/") {
                    depth -= 1;
                    at += 2;
                } else {
                    at += 1;
                }
                if depth == 0 {
                    break;
                }
            }
            &rest[at..]
        } else {
            prop_assert!(matches!(first, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c), "{:?}", gap);
            tail
        };
    }
    Ok(())
}

//! A text without its constants and comments, byte for byte: far cheaper to find than its tokens.

use super::sip::Sip;
use super::{Fingerprint, Key, below, code};
use crate::lexer::{Filling, eight};

/// A hash of everything in a text but its comments and the values of its string constants and decimal numbers; `None` where
/// those take more than a glance to find, as among dollar quotes and prefixed strings.
///
/// Texts of one skeleton have the same tokens, the values of those constants apart: if one has a fingerprint without literals,
/// all have that one. Nothing follows for texts whose literals stay in.
pub(crate) fn skeleton(sql: &[u8], key: &Key) -> Option<Fingerprint> {
    let mut sip = Sip::new(&key.0);
    let mut start = 0;
    loop {
        let (end, kind, next) = match Filling::next(sql, start)? {
            Some(Filling { kind, start, end }) => (start, kind.map_or(COMMENT, code), end),
            None => (sql.len(), 0, sql.len()),
        };
        // Each part with its length and what ends it ahead of it: different parts never give the same words.
        let part = sql.get(start..end).unwrap_or_default();
        sip.word(u64::try_from(part.len()).unwrap_or(u64::MAX) << 8 | u64::from(kind));
        let (words, rest) = part.as_chunks();
        for word in words {
            sip.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            sip.word(eight(sql, end - rest.len()) & below(rest.len()));
        }
        if kind == 0 {
            return Some(Fingerprint(sip.finish(0)));
        }
        start = next;
    }
}

/// What a comment is hashed as; above the codes of all tokens.
const COMMENT: u8 = 0xff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fingerprint::folded;
    use crate::lexer::{Lexer, TokenKind};

    const KEY: Key = Key(*b"0123456789abcdef");

    fn of(sql: &str) -> Option<Fingerprint> {
        skeleton(sql.as_bytes(), &KEY)
    }

    #[test]
    fn only_the_values_of_constants_are_left_out() {
        for (one, other) in [
            ("SELECT a1 FROM t WHERE id = 1", "SELECT a1 FROM t WHERE id = 4711"),
            ("SELECT 'a', 1.5e3", "SELECT 'it''s', 20."),
            ("SELECT 'a'\n'b' + $1", "SELECT '' + $1"),
            ("SELECT \"a'1\", -1", "SELECT \"a'1\", -2"),
            ("SELECT a /* 1 */ - -1 -- x", "SELECT a /*/* ' */*/ - -2 --"),
            ("", ""),
        ] {
            assert!(of(one).is_some() && of(one) == of(other), "{one} / {other}");
        }
        for (one, other) in [
            ("SELECT a1", "SELECT a2"),
            ("SELECT 1", "SELECT 1.0"),
            ("SELECT 1", "SELECT '1'"),
            ("SELECT $1", "SELECT $2"),
            ("SELECT \"1\"", "SELECT \"2\""),
            ("SELECT 1 ", "SELECT 1"),
            ("SELECT 'a' 'b'", "SELECT 'a'\n'b'"),
            ("SELECT 1,1", "SELECT 1"),
            ("SELECT ", "SELECT"),
            ("SELECT a /**/ b", "SELECT a b"),
            ("SELECT a --b\n", "SELECT a --b\r"),
        ] {
            assert_ne!(of(one), of(other), "{one} / {other}");
        }
    }

    #[test]
    fn what_takes_a_closer_look_has_none() {
        for sql in [
            "SELECT /* 1",
            "SELECT E'a'",
            "SELECT u&'a'",
            "SELECT U&\"a\"",
            "SELECT $$a$$",
            "SELECT $a$b$a$",
            "SELECT 'a",
            "SELECT \"a",
            "SELECT 1..2",
            "SELECT .5",
            "SELECT 1a",
            "SELECT 0x1g",
            "SELECT $1$a$ 1 $a$",
            "SELECT $1a",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
    }

    /// Tokens, with the texts of those whose text counts.
    fn tokens(sql: &str) -> Vec<(TokenKind, &str)> {
        let text = |token: crate::lexer::Token| {
            if token.kind.is_literal() { "" } else { &sql[token.start..token.end] }
        };
        Lexer::new(sql.as_bytes()).map(|token| (token.kind, text(token))).collect()
    }

    /// Texts from pieces in which lexers err, and the same with some of them replaced.
    fn pair() -> impl Strategy<Value = (String, String)> {
        let piece = prop::sample::select(vec![
            "'",
            "''",
            "'a'",
            "'b c'",
            "\n",
            " ",
            "1",
            "23",
            "0x1F",
            "1.5",
            ".",
            "..",
            "e",
            "E'",
            "u&",
            "U&'",
            "n",
            "$",
            "$1",
            "$$",
            "$a$",
            "a",
            "a1",
            "_",
            "\"",
            "\"a\"",
            "-",
            "--",
            "+",
            "/",
            "*",
            "/*",
            "*/",
            ";",
            ",",
            "(",
            ")",
            ":",
            "::",
            "=",
            "\\",
            "\u{e4}",
            "set_config",
            "uescape",
            "select",
            "\u{0}",
            "\u{1}",
            "1_000",
            "5e-3",
            "&",
        ]);
        (proptest::collection::vec((piece.clone(), piece, 0..8_u8), 0..14)).prop_map(|pieces| {
            let mut both = ("SELECT ".to_owned(), "SELECT ".to_owned());
            for (one, other, chance) in pieces {
                both.0.push_str(one);
                both.1.push_str(if chance == 0 { other } else { one });
            }
            both
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn texts_of_one_skeleton_have_the_same_tokens((one, other) in pair()) {
            let both = (of(&one), of(&other));
            if both.0.is_some() && both.0 == both.1 {
                prop_assert_eq!(tokens(&one), tokens(&other));
                prop_assert_eq!(folded(one.as_bytes(), &KEY), folded(other.as_bytes(), &KEY));
            }
        }

        /// Constants alone are replaced: then the skeleton is the same, or there is none.
        #[test]
        fn values_do_not_count((one, _) in pair(), number in 0..100_000_u32) {
            let mut other = String::new();
            let mut end = 0;
            for token in Lexer::new(one.as_bytes()) {
                other.push_str(&one[end..token.start]);
                match token.kind {
                    TokenKind::Integer => other.push_str(&number.to_string()),
                    TokenKind::String => other.extend(["'", &number.to_string(), "'"]),
                    _ => other.push_str(&one[token.start..token.end]),
                }
                end = token.end;
            }
            other.push_str(&one[end..]);
            if let Some(skeleton) = of(&one) {
                prop_assert_eq!(Some(skeleton), of(&other), "{} / {}", one, other);
            }
        }
    }
}

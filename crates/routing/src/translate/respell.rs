//! What the parser knows by another spelling, or not at all and does without.

use sqlparser::tokenizer::Token as Out;

use super::{Translator, quoted};
use crate::lexer::TokenKind;

/// What stands for the alias of a function that has none: no call can have this name.
const UNNAMED: &str = "(";

/// Words that a query, or what a common table expression may be instead, begins with.
const QUERY_STARTS: [&str; 8] = ["select", "values", "with", "table", "insert", "update", "delete", "merge"];

// === impl Translator ===

impl Translator<'_> {
    /// What the parser knows by another spelling, or not at all and does without.
    pub(super) fn respelt(&mut self) -> usize {
        let previous = self.previous().map(|token| token.kind);
        let tested = !self.previous_word("as")
            && previous.is_some_and(|kind| {
                kind.is_name()
                    || kind.is_literal()
                    || matches!(kind, TokenKind::RightParen | TokenKind::RightBracket)
            });
        let next = self.kind(1);
        let precision = [TokenKind::LeftParen, TokenKind::Integer, TokenKind::RightParen].map(Some)
            == [next, self.kind(2), self.kind(3)];
        match () {
            // A test may stand behind any expression, and is no function then.
            () if tested && self.word(0, "isnull") && next != Some(TokenKind::LeftParen) => {
                self.out.tokens.extend(["IS", "NULL"].map(Out::make_keyword));
                1
            }
            () if tested && self.word(0, "notnull") && next != Some(TokenKind::LeftParen) => {
                self.out.tokens.extend(["IS", "NOT", "NULL"].map(Out::make_keyword));
                1
            }
            // Reserved as the name of a function: nothing but the expression in parentheses has names.
            () if self.word(0, "collation")
                && self.word(1, "for")
                && self.kind(2) == Some(TokenKind::LeftParen) =>
            {
                2
            }
            // INTERVAL '1' SECOND(2), INTERVAL '1' DAY TO SECOND(2)
            () if self.word(0, "second")
                && precision
                && (self.previous_word("to") || previous.is_some_and(TokenKind::is_string)) =>
            {
                self.out.tokens.push(Out::make_keyword("SECOND"));
                4
            }
            // A function's columns without an alias. A query would be that of a common table expression.
            () if self.word(0, "as")
                && previous == Some(TokenKind::RightParen)
                && next == Some(TokenKind::LeftParen)
                && self.kind(2).is_some_and(TokenKind::is_name)
                && self.kind(3).is_some_and(TokenKind::is_name)
                && !QUERY_STARTS.iter().any(|word| self.word(2, word)) =>
            {
                self.out.tokens.extend([Out::make_keyword("AS"), quoted(UNNAMED)]);
                1
            }
            // The end of what bounds a frame: see `bounds_frame`.
            () if (self.word(0, "preceding") || self.word(0, "following")) && self.bounded_frame() => {
                self.out.tokens.extend([Out::RParen, Out::make_keyword("PRECEDING")]);
                1
            }
            () => 0,
        }
    }

    /// Whether `'1 day'::interval PRECEDING` begins here, of which the parser would take the first token for all of it.
    pub(super) fn bounds_frame(&self) -> bool {
        self.kind(1) == Some(TokenKind::Typecast)
            && self.kind(2) == Some(TokenKind::Word)
            && (self.word(3, "preceding") || self.word(3, "following"))
    }

    /// Whether it ends here.
    fn bounded_frame(&self) -> bool {
        let before =
            |n: usize| self.position.checked_sub(n).and_then(|i| self.input.get(i)).map(|token| token.kind);
        before(1) == Some(TokenKind::Word)
            && before(2) == Some(TokenKind::Typecast)
            && before(3).is_some_and(TokenKind::is_string)
    }

    /// EXCLUDE at the end of a window frame.
    pub(super) fn frame_exclusion(&self) -> usize {
        let length = match () {
            () if self.word(1, "current") && self.word(2, "row") => 3,
            () if self.word(1, "no") && self.word(2, "others") => 3,
            () if self.word(1, "group") || self.word(1, "ties") => 2,
            () => return 0,
        };
        if self.kind(length) == Some(TokenKind::RightParen) { length } else { 0 }
    }
}

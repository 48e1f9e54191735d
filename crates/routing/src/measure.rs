//! How deep a statement is, told from its tokens before anything recurses.
//!
//! Parser, walk and destructor recurse with each parenthesis, CASE, prefix operator and pending JOIN, and the syntax tree
//! leans to one side with each operator. The costs are those of unoptimised code (measured, and rounded up), where a frame
//! is several times larger than in a release build.

use crate::lexer::{Token, TokenKind};
use crate::text;

/// A parenthesis around a query.
const QUERY: usize = 54_000;
/// A parenthesis after a name, before another parenthesis or in FROM: a call, a row, a nested join.
const CALL: usize = 22_000;
/// Any other parenthesis, a bracket, a CASE, a JOIN whose ON is still to come.
const PAREN: usize = 9_000;
/// A sign, NOT or another word that may stand before an expression.
const PREFIX: usize = 8_000;
const CAST: usize = 900;
const ARRAY: usize = 1_300;
const OPERATOR: usize = 450;
const WORD: usize = 250;

/// What is open at one level of parentheses.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The cost of everything around it, and of the set operations in it so far.
    base: usize,
    /// The cost of the chain of operators since the last comma.
    chain: usize,
    /// Joins whose ON or USING is still to come.
    joins: usize,
}

/// Bytes of stack that parsing this statement may take.
pub(crate) fn stack(sql: &str, tokens: &[Token]) -> usize {
    let mut levels = vec![Level::default()];
    let mut most = 0;
    let mut prefixes = 0;
    for (i, token) in tokens.iter().enumerate() {
        let Some(level) = levels.last_mut() else { return usize::MAX };
        match token.kind {
            TokenKind::LeftParen => {
                let base = level.total() + prefixes + paren(sql, tokens, i);
                levels.push(Level { base, ..Level::default() });
                prefixes = 0;
            }
            TokenKind::LeftBracket => {
                let base = level.total() + prefixes + PAREN;
                levels.push(Level { base, ..Level::default() });
                prefixes = 0;
            }
            TokenKind::RightParen => {
                close(&mut levels);
                prefixes = 0;
            }
            TokenKind::RightBracket => {
                close(&mut levels);
                // Brackets after a type nest array types, however many follow each other.
                if let Some(level) = levels.last_mut() {
                    level.chain += ARRAY;
                }
                prefixes = 0;
            }
            TokenKind::Comma => {
                level.chain = 0;
                prefixes = 0;
            }
            TokenKind::Operator => {
                level.chain += OPERATOR;
                prefixes += PREFIX;
            }
            TokenKind::Typecast => level.chain += CAST,
            TokenKind::Word => {
                prefixes = if word(sql, *token, &mut levels) { prefixes + PREFIX } else { 0 };
            }
            _ => prefixes = 0,
        }
        most = most.max(levels.last().map_or(0, Level::total) + prefixes);
    }
    most
}

/// Counts a word; whether it may stand before an expression.
fn word(sql: &str, token: Token, levels: &mut Vec<Level>) -> bool {
    let is = |word| text::is_word(token, sql, word);
    let Some(level) = levels.last_mut() else { return false };
    level.chain += WORD;
    match () {
        () if is("case") => {
            let base = level.total() + PAREN;
            levels.push(Level { base, ..Level::default() });
        }
        () if is("end") => close(levels),
        () if is("union") || is("intersect") || is("except") => {
            level.base += OPERATOR;
            level.chain = 0;
        }
        () if is("join") => level.joins += PAREN,
        () if is("on") || is("using") => level.joins = level.joins.saturating_sub(PAREN),
        () => return ["not", "interval", "prior", "explain", "for"].iter().any(|word| is(word)),
    }
    false
}

/// The cost of the parenthesis at `i`.
fn paren(sql: &str, tokens: &[Token], i: usize) -> usize {
    let next = tokens.get(i + 1);
    let query = |token: &Token| {
        ["select", "with", "values", "table"].iter().any(|word| text::is_word(*token, sql, word))
    };
    let called = i.checked_sub(1).and_then(|i| tokens.get(i)).is_none_or(|token| token.kind.is_name());
    match next {
        Some(token) if query(token) => QUERY,
        Some(token) if token.kind == TokenKind::LeftParen => CALL,
        _ if called => CALL,
        _ => PAREN,
    }
}

/// Ends a level. One too many is a syntax error, and must not empty the list.
fn close(levels: &mut Vec<Level>) {
    if levels.len() > 1 {
        levels.pop();
    }
}

// === impl Level ===

impl Level {
    fn total(&self) -> usize {
        self.base + self.chain + self.joins
    }
}

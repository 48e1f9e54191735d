//! The statements of a text.

use crate::class::PinReason;
use crate::classify::pin;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::text;

/// One statement, without its semicolon.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its tokens, or the first ones of very many.
    pub(crate) tokens: Vec<Token>,
    /// Those are all of them.
    pub(crate) whole: bool,
    /// What a call among those that are not kept leaves in the session.
    pub(crate) pin: Option<PinReason>,
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// After its last statement.
    Whole,
    /// There is something in it that is no token.
    Malformed,
    /// Whoever was given its statements wanted no more of them.
    Stopped,
}

/// The most tokens of a statement that are kept; the shortest are a byte each, and a bulk INSERT has millions.
const KEPT: usize = 64 << 10;
/// How many of those not kept are looked at together.
const WINDOW: usize = 4096;

/// Calls `piece` for each statement of a text, empty ones left out, until it gives `None`.
///
/// A semicolon within parentheses belongs to CREATE RULE, and one after BEGIN ATOMIC to the body of a function.
pub(crate) fn each(sql: &str, mut piece: impl FnMut(&Piece) -> Option<()>) -> Ended {
    let empty = || Piece { tokens: Vec::new(), whole: true, pin: None };
    let mut current = empty();
    let mut window: Vec<Token> = Vec::new();
    let (mut depth, mut atomic) = (0_usize, false);
    for token in Lexer::new(sql.as_bytes()) {
        match token.kind {
            TokenKind::Invalid | TokenKind::Unterminated => return Ended::Malformed,
            TokenKind::LeftParen => depth += 1,
            TokenKind::RightParen => depth = depth.saturating_sub(1),
            TokenKind::Semicolon if depth == 0 && !atomic => {
                current.pin = current.pin.or_else(|| pin(sql, &window));
                if !current.tokens.is_empty() && piece(&current).is_none() {
                    return Ended::Stopped;
                }
                current = empty();
                window.clear();
                continue;
            }
            TokenKind::Word if text::is_word(token, sql, "atomic") => {
                atomic |= current.tokens.first().is_some_and(|first| text::is_word(*first, sql, "create"));
            }
            _ => {}
        }
        if current.tokens.len() < KEPT {
            current.tokens.push(token);
            continue;
        }
        if current.whole {
            current.whole = false;
            // A call may lie across the edge.
            window.extend(current.tokens.iter().rev().take(4).rev());
        }
        window.push(token);
        if window.len() >= WINDOW {
            current.pin = current.pin.or_else(|| pin(sql, &window));
            window.drain(..WINDOW - 4);
        }
    }
    current.pin = current.pin.or_else(|| pin(sql, &window));
    if !current.tokens.is_empty() && piece(&current).is_none() {
        return Ended::Stopped;
    }
    Ended::Whole
}

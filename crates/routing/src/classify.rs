//! From a text to its class.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token as ParserToken;

use crate::builtin;
use crate::class::{Class, Command, Kind, PinReason};
use crate::combine::Combination;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::reason::Reason;
use crate::symbols::{Name, Symbols};
use crate::text::{self, Cursor};
use crate::walk::Walk;
use crate::{translate, utility};

/// How far classification goes; what is beyond is [`Reason::TooComplex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text.
    pub bytes: usize,
    /// Parentheses, brackets and CASEs open at once. Each takes a few kilobytes of stack.
    pub depth: usize,
    /// Operators on the way from the root of the syntax tree to a leaf.
    pub chain: usize,
}

/// What one statement is, by itself.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) kind: Kind,
    pub(crate) reason: Reason,
    pub(crate) command: Command,
    pub(crate) symbols: Found,
}

/// Names of one statement or several, with repetitions.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) functions: Vec<crate::symbols::Call>,
    pub(crate) relations: Vec<Name>,
    pub(crate) operators: Vec<Name>,
    pub(crate) types: Vec<Name>,
    pub(crate) attributes: Vec<Box<str>>,
}

/// The class of a text, of one statement or several. It never fails: what cannot be judged is a write, for a reason.
pub fn classify(sql: &[u8], limits: &Limits) -> Class {
    if sql.len() > limits.bytes {
        return Class::plain(Kind::Write, Reason::TooComplex);
    }
    let Ok(text) = std::str::from_utf8(sql) else {
        return Class::plain(Kind::Write, Reason::Encoding);
    };
    let tokens: Vec<Token> = Lexer::new(sql).collect();
    if tokens.iter().any(|token| matches!(token.kind, TokenKind::Invalid | TokenKind::Unterminated)) {
        return Class::plain(Kind::Write, Reason::Unparsable);
    }
    let mut combination = Combination::default();
    for tokens in split(text, &tokens) {
        let simple = measure(text, tokens, limits);
        let statement =
            if simple { statement(text, tokens) } else { refused(text, tokens, Reason::TooComplex) };
        combination.add(statement);
    }
    combination.finish()
}

/// A statement of which nothing is known but its tokens.
pub(crate) fn refused(sql: &str, tokens: &[Token], reason: Reason) -> Statement {
    let command = pin(sql, tokens).map_or(Command::Plain, Command::Pin);
    Statement::new(Kind::Write, reason, command)
}

/// A statement without its semicolon.
pub(crate) fn statement(sql: &str, tokens: &[Token]) -> Statement {
    let mut cursor = Cursor::new(sql, tokens);
    while cursor.eat_kind(TokenKind::LeftParen) {}
    if ["select", "with", "values", "table"].iter().any(|word| cursor.is_word(word)) {
        return query(sql, tokens);
    }
    if cursor.rest().len() != tokens.len() {
        return refused(sql, tokens, Reason::Unparsable);
    }
    utility::statement(sql, tokens)
}

/// A SELECT, VALUES, TABLE or WITH.
pub(crate) fn query(sql: &str, tokens: &[Token]) -> Statement {
    let found = if translate::locks(sql, tokens) { Err(Reason::Locking) } else { walk(sql, tokens) };
    let pin = pin(sql, tokens);
    match found {
        Ok((found, session, setting)) => {
            let command = pin.or(setting).map_or(Command::Plain, Command::Pin);
            let (kind, reason) =
                if session { (Kind::Session, Reason::SessionState) } else { (Kind::Read, Reason::Read) };
            Statement { kind, reason, command, symbols: found }
        }
        Err(reason) => {
            let command = match pin {
                Some(pin) => Command::Pin(pin),
                None => select_into(sql, tokens),
            };
            let session = matches!(command, Command::Pin(_)) || reason == Reason::SessionState;
            Statement::new(if session { session_kind(reason) } else { Kind::Write }, reason, command)
        }
    }
}

fn session_kind(reason: Reason) -> Kind {
    if reason == Reason::SessionState { Kind::Session } else { Kind::WriteSession }
}

/// The names in a query that is a read as far as its syntax goes, whether it touches session state, and what it
/// leaves in the session that only its arguments tell.
fn walk(sql: &str, tokens: &[Token]) -> Result<(Found, bool, Option<PinReason>), Reason> {
    let translated = translate::translate(sql, tokens).ok_or(Reason::Unparsable)?;
    // The limits were measured; the parser's own is only there so that it can never be the one that overflows.
    let mut parser =
        Parser::new(&PostgreSqlDialect {}).with_recursion_limit(RECURSION).with_tokens(translated.tokens);
    let query = parser.parse_query().map_err(|_| Reason::Unparsable)?;
    if parser.peek_token_ref().token != ParserToken::EOF {
        return Err(Reason::Unparsable);
    }
    let mut walk = Walk::default();
    walk.query(&query)?;
    if translate::modifies(sql, tokens) {
        return Err(Reason::Write);
    }
    let explained = |name: &str| {
        walk.listed.iter().any(|listed| **listed == *name)
            || walk.functions.iter().any(|call| *call.name.name == *name)
            || builtin::is_syntax(name)
    };
    if !translated.called.iter().all(|name| explained(name)) {
        return Err(Reason::Unparsable);
    }
    if translated.variadic {
        walk.functions.iter_mut().for_each(|call| call.arguments = None);
    }
    let mut operators = translated.operators;
    operators.append(&mut walk.operators);
    if operators.iter().any(|name| !name.builtin && name.schema.as_deref() == Some("pg_catalog")) {
        return Err(Reason::UnknownOperatorOrType);
    }
    let Walk { functions, relations, types, attributes, session, pin, .. } = walk;
    Ok((Found { functions, relations, operators, types, attributes }, session, pin))
}

/// The parser's own bound on recursion; deeper than [`Limits::depth`] allows, since a parenthesis takes several calls.
const RECURSION: usize = 1000;

/// What a call of a built-in function anywhere in a statement leaves in the session.
fn pin(sql: &str, tokens: &[Token]) -> Option<PinReason> {
    let calls = tokens.windows(2).enumerate().filter(|(_, pair)| {
        matches!(pair, [name, paren] if name.kind.is_name() && paren.kind == TokenKind::LeftParen)
    });
    calls
        .filter(|(i, _)| {
            // Qualified by another schema it is another function.
            let dot = i.checked_sub(1).and_then(|i| tokens.get(i)).filter(|dot| dot.kind == TokenKind::Dot);
            let schema =
                dot.and(i.checked_sub(2)).and_then(|i| tokens.get(i)).and_then(|t| text::name(*t, sql));
            dot.is_none() || schema.as_deref() == Some("pg_catalog")
        })
        .find_map(|(_, pair)| {
            pair.first().and_then(|token| text::name(*token, sql)).and_then(|n| builtin::pin(&n))
        })
}

/// What SELECT INTO leaves behind, if this is one.
fn select_into(sql: &str, tokens: &[Token]) -> Command {
    let mut cursor = Cursor::new(sql, tokens);
    let mut previous_as = false;
    while let Some(token) = cursor.next() {
        if text::is_word(token, sql, "into") && !previous_as {
            let temporary = cursor.eat_any(&["temp", "temporary"])
                || (cursor.eat_any(&["local", "global"]) && cursor.eat_any(&["temp", "temporary"]))
                || cursor.is_word("pg_temp");
            return if temporary { Command::Pin(PinReason::TemporaryTable) } else { Command::Definition };
        }
        previous_as = text::is_word(token, sql, "as");
    }
    Command::Plain
}

/// The statements of a text, empty ones left out. A semicolon within parentheses belongs to CREATE RULE, and one after
/// BEGIN ATOMIC to the body of a function.
fn split<'a>(sql: &'a str, tokens: &'a [Token]) -> impl Iterator<Item = &'a [Token]> {
    let mut rest = tokens;
    std::iter::from_fn(move || {
        while let [Token { kind: TokenKind::Semicolon, .. }, tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return None;
        }
        let mut depth = 0_usize;
        let creates = rest.first().is_some_and(|token| text::is_word(*token, sql, "create"));
        let mut end = rest.len();
        for (i, token) in rest.iter().enumerate() {
            match token.kind {
                TokenKind::LeftParen => depth += 1,
                TokenKind::RightParen => depth = depth.saturating_sub(1),
                TokenKind::Semicolon if depth == 0 => {
                    end = i;
                    break;
                }
                TokenKind::Word if creates && text::is_word(*token, sql, "atomic") => break,
                _ => {}
            }
        }
        let (statement, tail) = rest.split_at(end);
        rest = tail;
        Some(statement)
    })
}

/// Whether a statement is within the limits, by its tokens alone.
///
/// The parser and the syntax tree recurse with each parenthesis, CASE and prefix, and the tree leans to one side with
/// each operator; a comma starts afresh. Words count like operators, because NOT, AND, IS and JOIN are some.
fn measure(sql: &str, tokens: &[Token], limits: &Limits) -> bool {
    // For each open parenthesis: operators around it, of which the ones on its own level start afresh at a comma.
    let mut open: Vec<usize> = Vec::new();
    let mut chain = 0_usize;
    let mut base = 0_usize;
    let mut prefixes = 0_usize;
    for token in tokens {
        match token.kind {
            TokenKind::LeftParen | TokenKind::LeftBracket => {
                open.push(base);
                base = chain;
                prefixes = 0;
            }
            TokenKind::RightParen | TokenKind::RightBracket => {
                base = open.pop().unwrap_or(0);
                prefixes = 0;
            }
            TokenKind::Comma => {
                chain = base;
                prefixes = 0;
            }
            TokenKind::Word if text::is_word(*token, sql, "case") => {
                open.push(base);
                base = chain;
            }
            TokenKind::Word if text::is_word(*token, sql, "end") => base = open.pop().unwrap_or(0),
            TokenKind::Word if text::is_word(*token, sql, "not") => {
                chain += 1;
                prefixes += 1;
            }
            TokenKind::Operator => {
                chain += 1;
                prefixes += 1;
            }
            TokenKind::Word | TokenKind::Typecast | TokenKind::Colon => {
                chain += 1;
                prefixes = 0;
            }
            _ => prefixes = 0,
        }
        if open.len() + prefixes > limits.depth || chain > limits.chain {
            return false;
        }
    }
    true
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 10, depth: 64, chain: 2000 }
    }
}

// === impl Statement ===

impl Statement {
    pub(crate) fn new(kind: Kind, reason: Reason, command: Command) -> Self {
        Self { kind, reason, command, symbols: Found::default() }
    }
}

// === impl Found ===

impl Found {
    pub(crate) fn append(&mut self, mut other: Self) {
        self.functions.append(&mut other.functions);
        self.relations.append(&mut other.relations);
        self.operators.append(&mut other.operators);
        self.types.append(&mut other.types);
        self.attributes.append(&mut other.attributes);
    }

    /// Each name once, in a fixed order.
    pub(crate) fn finish(self) -> Symbols {
        fn once<T: Ord>(mut names: Vec<T>) -> Box<[T]> {
            names.sort_unstable();
            names.dedup();
            names.into_boxed_slice()
        }
        Symbols {
            functions: once(self.functions),
            relations: once(self.relations),
            operators: once(self.operators),
            types: once(self.types),
            attributes: once(self.attributes),
        }
    }
}

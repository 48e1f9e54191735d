//! From a text to its class.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token as ParserToken;

use crate::builtin;
use crate::class::{Class, Command, Kind, PinReason, SettingValue};
use crate::combine::Combination;
use crate::leaves::{self, Changed, Mentions};
use crate::lexer::{Lexer, Token, TokenKind};
use crate::pieces::{self, Ended, Piece};
use crate::reason::Reason;
use crate::symbols::{Name, Symbols};
use crate::text::{self, Cursor};
use crate::utility::Parsed;
use crate::walk::{Outcome, Walk};
use crate::{measure, translate, utility};

/// How far classification goes; what is beyond is [`Reason::TooComplex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a text: a longer one is not looked at, and whatever it may do is assumed.
    pub text: usize,
    /// Statements in a text, likewise.
    pub statements: usize,
    /// Tokens in all that is parsed of a text. Each takes from a tenth of a microsecond to four, during which the thread does
    /// nothing else.
    pub tokens: usize,
    /// Bytes of one statement.
    pub bytes: usize,
    /// Bytes of stack that parsing may take, by a pessimistic estimate from the tokens: enough for 25 queries within
    /// each other, or 150 parentheses, or a chain of 1,500 comparisons. Unoptimised code must stay within it as well.
    pub stack: usize,
}

/// What one statement is, by itself.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) kind: Kind,
    pub(crate) reason: Reason,
    pub(crate) command: Command,
    pub(crate) symbols: Found,
    /// It would be a read, if its answer did not belong to the node that gives it.
    pub(crate) asks_node: bool,
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
///
/// Statements beyond the limits are still told apart, so that SET and the like are never missed. Of a text beyond them
/// nothing is known: it may leave anything behind.
pub fn classify(sql: &[u8], limits: &Limits) -> Class {
    if sql.len() > limits.text {
        return Class::unknown(Reason::TooComplex);
    }
    // The server refuses such a text as well, in a session whose encoding is UTF8.
    let Ok(text) = std::str::from_utf8(sql) else {
        return Class::plain(Kind::Write, Reason::Encoding);
    };
    let mut combination = Combination::default();
    let (mut statements, mut tokens) = (limits.statements, limits.tokens);
    let ended = pieces::each(text, |piece| {
        statements = statements.checked_sub(1)?;
        let statement = piece_statement(text, piece, limits, &mut tokens);
        combination.gathered.statement(text, piece, &statement);
        combination.add(statement);
        Some(())
    });
    match ended {
        Ended::Whole => combination.finish(),
        // The server parses all of a text before it runs any: an error in the last statement keeps the first from running.
        Ended::Malformed => Class::plain(Kind::Write, Reason::Unparsable),
        Ended::Stopped => Class::unknown(Reason::TooComplex),
    }
}

/// The class of a text in an encoding other than UTF8 whose characters contain no ASCII bytes: what it does to the session is
/// known but for the names, and the primary runs it.
pub(crate) fn classify_foreign(sql: &[u8], limits: &Limits) -> Class {
    // A letter stands for each byte that is none of ASCII's.
    let text: String = sql.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { 'é' }).collect();
    let mut class = classify(text.as_bytes(), limits);
    let named = Lexer::new(text.as_bytes())
        .any(|token| token.kind.is_name() && !token.text(text.as_bytes()).is_ascii());
    if named {
        class.mentions = Mentions::unknown();
    }
    for command in &mut class.commands {
        // They would be repeated in other letters.
        let pin = match command {
            Command::Set { value: SettingValue::Text(text), .. } if !text.is_ascii() => PinReason::Setting,
            Command::Set { name, .. } | Command::Reset(Some(name)) if !name.is_ascii() => PinReason::Setting,
            Command::Deallocate(Some(name)) if !name.is_ascii() => PinReason::SqlPrepare,
            _ => continue,
        };
        *command = Command::Pin(pin);
    }
    class.leaves.settings = class.leaves.settings.iter().filter(|name| name.is_ascii()).cloned().collect();
    if matches!(class.kind, Kind::Read | Kind::Session | Kind::Either | Kind::BeginReadOnly) {
        let session = class.kind == Kind::Session;
        class.kind = if session { Kind::WriteSession } else { Kind::Write };
        class.reason = Reason::Encoding;
    }
    class
}

/// `left`: how many more tokens may be parsed.
fn piece_statement(sql: &str, piece: &Piece, limits: &Limits, left: &mut usize) -> Statement {
    let tokens = &*piece.tokens;
    let bytes = tokens.first().zip(tokens.last()).map_or(0, |(first, last)| last.end - first.start);
    let parsed = utility::parsed(sql, tokens);
    let costs = if matches!(parsed, Parsed::Query | Parsed::Inside) { tokens.len() } else { 0 };
    if piece.whole && bytes <= limits.bytes && costs <= *left && measure::stack(sql, tokens) <= limits.stack {
        *left -= costs;
        return statement(sql, tokens);
    }
    let mut statement = refused(sql, tokens, Reason::TooComplex);
    match (parsed, &statement.command) {
        (Parsed::Query, Command::Plain) => statement.command = select_into(sql, tokens),
        (Parsed::Query | Parsed::Never, _) => {}
        // SET and the like need no parser, and the commands they give are needed.
        (Parsed::Tokens, _) if piece.whole => statement = utility::statement(sql, tokens),
        (Parsed::Tokens | Parsed::Inside, _) => statement.command = Command::Pin(PinReason::Other),
    }
    if let (Some(pin), Command::Plain) = (piece.pin, &statement.command) {
        statement.command = Command::Pin(pin);
    }
    if matches!(statement.command, Command::Pin(_)) && statement.kind == Kind::Write {
        statement.kind = Kind::WriteSession;
    }
    statement
}

/// Whether a statement, parentheses aside, is a SELECT, VALUES, TABLE or WITH.
pub(crate) fn starts_query(mut cursor: Cursor<'_>) -> bool {
    while cursor.eat_kind(TokenKind::LeftParen) {}
    ["select", "with", "values", "table"].iter().any(|word| cursor.is_word(word))
}

/// A statement of which nothing is known but its tokens.
pub(crate) fn refused(sql: &str, tokens: &[Token], reason: Reason) -> Statement {
    let command = pin(sql, tokens).map_or(Command::Plain, Command::Pin);
    Statement::new(Kind::Write, reason, command)
}

/// A statement without its semicolon.
fn statement(sql: &str, tokens: &[Token]) -> Statement {
    if starts_query(Cursor::new(sql, tokens)) {
        return query(sql, tokens);
    }
    utility::statement(sql, tokens)
}

/// A SELECT, VALUES, TABLE or WITH.
pub(crate) fn query(sql: &str, tokens: &[Token]) -> Statement {
    let mut walk = Walk::default();
    let outcome =
        if translate::locks(sql, tokens) { Err(Reason::Locking) } else { names(sql, tokens, &mut walk) };
    let command = match (pin(sql, tokens), outcome) {
        (Some(pin), _) => Command::Pin(pin),
        (None, Err(_)) => select_into(sql, tokens),
        (None, Ok(())) => Command::Plain,
    };
    let session = walk.session || matches!(command, Command::Pin(_));
    let Walk { functions, relations, operators, types, attributes, node_local, .. } = walk;
    let symbols = Found { functions, relations, operators, types, attributes };
    match outcome {
        Ok(()) if node_local && session => Statement::new(Kind::WriteSession, Reason::NodeLocal, command),
        Ok(()) if node_local => {
            let statement = Statement::new(Kind::Write, Reason::NodeLocal, command);
            Statement { symbols, asks_node: true, ..statement }
        }
        Ok(()) if session => {
            Statement { symbols, ..Statement::new(Kind::Session, Reason::SessionState, command) }
        }
        Ok(()) => Statement { symbols, ..Statement::new(Kind::Read, Reason::Read, command) },
        Err(Reason::SessionState) => Statement::new(Kind::Session, Reason::SessionState, command),
        Err(reason) => {
            Statement::new(if session { Kind::WriteSession } else { Kind::Write }, reason, command)
        }
    }
}

/// Gathers the names in a query that is a read as far as its syntax goes; or tells why it is none.
fn names(sql: &str, tokens: &[Token], walk: &mut Walk) -> Outcome {
    let translated = translate::translate(sql, tokens).ok_or(Reason::Unparsable)?;
    let mut parser =
        Parser::new(&PostgreSqlDialect {}).with_recursion_limit(RECURSION).with_tokens(translated.tokens);
    let query = parser.parse_query().map_err(|_| Reason::Unparsable)?;
    if parser.peek_token_ref().token != ParserToken::EOF {
        return Err(Reason::Unparsable);
    }
    walk.query(&query)?;
    if translate::modifies(sql, tokens) {
        return Err(Reason::Write);
    }
    let mut names: Vec<&str> = walk.functions.iter().map(|call| &*call.name.name).collect();
    names.extend(walk.listed.iter().map(|name| &**name));
    names.sort_unstable();
    let explained = |name: &str| names.binary_search(&name).is_ok() || builtin::is_syntax(name);
    if !translated.called.iter().all(|name| explained(name)) {
        return Err(Reason::Unparsable);
    }
    if translated.variadic {
        walk.functions.iter_mut().for_each(|call| call.arguments = None);
    }
    walk.operators.extend(translated.operators);
    let unknown = |name: &Name| !name.builtin && name.schema.as_deref() == Some("pg_catalog");
    if walk.operators.iter().any(unknown) { Err(Reason::UnknownOperatorOrType) } else { Ok(()) }
}

/// The parser's own bound on recursion, for what the estimate may have missed.
pub(crate) const RECURSION: usize = 120;

/// What a call of a built-in function anywhere in a statement leaves in the session, told from the tokens, so that it
/// holds for statements that nobody could parse.
pub(crate) fn pin(sql: &str, tokens: &[Token]) -> Option<PinReason> {
    (0..tokens.len()).find_map(|i| {
        let (name, next) = (tokens.get(i)?, tokens.get(i + 1)?);
        let opens = |n: usize| tokens.get(i + n).is_some_and(|token| token.kind == TokenKind::LeftParen);
        if name.kind == TokenKind::UnicodeWord
            && (opens(1) || (text::is_word(*next, sql, "uescape") && opens(3)))
        {
            // Its meaning takes an escape character to know.
            return Some(PinReason::Other);
        }
        if !name.kind.is_name() || next.kind != TokenKind::LeftParen {
            return None;
        }
        let name = text::name(*name, sql)?;
        // Qualified by another schema it is another function.
        let before = |n: usize| i.checked_sub(n).and_then(|i| tokens.get(i)).copied();
        if before(1).is_some_and(|dot| dot.kind == TokenKind::Dot)
            && before(2).and_then(|schema| text::name(schema, sql)).as_deref() != Some("pg_catalog")
        {
            return None;
        }
        if &*name == "set_config" {
            let mut rest = Cursor::new(sql, tokens.get(i + 2..).unwrap_or_default());
            let changed = leaves::changed_setting(sql, rest.parenthesised().unwrap_or_default());
            return matches!(changed, Changed::Unknown).then_some(PinReason::Setting);
        }
        builtin::pin(&name)
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

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { text: 1 << 20, statements: 1000, tokens: 4096, bytes: 64 << 10, stack: 1600 << 10 }
    }
}

// === impl Statement ===

impl Statement {
    pub(crate) fn new(kind: Kind, reason: Reason, command: Command) -> Self {
        let shown = matches!(command, Command::Show(_));
        let asks_node = shown && reason == Reason::NodeLocal;
        Self { kind, reason, command, symbols: Found::default(), asks_node }
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

#[cfg(test)]
mod tests;

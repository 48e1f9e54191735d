//! Statements that begin with a keyword of their own: everything but SELECT, VALUES, TABLE and WITH.
//!
//! They are read from PostgreSQL's tokens, after `src/backend/parser/gram.y`; the parser knows too few of them. What
//! does not read as expected is a write: the server will answer with its own error.

mod setting;
mod transaction;

use crate::class::{Command, Kind, PinReason};
use crate::classify::{Found, RECURSION, Statement, query, refused, starts_query};
use crate::lexer::{Token, TokenKind};
use crate::reason::Reason;
use crate::symbols::Name;
use crate::text::{self, Cursor};
use crate::{builtin, translate};

/// A statement that begins with a word.
pub(crate) fn statement(sql: &str, tokens: &[Token]) -> Statement {
    let mut cursor = Cursor::new(sql, tokens);
    let word = match cursor.next() {
        Some(token) if token.kind == TokenKind::Word => text::name(token, sql).unwrap_or_default(),
        _ => return refused(sql, tokens, Reason::Unparsable),
    };
    let session = |command| Some(Statement::new(Kind::Session, Reason::SessionState, command));
    let writes = |command| Some(Statement::new(Kind::Write, Reason::Write, command));
    let read = match &*word {
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release" => {
            transaction::statement(&word, &mut cursor)
        }
        "prepare" if cursor.eat("transaction") => writes(Command::PrepareTransaction),
        "prepare" => session(Command::Pin(PinReason::SqlPrepare)),
        // What it does depends on the text that was prepared.
        "execute" => Some(Statement::new(
            Kind::WriteSession,
            Reason::SessionState,
            Command::Pin(PinReason::SqlPrepare),
        )),
        "deallocate" => deallocate(&mut cursor),
        "set" => setting::set(&mut cursor),
        "reset" => setting::reset(&mut cursor),
        "show" => setting::show(&mut cursor),
        "discard" if cursor.is_word("all") => session(Command::DiscardAll),
        "discard" | "fetch" | "move" | "close" | "unlisten" => session(Command::Plain),
        "declare" => declare(&mut cursor),
        "listen" => {
            Some(Statement::new(Kind::WriteSession, Reason::SessionState, Command::Pin(PinReason::Listen)))
        }
        "load" => session(Command::Pin(PinReason::Load)),
        "lock" => Some(Statement::new(Kind::Write, Reason::Locking, Command::Plain)),
        "create" => Some(create(sql, tokens)),
        "alter" | "drop" | "import" | "security" => writes(Command::Definition),
        "explain" => explain(sql, &mut cursor),
        "copy" => copy(sql, &mut cursor),
        "insert" | "update" | "delete" | "merge" => Some(refused(sql, tokens, Reason::Write)),
        // What the code of DO and CALL leaves behind is gathered apart from this.
        "notify" | "vacuum" | "analyze" | "analyse" | "checkpoint" | "cluster" | "reindex" | "refresh"
        | "truncate" | "grant" | "revoke" | "comment" | "reassign" | "do" | "call" => writes(Command::Plain),
        _ => None,
    };
    read.unwrap_or_else(|| {
        let statement = refused(sql, tokens, Reason::Unparsable);
        // If the server can read it after all, it leaves something in the session.
        let pin = match &*word {
            "set" | "reset" | "discard" => PinReason::Setting,
            "deallocate" => PinReason::SqlPrepare,
            "declare" => PinReason::Cursor,
            _ => return statement,
        };
        Statement::new(Kind::WriteSession, Reason::Unparsable, Command::Pin(pin))
    })
}

/// What of a statement goes through the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// All of it.
    Query,
    /// The query inside it.
    Inside,
    /// Nothing, and nothing of it is looked at but its first word.
    Never,
    /// Nothing: it is read from its tokens.
    Tokens,
}

/// What of a statement goes through the parser.
pub(crate) fn parsed(sql: &str, tokens: &[Token]) -> Parsed {
    let first = Cursor::new(sql, tokens);
    let any = |words: &[&str]| words.iter().any(|word| first.is_word(word));
    match () {
        () if starts_query(first) => Parsed::Query,
        () if any(&["insert", "update", "delete", "merge"]) || first.is_kind(TokenKind::LeftParen) => {
            Parsed::Never
        }
        () if any(&["copy", "declare", "explain"]) => Parsed::Inside,
        () => Parsed::Tokens,
    }
}

fn deallocate(cursor: &mut Cursor<'_>) -> Option<Statement> {
    // PREPARE is a word that may be left out, and may itself be a name.
    if cursor.rest().len() > 1 {
        cursor.eat("prepare");
    }
    let name = if cursor.eat("all") { None } else { Some(cursor.name()?) };
    cursor.at_end().then(|| Statement::new(Kind::Session, Reason::SessionState, Command::Deallocate(name)))
}

/// DECLARE name [BINARY] [INSENSITIVE] [[NO] SCROLL] CURSOR [WITH HOLD] FOR query
fn declare(cursor: &mut Cursor<'_>) -> Option<Statement> {
    cursor.name()?;
    while cursor.eat_any(&["binary", "asensitive", "insensitive", "no", "scroll"]) {}
    if !cursor.eat("cursor") {
        return None;
    }
    let hold = cursor.eat_all(&["with", "hold"]);
    if !hold {
        cursor.eat_all(&["without", "hold"]);
    }
    if !cursor.eat("for") {
        return None;
    }
    if !starts_query(*cursor) {
        return None;
    }
    let inner = query(cursor.sql(), cursor.rest());
    let pin = match inner.command {
        Command::Pin(pin) => Some(pin),
        _ => hold.then_some(PinReason::Cursor),
    };
    let command = pin.map_or(Command::Plain, Command::Pin);
    Some(match inner.kind {
        Kind::Read | Kind::Session => {
            let statement = Statement::new(Kind::Session, Reason::SessionState, command);
            Statement { symbols: inner.symbols, ..statement }
        }
        // A holdable cursor that locks leaves both.
        _ if hold => Statement::new(Kind::WriteSession, inner.reason, command),
        _ => Statement::new(Kind::Write, inner.reason, command),
    })
}

fn create(sql: &str, tokens: &[Token]) -> Statement {
    // CREATE [OR REPLACE] [GLOBAL | LOCAL] {TEMP | TEMPORARY}, and anything put into the schema pg_temp.
    let mut head = Cursor::new(sql, tokens);
    while head.eat_any(&["create", "or", "replace", "global", "local"]) {}
    let temporary = head.eat_any(&["temp", "temporary"]);
    let named = tokens.windows(2).any(|pair| {
        matches!(pair, [schema, dot] if dot.kind == TokenKind::Dot
            && text::name(*schema, sql).as_deref() == Some("pg_temp"))
    });
    if temporary || named {
        return Statement::new(Kind::WriteSession, Reason::Write, Command::Pin(PinReason::TemporaryTable));
    }
    Statement::new(Kind::Write, Reason::Write, Command::Definition)
}

/// EXPLAIN [ANALYZE] [VERBOSE] statement, or EXPLAIN (option [value], ...) statement
fn explain(sql: &str, cursor: &mut Cursor<'_>) -> Option<Statement> {
    let mut analyze = false;
    let options = cursor.is_kind(TokenKind::LeftParen)
        && !["select", "with", "values", "table"].iter().any(|word| cursor.is_word_at(1, word))
        && !cursor.rest().get(1).is_some_and(|token| token.kind == TokenKind::LeftParen);
    if options {
        cursor.next();
        let inside = cursor.parenthesised()?;
        for option in inside.split(|token| token.kind == TokenKind::Comma) {
            let mut option = Cursor::new(sql, option);
            let name = option.name()?;
            if matches!(&*name, "analyze" | "analyse") {
                // The last one counts for the server; any counts here.
                analyze |= boolean(sql, &mut option)?;
            }
        }
    } else {
        analyze = cursor.eat_any(&["analyze", "analyse"]);
        cursor.eat("verbose");
    }
    let planned = cursor.rest();
    let first = Cursor::new(sql, planned);
    if !analyze && ["insert", "update", "delete", "merge"].iter().any(|word| first.is_word(word)) {
        return plan_only(sql, planned);
    }
    match () {
        () if starts_query(first) => Some(query(sql, planned)),
        () if first.is_word("execute") => Some(Statement::new(
            Kind::WriteSession,
            Reason::SessionState,
            Command::Pin(PinReason::SqlPrepare),
        )),
        // CREATE TABLE AS, CREATE MATERIALIZED VIEW
        () if first.is_word("create") => Some(create(sql, planned)),
        () => None,
    }
}

/// The value of a boolean option, as `defGetBoolean` reads it; `None` for what it refuses.
fn boolean(sql: &str, option: &mut Cursor<'_>) -> Option<bool> {
    let Some(token) = option.next() else { return Some(true) };
    let value = text::string(token, sql).or_else(|| text::name(token, sql));
    let value = value.or_else(|| sql.get(token.start..token.end).map(Box::from))?;
    match (value.to_ascii_lowercase().as_str(), option.at_end()) {
        ("true" | "on" | "1", true) => Some(true),
        ("false" | "off" | "0", true) => Some(false),
        _ => None,
    }
}

/// EXPLAIN without ANALYZE of a statement that modifies: it is planned, and a standby can do that. It opens its
/// relations though, and refuses temporary and unlogged ones.
fn plan_only(sql: &str, tokens: &[Token]) -> Option<Statement> {
    let translated = translate::translate(sql, tokens)?;
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let parser = sqlparser::parser::Parser::new(&dialect).with_recursion_limit(RECURSION);
    let statements = parser.with_tokens(translated.tokens).parse_statements().ok()?;
    let [statement] = statements.as_slice() else { return None };
    let mut relations = Vec::new();
    let flow =
        sqlparser::ast::visit_relations(statement, |relation| match crate::walk::names::object(relation) {
            Ok(name) => {
                relations.push(name);
                std::ops::ControlFlow::Continue(())
            }
            Err(_) => std::ops::ControlFlow::Break(()),
        });
    if flow.is_break() || relations.is_empty() {
        return None;
    }
    let symbols = Found { relations, ..Found::default() };
    Some(Statement { symbols, ..Statement::new(Kind::Read, Reason::Read, Command::Plain) })
}

/// COPY relation [(columns)] TO STDOUT, or COPY (query) TO STDOUT; all else writes, here or into a file.
fn copy(sql: &str, cursor: &mut Cursor<'_>) -> Option<Statement> {
    let writes = || Some(Statement::new(Kind::Write, Reason::Write, Command::Plain));
    let mut statement = if cursor.eat_kind(TokenKind::LeftParen) {
        let inside = cursor.parenthesised()?;
        if !starts_query(Cursor::new(sql, inside)) {
            return writes();
        }
        query(sql, inside)
    } else {
        cursor.eat("binary");
        let mut name = Name { schema: None, name: cursor.name()?, builtin: false };
        if cursor.eat_kind(TokenKind::Dot) {
            name = Name { schema: Some(name.name), name: cursor.name()?, builtin: false };
        }
        if cursor.eat_kind(TokenKind::LeftParen) {
            cursor.parenthesised()?;
        }
        match crate::walk::names::judge_relation(name) {
            Ok((name, asks_node)) => {
                let symbols = Found { relations: vec![name], ..Found::default() };
                let (kind, reason) =
                    if asks_node { (Kind::Write, Reason::NodeLocal) } else { (Kind::Read, Reason::Read) };
                Statement { symbols, asks_node, ..Statement::new(kind, reason, Command::Plain) }
            }
            Err(reason) => Statement::new(Kind::Write, reason, Command::Plain),
        }
    };
    // The grammar takes STDIN here as well, and means the client by both.
    if !(cursor.eat("to") && cursor.eat_any(&["stdout", "stdin"])) {
        let pin = matches!(statement.command, Command::Pin(_));
        statement.kind = if pin { Kind::WriteSession } else { Kind::Write };
        statement.reason = Reason::Write;
        statement.asks_node = false;
        statement.symbols = Found::default();
    }
    Some(statement)
}

/// What SHOW and the like are, by the setting's name.
fn shown(name: &str) -> (Kind, Reason) {
    match builtin::setting(name) {
        builtin::Effect::Harmless => (Kind::Read, Reason::Read),
        builtin::Effect::NodeLocal => (Kind::Write, Reason::NodeLocal),
        _ => (Kind::Session, Reason::SessionState),
    }
}

//! The bodies of functions: what they may leave behind when they have run.

use super::{Gathered, Leaves, Mentions, is_transactional};
use crate::builtin;
use crate::class::{Command, PinReason};
use crate::lexer::{Lexer, Token, TokenKind};
use crate::text::{self, Cursor};
use crate::utility;

/// A function as `pg_proc` has it.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// `lanname`.
    pub language: &'a str,
    /// Its source, or what `pg_get_function_sqlbody` gives; `None` if that is too long to be looked at.
    pub source: Option<&'a str>,
    /// `provolatile`.
    pub volatility: char,
    /// The extension that it belongs to.
    pub extension: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

/// How deep texts may stand in texts.
const MOST_DEPTH: usize = 4;

/// Extensions whose functions in C change nothing of a session, but for [`SESSION_FUNCTIONS`].
const EXTENSIONS: [&str; 48] = [
    "address_standardizer",
    "adminpack",
    "amcheck",
    "autoinc",
    "bloom",
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "dblink",
    "dict_int",
    "dict_xsyn",
    "earthdistance",
    "file_fdw",
    "fuzzystrmatch",
    "hll",
    "hstore",
    "insert_username",
    "intagg",
    "intarray",
    "ip4r",
    "isn",
    "lo",
    "ltree",
    "moddatetime",
    "old_snapshot",
    "pageinspect",
    "pg_buffercache",
    "pg_freespacemap",
    "pg_prewarm",
    "pg_stat_statements",
    "pg_surgery",
    "pg_trgm",
    "pg_visibility",
    "pg_walinspect",
    "pgcrypto",
    "pgrowlocks",
    "pgstattuple",
    "postgis",
    "postgis_topology",
    "postgres_fdw",
    "refint",
    "seg",
    "sslinfo",
    "tcn",
    "tsm_system_rows",
    "unaccent",
    "vector",
];

/// Functions of those extensions that do: connections and cursors of dblink, a threshold of `pg_trgm`.
const SESSION_FUNCTIONS: [&str; 9] = [
    "dblink_connect",
    "dblink_connect_u",
    "dblink_disconnect",
    "dblink_exec",
    "dblink_open",
    "dblink_close",
    "dblink_send_query",
    "dblink_fetch",
    "set_limit",
];

/// What a function may leave behind by itself, and what it mentions. What cannot be told may be anything.
pub fn code(code: &Code<'_>) -> (Leaves, Mentions) {
    let mut gathered = Gathered::default();
    match (code.language, code.source) {
        ("sql" | "plpgsql", Some(source)) => body(&mut gathered, source, 0),
        ("internal", Some(source)) => match builtin::pin(source) {
            Some(reason) => gathered.pins.insert(reason),
            None if source == "set_config_by_name" => gathered.pins.insert(PinReason::Setting),
            None => {}
        },
        ("c", _) if SESSION_FUNCTIONS.contains(&code.name) => gathered.pins.insert(PinReason::Procedure),
        ("c", _) => {
            let known = code.extension.is_some_and(|name| EXTENSIONS.binary_search(&name).is_ok());
            // A label that promises no effect is believed of those who can write C.
            if !known && code.volatility == 'v' {
                gathered.pins.insert(PinReason::Procedure);
            }
        }
        // Without their doors to SQL they reach nothing of the session.
        ("plpython3u" | "plpythonu", Some(source)) if !source.contains("plpy") => {}
        ("plperl" | "plperlu" | "pltcl" | "pltclu", Some(source)) if !source.contains("spi_") => {}
        _ => gathered.pins.insert(PinReason::Procedure),
    }
    gathered.finish()
}

/// DO [LANGUAGE name] body [LANGUAGE name]
pub(super) fn block(gathered: &mut Gathered, sql: &str, tokens: &[Token]) {
    let language = tokens.windows(2).find_map(|pair| match pair {
        [word, name] if text::is_word(*word, sql, "language") => text::name(*name, sql),
        _ => None,
    });
    let source = tokens.iter().find(|token| token.kind.is_string()).map(|token| text::string(*token, sql));
    match (language.as_deref(), source) {
        (None | Some("plpgsql"), Some(Some(source))) => body(gathered, &source, 0),
        _ => gathered.pins.insert(PinReason::Procedure),
    }
}

/// A body in SQL or PL/pgSQL.
fn body(gathered: &mut Gathered, source: &str, depth: usize) {
    if depth > MOST_DEPTH {
        return gathered.pins.insert(PinReason::Procedure);
    }
    let tokens: Vec<Token> = Lexer::new(source.as_bytes()).collect();
    if tokens.iter().any(|token| matches!(token.kind, TokenKind::Invalid | TokenKind::Unterminated)) {
        return gathered.pins.insert(PinReason::Procedure);
    }
    gathered.names(source, &tokens);
    let mut start = true;
    for (i, token) in tokens.iter().enumerate() {
        if token.kind == TokenKind::Word {
            let rest = tokens.get(i..).unwrap_or_default();
            if start {
                statement(gathered, source, rest);
            }
            if text::is_word(*token, source, "execute") {
                execute(gathered, source, &tokens, rest, depth);
            }
        }
        start = begins_after(source, *token);
    }
    let named = |name: &str| {
        tokens.windows(2).any(|pair| {
            matches!(pair, [schema, dot] if dot.kind == TokenKind::Dot
                && text::name(*schema, source).as_deref() == Some(name))
        })
    };
    if named("pg_temp") {
        gathered.pins.insert(PinReason::TemporaryTable);
    }
    let words = |pair: &[Token], first, second| matches!(pair, [a, b] if text::is_word(*a, source, first) && text::is_word(*b, source, second));
    if tokens.windows(2).any(|pair| words(pair, "with", "hold")) {
        gathered.pins.insert(PinReason::Cursor);
    }
    if tokens.windows(2).any(|pair| words(pair, "into", "temp") || words(pair, "into", "temporary")) {
        gathered.pins.insert(PinReason::TemporaryTable);
    }
}

/// Whether a statement may begin after this token.
fn begins_after(source: &str, token: Token) -> bool {
    const WORDS: [&str; 6] = ["begin", "then", "else", "loop", "atomic", "declare"];
    token.kind == TokenKind::Semicolon
        || token.kind == TokenKind::Operator && token.text(source.as_bytes()) == b">>"
        || WORDS.iter().any(|word| text::is_word(token, source, word))
}

/// A statement of a body, with whatever follows it.
fn statement(gathered: &mut Gathered, source: &str, tokens: &[Token]) {
    let end = tokens.iter().position(|token| token.kind == TokenKind::Semicolon).unwrap_or(tokens.len());
    let tokens = tokens.get(..end).unwrap_or_default();
    let first = Cursor::new(source, tokens);
    let any = |words: &[&str]| words.iter().any(|word| first.is_word(word));
    // `set := 1` is PL/pgSQL, and so is `load.x := 1`.
    if tokens.get(1).is_some_and(|next| matches!(next.kind, TokenKind::ColonEquals | TokenKind::Dot)) {
        return;
    }
    if !any(&["set", "reset", "create", "listen", "load", "prepare", "deallocate", "discard"]) {
        return;
    }
    match utility::statement(source, tokens).command {
        Command::Set { local: true, .. }
        | Command::SetTransaction(_)
        | Command::Plain
        | Command::Definition => {}
        Command::Set { name, .. } if is_transactional(&name) => {}
        Command::Set { name, .. } | Command::Reset(Some(name)) => gathered.settings.push(name),
        Command::SessionCharacteristics(_) => gathered.settings.extend(
            [
                "default_transaction_isolation",
                "default_transaction_read_only",
                "default_transaction_deferrable",
            ]
            .map(Box::from),
        ),
        Command::Pin(PinReason::TemporaryTable) if any(&["create"]) && drops_itself(source, tokens) => {}
        Command::Pin(reason) => gathered.pins.insert(reason),
        Command::Reset(None) => gathered.pins.insert(PinReason::Setting),
        _ => gathered.pins.insert(PinReason::Other),
    }
}

/// CREATE TEMPORARY TABLE .. ON COMMIT DROP
pub(super) fn drops_itself(source: &str, tokens: &[Token]) -> bool {
    tokens.windows(3).any(|words| {
        matches!(words, [on, commit, drop] if text::is_word(*on, source, "on")
            && text::is_word(*commit, source, "commit") && text::is_word(*drop, source, "drop"))
    })
}

/// EXECUTE of PL/pgSQL, whose text is told from its literals: the one that it is given, or, where it is given a variable that
/// the body fills, all of the body.
fn execute(gathered: &mut Gathered, source: &str, all: &[Token], rest: &[Token], depth: usize) {
    let mut cursor = Cursor::new(source, rest);
    cursor.next();
    // EXECUTE FUNCTION of CREATE TRIGGER
    if cursor.eat_any(&["function", "procedure"]) {
        return;
    }
    while cursor.eat_kind(TokenKind::LeftParen) {}
    let Some(first) = cursor.peek() else { return };
    let end = |tokens: &[Token]| {
        let ends = |token: &Token| {
            token.kind == TokenKind::Semicolon
                || ["using", "loop"].iter().any(|word| text::is_word(*token, source, word))
        };
        tokens.iter().position(ends).unwrap_or(tokens.len())
    };
    let tokens = cursor.rest();
    let own = tokens.get(..end(tokens)).unwrap_or_default();
    let formatted = text::is_word(first, source, "format") || text::is_word(first, source, "concat");
    if first.kind.is_string() || formatted {
        return literals(gathered, source, own, depth);
    }
    let filled = text::name(first, source).is_some_and(|name| {
        all.iter().enumerate().any(|(i, token)| {
            let declared = || all.get(i + 1..i + 6).unwrap_or_default().iter();
            text::name(*token, source).as_deref() == Some(&*name)
                && declared().take_while(|token| token.kind != TokenKind::Semicolon).any(|token| {
                    token.kind == TokenKind::ColonEquals
                        || token.kind == TokenKind::Operator && token.text(source.as_bytes()) == b"="
                })
        })
    });
    if filled { literals(gathered, source, all, depth) } else { gathered.pins.insert(PinReason::Procedure) }
}

/// Statements that are put together from the literals among these tokens.
fn literals(gathered: &mut Gathered, source: &str, tokens: &[Token], depth: usize) {
    let mut any = false;
    for token in tokens.iter().filter(|token| token.kind.is_string()) {
        match text::string(*token, source) {
            Some(literal) => {
                any |= literal.bytes().any(|byte| byte.is_ascii_alphabetic());
                dynamic(gathered, &literal, depth);
            }
            None => gathered.pins.insert(PinReason::Procedure),
        }
    }
    if !any {
        gathered.pins.insert(PinReason::Procedure);
    }
}

/// A part of a statement that is put together: quotes need not be in pairs there, and something may follow.
fn dynamic(gathered: &mut Gathered, literal: &str, depth: usize) {
    let literal = format!("{literal} x");
    let whole = Lexer::new(literal.as_bytes())
        .all(|token| !matches!(token.kind, TokenKind::Invalid | TokenKind::Unterminated));
    if whole {
        return body(gathered, &literal, depth + 1);
    }
    let even: String =
        literal.chars().map(|c| if matches!(c, '\'' | '"' | '$' | '%') { ' ' } else { c }).collect();
    body(gathered, &even, depth + 1);
}

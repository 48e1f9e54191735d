//! Statements about whole databases, which fail while anybody is connected to them.

use causeway_routing::lexer::{Lexer, Token, TokenKind};

/// The database that must have no connections for `sql` to succeed: the one that is dropped, renamed or moved, or the
/// template of a new one (`src/backend/commands/dbcommands.c`).
pub(crate) fn must_be_unused(sql: &[u8]) -> Option<String> {
    let mut tokens = Lexer::new(sql);
    let verb = word(tokens.next()?, sql)?;
    if !matches!(verb.as_str(), "drop" | "alter" | "create") || word(tokens.next()?, sql)? != "database" {
        return None;
    }
    let rest: Vec<String> = tokens.take(64).map(|token| word(token, sql).unwrap_or_default()).collect();
    match (verb.as_str(), &*rest) {
        ("drop", [r#if, exists, name, ..]) if r#if == "if" && exists == "exists" => Some(name.clone()),
        ("drop" | "alter", [name, ..]) => Some(name.clone()),
        _ => {
            let at = rest.iter().position(|word| word == "template")?;
            rest.iter().skip(at + 1).find(|word| !word.is_empty()).cloned()
        }
    }
}

/// Whether a statement of `sql` changes what sessions begin with: ALTER ROLE, USER, DATABASE or SYSTEM with SET or RESET.
pub(crate) fn changes_defaults(sql: &[u8]) -> bool {
    let mut words = Lexer::new(sql).take(4096).map(|token| word(token, sql).unwrap_or_default());
    while words.by_ref().any(|word| word == "alter") {
        let of = words.next().unwrap_or_default();
        if matches!(of.as_str(), "role" | "user" | "database" | "system") {
            return words.any(|word| matches!(word.as_str(), "set" | "reset"));
        }
    }
    false
}

/// A name as the server folds it; nothing for anything else.
fn word(token: Token, sql: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(token.text(sql));
    match token.kind {
        TokenKind::Word => Some(text.to_ascii_lowercase()),
        TokenKind::QuotedWord => Some(text.trim_matches('"').replace("\"\"", "\"")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_sessions() {
        for (sql, changes) in [
            ("ALTER ROLE app SET work_mem = '1MB'", true),
            ("alter user app in database shop reset all", true),
            ("ALTER DATABASE shop SET search_path TO a, b", true),
            ("ALTER SYSTEM RESET work_mem", true),
            ("ALTER ROLE app PASSWORD 'x'", false),
            ("ALTER TABLE t ALTER a SET NOT NULL", false),
            ("BEGIN; ALTER TABLE t ADD a int; ALTER ROLE app SET work_mem = '1MB'; COMMIT", true),
            ("SET work_mem = '1MB'", false),
        ] {
            assert_eq!(changes_defaults(sql.as_bytes()), changes, "{sql}");
        }
    }

    #[test]
    fn databases_that_must_be_unused() {
        for (sql, database) in [
            ("DROP DATABASE a", Some("a")),
            ("drop database IF EXISTS \"B c\" WITH (FORCE)", Some("B c")),
            ("ALTER DATABASE a RENAME TO b", Some("a")),
            ("CREATE DATABASE a", None),
            ("CREATE DATABASE a TEMPLATE = t OWNER x", Some("t")),
            ("/* x */ create database a template t", Some("t")),
            ("DROP TABLE database", None),
            ("SELECT 1", None),
            ("", None),
        ] {
            assert_eq!(must_be_unused(sql.as_bytes()).as_deref(), database, "{sql}");
        }
    }
}

//! BEGIN, COMMIT and their kin.

use crate::class::{Command, Isolation, Kind, Modes};
use crate::classify::Statement;
use crate::lexer::TokenKind;
use crate::reason::Reason;
use crate::text::Cursor;

/// A statement that begins with `word`, which the cursor is past.
pub(super) fn statement(word: &str, cursor: &mut Cursor<'_>) -> Option<Statement> {
    let control = |command| Statement::new(Kind::TransactionControl, Reason::TransactionControl, command);
    let statement = match word {
        "start" if !cursor.eat("transaction") => return None,
        "begin" | "start" => {
            if word == "begin" {
                cursor.eat_any(&["work", "transaction"]);
            }
            begin(modes(cursor)?)
        }
        "savepoint" | "release" => {
            if word == "release" {
                // RELEASE [SAVEPOINT] name, and "savepoint" is a name as well.
                if cursor.rest().len() > 1 {
                    cursor.eat("savepoint");
                }
            }
            cursor.name()?;
            control(Command::Savepoint)
        }
        _ => {
            if cursor.eat("prepared") {
                // COMMIT PREPARED 'id', ROLLBACK PREPARED 'id'
                return Some(Statement::new(Kind::Write, Reason::Write, Command::Plain));
            }
            cursor.eat_any(&["work", "transaction"]);
            if word == "rollback" && cursor.eat("to") {
                if cursor.rest().len() > 1 {
                    cursor.eat("savepoint");
                }
                cursor.name()?;
                control(Command::Savepoint)
            } else {
                let chain = chain(cursor)?;
                let commits = matches!(word, "commit" | "end");
                control(if commits { Command::Commit { chain } } else { Command::Rollback { chain } })
            }
        }
    };
    cursor.at_end().then_some(statement)
}

/// Transaction modes up to the end, with or without commas; the last mention of each wins.
pub(super) fn modes(cursor: &mut Cursor<'_>) -> Option<Modes> {
    let mut modes = Modes::default();
    while !cursor.at_end() {
        match () {
            () if cursor.eat_all(&["read", "only"]) => modes.read_only = Some(true),
            () if cursor.eat_all(&["read", "write"]) => modes.read_only = Some(false),
            () if cursor.eat("deferrable") => modes.deferrable = Some(true),
            () if cursor.eat_all(&["not", "deferrable"]) => modes.deferrable = Some(false),
            () if cursor.eat_all(&["isolation", "level"]) => modes.isolation = Some(isolation(cursor)?),
            () => return None,
        }
        if cursor.eat_kind(TokenKind::Comma) && cursor.at_end() {
            return None;
        }
    }
    Some(modes)
}

fn isolation(cursor: &mut Cursor<'_>) -> Option<Isolation> {
    match () {
        () if cursor.eat("serializable") => Some(Isolation::Serializable),
        () if cursor.eat_all(&["repeatable", "read"]) => Some(Isolation::RepeatableRead),
        () if cursor.eat_all(&["read", "committed"]) || cursor.eat_all(&["read", "uncommitted"]) => {
            Some(Isolation::ReadCommitted)
        }
        () => None,
    }
}

fn begin(modes: Modes) -> Statement {
    let kind = match modes {
        Modes { read_only: Some(true), isolation: Some(Isolation::Serializable), .. } => {
            Kind::BeginReadOnlyPrimary
        }
        Modes { read_only: Some(true), .. } => Kind::BeginReadOnly,
        _ => Kind::BeginReadWrite,
    };
    Statement::new(kind, Reason::TransactionControl, Command::Begin(modes))
}

fn chain(cursor: &mut Cursor<'_>) -> Option<bool> {
    if !cursor.eat("and") {
        return Some(false);
    }
    let chain = !cursor.eat("no");
    cursor.eat("chain").then_some(chain)
}

//! SET, RESET and SHOW.

use super::{shown, transaction};
use crate::class::{Command, Isolation, Kind, Modes, PinReason, SettingValue};
use crate::classify::Statement;
use crate::lexer::TokenKind;
use crate::reason::Reason;
use crate::text::Cursor;

/// SET [SESSION | LOCAL] ..., past SET.
pub(super) fn set(cursor: &mut Cursor<'_>) -> Option<Statement> {
    if cursor.eat("constraints") {
        return Some(control(Command::Plain));
    }
    if cursor.eat_all(&["session", "characteristics", "as", "transaction"]) {
        return Some(session(Command::SessionCharacteristics(transaction::modes(cursor)?)));
    }
    if cursor.is_word("transaction") && !is_assignment(cursor, 1) {
        cursor.next();
        if cursor.eat("snapshot") {
            // The identifier of a snapshot exists on the node that exported it, which is the primary.
            return Some(Statement::new(Kind::Write, Reason::NodeLocal, Command::Plain));
        }
        return Some(control(Command::SetTransaction(transaction::modes(cursor)?)));
    }
    let local = if is_assignment(cursor, 1) {
        false
    } else if cursor.is_word("session") && !cursor.is_word_at(1, "authorization") {
        cursor.next();
        false
    } else {
        cursor.eat("local")
    };
    let (name, value) = assignment(cursor)?;
    if let Some(modes) = transaction_modes(&name, &value) {
        return Some(control(Command::SetTransaction(modes)));
    }
    if local {
        return Some(control(Command::Set { name, value, local }));
    }
    Some(session(match &*name {
        "session_authorization" => Command::Pin(PinReason::Authorization),
        _ if is_validated(&name) => Command::Pin(PinReason::Setting),
        // Tables made from then on are temporary.
        "search_path" if matches!(&value, SettingValue::Text(text) if text.contains("pg_temp")) => {
            Command::Pin(PinReason::TemporaryTable)
        }
        "timezone" if matches!(&value, SettingValue::Text(text) if is_interval(text)) => {
            Command::Pin(PinReason::Setting)
        }
        _ => Command::Set { name, value, local },
    }))
}

/// RESET, past it.
pub(super) fn reset(cursor: &mut Cursor<'_>) -> Option<Statement> {
    let name = match () {
        () if cursor.eat("all") => None,
        () if cursor.eat_all(&["time", "zone"]) => Some("timezone".into()),
        () if cursor.eat_all(&["session", "authorization"]) => Some("session_authorization".into()),
        () if cursor.eat_all(&["transaction", "isolation", "level"]) => Some("transaction_isolation".into()),
        () => Some(name(cursor)?),
    };
    cursor.at_end().then(|| session(Command::Reset(name)))
}

/// SHOW, past it.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Option<Statement> {
    let name = match () {
        () if cursor.eat("all") => "all".into(),
        () if cursor.eat_all(&["time", "zone"]) => "timezone".into(),
        () if cursor.eat_all(&["session", "authorization"]) => "session_authorization".into(),
        () if cursor.eat_all(&["transaction", "isolation", "level"]) => "transaction_isolation".into(),
        () => name(cursor)?,
    };
    let (kind, reason) = shown(&name);
    cursor.at_end().then(|| Statement::new(kind, reason, Command::Show(name)))
}

/// The part after SET [SESSION | LOCAL], with the spellings of SQL under the setting's own name.
fn assignment(cursor: &mut Cursor<'_>) -> Option<(Box<str>, SettingValue)> {
    let name: Box<str> = match () {
        () if is_assignment(cursor, 1) => name(cursor)?,
        () if cursor.eat_all(&["time", "zone"]) => "timezone".into(),
        () if cursor.eat_all(&["session", "authorization"]) => "session_authorization".into(),
        () if cursor.eat_all(&["xml", "option"]) => "xmloption".into(),
        () if cursor.eat("names") => {
            let value = if cursor.at_end() { SettingValue::Default } else { value(cursor)? };
            return Some(("client_encoding".into(), value));
        }
        () if cursor.eat("schema") => "search_path".into(),
        () if cursor.eat("role") => "role".into(),
        () => {
            let name = name(cursor)?;
            if !(cursor.eat("to") || cursor.eat_equals()) {
                return None;
            }
            return Some((name, value(cursor)?));
        }
    };
    // Already taken where the spelling has none.
    let _assigned = cursor.eat("to") || cursor.eat_equals();
    if &*name == "timezone" && cursor.is_word("local") && cursor.rest().len() == 1 {
        return Some((name, SettingValue::Default));
    }
    Some((name, value(cursor)?))
}

fn value(cursor: &Cursor<'_>) -> Option<SettingValue> {
    if cursor.is_word("default") && cursor.rest().len() == 1 {
        return Some(SettingValue::Default);
    }
    let text = cursor.rest_text();
    (!text.is_empty()).then(|| SettingValue::Text(text.into()))
}

/// Whether the token at `offset` is `=` or TO, so that the word before it is an ordinary setting's name.
fn is_assignment(cursor: &Cursor<'_>, offset: usize) -> bool {
    let mut ahead = *cursor;
    for _ in 0..offset {
        ahead.next();
    }
    ahead.is_word("to") || ahead.eat_equals()
}

/// A setting's name, which may have several parts; settings are found regardless of case.
fn name(cursor: &mut Cursor<'_>) -> Option<Box<str>> {
    let mut name = cursor.name()?.to_ascii_lowercase();
    while cursor.eat_kind(TokenKind::Dot) {
        name.push('.');
        name.push_str(&cursor.name()?.to_ascii_lowercase());
    }
    Some(name.into_boxed_str())
}

/// Settings that are checked against the catalogue, or change who the session is: replaying them elsewhere may fail
/// where it did not here.
fn is_validated(name: &str) -> bool {
    matches!(
        name,
        "default_tablespace"
            | "temp_tablespaces"
            | "default_table_access_method"
            | "default_text_search_config"
    )
}

fn is_interval(text: &str) -> bool {
    text.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("interval"))
}

/// The settings behind SET TRANSACTION, which last as long as the transaction whichever way they are set.
fn transaction_modes(name: &str, value: &SettingValue) -> Option<Modes> {
    let text = match value {
        SettingValue::Text(text) => text.trim_matches('\'').to_ascii_lowercase(),
        SettingValue::Default => return None,
    };
    let flag = || match text.as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    };
    match name {
        // What cannot be read may well mean READ WRITE.
        "transaction_read_only" => {
            Some(Modes { read_only: Some(flag().unwrap_or(false)), ..Modes::default() })
        }
        "transaction_deferrable" => Some(Modes { deferrable: flag(), ..Modes::default() }),
        "transaction_isolation" => {
            let isolation = match text.as_str() {
                "read committed" | "read uncommitted" => Isolation::ReadCommitted,
                "repeatable read" => Isolation::RepeatableRead,
                _ => Isolation::Serializable,
            };
            Some(Modes { isolation: Some(isolation), ..Modes::default() })
        }
        _ => None,
    }
}

fn session(command: Command) -> Statement {
    Statement::new(Kind::Session, Reason::SessionState, command)
}

fn control(command: Command) -> Statement {
    Statement::new(Kind::TransactionControl, Reason::TransactionControl, command)
}

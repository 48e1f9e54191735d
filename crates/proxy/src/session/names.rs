//! Prepared statements have one space of names, whether SQL or the protocol has made them.

use std::sync::Arc;

use causeway_routing::lexer::{Lexer, Token, TokenKind};
use causeway_routing::{Class, Command, PinReason};

use super::Lookups;
use super::Session;
use super::unit::{Item, Note};

/// What a lone statement of SQL does with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Executes,
    Prepares,
}

// === impl Session ===

impl Session {
    /// A text that is EXECUTE or PREPARE alone, and whose name is that of a statement which the protocol has prepared: admits
    /// it under the name that servers know that by. For PREPARE the server says that there is one.
    pub(super) fn admit_named(&mut self, sql: &[u8], class: &Class, lookups: &Lookups<'_>) -> bool {
        let Some((what, name, token)) = named(sql, class) else { return false };
        let known = self.statements.find(&name).map(Arc::clone);
        let Some(statement) = known.filter(|known| !known.server_name.is_empty()) else {
            if what == Use::Prepares {
                self.statements.prepared_by_sql(&name);
            }
            return false;
        };
        self.judge(&statement.class, lookups);
        let note = match what {
            Use::Executes => self.commands(&statement.class),
            Use::Prepares => 0,
        };
        let note = match note {
            0 => self.unit.note(Note::Uses { statement: Arc::clone(&statement) }),
            note => note,
        };
        let before = sql.get(..token.start).unwrap_or_default();
        let after = sql.get(token.end..).unwrap_or_default();
        let text = [before, &*statement.server_name, after].concat();
        self.unit.items.push(Item::Ensure { statement });
        self.unit.items.push(Item::EndPart);
        self.unit.items.push(Item::Instead { sql: text.into(), note });
        true
    }

    /// Whether SQL has prepared something under this name, which a Parse must then meet.
    pub(super) fn is_prepared_by_sql(&self, name: &[u8]) -> bool {
        self.left.pins.contains(PinReason::SqlPrepare) && self.statements.is_prepared_by_sql(name)
    }
}

/// The name that a lone EXECUTE or PREPARE gives, as the server folds it, and where it stands.
fn named(sql: &[u8], class: &Class) -> Option<(Use, Box<[u8]>, Token)> {
    let [Command::Pin(PinReason::SqlPrepare)] = &*class.commands else { return None };
    let mut tokens = Lexer::new(sql);
    let verb = tokens.next()?.text(sql).to_ascii_lowercase();
    let what = match &*verb {
        b"execute" => Use::Executes,
        b"prepare" => Use::Prepares,
        _ => return None,
    };
    let token = tokens.next()?;
    let text = token.text(sql);
    // What is cut off or folded beyond ASCII is left to the server.
    if !text.is_ascii() || text.len() > 63 {
        return None;
    }
    let name = match token.kind {
        TokenKind::Word => text.to_ascii_lowercase(),
        TokenKind::QuotedWord => {
            let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            str::from_utf8(inner).ok()?.replace("\"\"", "\"").into_bytes()
        }
        _ => return None,
    };
    Some((what, name.into(), token))
}

#[cfg(test)]
mod tests {
    use causeway_routing::classify::{Limits, classify};

    use super::*;

    #[test]
    fn names_of_sql() {
        let name = |sql: &str| {
            named(sql.as_bytes(), &classify(sql.as_bytes(), &Limits::default()))
                .map(|(what, name, _)| (what, String::from_utf8_lossy(&name).into_owned()))
        };
        assert_eq!(name("EXECUTE Foo(1, 2)"), Some((Use::Executes, "foo".to_owned())));
        assert_eq!(name("/* x */ execute \"A \"\"b\""), Some((Use::Executes, "A \"b".to_owned())));
        assert_eq!(name("PREPARE s(int) AS SELECT $1"), Some((Use::Prepares, "s".to_owned())));
        for other in ["PREPARE TRANSACTION 'x'", "EXECUTE a; EXECUTE b", "EXPLAIN EXECUTE a", "SELECT 1"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}

//! What a text, and the code that it makes a server run, may leave in the session of the server connection.
//!
//! A session is more than its settings: temporary tables, advisory locks, LISTEN, holdable cursors and prepared statements
//! outlive the transaction that made them, whether a client's own statement did or a function that it called. What is said
//! here is what *may* be left: the server is asked afterwards.

mod body;

use std::fmt;

use crate::builtin;
use crate::catalogue::Catalogue;
use crate::class::{Class, Command, Kind, PinReason};
use crate::classify::Statement;
use crate::lexer::{Token, TokenKind};
use crate::pieces::Piece;
use crate::text::{self, Cursor};

pub use body::{Code, code};

/// A set of reasons for which a session keeps its server connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PinSet(u16);

/// What may be left in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaves {
    /// What may be there; [`PinReason::Setting`] for settings whose names are not known.
    pub pins: PinSet,
    /// The settings that may have been changed, in lower case.
    pub settings: Box<[Box<str>]>,
}

/// Names that occur in a text, as numbers: two names may share one, and then count as the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// In order, each once.
    names: Box<[u32]>,
    /// There are others.
    more: bool,
    /// What may be a call of a function that PostgreSQL does not have itself.
    calls: Box<[u32]>,
    /// Such a function may be called: by its name, or behind a table that is written to.
    foreign: bool,
}

/// What is found while tokens are looked at.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four facts that hold or not, each by itself")]
pub(crate) struct Gathered {
    pub(crate) pins: PinSet,
    pub(crate) settings: Vec<Box<str>>,
    /// Something that the session has may be gone afterwards.
    pub(crate) releases: bool,
    /// Code is defined that other statements may run.
    pub(crate) defines_code: bool,
    names: Vec<u32>,
    calls: Vec<u32>,
    more: bool,
    foreign: bool,
}

/// What a class may leave behind in one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// This.
    Something(Leaves),
    /// It runs code of which nothing is known, as long as the catalogue is not.
    Unknown,
}

/// Words that a definition of code has in it.
const CODE: [&str; 16] = [
    "aggregate",
    "cast",
    "check",
    "default",
    "domain",
    "extension",
    "function",
    "operator",
    "policy",
    "procedure",
    "routine",
    "rule",
    "schema",
    "trigger",
    "type",
    "view",
];

/// More names of one text than this are not kept.
const MOST_NAMES: usize = 4096;

/// What leaves `class` behind in the session, in the database of this catalogue or in one whose catalogue is not known yet.
#[inline]
pub fn left(class: &Class, catalogue: Option<&Catalogue>) -> Left {
    let own = class.leaves.is_empty();
    match catalogue {
        Some(catalogue) if own && class.mentions.calls.is_empty() && !catalogue.leaves_anything() => {
            Left::Nothing
        }
        Some(catalogue) => catalogue.left(class),
        None if class.mentions.foreign => Left::Unknown,
        None if own => Left::Nothing,
        None => Left::Something(class.leaves.clone()),
    }
}

// === impl PinSet ===

impl PinSet {
    /// Adds a reason.
    pub fn insert(&mut self, reason: PinReason) {
        self.0 |= 1 << reason.index();
    }

    /// Takes a reason out.
    pub fn remove(&mut self, reason: PinReason) {
        self.0 &= !(1 << reason.index());
    }

    /// Whether this reason is one of them.
    #[must_use]
    pub fn contains(self, reason: PinReason) -> bool {
        self.0 & (1 << reason.index()) != 0
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of this set that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The first in the order of [`PinReason::ALL`].
    #[must_use]
    pub fn first(self) -> Option<PinReason> {
        self.iter().next()
    }

    /// Each of them, in the order of [`PinReason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = PinReason> {
        PinReason::ALL.iter().copied().filter(move |reason| self.contains(*reason))
    }
}

impl FromIterator<PinReason> for PinSet {
    fn from_iter<I: IntoIterator<Item = PinReason>>(reasons: I) -> Self {
        let mut set = Self::default();
        reasons.into_iter().for_each(|reason| set.insert(reason));
        set
    }
}

impl fmt::Debug for PinSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

// === impl Leaves ===

impl Leaves {
    /// Whether that is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty() && self.settings.is_empty()
    }

    /// Adds what another leaves.
    pub fn join(&mut self, other: &Self) {
        self.gain(other);
    }

    /// Adds what another leaves; says whether that was anything new.
    pub(crate) fn gain(&mut self, other: &Self) -> bool {
        let pins = self.pins.union(other.pins);
        let new: Vec<_> = other.settings.iter().filter(|name| !self.settings.contains(name)).collect();
        let changed = pins != self.pins || !new.is_empty();
        self.pins = pins;
        if !new.is_empty() {
            self.settings = self.settings.iter().chain(new).cloned().collect();
        }
        changed
    }

    pub(crate) fn bytes(&self) -> usize {
        self.settings.iter().map(|name| size_of::<Box<str>>() + name.len()).sum()
    }
}

// === impl Mentions ===

impl Mentions {
    /// The numbers of the names, in order; `None` when not all are known.
    pub(crate) fn all(&self) -> Option<&[u32]> {
        (!self.more).then_some(&self.names)
    }

    /// Numbers of what may be a call of a function that PostgreSQL does not have itself.
    pub(crate) fn calls(&self) -> &[u32] {
        &self.calls
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.names.len() + self.calls.len()) * size_of::<u32>()
    }

    /// Of a text that was not looked at.
    pub(crate) fn unknown() -> Self {
        Self { more: true, foreign: true, ..Self::default() }
    }
}

// === impl Gathered ===

impl Gathered {
    /// Takes in one statement of a text.
    pub(crate) fn statement(&mut self, sql: &str, piece: &Piece, statement: &Statement) {
        let tokens = &*piece.tokens;
        self.names(sql, tokens);
        self.more |= !piece.whole;
        let first = Cursor::new(sql, tokens);
        let any = |words: &[&str]| words.iter().any(|word| first.is_word(word));
        self.releases |= any(&["unlisten", "close", "drop", "deallocate", "discard", "alter", "reset"]);
        if any(&["create"]) {
            self.releases |= body::drops_itself(sql, tokens);
        }
        if any(&["create", "alter", "import"]) {
            let any = |token: &Token| CODE.iter().any(|word| text::is_word(*token, sql, word));
            self.defines_code |= tokens.iter().any(any);
        }
        if any(&["do"]) {
            body::block(self, sql, tokens);
        }
        let writes = matches!(statement.kind, Kind::Write | Kind::WriteSession);
        let plain = matches!(statement.command, Command::Plain | Command::Pin(PinReason::SqlPrepare));
        self.foreign |= self.more || writes && plain;
    }

    /// Takes in the names in the tokens of a statement, or a part of one, and what its calls of PostgreSQL's own functions
    /// leave.
    pub(crate) fn names(&mut self, sql: &str, tokens: &[Token]) {
        for (i, token) in tokens.iter().enumerate() {
            if !token.kind.is_name() {
                continue;
            }
            let Some(name) = text::name(*token, sql) else {
                // What it means takes an escape character to know.
                self.more |= token.kind == TokenKind::UnicodeWord;
                continue;
            };
            let before = i.checked_sub(1).and_then(|i| tokens.get(i));
            let field = before.is_some_and(|dot| dot.kind == TokenKind::Dot);
            let called = tokens.get(i + 1).is_some_and(|next| next.kind == TokenKind::LeftParen);
            self.note(relation_number(&name));
            if field || called {
                self.note(function_number(&name));
            }
            if called {
                let schema = i.checked_sub(2).and_then(|i| tokens.get(i)).filter(|_| field);
                let schema = schema.and_then(|schema| text::name(*schema, sql));
                let own = schema.is_none_or(|schema| &*schema == "pg_catalog");
                let other = before.is_some_and(|word| {
                    let words = ["into", "as", "with", "recursive", "execute", "references", "table", "copy"];
                    words.iter().any(|other| text::is_word(*word, sql, other))
                });
                if other {
                    continue;
                }
                self.call(&name, own, Cursor::new(sql, tokens.get(i + 2..).unwrap_or_default()));
            } else if &*name == "pg_settings" {
                let words = tokens.get(i.saturating_sub(4)..i).unwrap_or_default();
                if words.iter().any(|word| text::is_word(*word, sql, "update")) {
                    self.pins.insert(PinReason::Setting);
                }
            }
        }
    }

    /// A call, with the tokens of its arguments and what follows; `own`: it may be PostgreSQL's function.
    fn call(&mut self, name: &str, own: bool, mut rest: Cursor<'_>) {
        if !own || builtin::function(name).is_none() {
            if !builtin::is_syntax(name) && !is_keyword(name) && !builtin::is_type(name) {
                self.foreign = true;
                self.calls.push(function_number(name));
            }
            return;
        }
        match name {
            "set_config" => {
                let sql = rest.sql();
                match changed_setting(sql, rest.parenthesised().unwrap_or_default()) {
                    Changed::Nothing => {}
                    Changed::This(name) => self.settings.push(name),
                    Changed::Unknown => self.pins.insert(PinReason::Setting),
                }
            }
            // They run the text that they are given.
            "query_to_xml"
            | "query_to_xmlschema"
            | "query_to_xml_and_xmlschema"
            | "ts_stat"
            | "ts_rewrite" => {
                self.foreign = true;
                self.more = true;
            }
            "pg_advisory_unlock" | "pg_advisory_unlock_shared" | "pg_advisory_unlock_all" => {
                self.releases = true;
            }
            _ => {
                if let Some(reason) = builtin::pin(name).filter(|reason| outlives(*reason)) {
                    self.pins.insert(reason);
                }
            }
        }
    }

    fn note(&mut self, number: u32) {
        self.names.push(number);
        if self.names.len() > MOST_NAMES {
            self.names.sort_unstable();
            self.names.dedup();
            self.more |= self.names.len() > MOST_NAMES / 2;
        }
        if self.more {
            self.names.clear();
        }
    }

    pub(crate) fn finish(mut self) -> (Leaves, Mentions) {
        self.names.sort_unstable();
        self.names.dedup();
        self.calls.sort_unstable();
        self.calls.dedup();
        self.more |= self.calls.len() > MOST_NAMES;
        self.settings.sort_unstable();
        self.settings.dedup();
        let leaves = Leaves { pins: self.pins, settings: self.settings.into() };
        let mentions = Mentions {
            names: self.names.into(),
            calls: self.calls.into(),
            more: self.more,
            foreign: self.foreign,
        };
        (leaves, mentions)
    }
}

/// The setting that a call of `set_config` changes beyond its transaction.
pub(crate) enum Changed {
    Nothing,
    This(Box<str>),
    Unknown,
}

/// Told from the tokens of its arguments.
pub(crate) fn changed_setting(sql: &str, arguments: &[Token]) -> Changed {
    let local = matches!(arguments, [.., comma, last]
        if comma.kind == TokenKind::Comma && text::is_word(*last, sql, "true"));
    if local {
        return Changed::Nothing;
    }
    match arguments {
        [name, comma, ..] if comma.kind == TokenKind::Comma => match text::string(*name, sql) {
            Some(name) if is_transactional(&name) => Changed::Nothing,
            // Who the session is cannot be had back by setting it.
            Some(name) if name.eq_ignore_ascii_case("session_authorization") => Changed::Unknown,
            Some(name) => Changed::This(name.to_ascii_lowercase().into()),
            None => Changed::Unknown,
        },
        _ => Changed::Unknown,
    }
}

/// Settings that end with their transaction, whichever way they are set.
pub(crate) fn is_transactional(name: &str) -> bool {
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable"]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether what is left for this reason is still there when the transaction is over, and is not the session's by name only.
fn outlives(reason: PinReason) -> bool {
    !matches!(
        reason,
        PinReason::LargeObject | PinReason::Snapshot | PinReason::BackendPid | PinReason::Sequence
    )
}

/// Words of the grammar that a parenthesis may follow where no function is called.
const KEYWORDS: &str = "\
    all analyze and any as by case cast char character check conflict copy cube dec decimal distinct \
    else end except exists explain extract filter float from group having if ilike in include index \
    intersect interval is join json_table key lateral like limit national nchar not numeric offset on \
    only options or order over overlay partition position precision primary references returning returns \
    rollup select set setof sets similar some substring table then time timestamp to treat trim union \
    unique using vacuum values varchar varying when where with within xmltable";

fn is_keyword(name: &str) -> bool {
    KEYWORDS.split(' ').any(|word| word == name)
}

/// The number of what is called by this name.
pub(crate) fn function_number(name: &str) -> u32 {
    number(name, b'(')
}

/// The number of a relation, or whatever else, of this name.
pub(crate) fn relation_number(name: &str) -> u32 {
    number(name, b' ')
}

/// FNV-1a, folded: anybody who makes two names meet has the server asked once more.
fn number(name: &str, sort: u8) -> u32 {
    let hash = name.bytes().chain([sort]).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u32::try_from((hash >> 32) ^ (hash & 0xffff_ffff)).unwrap_or(0)
}

#[cfg(test)]
mod tests;

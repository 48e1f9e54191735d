//! What the session may have left on its server connection, and the question that settles it.
//!
//! Most of what outlives a transaction can be asked for in one query: temporary objects, session-level advisory locks, LISTEN,
//! holdable cursors, prepared statements, and the values of settings whose names are known. The connection is given to nobody
//! before the answer is there; the client has had its own by then.

use std::sync::Arc;

use causeway_pool::{Books, Settings};
use causeway_protocol::backend::{self, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::pipeline::{Origin, Request};
use causeway_routing::catalogue::Catalogue;
use causeway_routing::leaves::left;
use causeway_routing::{Class, Command, Leaves, Left, PinReason, PinSet};

use super::Session;
use super::finish::Connection;
use super::unit::{Note, Progress, UnitEnd};
use crate::config::PoolMode;

/// What the server can be asked for, with the expressions that tell whether it is there.
///
/// Names are qualified, operators too: the session's search path may lead anywhere.
const QUESTIONS: [(PinReason, &str); 5] = [
    (
        PinReason::TemporaryTable,
        "CASE pg_catalog.pg_my_temp_schema() WHEN 0 THEN false ELSE \
         EXISTS (SELECT FROM pg_catalog.pg_class \
         WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
         OR EXISTS (SELECT FROM pg_catalog.pg_proc \
         WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
         OR EXISTS (SELECT FROM pg_catalog.pg_type \
         WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) END",
    ),
    (PinReason::Cursor, "EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)"),
    (
        PinReason::AdvisoryLock,
        "EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    ),
    (PinReason::Listen, "EXISTS (SELECT FROM pg_catalog.pg_listening_channels())"),
    (
        PinReason::SqlPrepare,
        "EXISTS (SELECT FROM pg_catalog.pg_prepared_statements \
         WHERE from_sql OR NOT pg_catalog.starts_with(name, 'causeway_'))",
    ),
];

/// So many statements wait for the catalogue; after more, all that they have set is taken back.
const MOST_UNJUDGED: usize = 64;

/// What puts a connection's settings back without touching anything else.
const RESET: &str = "; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL";

/// What the session may have left on its server connection.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Why it keeps that connection.
    pub(super) pins: PinSet,
    /// What may be there besides, as far as the server can tell.
    maybe: PinSet,
    /// Settings that may have changed.
    settings: Vec<Box<str>>,
    /// Code has run of which nothing is known.
    unknown: bool,
    /// Something that was there may be gone.
    released: bool,
    /// What statements that SQL prepared may leave each time they are executed.
    prepared: Leaves,
    prepared_unknown: bool,
    /// What has run and is judged when the catalogue knows what this session has defined.
    pub(super) unjudged: Vec<Arc<Class>>,
    /// The answer to the question that was asked.
    answer: Option<Vec<Option<Box<str>>>>,
}

/// What a question has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What becomes of the server connection.
    pub(crate) connection: Connection,
    /// The session keeps it from now on.
    pub(crate) pinned: Option<PinReason>,
    /// There are no temporary objects any more. The server process keeps the schema for them, and tells: `myTempNamespace` in
    /// src/backend/catalog/namespace.c.
    pub(crate) had_temporary: bool,
}

// === impl Leftovers ===

impl Leftovers {
    /// Whether the server is to be asked: it can tell of everything that may be there.
    pub(super) fn has_questions(&self) -> bool {
        let open = !self.maybe.is_empty() || !self.settings.is_empty() || self.unknown;
        let open = open || self.released && !self.pins.is_empty();
        open && self.unjudged.is_empty() && self.pins.without(provable()).is_empty()
    }

    /// Whether the session has to keep its server connection.
    pub(super) fn keeps(&self) -> bool {
        !self.pins.is_empty() || !self.unjudged.is_empty()
    }

    /// Takes in what something that has run may leave; what the server cannot tell of is there for certain, then.
    fn gather(&mut self, Leaves { pins: maybe, settings }: &Leaves) -> PinSet {
        let certain = maybe.without(provable());
        self.maybe = self.maybe.union(maybe.without(certain));
        self.ask_for(settings.iter().map(|name| &**name));
        certain
    }

    /// Settings of these names may have changed.
    pub(super) fn ask_for<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            if !self.settings.iter().any(|known| **known == *name) {
                self.settings.push(name.into());
            }
        }
    }

    fn question(&self) -> String {
        let mut sql = String::new();
        for (n, (_, expression)) in QUESTIONS.iter().enumerate() {
            sql.push_str(if n == 0 { "SELECT " } else { ", " });
            sql.push_str(expression);
        }
        for name in &self.settings {
            sql.push_str(", pg_catalog.current_setting('");
            sql.push_str(&name.replace('\'', "''"));
            sql.push_str("', true)");
        }
        if self.unknown {
            sql.push_str(RESET);
        }
        sql
    }
}

fn provable() -> PinSet {
    QUESTIONS.iter().map(|(reason, _)| *reason).collect()
}

/// What such a statement leaves behind is gone when its transaction is rolled back.
fn ends_with_its_transaction() -> PinSet {
    [
        PinReason::TemporaryTable,
        PinReason::Cursor,
        PinReason::Listen,
        PinReason::Authorization,
        PinReason::Setting,
        PinReason::BackendPid,
    ]
    .into_iter()
    .collect()
}

/// What ends with the transaction that made it, however that ends.
fn ends_anyway() -> PinSet {
    [PinReason::LargeObject, PinReason::Snapshot].into_iter().collect()
}

// === impl Session ===

impl Session {
    /// Why the session keeps its server connection between transactions.
    pub(crate) fn pins(&self) -> PinSet {
        let mut pins = self.left.pins;
        if !self.left.unjudged.is_empty() {
            pins.insert(PinReason::Procedure);
        }
        pins
    }

    /// Whether something has run that the catalogue could not judge yet.
    pub(crate) fn has_unjudged(&self) -> bool {
        !self.left.unjudged.is_empty()
    }

    /// The catalogue knows by now what this session has defined: judges what has run.
    pub(crate) fn judge_leftovers(&mut self, catalogue: Option<&Catalogue>) {
        for class in std::mem::take(&mut self.left.unjudged) {
            match left(&class, catalogue) {
                Left::Nothing => {}
                Left::Unknown => self.left.unknown = true,
                Left::Something(leaves) => {
                    let certain = self.left.gather(&leaves);
                    self.left.pins = self.left.pins.union(certain);
                }
            }
        }
    }

    /// Keeps the server connection from now on.
    pub(crate) fn pin_by(&mut self, reason: PinReason) {
        self.left.pins.insert(reason);
    }

    /// Whether the server is to be asked what the session has left on its connection, now that no transaction runs.
    pub(crate) fn has_questions(&self) -> bool {
        self.status == TransactionStatus::Idle && self.mode != PoolMode::Session && self.left.has_questions()
    }

    /// Takes in what a text of the unit may leave.
    ///
    /// `defines`: the session has just defined code itself, and the catalogue is about to know it.
    pub(super) fn leave(&mut self, class: &Arc<Class>, left: Left, defines: bool) {
        match left {
            Left::Nothing => {}
            Left::Unknown
                if defines && self.unit.unjudged.len() + self.left.unjudged.len() < MOST_UNJUDGED =>
            {
                self.unit.unjudged.push(Arc::clone(class));
            }
            Left::Unknown => self.unit.runs_unknown = true,
            Left::Something(leaves) => self.unit.left.join(&leaves),
        }
        // PREPARE, and EXECUTE of what one of them has prepared.
        if class.commands.contains(&Command::Pin(PinReason::SqlPrepare)) {
            self.left.prepared.join(&self.unit.left);
            self.left.prepared_unknown |= self.unit.runs_unknown;
            self.unit.left.join(&self.left.prepared);
            self.unit.runs_unknown |= self.left.prepared_unknown;
        }
    }

    /// Takes in what the finished unit may have left. `undone`: it failed, and a transaction of its own with it. Returns why
    /// the session keeps its connection from now on, if it did not before.
    pub(super) fn gather_leftovers(&mut self, undone: bool) -> Option<PinReason> {
        let leaves = std::mem::take(&mut self.unit.left);
        let mut pins = self.unit.pins.union(self.left.gather(&leaves));
        if undone {
            pins = pins.without(ends_with_its_transaction());
        }
        let left = &mut self.left;
        left.unknown |= self.unit.runs_unknown;
        left.unjudged.append(&mut self.unit.unjudged);
        left.released |= self.unit.releases || self.unit.failed;
        if self.server.standby {
            // The session's next statement may be a write.
            self.server.unclean |= !pins.is_empty() || !left.unjudged.is_empty();
            left.unjudged.clear();
            return None;
        }
        let new = pins.without(left.pins);
        left.pins = left.pins.union(pins);
        new.first()
    }

    /// The transaction is over: so is what lives no longer than it.
    pub(super) fn drop_leftovers_of_transaction(&mut self) {
        self.left.pins = self.left.pins.without(ends_anyway());
    }

    /// DISCARD ALL has succeeded.
    pub(super) fn discard_leftovers(&mut self) {
        self.left = Leftovers::default();
    }

    /// A transaction was rolled back, and perhaps what it left with it.
    pub(super) fn released(&mut self) {
        self.left.released = true;
    }

    /// All settings but those of [`RESET`] have gone back, even those of unknown names.
    pub(super) fn all_settings_reset(&mut self) {
        if self.left.pins.contains(PinReason::Setting) {
            self.left.pins.remove(PinReason::Setting);
            self.left.ask_for(["role"]);
        }
    }

    /// What is asked for, in the order of the answer.
    #[cfg(test)]
    pub(super) fn asked(&self) -> (Vec<PinReason>, Vec<Box<str>>) {
        (QUESTIONS.iter().map(|(reason, _)| *reason).collect(), self.left.settings.clone())
    }

    /// Asks the server at hand.
    pub(crate) fn inquire(&mut self, to_server: &mut Vec<u8>) {
        self.left.answer = None;
        let note = self.unit.note(Note::Inquiry);
        encode::query(to_server, self.left.question().as_bytes());
        self.pipeline.push(Request::Query, Origin::Injected, note);
        self.unit.progress = Progress::Committed;
        self.unit.end = UnitEnd::Part;
    }

    /// Whether what runs is the question.
    pub(super) fn inquires(&self) -> bool {
        matches!(*self.unit.notes, [Note::Inquiry])
    }

    /// The server reports a setting's new value that no command of the unit has brought about: a function has, or the server's
    /// configuration.
    pub(super) fn changed_unasked(&mut self, name: &[u8]) {
        const SETTABLE: [&str; 8] = [
            "application_name",
            "client_encoding",
            "datestyle",
            "default_transaction_read_only",
            "intervalstyle",
            "search_path",
            "standard_conforming_strings",
            "timezone",
        ];
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if SETTABLE.contains(&&*name) {
            self.left.ask_for([&*name]);
        } else {
            self.server.unclean = true;
        }
    }

    /// A row that is not for the client.
    pub(super) fn hidden_row(&mut self, body: &[u8]) {
        if self.inquires()
            && let Ok(row) = backend::data_row(body)
        {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into();
            self.left.answer = Some(row.iter().map(|value| value.map(text)).collect());
        }
    }

    /// Takes in what the server has answered.
    pub(crate) fn settle(&mut self, books: &mut Books) -> Settled {
        let answer = self.left.answer.take();
        let before = self.left.pins;
        self.unit.clear();
        self.pipeline.clear();
        let asked = QUESTIONS.len() + self.left.settings.len();
        if let Some(answer) = answer.filter(|answer| answer.len() == asked) {
            self.learn(&answer, books);
        } else {
            // Cut short: it is asked again, and until then anything may be there.
            self.left.pins = self.left.pins.union(provable());
            self.left.released = true;
        }
        if self.server.standby {
            self.server.unclean |= !self.left.pins.is_empty();
            self.left.pins = PinSet::default();
        }
        let pins = self.left.pins;
        let had_temporary = before.without(pins).contains(PinReason::TemporaryTable);
        let connection = match () {
            () if !pins.is_empty() => Connection::Keep,
            () if std::mem::take(&mut self.server.unclean) => Connection::Discard,
            () => Connection::CheckIn,
        };
        Settled { connection, pinned: pins.without(before).first(), had_temporary }
    }

    fn learn(&mut self, answer: &[Option<Box<str>>], books: &mut Books) {
        let there = QUESTIONS.iter().zip(answer).filter(|(_, value)| value.as_deref() != Some("f"));
        let there: PinSet = there.map(|((reason, _), _)| *reason).collect();
        let left = std::mem::take(&mut self.left);
        self.left.pins = left.pins.without(provable()).union(there);
        for (name, value) in left.settings.iter().zip(answer.iter().skip(QUESTIONS.len())) {
            self.settings.learn(name, value.as_deref(), self.server.standby, &mut books.settings);
        }
        if left.unknown {
            books.settings = Settings::default();
        }
        if there.contains(PinReason::SqlPrepare) {
            (self.left.prepared, self.left.prepared_unknown) = (left.prepared, left.prepared_unknown);
        }
    }
}

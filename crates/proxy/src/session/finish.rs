//! What a unit has changed, taken in when its answers come and when it ends.

use std::sync::Arc;

use causeway_pool::Books;
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::encode;
use causeway_protocol::pipeline::{Origin, Owed, Request};
use causeway_protocol::report::ErrorReport;
use causeway_routing::{Command, Isolation, Modes, PinReason, SettingValue};

use super::Session;
use super::settings::{DATE_STYLE, NOT_RESET};
use super::statements::SERVER_NAME_PREFIX;
use super::unit::{Note, UnitEnd};
use crate::config::PoolMode;

/// What is to be done after a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "five facts that hold or not, each by itself")]
pub(crate) struct Ended {
    /// What becomes of the server connection.
    pub(crate) connection: Connection,
    /// A transaction is over.
    pub(crate) transaction: bool,
    /// Something was acknowledged that was not proven to be a read.
    pub(crate) wrote: bool,
    /// The catalogue may have changed.
    pub(crate) defined: bool,
    /// What statements run may have changed.
    pub(crate) defined_code: bool,
    /// What new sessions begin with may have changed.
    pub(crate) changed_defaults: bool,
    /// The session keeps its server connection from now on.
    pub(crate) pinned: Option<PinReason>,
}

/// What becomes of the server connection after a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The session goes on with it.
    #[default]
    Keep,
    /// It goes back to its pool.
    CheckIn,
    /// What it has is not known, so that it cannot serve anybody else.
    Discard,
}

// === impl Session ===

impl Session {
    /// The unit is over: takes in its effects and says what is to be done.
    pub(crate) fn finish(&mut self, books: &mut Books) -> Ended {
        let before = self.status;
        self.status = self.next_status;
        self.remember_begin();
        self.timed_out = None;
        // The rest of what the client has in mind is skipped after an error, up to its Sync.
        self.skipping = self.unit.end == UnitEnd::Part && self.unit.failed;
        let mut ended = Ended::default();
        self.take_effects(before, books);
        // Which part of such a unit has stayed is not told, nor whether what was set before it has.
        if self.unit.failed
            && self.unit.controls_transactions()
            && (self.unit.changes_settings() || self.settings.changed_in_transaction())
        {
            self.ask_for_settings();
        }
        if self.status == TransactionStatus::Idle {
            self.end_transaction(self.unit.failed, books);
            self.portals.clear();
        }
        self.server.unclean |= self.unit.failed && self.unit.may_have_deallocated();
        let undone = self.unit.failed
            && self.status == TransactionStatus::Idle
            && before == TransactionStatus::Idle
            && !self.unit.controls_transactions();
        if before == TransactionStatus::Failed || self.unit.rolls_back() {
            self.released();
        }
        ended.pinned = self.gather_leftovers(undone);
        if self.status == TransactionStatus::Idle {
            self.drop_leftovers_of_transaction();
            if !self.left.keeps() {
                self.server.unread_unnamed = false;
            }
        }
        ended.wrote = self.transaction.writes;
        ended.transaction = self.status == TransactionStatus::Idle;
        ended.defined = ended.transaction && self.transaction.defines;
        if ended.transaction {
            self.transaction.writes = false;
            ended.defined_code = std::mem::take(&mut self.transaction.defines_code);
            ended.changed_defaults = std::mem::take(&mut self.transaction.changes_defaults);
            self.transaction.defines = false;
        }
        let needed = !ended.transaction
            || self.left.keeps()
            || self.mode == PoolMode::Session
            || self.left.has_questions();
        ended.connection = match needed {
            true => Connection::Keep,
            false if self.server.unclean => Connection::Discard,
            false => Connection::CheckIn,
        };
        self.server.unclean &= needed;
        self.unit.clear();
        self.pipeline.clear();
        ended
    }

    /// Keeps the BEGIN of a transaction that only reads on a replica, as long as it does nothing else.
    fn remember_begin(&mut self) {
        let begin = self.held_begin.take().or_else(|| self.movable.take());
        let reads = !self.unit.failed
            && self.unit.only_reads()
            && self.server.standby
            && self.status == TransactionStatus::InTransaction
            && !self.transaction.keeps_snapshot;
        self.movable = begin.filter(|_| reads);
    }

    /// Takes in what the commands that succeeded have changed, in their order.
    fn take_effects(&mut self, before: TransactionStatus, books: &mut Books) {
        let mut status = before;
        let succeeded = std::mem::take(&mut self.unit.succeeded);
        for class in &succeeded {
            for command in &class.commands {
                status = match command {
                    Command::Begin(modes) => {
                        self.transaction.keeps_snapshot = keeps_snapshot(*modes);
                        TransactionStatus::InTransaction
                    }
                    Command::Commit { chain } | Command::Rollback { chain } => {
                        // COMMIT of a failed transaction rolls it back.
                        let kept =
                            matches!(command, Command::Commit { .. }) && status != TransactionStatus::Failed;
                        self.end_transaction(!kept, books);
                        if *chain { TransactionStatus::InTransaction } else { TransactionStatus::Idle }
                    }
                    Command::PrepareTransaction => {
                        self.end_transaction(false, books);
                        TransactionStatus::Idle
                    }
                    other => {
                        self.take_effect(other, books);
                        status
                    }
                };
            }
        }
        self.unit.succeeded = succeeded;
    }

    /// A transaction, of one statement perhaps, is over: a rollback takes its settings back.
    fn end_transaction(&mut self, rolled_back: bool, books: &mut Books) {
        self.transaction.savepoints = false;
        self.transaction.keeps_snapshot = false;
        if self.settings.changed_in_transaction() {
            self.settings.end_transaction(rolled_back);
            if rolled_back {
                books.settings = self.settings.wanted(self.server.standby).clone();
            }
        }
    }

    /// The server is gone with the unit unfinished: whatever it was doing may have happened.
    pub(crate) fn lost(&self) -> bool {
        self.transaction.writes || self.unit.demand.writes
    }

    /// No server is to be had for the gathered unit: the client gets an error, and the unit is as if skipped. Returns
    /// how many of the `arrived` bytes of the client's input have been dealt with by that.
    pub(crate) fn refuse(&mut self, report: &ErrorReport, arrived: usize, answer: &mut Vec<u8>) -> usize {
        while let Some(note) = self.unit.notes.pop() {
            match note {
                Note::Parsed { name, .. } => {
                    self.statements.remove(&name);
                }
                Note::Unnamed { previous } => match previous {
                    Some(previous) => drop(self.statements.insert(b"", previous)),
                    None => drop(self.statements.remove(b"")),
                },
                Note::Closed { name, statement } => {
                    self.statements.insert(&name, statement);
                }
                Note::DropsStatements { names, .. } => self.statements.restore_named(names),
                _ => {}
            }
        }
        encode::error_response(answer, report);
        if self.unit.end == UnitEnd::Closed {
            encode::ready_for_query(answer, self.status);
        } else {
            self.skipping = true;
        }
        let consumed = self.unit.admitted.min(arrived);
        self.client_discarding = self.unit.admitted - consumed;
        self.unit.clear();
        self.pipeline.clear();
        consumed
    }

    /// The body of the error that the injected settings gave.
    pub(crate) fn take_injection_failure(&mut self) -> Option<Box<[u8]>> {
        self.injection_failure.take()
    }

    /// A request of the extended protocol has been answered.
    pub(super) fn completed(&mut self, owed: Owed) {
        if owed.request == Request::Execute {
            self.counts.extended_queries += 1;
            if let Some(Note::Commands(class) | Note::DropsStatements { class, .. }) =
                self.unit.noted(owed.token)
            {
                self.unit.succeeded.push(Arc::clone(class));
            }
        }
    }

    /// A Query or Sync, the client's or an injected one, has come to its ReadyForQuery.
    pub(super) fn completed_query(&mut self, owed: Owed, books: &mut Books) {
        match self.unit.noted(owed.token) {
            Some(Note::Settings) if self.injection_failure.is_none() => {
                if let Some(settings) = self.injected_settings.take() {
                    books.settings = settings;
                }
            }
            Some(Note::Commands(class) | Note::DropsStatements { class, .. }) if !self.unit.failed => {
                self.unit.succeeded.push(Arc::clone(class));
            }
            _ => {}
        }
    }

    /// Requests were skipped: names and books are as before them. The last is taken back first.
    pub(super) fn undo_skipped(&mut self, books: &mut Books) {
        for owed in self.pipeline.take_skipped().iter().rev() {
            self.unprepare(*owed, books);
            match self.unit.noted(owed.token) {
                Some(Note::Parsed { name, .. }) => {
                    self.statements.remove(name);
                }
                Some(Note::Unnamed { previous }) => match previous.clone() {
                    Some(previous) => drop(self.statements.insert(b"", previous)),
                    None => drop(self.statements.remove(b"")),
                },
                Some(Note::Closed { name, statement }) => {
                    self.statements.insert(name, Arc::clone(statement));
                }
                Some(Note::DropsStatements { names, .. }) => self.statements.restore_named(names.clone()),
                _ => {}
            }
        }
    }

    /// A request has failed: a Parse that did so has still ended the unnamed statement before it.
    pub(super) fn undo_failed(&mut self, owed: Owed, books: &mut Books) {
        self.unprepare(owed, books);
        match self.unit.noted(owed.token) {
            Some(Note::Parsed { name, .. }) => drop(self.statements.remove(name)),
            Some(Note::Unnamed { .. }) => drop(self.statements.remove(b"")),
            Some(Note::DropsStatements { names, .. }) => self.statements.restore_named(names.clone()),
            _ => {}
        }
    }

    /// A request has failed or was skipped: the server does not have what it was to prepare.
    pub(super) fn unprepare(&mut self, owed: Owed, books: &mut Books) {
        if owed.origin == Origin::Answered {
            return;
        }
        match self.unit.noted(owed.token) {
            Some(Note::Parsed { statement, .. } | Note::Injected { statement }) => {
                if statement.server_name.is_empty() {
                    books.unnamed = None;
                } else if self.unit.preparing.contains(&statement.id) {
                    books.statements.remove(statement.id);
                }
            }
            Some(Note::Unnamed { .. }) => books.unnamed = None,
            // The books have forgotten a statement that the server still has.
            Some(Note::Evicted { id }) => self.server.unclean |= books.statements.insert(*id).is_some(),
            Some(Note::DropsStatements { .. }) => match self.unit.dropped.take() {
                Some(statements) => books.statements = statements,
                None => self.server.unclean = true,
            },
            _ => {}
        }
    }

    fn take_effect(&mut self, command: &Command, books: &mut Books) {
        match command {
            Command::Set { name, value, local: false } => self.set(name, value, books),
            Command::SessionCharacteristics(modes) => {
                for (name, value) in characteristics(modes) {
                    self.set(name, &SettingValue::Text(value.into()), books);
                }
            }
            Command::Reset(Some(name)) => {
                self.transaction.resets = self.status == TransactionStatus::InTransaction;
                self.settings.reset(name);
                books.settings.reset(name);
                if &**name == "session_authorization" {
                    // It takes the role with it.
                    self.settings.reset("role");
                    books.settings.reset("role");
                    if self.status == TransactionStatus::Idle {
                        self.left.pins.remove(PinReason::Authorization);
                    }
                }
                self.ask_if_savepoints(name);
            }
            Command::Reset(None) => {
                self.transaction.resets = self.status == TransactionStatus::InTransaction;
                self.settings.reset_all();
                books.settings.clear_but(&NOT_RESET);
                if self.transaction.savepoints {
                    self.ask_for_settings();
                } else if self.status == TransactionStatus::Idle {
                    self.all_settings_reset();
                }
            }
            Command::DiscardAll => {
                self.settings.discard();
                books.settings.clear();
                self.discard_leftovers();
            }
            Command::Deallocate(Some(name)) => {
                if let Some(statement) = self.statements.remove(name.as_bytes()) {
                    books.statements.remove(statement.id);
                }
            }
            Command::Savepoint => {
                self.transaction.savepoints = true;
                if self.settings.changed_in_transaction() {
                    self.ask_for_settings();
                }
            }
            Command::Definition => self.transaction.defines = true,
            _ => {}
        }
    }

    fn set(&mut self, name: &str, value: &SettingValue, books: &mut Books) {
        // What the server has made of it is whole, whatever part of it was set.
        let whole = match value {
            SettingValue::Text(_) if name.eq_ignore_ascii_case(DATE_STYLE) => {
                self.parameters.value(b"DateStyle")
            }
            _ => None,
        };
        let whole = whole.and_then(|style| str::from_utf8(style).ok());
        let whole = whole.map(|style| SettingValue::Text(format!("'{style}'").into()));
        let value = whole.as_ref().unwrap_or(value);
        self.settings.set(name, value);
        match value {
            SettingValue::Text(text) => books.settings.set(name, &format!("={text}")),
            SettingValue::Default => books.settings.reset(name),
        }
        self.ask_if_savepoints(name);
    }

    /// What a rollback to a savepoint does to settings is not followed: the server is asked when the transaction is over.
    fn ask_if_savepoints(&mut self, name: &str) {
        if self.transaction.savepoints {
            self.left.ask_for([name]);
        }
    }

    /// Any setting that the session has, or had before the transaction, may have another value than it seems.
    fn ask_for_settings(&mut self) {
        let commands = self.unit.setting_names();
        self.left.ask_for(self.settings.names().chain(commands.iter().map(|name| &**name)));
    }
}

/// Whether all statements of a transaction see what its first one saw.
pub(super) fn keeps_snapshot(modes: Modes) -> bool {
    matches!(modes.isolation, Some(Isolation::RepeatableRead | Isolation::Serializable))
}

/// The settings behind SET SESSION CHARACTERISTICS AS TRANSACTION.
fn characteristics(modes: &Modes) -> impl Iterator<Item = (&'static str, &'static str)> {
    let on_off = |on: bool| if on { "on" } else { "off" };
    let isolation = modes.isolation.map(|isolation| match isolation {
        Isolation::ReadCommitted => "'read committed'",
        Isolation::RepeatableRead => "'repeatable read'",
        Isolation::Serializable => "'serializable'",
    });
    [
        ("default_transaction_read_only", modes.read_only.map(on_off)),
        ("default_transaction_deferrable", modes.deferrable.map(on_off)),
        ("default_transaction_isolation", isolation),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// The body of an error that names a server-side statement, with the client's own name in its place.
pub(super) fn rename_statement(body: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let start = memchr::memmem::find(body, SERVER_NAME_PREFIX)?;
    let rest = body.get(start..)?;
    let len = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(rest.len());
    Some([body.get(..start)?, name, rest.get(len..)?].concat())
}

//! From an admitted unit to bytes for the server that was chosen.

use std::sync::Arc;

use causeway_pool::{Books, Statements};
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::encode;
use causeway_protocol::frontend::Target;
use causeway_protocol::pipeline::{Origin, Request};
use causeway_routing::{Command, PinReason};

use super::settings::transition;
use super::statements::{Statement, server_name};
use super::unit::{Item, Note, Progress, UnitEnd};
use super::{RETRY_LIMIT, Session};

// === impl Session ===

impl Session {
    /// Prepares a unit to run on a server connection with these books, which is outside a transaction or already
    /// in this session's: what the connection lacks is sent ahead, in sync units of its own.
    pub(crate) fn begin(&mut self, books: &mut Books, standby: bool, to_server: &mut Vec<u8>) {
        self.server.standby = standby;
        self.transaction.writes |= self.unit.demand.writes;
        let fresh = self.status == TransactionStatus::Idle || self.held_begin.is_some();
        // RESET goes back to what the server's session began with; the client's began with something else.
        let reset = std::mem::take(&mut self.transaction.resets) && self.status != TransactionStatus::Failed;
        if fresh || reset {
            let wanted = self.settings.wanted(standby);
            if let Some(sql) = transition(&books.settings, wanted) {
                encode::query(to_server, sql.as_bytes());
                let token = self.unit.note(Note::Settings);
                self.pipeline.push(Request::Query, Origin::Injected, token);
                self.injected_settings = Some(wanted.clone());
            }
        }
        if fresh
            && !self.left.keeps()
            && self.unit.pins.contains(PinReason::Sequence)
            && !self.server.own_sequences
        {
            // What currval and lastval would tell here is another session's.
            encode::query(to_server, b"DISCARD SEQUENCES");
            books.sequences_of = None;
            self.pipeline.push(Request::Query, Origin::Injected, 0);
        }
        if let Some(begin) = &self.held_begin {
            to_server.extend_from_slice(begin);
            self.pipeline.push(Request::Query, Origin::Injected, 0);
        }
        if !to_server.is_empty() {
            // A simple Query ends the unnamed statement, the proxy's own as well.
            books.unnamed = None;
        }
        let may_run_again = standby && fresh && self.may_run_again();
        self.unit.progress = if may_run_again { Progress::Held } else { Progress::Committed };
    }

    /// Whether the gathered unit, sent to a standby outside a transaction, could run again elsewhere.
    pub(crate) fn may_run_again(&self) -> bool {
        self.unit.is_closed()
            && self.unit.sent == 0
            && self.unit.admitted <= RETRY_LIMIT
            && !self.left.keeps()
    }

    /// Whether a standby's connection with these books needs nothing to be in this session's state, and the session has
    /// begun no transaction.
    pub(crate) fn is_set_up_on(&self, books: &Books) -> bool {
        self.status == TransactionStatus::Idle
            && self.held_begin.is_none()
            && self.unit.pins.is_empty()
            && books.settings.same(self.settings.wanted(true))
    }

    /// Sends what has been admitted and not sent yet.
    pub(crate) fn emit(
        &mut self,
        input: &[u8],
        books: &mut Books,
        to_server: &mut Vec<u8>,
        to_client: &mut Vec<u8>,
    ) {
        let items = std::mem::take(&mut self.unit.items);
        for item in items.iter().skip(self.unit.sent) {
            self.emit_item(item, input, books, to_server);
        }
        self.unit.sent = items.len();
        self.unit.items = items;
        if self.pipeline.has_skipped() {
            self.undo_skipped(books);
        }
        self.reopen();
        self.client_passing = self.unit.admitted.saturating_sub(input.len());
        if self.server_passing == 0 {
            self.give_answers(to_client);
        }
    }

    /// A Sync or Query does not end the unit if the server skips it, after an error, or ignores it, while it copies: the
    /// client will send another.
    pub(super) fn reopen(&mut self) {
        if self.unit.end == UnitEnd::Closed && self.pipeline.is_open() {
            self.unit.end = UnitEnd::Open;
        }
    }

    /// Lets go of the client's input that has been sent, unless the unit may have to run again; returns how many
    /// bytes that is.
    pub(crate) fn release(&mut self, arrived: usize) -> usize {
        if self.may_retry() {
            return 0;
        }
        let released = self.unit.admitted.min(arrived);
        self.unit.items.clear();
        self.unit.sent = 0;
        self.unit.admitted = 0;
        released
    }

    /// The first attempt is void: nothing of its answer has reached the client, and the unit runs again.
    pub(crate) fn retry(&mut self) {
        // What a standby has refused may write after all.
        self.unit.demand.writes = true;
        let _clean = self.start_over();
    }

    /// The same for one that was not refused. Whether the connection is as it was before.
    pub(crate) fn start_over(&mut self) -> bool {
        let clean = self.pipeline.is_quiescent()
            && self.next_status == TransactionStatus::Idle
            && self.server_passing + self.server_discarding == 0
            && !self.server.unclean;
        self.pipeline.clear();
        self.unit.sent = 0;
        self.unit.failed = false;
        self.unit.preparing.clear();
        self.unit.succeeded.clear();
        self.injected_settings = None;
        self.injection_failure = None;
        self.timed_out = None;
        self.server_passing = 0;
        self.server_discarding = 0;
        self.reported.clear();
        clean
    }

    /// Gives the answers that are the proxy's own and whose turn has come.
    pub(super) fn give_answers(&mut self, to_client: &mut Vec<u8>) {
        while let Some(owed) = self.pipeline.take_answered() {
            match owed.request {
                Request::Parse => encode::parse_complete(to_client),
                _ => encode::close_complete(to_client),
            }
        }
    }

    fn emit_item(&mut self, item: &Item, input: &[u8], books: &mut Books, to_server: &mut Vec<u8>) {
        match item {
            Item::Raw { request, frame, note } => {
                let end = frame.end.min(input.len());
                to_server.extend_from_slice(input.get(frame.start..end).unwrap_or_default());
                if let Some(request) = *request {
                    // A long Parse goes through unread and may be of the unnamed statement.
                    if matches!(request, Request::Query | Request::Parse) {
                        books.unnamed = None;
                    }
                    if let Some(Note::DropsStatements { .. }) = self.unit.noted(*note) {
                        let none = Statements::new(books.statements.limit());
                        self.unit.dropped = Some(std::mem::replace(&mut books.statements, none));
                    }
                    self.pipeline.push(request, Origin::Client, *note);
                }
            }
            Item::Instead { sql, note } => {
                books.unnamed = None;
                encode::query(to_server, sql);
                self.pipeline.push(Request::Query, Origin::Client, *note);
            }
            Item::CopyEnd { frame } => {
                to_server.extend_from_slice(input.get(frame.clone()).unwrap_or_default());
                self.pipeline.copy_ended();
            }
            Item::Parse { statement, note } => self.emit_parse(statement, *note, books, to_server),
            Item::ParseAgain { statement, taken, note } => {
                self.prepare(taken, books, to_server);
                let types = statement.types.iter().copied();
                encode::parse(to_server, &taken.server_name, &statement.sql, types);
                self.pipeline.push(Request::Parse, Origin::Client, *note);
            }
            Item::WithoutUnnamed { request, frame } => {
                books.unnamed = None;
                encode::close(to_server, Target::Statement, b"");
                self.pipeline.push(Request::Close, Origin::Injected, 0);
                let end = frame.end.min(input.len());
                to_server.extend_from_slice(input.get(frame.start..end).unwrap_or_default());
                self.pipeline.push(*request, Origin::Client, 0);
            }
            Item::Bind { statement, portal, rest, note } => {
                self.prepare(statement, books, to_server);
                let portal = input.get(portal.clone()).unwrap_or_default();
                encode::bind_header(to_server, portal, &statement.server_name, rest.len());
                let end = rest.end.min(input.len());
                to_server.extend_from_slice(input.get(rest.start..end).unwrap_or_default());
                self.pipeline.push(Request::Bind, Origin::Client, *note);
            }
            Item::Describe { statement, note } => {
                self.prepare(statement, books, to_server);
                encode::describe(to_server, Target::Statement, &statement.server_name);
                self.pipeline.push(Request::DescribeStatement, Origin::Client, *note);
            }
            Item::Ensure { statement, .. } => self.prepare(statement, books, to_server),
            Item::EndPart => {
                encode::sync(to_server);
                self.pipeline.push(Request::Sync, Origin::Injected, 0);
            }
            Item::CloseStatement { note } => self.pipeline.push(Request::Close, Origin::Answered, *note),
        }
    }

    fn emit_parse(
        &mut self,
        statement: &Arc<Statement>,
        note: u32,
        books: &mut Books,
        to_server: &mut Vec<u8>,
    ) {
        let types = statement.types.iter().copied();
        if statement.server_name.is_empty() {
            books.unnamed = Some(statement.id);
        } else if !books.statements.touch(statement.id) {
            self.insert(statement, books, to_server);
        } else if self.status != TransactionStatus::Failed || ends_transaction(statement) {
            self.pipeline.push(Request::Parse, Origin::Answered, note);
            return;
        }
        // In a failed transaction the server has to refuse even what it has.
        encode::parse(to_server, &statement.server_name, &statement.sql, types);
        self.pipeline.push(Request::Parse, Origin::Client, note);
    }

    /// Sees to it that the server has a statement before something refers to it.
    fn prepare(&mut self, statement: &Arc<Statement>, books: &mut Books, to_server: &mut Vec<u8>) {
        if statement.server_name.is_empty() {
            if books.unnamed == Some(statement.id) {
                return;
            }
            books.unnamed = Some(statement.id);
        } else if books.statements.touch(statement.id) {
            return;
        } else {
            self.insert(statement, books, to_server);
        }
        encode::parse(to_server, &statement.server_name, &statement.sql, statement.types.iter().copied());
        let token = self.unit.note(Note::Injected { statement: Arc::clone(statement) });
        self.pipeline.push(Request::Parse, Origin::Injected, token);
    }

    fn insert(&mut self, statement: &Statement, books: &mut Books, to_server: &mut Vec<u8>) {
        if let Some(evicted) = books.statements.insert(statement.id) {
            encode::close(to_server, Target::Statement, &server_name(evicted));
            let note = self.unit.note(Note::Evicted { id: evicted });
            self.pipeline.push(Request::Close, Origin::Injected, note);
        }
        self.unit.preparing.push(statement.id);
    }
}

/// What the server lets through in a failed transaction (`IsTransactionExitStmt` in `src/backend/tcop/postgres.c`).
fn ends_transaction(statement: &Statement) -> bool {
    match &*statement.class.commands {
        [Command::Commit { .. } | Command::Rollback { .. } | Command::PrepareTransaction] => true,
        // ROLLBACK TO, as against SAVEPOINT and RELEASE.
        [Command::Savepoint] => {
            let verb = statement.sql.trim_ascii_start().get(..8);
            verb.is_some_and(|verb| verb.eq_ignore_ascii_case(b"rollback"))
        }
        _ => false,
    }
}

//! Client messages: gathered to a unit, judged, or answered on the spot.

use std::ops::Range;
use std::sync::Arc;

use causeway_protocol::backend::{Column, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::frame::{self, HEADER_LEN, Header};
use causeway_protocol::frontend::MalformedMessage;
use causeway_protocol::frontend::{self, tag};
use causeway_protocol::pipeline::Request;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::leaves::{Left, left};
use causeway_routing::lexer::Lexer;
use causeway_routing::resolve::{resolve, resolve_for_replica};
use causeway_routing::{Class, Command, Kind, Reason};

use crate::config::PoolMode;

use super::databases::{changes_defaults, must_be_unused};
use super::finish::keeps_snapshot;
use super::own;
use super::unit::{Item, Note, UnitEnd};
use super::{LARGE_FRAME, Lookups, Session};

/// What looking at the client's input gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// Nothing to do before more has arrived.
    NeedMore,
    /// The first bytes of the input, this many, have been dealt with here.
    Local(usize),
    /// There is something to send: the unit is complete, or the client waits for an answer before it ends it.
    Ready,
    /// The first bytes of the input, this many, ask for a token that covers everything acknowledged so far.
    Fence(usize),
    /// The client says goodbye.
    Terminate,
}

/// A frame at a position of the client's input.
pub(super) struct At<'a> {
    pub(super) tag: u8,
    /// Where it begins and ends; the end may lie beyond what has arrived.
    pub(super) frame: Range<usize>,
    /// What has arrived of its body.
    pub(super) body: &'a [u8],
    pub(super) complete: bool,
}

// === impl Session ===

impl Session {
    /// Looks at the client's input from where it stopped. What is answered here goes to `reply`.
    ///
    /// # Errors
    ///
    /// FATAL reports on input that does not follow the protocol; the session cannot go on.
    pub(crate) fn admit(
        &mut self,
        input: &[u8],
        lookups: &Lookups<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Admitted, ErrorReport> {
        if self.client_discarding > 0 {
            let n = self.client_discarding.min(input.len());
            self.client_discarding -= n;
            return Ok(if n > 0 { Admitted::Local(n) } else { Admitted::NeedMore });
        }
        if self.skipping {
            return self.skip(input, reply);
        }
        while !self.unit.is_closed() {
            let Some(at) = self.next_frame(input)? else {
                let wait = self.unit.items.len() > self.unit.sent && self.unit.end == UnitEnd::Flushed;
                if wait {
                    self.judge_open_unit();
                }
                return Ok(if wait { Admitted::Ready } else { Admitted::NeedMore });
            };
            if let Some(admitted) = self.admit_frame(input, &at, lookups, reply)? {
                return Ok(admitted);
            }
            self.unit.admitted = at.frame.end;
            if !at.complete {
                // Unclassified, so its unit belongs to the primary; what follows it is admitted as it arrives.
                return Ok(Admitted::Ready);
            }
            // A unit this long is sent in parts: it cannot be judged as a whole, nor run again.
            if at.frame.end > LARGE_FRAME && !self.unit.is_closed() {
                self.unit.demand.primary(Reason::TooComplex);
                return Ok(Admitted::Ready);
            }
        }
        Ok(self.answer_closes(reply).unwrap_or(Admitted::Ready))
    }

    /// Throws away one frame of a unit that was refused; Sync ends it.
    fn skip(&mut self, input: &[u8], reply: &mut Vec<u8>) -> Result<Admitted, ErrorReport> {
        let Some(Header { tag, len }) = frame::header(input).map_err(fatal)? else {
            return Ok(Admitted::NeedMore);
        };
        if tag == tag::TERMINATE {
            return Ok(Admitted::Terminate);
        }
        if tag == tag::SYNC {
            self.skipping = false;
            encode::ready_for_query(reply, self.status);
        }
        let arrived = len.min(input.len());
        self.client_discarding = len - arrived;
        Ok(Admitted::Local(arrived))
    }

    /// Forwards what a client may send while it waits for the end of a unit; returns how much of the input that was.
    pub(crate) fn pass_copy(&mut self, input: &[u8], to_server: &mut Vec<u8>) -> Result<usize, ErrorReport> {
        let mut at = self.pass_rest(input, to_server);
        while let Some(Header { tag, len }) =
            input.get(at..).map_or(Ok(None), frame::header).map_err(fatal)?
        {
            match tag {
                tag::COPY_DATA => {}
                tag::COPY_DONE | tag::COPY_FAIL => self.pipeline.copy_ended(),
                tag::TERMINATE => break,
                // Sync and Flush are ignored there; anything else the server refuses, and closes the connection.
                _ if self.pipeline.in_copy() => {}
                _ => break,
            }
            if tag == tag::SYNC {
                self.pipeline.push(Request::Sync, causeway_protocol::pipeline::Origin::Client, 0);
            }
            let arrived = len.min(input.len() - at);
            to_server.extend_from_slice(input.get(at..at + arrived).unwrap_or_default());
            self.client_passing = len - arrived;
            at += arrived;
        }
        Ok(at)
    }

    /// Forwards the rest of a client frame of which a part has been sent.
    pub(crate) fn pass_rest(&mut self, input: &[u8], to_server: &mut Vec<u8>) -> usize {
        let n = self.client_passing.min(input.len());
        to_server.extend_from_slice(input.get(..n).unwrap_or_default());
        self.client_passing -= n;
        n
    }

    /// Whether a part of a client frame is still to be forwarded.
    pub(crate) fn is_passing(&self) -> bool {
        self.client_passing > 0
    }

    fn next_frame<'a>(&self, input: &'a [u8]) -> Result<Option<At<'a>>, ErrorReport> {
        let start = self.unit.admitted;
        let rest = input.get(start..).unwrap_or_default();
        let Some(Header { tag, len }) = frame::header(rest).map_err(fatal)? else {
            return Ok(None);
        };
        let complete = rest.len() >= len;
        if !complete && len <= LARGE_FRAME {
            return Ok(None);
        }
        let body = rest.get(HEADER_LEN..len.min(rest.len())).unwrap_or_default();
        Ok(Some(At { tag, frame: start..start + len, body, complete }))
    }

    /// Admits one frame; gives a result when the unit does not simply go on.
    fn admit_frame(
        &mut self,
        input: &[u8],
        at: &At<'_>,
        lookups: &Lookups<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Option<Admitted>, ErrorReport> {
        match at.tag {
            tag::QUERY => return self.admit_query(input, at, lookups, reply),
            tag::PARSE if at.complete => self.admit_parse(at, lookups)?,
            tag::PARSE => self.admit_large_parse(at),
            tag::BIND => return self.admit_bind(at, lookups),
            tag::DESCRIBE if at.complete => self.admit_describe(at, lookups)?,
            tag::EXECUTE if at.complete => self.admit_execute(at)?,
            tag::CLOSE if at.complete => self.admit_close(at)?,
            tag::FUNCTION_CALL => {
                self.unit.demand.primary(Reason::Write);
                self.raw(Some(Request::FunctionCall), at, 0);
                self.unit.end = UnitEnd::Closed;
            }
            tag::SYNC if at.complete => {
                self.raw(Some(Request::Sync), at, 0);
                self.unit.end = UnitEnd::Closed;
            }
            tag::FLUSH if at.complete => {
                self.raw(None, at, 0);
                self.unit.end = UnitEnd::Flushed;
            }
            tag::TERMINATE => return Ok(Some(Admitted::Terminate)),
            // The rest of a COPY that has failed or was never begun: a server ignores it too (PostgresMain).
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL
                if self.unit.items.is_empty() && !self.unit.is_started() =>
            {
                let arrived = input.len().min(at.frame.end) - at.frame.start;
                self.client_discarding = at.frame.len() - arrived;
                return Ok(Some(Admitted::Local(arrived)));
            }
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {
                if at.tag == tag::COPY_DATA {
                    self.raw(None, at, 0);
                } else {
                    self.unit.items.push(Item::CopyEnd { frame: at.frame.clone() });
                }
                self.unit.end = UnitEnd::Flushed;
            }
            _ => return Err(unexpected(at)),
        }
        Ok(None)
    }

    /// Whether a part of a unit is here of which no server knows, and more of it is to come.
    pub(crate) fn has_open_unit(&self) -> bool {
        !self.unit.items.is_empty() && !self.unit.is_closed() && !self.unit.is_started()
    }

    /// Runs that part as if the client had asked for answers.
    pub(crate) fn run_open_unit(&mut self) {
        let end = self.unit.admitted;
        self.unit.items.push(Item::Raw { request: None, frame: end..end, note: 0 });
        self.judge_open_unit();
    }

    /// The client waits for answers before it ends its unit, and may go on with a write.
    ///
    /// Parse and Describe leave nothing behind that a Sync would end, so they are run as a unit of their own, and
    /// what follows is judged on its own. Anything else belongs to the primary from the start.
    fn judge_open_unit(&mut self) {
        if self.is_bound() || self.unit.is_started() {
            return;
        }
        let Some((Item::Raw { request: None, .. }, before)) = self.unit.items.split_last() else {
            return self.unit.demand.primary(Reason::OpenPipeline);
        };
        let harmless = |item: &Item| {
            matches!(item, Item::Parse { .. } | Item::Describe { .. } | Item::CloseStatement { .. })
        };
        if before.is_empty() || !before.iter().all(harmless) {
            return self.unit.demand.primary(Reason::OpenPipeline);
        }
        self.unit.items.pop();
        self.unit.items.push(Item::EndPart);
        self.unit.end = UnitEnd::Part;
    }

    pub(super) fn look_for_databases(&mut self, class: &Class, sql: &[u8]) {
        if matches!(*class.commands, [Command::Definition]) {
            self.unit.unused_databases.extend(must_be_unused(sql));
        }
        if class.commands.contains(&Command::Definition) {
            self.transaction.changes_defaults |= changes_defaults(sql);
        }
    }

    /// Takes in what running a text means; returns the token for its completion.
    pub(super) fn commands(&mut self, class: &Arc<Class>) -> u32 {
        let drops = |command: &Command| matches!(command, Command::Deallocate(None) | Command::DiscardAll);
        if !class.commands.iter().any(drops) {
            return self.unit.commands(class);
        }
        let names = self.statements.take_named();
        self.unit.note(Note::DropsStatements { class: Arc::clone(class), names })
    }

    /// Whether the session has a server connection that it cannot leave now.
    pub(super) fn is_bound(&self) -> bool {
        self.status != TransactionStatus::Idle || self.left.keeps() || self.mode == PoolMode::Session
    }

    pub(super) fn raw(&mut self, request: Option<Request>, at: &At<'_>, note: u32) {
        self.unit.items.push(Item::Raw { request, frame: at.frame.clone(), note });
    }

    pub(super) fn judge(&mut self, class: &Arc<Class>, lookups: &Lookups<'_>) {
        let first = self.unit.items.is_empty();
        let mut verdict = resolve(class, lookups.catalogue);
        if verdict.reason == Reason::Refused && !lookups.refusals.holds(class) {
            verdict = resolve(class, lookups.catalogue);
        }
        let doubtful = lookups.defined_lately || self.transaction.defines_code;
        let left = left(class, lookups.catalogue.filter(|_| !doubtful));
        // What leaves something in the session, or may, is no read because somebody says so.
        if self.unit.replica.unwrap_or(self.settings.asks_replica()) && matches!(left, Left::Nothing) {
            verdict = resolve_for_replica(class, lookups.catalogue);
        }
        self.unit.demand.join(verdict, first);
        self.leave(class, left, doubtful);
        self.transaction.defines_code |= class.defines_code;
        self.unit.releases |= class.releases;
    }

    fn admit_query(
        &mut self,
        input: &[u8],
        at: &At<'_>,
        lookups: &Lookups<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Option<Admitted>, ErrorReport> {
        let (mut note, mut failing) = (0, None);
        if at.complete {
            let sql = frontend::query(at.body).map_err(malformed)?;
            let class = lookups.classify(sql, self.parameters.syntax);
            let plain = matches!(*class.commands, [Command::Plain]) && class.reason != Reason::Empty;
            if !plain
                && self.unit.items.is_empty()
                && !self.unit.is_started()
                && self.answer_query(input, at, &class, lookups, reply)
            {
                return Ok(Some(Admitted::Local(at.frame.len())));
            }
            if matches!(*class.commands, [Command::Show(ref name)] if **name == *own::FENCE)
                && !self.unit.is_started()
                && self.status != TransactionStatus::Failed
            {
                self.statements.remove(b"");
                return Ok(Some(Admitted::Fence(at.frame.len())));
            }
            self.unit.heed(sql);
            if !plain && self.status != TransactionStatus::Failed && self.admit_named(sql, &class, lookups) {
                self.statements.remove(b"");
                self.unit.end = UnitEnd::Closed;
                return Ok(None);
            }
            self.judge(&class, lookups);
            if !plain {
                self.look_for_databases(&class, sql);
                failing = own::failing(&class);
                if failing.is_none() {
                    note = self.commands(&class);
                }
            }
        } else {
            self.unit.demand.primary(Reason::TooComplex);
        }
        // A simple Query ends the unnamed statement (exec_simple_query in src/backend/tcop/postgres.c).
        self.statements.remove(b"");
        self.server.unread_unnamed = false;
        match failing {
            Some(sql) => self.unit.items.push(Item::Instead { sql, note: 0 }),
            None => self.raw(Some(Request::Query), at, note),
        }
        self.unit.end = UnitEnd::Closed;
        Ok(None)
    }

    /// Answers a query that needs no server; says whether it did.
    fn answer_query(
        &mut self,
        input: &[u8],
        at: &At<'_>,
        class: &Class,
        lookups: &Lookups<'_>,
        reply: &mut Vec<u8>,
    ) -> bool {
        if class.reason == Reason::Empty {
            self.statements.remove(b"");
            encode::empty_query_response(reply);
            encode::ready_for_query(reply, self.status);
            return true;
        }
        let [command] = &*class.commands else { return false };
        match command {
            Command::Begin(modes)
                if class.kind == Kind::BeginReadOnly
                    && self.status == TransactionStatus::Idle
                    && !self.left.keeps()
                    && self.mode == PoolMode::Transaction =>
            {
                self.transaction.keeps_snapshot = keeps_snapshot(*modes);
                self.held_begin = Some(input.get(at.frame.clone()).unwrap_or_default().into());
                self.status = TransactionStatus::InTransaction;
                encode::command_complete(reply, begin_tag(at.body));
            }
            Command::Commit { chain: false } if self.held_begin.is_some() => {
                self.held_begin = None;
                self.status = TransactionStatus::Idle;
                encode::command_complete(reply, b"COMMIT");
            }
            Command::Rollback { chain: false } if self.held_begin.is_some() => {
                self.held_begin = None;
                self.status = TransactionStatus::Idle;
                encode::command_complete(reply, b"ROLLBACK");
            }
            // Servers know only those that were set.
            Command::Show(name) if self.status != TransactionStatus::Failed => {
                let Some(value) = self.settings.shown(name, lookups.level) else { return false };
                encode_shown(reply, name, &value);
            }
            // In a failed transaction the server has to refuse it.
            Command::Deallocate(Some(name)) if self.status != TransactionStatus::Failed => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    return false;
                }
                encode::command_complete(reply, b"DEALLOCATE");
            }
            _ => return false,
        }
        self.statements.remove(b"");
        encode::ready_for_query(reply, self.status);
        true
    }

    /// A unit that only closes statements needs no server: the proxy alone knows their names.
    fn answer_closes(&mut self, reply: &mut Vec<u8>) -> Option<Admitted> {
        let (sync, closes) = self.unit.items.split_last()?;
        let sync = matches!(sync, Item::Raw { request: Some(Request::Sync), .. });
        let only_closes = closes.iter().all(|item| matches!(item, Item::CloseStatement { .. }));
        if !sync || !only_closes || closes.is_empty() || self.unit.is_started() {
            return None;
        }
        if self.is_bound() {
            return None;
        }
        for _ in closes {
            encode::close_complete(reply);
        }
        encode::ready_for_query(reply, self.status);
        let admitted = self.unit.admitted;
        self.unit.clear();
        Some(Admitted::Local(admitted))
    }
}

/// The answer to SHOW, apart from ReadyForQuery.
pub(crate) fn encode_shown(reply: &mut Vec<u8>, name: &str, value: &str) {
    encode::row_description(reply, &[Column::text(name.as_bytes())]);
    encode::data_row(reply, [Some(value.as_bytes())]);
    encode::command_complete(reply, b"SHOW");
}

/// The tag of a statement that begins a transaction tells which of the two it was.
fn begin_tag(sql: &[u8]) -> &'static [u8] {
    let verb = Lexer::new(sql).next().map(|token| token.text(sql));
    if verb.is_some_and(|verb| verb.eq_ignore_ascii_case(b"start")) { b"START TRANSACTION" } else { b"BEGIN" }
}

pub(super) fn unexpected(at: &At<'_>) -> ErrorReport {
    let message = if at.complete {
        format!("invalid frontend message type {}", at.tag)
    } else {
        format!("invalid message length: message of type {} is {} bytes long", at.tag, at.frame.len())
    };
    ErrorReport::fatal(SqlState::PROTOCOL_VIOLATION, message)
}

pub(super) fn malformed(error: MalformedMessage) -> ErrorReport {
    error.report().with_severity(causeway_protocol::report::Severity::Fatal)
}

fn fatal(error: frame::FrameError) -> ErrorReport {
    ErrorReport::fatal(SqlState::PROTOCOL_VIOLATION, error.to_string())
}

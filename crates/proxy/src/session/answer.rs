//! Server messages: which the client gets, and what they tell.

use std::ops::Range;

use causeway_pool::Books;
use causeway_protocol::backend::{self, ErrorFields, tag};
use causeway_protocol::frame::{self, FrameError, HEADER_LEN, Header};
use causeway_protocol::frontend::MalformedMessage;
use causeway_protocol::pipeline::{Answer, Origin, Owed, Request, Unexpected};
use causeway_protocol::report::Severity;
use causeway_protocol::sqlstate::SqlState;

use super::finish::rename_statement;
use super::unit::{Note, UnitEnd};
use super::{LARGE_FRAME, Session};

/// The server's stream cannot be followed any further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerFault {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Message(#[from] MalformedMessage),
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
}

/// What became of a part of the server's input.
#[derive(Debug)]
pub(crate) struct Scan {
    /// How much of it has been dealt with.
    pub(crate) consumed: usize,
    /// What the client gets after everything that was put into its buffer: a part of the input, as it stands.
    pub(crate) direct: Range<usize>,
    /// What follows.
    pub(crate) outcome: Outcome,
}

/// What follows from the server's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// More is to come.
    More,
    /// The unit is over; nothing is owed.
    Done,
    /// The server refused the unit or cannot go on with it, and the client has seen nothing: it may run elsewhere.
    /// `reusable`: the connection is at the end of the unit and outside a transaction.
    Retry { code: SqlState, reusable: bool },
    /// The server has said its last word, which the client gets.
    Fatal,
    /// The session's settings could not be established: what ran may have run under wrong ones.
    SettingsRefused,
}

/// Where the bytes for the client come together.
struct Forward<'a> {
    input: &'a [u8],
    run: Range<usize>,
    to_client: &'a mut Vec<u8>,
}

// === impl Forward ===

impl Forward<'_> {
    fn show(&mut self, bytes: Range<usize>) {
        if self.run.end == bytes.start {
            self.run.end = bytes.end;
        } else {
            self.flush();
            self.run = bytes;
        }
    }

    fn flush(&mut self) {
        self.to_client.extend_from_slice(self.input.get(self.run.clone()).unwrap_or_default());
        self.run = self.run.end..self.run.end;
    }
}

// === impl Session ===

impl Session {
    /// Looks at what a server has sent, up to the end of the unit. What the client gets is put into `to_client`,
    /// or pointed at in the input when that is all there is.
    ///
    /// # Errors
    ///
    /// When the server does not follow the protocol: its connection is useless.
    pub(crate) fn answer(
        &mut self,
        input: &[u8],
        books: &mut Books,
        to_client: &mut Vec<u8>,
    ) -> Result<Scan, ServerFault> {
        if let Some(scan) = self.answer_whole(input) {
            // Whatever of Causeway's own precedes it has been put into `to_client` already.
            return Ok(scan);
        }
        self.follow(input, books, to_client)
    }

    /// [`Self::answer`], message by message.
    fn follow(
        &mut self,
        input: &[u8],
        books: &mut Books,
        to_client: &mut Vec<u8>,
    ) -> Result<Scan, ServerFault> {
        let mut forward = Forward { input, run: 0..0, to_client };
        let mut at = self.pass_server_rest(input.len(), &mut forward);
        self.give_answers_after(&mut forward);
        let mut outcome = Outcome::More;
        while outcome == Outcome::More {
            at = self.pass_rows(at, &mut forward);
            let rest = input.get(at..).unwrap_or_default();
            let Some(Header { tag, len }) = frame::header(rest)? else { break };
            let arrived = len.min(rest.len());
            if arrived < len
                && (is_looked_into(tag) && len <= LARGE_FRAME || self.pipeline.in_rows() && is_row(tag))
            {
                break;
            }
            let body = rest.get(HEADER_LEN..arrived).unwrap_or_default();
            let whole = arrived == len;
            let (visible, next) = self.message((tag, whole), body, books, &mut forward)?;
            outcome = next;
            if let Outcome::Retry { .. } = outcome {
                return Ok(self.void(at + len, input, books, outcome));
            }
            if visible {
                forward.show(at..at + arrived);
                self.server_passing = len - arrived;
            } else {
                self.server_discarding = len - arrived;
            }
            at += arrived;
            self.give_answers_after(&mut forward);
        }
        self.reopen();
        if self.may_retry() || !forward.to_client.is_empty() {
            forward.flush();
        }
        Ok(Scan { consumed: at, direct: forward.run, outcome })
    }

    /// Rows make up the bulk: here only their headers are looked at.
    fn pass_rows(&mut self, at: usize, forward: &mut Forward<'_>) -> usize {
        if !self.pipeline.in_rows() || !self.pipeline.visible() {
            return at;
        }
        let rows = frame::rows(forward.input, at);
        if rows.count > 0 {
            self.unit.commit();
            self.counts.rows += rows.count;
            self.counts.messages += rows.count;
            self.server_passing = rows.missing;
            forward.show(at..rows.end);
        }
        rows.end
    }

    fn pass_server_rest(&mut self, arrived: usize, forward: &mut Forward<'_>) -> usize {
        let passed = self.server_passing.min(arrived);
        self.server_passing -= passed;
        forward.show(0..passed);
        let discarded = self.server_discarding.min(arrived - passed);
        self.server_discarding -= discarded;
        passed + discarded
    }

    fn give_answers_after(&mut self, forward: &mut Forward<'_>) {
        // Not into the middle of a message.
        if self.server_passing == 0 && self.pipeline.answers_next() {
            forward.flush();
            self.give_answers(forward.to_client);
        }
    }

    /// One message that is not a row; says whether the client gets it, and what follows.
    fn message(
        &mut self,
        (tag, whole): (u8, bool),
        body: &[u8],
        books: &mut Books,
        forward: &mut Forward<'_>,
    ) -> Result<(bool, Outcome), ServerFault> {
        if tag == tag::ERROR_RESPONSE {
            // One too long to be kept is passed on unread.
            return self.error(if whole { body } else { b"\0" }, books, forward);
        }
        let answer = self.pipeline.answer(tag)?;
        let (visible, ended) = match answer {
            Answer::Part { visible } | Answer::Asynchronous { visible } => (visible, None),
            Answer::Final(owed) => (owed.origin == Origin::Client, Some(owed)),
            Answer::Failed(_) | Answer::Unsolicited => (true, None),
        };
        if tag == tag::DATA_ROW && !visible {
            self.hidden_row(body);
        }
        self.counts.messages += u64::from(visible);
        match tag {
            tag::PARAMETER_STATUS => return Ok((self.parameter_status(body, visible)?, Outcome::More)),
            tag::READY_FOR_QUERY => return self.ready(body, ended, books),
            _ => {}
        }
        // Answers to Parse, Bind and Describe may still be taken back; from here on the unit has been seen to run.
        if visible && !is_preliminary(tag) {
            self.unit.commit();
        }
        if let Some(owed) = ended {
            self.completed(owed);
        }
        Ok((visible, Outcome::More))
    }

    fn parameter_status(&mut self, body: &[u8], visible: bool) -> Result<bool, MalformedMessage> {
        let (name, value) = backend::parameter_status(body)?;
        self.reported.push((name.into(), value.into()));
        // The client's server is the primary, whatever the one at hand says of itself.
        if name == b"in_hot_standby" {
            return Ok(false);
        }
        // No command of the client's has changed it: a function has, or the server's configuration. Nobody else gets it.
        if visible && (!self.unit.has_commands() || self.unit.runs_unknown) {
            self.changed_unasked(name);
        }
        // What is put back after the question is set again for the session when it goes on.
        if self.inquires() {
            return Ok(false);
        }
        // What settings of the session's own bring about is news only if the client was told otherwise.
        Ok(self.parameters.tell(name, value) || visible)
    }

    fn ready(
        &mut self,
        body: &[u8],
        ended: Option<Owed>,
        books: &mut Books,
    ) -> Result<(bool, Outcome), ServerFault> {
        let status = backend::ready_for_query(body)?;
        let visible = ended.is_none_or(|owed| owed.origin == Origin::Client);
        if let Some(owed) = ended {
            if owed.request != Request::Sync && owed.origin == Origin::Client {
                self.counts.simple_queries += 1;
            }
            self.completed_query(owed, books);
        }
        if self.injection_failure.is_some() {
            return Ok((false, Outcome::SettingsRefused));
        }
        let ends_unit = visible || self.unit.end == UnitEnd::Part && self.pipeline.is_quiescent();
        if ends_unit {
            self.unit.commit();
            self.next_status = status;
        }
        let done = ends_unit && self.pipeline.is_quiescent();
        Ok((visible, if done { Outcome::Done } else { Outcome::More }))
    }

    fn error(
        &mut self,
        body: &[u8],
        books: &mut Books,
        forward: &mut Forward<'_>,
    ) -> Result<(bool, Outcome), ServerFault> {
        let answer = self.pipeline.answer(tag::ERROR_RESPONSE)?;
        let fields = backend::error_fields(body)?;
        let fatal = matches!(fields.severity(), Some(Severity::Fatal | Severity::Panic));
        if let Answer::Failed(Owed { origin: Origin::Injected, request: Request::Query, .. }) = answer
            && !fatal
        {
            if self.inquires() {
                return Ok((false, Outcome::More));
            }
            self.injection_failure = Some(body.into());
            return Ok((false, Outcome::More));
        }
        self.counts.messages += 1;
        self.counts.errors += 1;
        let code = fields.code();
        // The routine that finds other columns than before (src/backend/utils/cache/plancache.c); its message may be
        // in any language.
        let outdated =
            code == SqlState::FEATURE_NOT_SUPPORTED && fields.get(b'R') == Some(b"RevalidateCachedQuery");
        if let Answer::Failed(owed) = answer
            && outdated
            && let Some(Note::Uses { statement }) = self.unit.noted(owed.token)
        {
            statement.outdate();
        }
        if self.may_retry() && !outdated && runs_elsewhere(code, &fields) {
            if let Answer::Failed(owed) = answer {
                self.unprepare(owed, books);
            }
            return Ok((false, Outcome::Retry { code, reusable: !fatal }));
        }
        self.unit.commit();
        self.unit.failed = true;
        if let Answer::Failed(owed) = answer {
            let renamed = match self.unit.noted(owed.token) {
                Some(Note::Refused { name }) => rename_statement(body, name),
                Some(Note::Uses { statement }) => {
                    let name = self.statements.name_of(statement);
                    name.and_then(|name| rename_statement(body, name))
                }
                _ => None,
            };
            self.undo_skipped(books);
            self.undo_failed(owed, books);
            if code == SqlState::QUERY_CANCELED
                && !fatal
                && let Some(report) = self.timed_out.take()
            {
                forward.flush();
                causeway_protocol::encode::error_response(forward.to_client, &report);
                return Ok((false, Outcome::More));
            }
            if let Some(renamed) = renamed {
                forward.flush();
                causeway_protocol::encode::raw(forward.to_client, tag::ERROR_RESPONSE, &renamed);
                return Ok((false, if fatal { Outcome::Fatal } else { Outcome::More }));
            }
        }
        Ok((true, if fatal || answer == Answer::Unsolicited { Outcome::Fatal } else { Outcome::More }))
    }

    /// Ends an attempt whose answer nobody has seen.
    fn void(&mut self, after_error: usize, input: &[u8], books: &mut Books, outcome: Outcome) -> Scan {
        let rest = input.get(after_error..).unwrap_or_default();
        // Only ReadyForQuery, saying idle, may follow for the connection to be of further use.
        let clean = *rest == *b"Z\0\0\0\x05I";
        for owed in self.pipeline.take_skipped() {
            self.unprepare(owed, books);
        }
        let outcome = match outcome {
            Outcome::Retry { code, reusable } => {
                let settled = self.injected_settings.is_none();
                Outcome::Retry { code, reusable: reusable && clean && settled }
            }
            other => other,
        };
        Scan { consumed: input.len(), direct: 0..0, outcome }
    }
}

fn is_row(tag: u8) -> bool {
    matches!(tag, tag::DATA_ROW | tag::COPY_DATA)
}

fn is_looked_into(tag: u8) -> bool {
    matches!(tag, tag::ERROR_RESPONSE | tag::READY_FOR_QUERY | tag::PARAMETER_STATUS)
}

fn is_preliminary(tag: u8) -> bool {
    matches!(
        tag,
        tag::PARSE_COMPLETE
            | tag::BIND_COMPLETE
            | tag::PARAMETER_DESCRIPTION
            | tag::ROW_DESCRIPTION
            | tag::NO_DATA
            | tag::NOTICE_RESPONSE
    )
}

/// Whether an error from a standby says that the statement belongs, or may succeed, elsewhere: what a standby
/// refuses, what recovery cancelled, what ended with the server, and what may only not have been replayed there yet.
fn runs_elsewhere(code: SqlState, fields: &ErrorFields<'_>) -> bool {
    match code {
        SqlState::READ_ONLY_TRANSACTION
        | SqlState::FEATURE_NOT_SUPPORTED
        | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        | SqlState::SERIALIZATION_FAILURE
        | SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::DATABASE_DROPPED => true,
        // cannot assign TransactionIds during recovery, of large objects and pg_logical_emit_message
        SqlState::INTERNAL_ERROR => memchr::memmem::find(fields.message(), b"during recovery").is_some(),
        _ => matches!(code.class(), "42" | "3F"),
    }
}

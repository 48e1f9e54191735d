//! One unit of work: a simple Query, or the extended messages up to a Sync.

use std::ops::Range;
use std::sync::Arc;

use causeway_pool::StatementId;
use causeway_protocol::pipeline::Request;
use causeway_routing::{Class, Command, Kind, PinReason, Reason, resolve::Verdict};

use super::statements::Statement;

/// What a unit needs, joined over everything in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Every part of it may run on a replica.
    pub(crate) replica: bool,
    /// The kind of the part that decided.
    pub(crate) kind: Kind,
    /// Why.
    pub(crate) reason: Reason,
    /// Some part was not proven to leave the database as it is.
    pub(crate) writes: bool,
}

/// A client message, looked at once and ready to be sent to whichever server is chosen.
///
/// Ranges are positions in the client's input, which is kept while the unit may have to run again.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Forwarded as it is; the range may reach beyond what has arrived.
    Raw { request: Option<Request>, frame: Range<usize>, note: u32 },
    /// Parse.
    Parse { statement: Arc<Statement>, note: u32 },
    /// Parse under a name that is taken: the server shall say so.
    ParseAgain { statement: Arc<Statement>, taken: Arc<Statement>, note: u32 },
    /// Bind of a known statement: `rest` is what follows the names in its body.
    Bind { statement: Arc<Statement>, portal: Range<usize>, rest: Range<usize> },
    /// Describe of a known statement.
    Describe { statement: Arc<Statement> },
    /// Close of a statement, which the proxy answers: servers keep theirs for others.
    CloseStatement { note: u32 },
}

/// What has to happen when a request is answered, or is not.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// A client's Parse: if it fails, the client's name is free (again).
    Parsed { name: Box<[u8]>, statement: Arc<Statement> },
    /// A Parse that the proxy added: if it fails, the server does not have the statement.
    Injected { statement: Arc<Statement> },
    /// A client's Close: if it is skipped, the name is not free.
    Closed { name: Box<[u8]>, statement: Arc<Statement> },
    /// A statement whose commands take effect when it succeeds.
    Commands(Arc<Class>),
    /// The injected settings.
    Settings,
}

/// The unit being gathered or run.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// What has been admitted and may still have to be sent (again).
    pub(crate) items: Vec<Item>,
    /// How many of them have been sent.
    pub(crate) sent: usize,
    /// How many bytes of the client's input they cover.
    pub(crate) admitted: usize,
    /// What it needs.
    pub(crate) demand: Demand,
    /// By token less one.
    pub(crate) notes: Vec<Note>,
    /// The tokens of the statements bound to portals, where they have any.
    portals: Vec<(Box<[u8]>, u32)>,
    /// Statements that this unit's Parses put on the server, if they succeed.
    pub(crate) preparing: Vec<StatementId>,
    /// Commands that have succeeded and take effect at its end.
    pub(crate) succeeded: Vec<Arc<Class>>,
    /// It leaves something behind on the server connection.
    pub(crate) pin: Option<PinReason>,
    /// Its last message, Query or Sync, has been admitted.
    pub(crate) closed: bool,
    /// The client waits for answers before it ends the unit.
    pub(crate) flushed: bool,
    /// It runs on a standby whose answer may still be thrown away.
    pub(crate) retryable: bool,
    /// Something of its answer has been let through to the client.
    pub(crate) committed: bool,
    /// An error of its own has been seen.
    pub(crate) failed: bool,
    /// It is not the first attempt.
    pub(crate) retried: bool,
}

// === impl Demand ===

impl Default for Demand {
    fn default() -> Self {
        Self { replica: true, kind: Kind::Either, reason: Reason::Empty, writes: false }
    }
}

impl Demand {
    /// Joins the verdict on one more text.
    pub(crate) fn join(&mut self, verdict: Verdict, first: bool) {
        let harmless = match verdict.kind {
            Kind::Read | Kind::Either => true,
            // A whole read-only transaction may live on a replica if it starts with something to judge it by.
            Kind::BeginReadOnly => first,
            Kind::TransactionControl => self.kind == Kind::BeginReadOnly,
            _ => false,
        };
        self.writes |= !matches!(
            verdict.kind,
            Kind::Read
                | Kind::Either
                | Kind::Session
                | Kind::BeginReadWrite
                | Kind::BeginReadOnly
                | Kind::BeginReadOnlyPrimary
                | Kind::TransactionControl
        );
        if !harmless && self.replica {
            self.replica = false;
            self.kind = verdict.kind;
            self.reason = verdict.reason;
        } else if self.replica && self.kind != Kind::BeginReadOnly && verdict.kind != Kind::Either {
            self.kind = verdict.kind;
            self.reason = verdict.reason;
        }
    }

    /// Sends the unit to the primary, whatever its parts say.
    pub(crate) fn primary(&mut self, reason: Reason) {
        *self = Self { replica: false, kind: Kind::Write, reason, writes: true };
    }
}

// === impl Unit ===

impl Unit {
    /// Keeps a note and returns the token to find it by.
    pub(crate) fn note(&mut self, note: Note) -> u32 {
        self.notes.push(note);
        u32::try_from(self.notes.len()).unwrap_or(0)
    }

    /// The note behind a token.
    pub(crate) fn noted(&self, token: u32) -> Option<&Note> {
        let position = usize::try_from(token).ok()?.checked_sub(1)?;
        self.notes.get(position)
    }

    /// Takes in what a text means for the unit and the session; returns the token for its completion.
    pub(crate) fn commands(&mut self, class: &Arc<Class>) -> u32 {
        let tracked = |command: &Command| !matches!(command, Command::Plain | Command::Show(_));
        if !class.commands.iter().any(tracked) {
            return 0;
        }
        for command in &class.commands {
            match command {
                Command::Pin(reason) => self.pin = Some(*reason),
                // Several statements succeed or fail together, and which of them ran is not told.
                Command::Set { local: false, .. }
                | Command::Reset(_)
                | Command::SessionCharacteristics(_)
                | Command::DiscardAll
                | Command::Deallocate(_)
                    if class.commands.len() > 1 =>
                {
                    self.pin = Some(PinReason::Setting);
                }
                _ => {}
            }
        }
        self.note(Note::Commands(Arc::clone(class)))
    }

    /// Remembers what executing this portal will do.
    pub(crate) fn remember_portal(&mut self, portal: &[u8], token: u32) {
        self.portals.retain(|(name, _)| **name != *portal);
        if token != 0 {
            self.portals.push((portal.into(), token));
        }
    }

    /// What executing this portal will do.
    pub(crate) fn portal_token(&self, portal: &[u8]) -> u32 {
        self.portals.iter().find(|(name, _)| **name == *portal).map_or(0, |(_, token)| *token)
    }

    /// Makes ready for the next unit, keeping the storage.
    pub(crate) fn clear(&mut self) {
        let (mut items, mut notes) = (std::mem::take(&mut self.items), std::mem::take(&mut self.notes));
        items.clear();
        notes.clear();
        *self = Self { items, notes, ..Self::default() };
    }
}


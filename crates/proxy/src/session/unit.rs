//! One unit of work: a simple Query, or the extended messages up to a Sync.

use std::ops::Range;
use std::sync::Arc;

use causeway_pool::{StatementId, Statements};
use causeway_protocol::frame::HEADER_LEN;
use causeway_protocol::frontend;
use causeway_protocol::pipeline::Request;
use causeway_routing::{Class, Command, Kind, Leaves, Level, PinSet, Reason, resolve::Verdict};

use super::own;
use super::statements::{Names, Statement};
use super::{Lookups, Session};

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
    /// A query in place of the client's.
    Instead { sql: Box<[u8]>, note: u32 },
    /// CopyDone or CopyFail.
    CopyEnd { frame: Range<usize> },
    /// Parse.
    Parse { statement: Arc<Statement>, note: u32 },
    /// Parse under a name that is taken: the server shall say so.
    ParseAgain { statement: Arc<Statement>, taken: Arc<Statement>, note: u32 },
    /// Bind of a known statement: `rest` is what follows the names in its body.
    Bind { statement: Arc<Statement>, portal: Range<usize>, rest: Range<usize>, note: u32 },
    /// Bind or Describe of the unnamed statement, which this session does not have: the server must not have another
    /// session's.
    WithoutUnnamed { request: Request, frame: Range<usize> },
    /// The server must have this statement for what follows.
    Ensure { statement: Arc<Statement> },
    /// Describe of a known statement.
    Describe { statement: Arc<Statement>, note: u32 },
    /// Ends a part of a unit, in the client's eyes a Flush: the server gets a Sync of which the client sees nothing.
    EndPart,
    /// Close of a statement, which the proxy answers: servers keep theirs for others.
    CloseStatement { note: u32 },
}

/// What has to happen when a request is answered, or is not.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// A client's Parse: if it fails, the client's name is free (again).
    Parsed { name: Box<[u8]>, statement: Arc<Statement> },
    /// A client's Parse of the unnamed statement: if it fails there is none, if it is skipped there is still the
    /// previous one.
    Unnamed { previous: Option<Arc<Statement>> },
    /// A client's Parse under a name that is taken: the server refuses it, and nothing changes.
    Refused { name: Box<[u8]> },
    /// A Close that the proxy added to make room: if it is skipped, the server still has the statement.
    Evicted { id: StatementId },
    /// A Parse that the proxy added: if it fails, the server does not have the statement.
    Injected { statement: Arc<Statement> },
    /// A use of a named statement: the server may find it outdated.
    Uses { statement: Arc<Statement> },
    /// A client's Close: if it is skipped, the name is not free.
    Closed { name: Box<[u8]>, statement: Arc<Statement> },
    /// A statement whose commands take effect when it succeeds.
    Commands(Arc<Class>),
    /// Likewise; it drops all prepared statements, and the client's names for them have been put away here.
    DropsStatements { class: Arc<Class>, names: Names },
    /// The injected settings.
    Settings,
    /// The question what the session has left.
    Inquiry,
}

/// The unit being gathered or run.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four facts that hold or not, each by itself")]
pub(crate) struct Unit {
    /// What has been admitted and may still have to be sent (again).
    pub(crate) items: Vec<Item>,
    /// How many of them have been sent.
    pub(crate) sent: usize,
    /// How far it has come.
    pub(crate) progress: Progress,
    /// How many bytes of the client's input they cover.
    pub(crate) admitted: usize,
    /// What it needs.
    pub(crate) demand: Demand,
    /// The consistency level that a comment in it asks for.
    pub(crate) level: Option<Level>,
    /// Whether the comment at the head of its last text asks for a replica.
    pub(crate) replica: Option<bool>,
    /// By token less one.
    pub(crate) notes: Vec<Note>,
    /// Statements that this unit's Parses put on the server, if they succeed.
    pub(crate) preparing: Vec<StatementId>,
    /// What the books knew before a command was sent that drops all statements.
    pub(crate) dropped: Option<Statements>,
    /// Commands that have succeeded and take effect at its end.
    pub(crate) succeeded: Vec<Arc<Class>>,
    /// Databases that must have no connections for it to succeed.
    pub(crate) unused_databases: Vec<String>,
    /// What it leaves behind on the server connection.
    pub(crate) pins: PinSet,
    /// What it may leave behind there, by what it calls.
    pub(crate) left: Leaves,
    /// What cannot be judged yet.
    pub(crate) unjudged: Vec<Arc<Class>>,
    /// It runs code of which nothing is known.
    pub(crate) runs_unknown: bool,
    /// Something that was left there before may be gone.
    pub(crate) releases: bool,
    /// Where it ends, as far as that is known.
    pub(crate) end: UnitEnd,
    /// An error of its own has been seen.
    pub(crate) failed: bool,
    /// A portal of it may be asked for more rows.
    pub(crate) keeps_portal: bool,
}

/// Where a unit ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnitEnd {
    /// Its last message has not been seen.
    #[default]
    Open,
    /// Nor here, and the client waits for answers before it sends more.
    Flushed,
    /// At its Query or Sync.
    Closed,
    /// Here, before the client's own end of it: it consists of Parse and Describe, run as if that were all.
    Part,
}

/// How far a unit has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing has been sent to a server.
    #[default]
    Gathered,
    /// It runs on a standby whose answer may still be thrown away: the client has seen nothing of it.
    Held,
    /// It runs, for better or worse.
    Committed,
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
            // A whole read-only transaction may live on a replica if the unit begins with it. Bind is judged as Parse was.
            Kind::BeginReadOnly => first || self.kind == Kind::BeginReadOnly,
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

// === impl Session ===

impl Session {
    /// The text of the gathered unit and its class, if there is one text alone. `input` is what the client has sent.
    pub(crate) fn lone_text(&self, input: &[u8], lookups: &Lookups<'_>) -> Option<(Arc<Class>, Box<[u8]>)> {
        let mut found: Option<(Arc<Class>, Box<[u8]>)> = None;
        for item in &self.unit.items {
            let (class, sql) = match item {
                Item::Raw { request: Some(Request::Query), frame, .. } => {
                    let sql = frontend::query(input.get(frame.clone())?.get(HEADER_LEN..)?).ok()?;
                    (lookups.classify(sql, self.parameters.syntax), sql)
                }
                Item::Parse { statement, .. }
                | Item::Bind { statement, .. }
                | Item::Describe { statement, .. } => (Arc::clone(&statement.class), &*statement.sql),
                Item::Raw { .. } | Item::EndPart | Item::CloseStatement { .. } => continue,
                _ => return None,
            };
            match &found {
                Some((known, _)) if !Arc::ptr_eq(known, &class) => return None,
                Some(_) => {}
                None => found = Some((class, sql.into())),
            }
        }
        found
    }
}

// === impl Unit ===

impl Unit {
    /// Takes in what the comment at the head of a text asks for; statements at odds go to the primary.
    pub(crate) fn heed(&mut self, sql: &[u8]) {
        let own::Hint { level, replica } = own::hint(sql).unwrap_or_default();
        if let Some(level) = level {
            let agreed = self.level.is_none_or(|known| known == level);
            self.level = Some(if agreed { level } else { Level::Primary });
        }
        self.replica = replica.or(self.replica);
    }

    /// Keeps a note and returns the token to find it by.
    pub(crate) fn note(&mut self, note: Note) -> u32 {
        self.notes.push(note);
        u32::try_from(self.notes.len()).unwrap_or(0)
    }

    /// Keeps note of the use of a statement.
    pub(crate) fn uses(&mut self, statement: &Arc<Statement>) -> u32 {
        if statement.server_name.is_empty() {
            return 0;
        }
        self.note(Note::Uses { statement: Arc::clone(statement) })
    }

    /// The note behind a token.
    pub(crate) fn noted(&self, token: u32) -> Option<&Note> {
        let position = usize::try_from(token).ok()?.checked_sub(1)?;
        self.notes.get(position)
    }

    /// Takes in what running a text means for the unit and the session; returns the token for its completion.
    pub(crate) fn commands(&mut self, class: &Arc<Class>) -> u32 {
        if !is_tracked(class) {
            return 0;
        }
        for command in &class.commands {
            if let Command::Pin(reason) = command {
                self.pins.insert(*reason);
            }
        }
        self.note(Note::Commands(Arc::clone(class)))
    }

    /// Whether some command of it begins or ends transactions, so that an error need not undo the whole.
    pub(crate) fn controls_transactions(&self) -> bool {
        self.has_command(|command| {
            matches!(command, Command::Begin(_) | Command::Commit { .. } | Command::Rollback { .. })
        })
    }

    /// Whether another transaction begins in it.
    pub(crate) fn begins_transaction(&self) -> bool {
        self.has_command(|command| {
            matches!(
                command,
                Command::Begin(_) | Command::Commit { chain: true } | Command::Rollback { chain: true }
            )
        })
    }

    /// Whether some command of it drops prepared statements, which no rollback brings back.
    pub(crate) fn may_have_deallocated(&self) -> bool {
        self.has_command(|command| matches!(command, Command::Deallocate(_) | Command::DiscardAll))
    }

    /// Whether some command of it changes settings for longer than its transaction.
    pub(crate) fn changes_settings(&self) -> bool {
        self.has_command(|command| {
            matches!(
                command,
                Command::Set { local: false, .. } | Command::Reset(_) | Command::SessionCharacteristics(_)
            )
        })
    }

    /// Whether some command of it rolls back.
    pub(crate) fn rolls_back(&self) -> bool {
        self.has_command(|command| matches!(command, Command::Rollback { .. } | Command::Savepoint))
    }

    /// The settings that its commands name.
    pub(crate) fn setting_names(&self) -> Vec<Box<str>> {
        let classes = self.notes.iter().filter_map(|note| match note {
            Note::Commands(class) | Note::DropsStatements { class, .. } => Some(class),
            _ => None,
        });
        let commands = classes.flat_map(|class| &class.commands);
        commands
            .filter_map(|command| match command {
                Command::Set { name, .. } | Command::Reset(Some(name)) => Some(name.clone()),
                _ => None,
            })
            .collect()
    }

    /// Whether it has commands that the session follows.
    pub(crate) fn has_commands(&self) -> bool {
        self.has_command(|_| true)
    }

    fn has_command(&self, wanted: impl Fn(&Command) -> bool) -> bool {
        self.notes.iter().any(|note| match note {
            Note::Commands(class) | Note::DropsStatements { class, .. } => class.commands.iter().any(&wanted),
            _ => false,
        })
    }

    /// Whether it has done nothing but read: nothing that a later statement of its transaction builds on.
    pub(crate) fn only_reads(&self) -> bool {
        self.demand.replica
            && matches!(self.demand.kind, Kind::Read | Kind::Either)
            && !self.keeps_portal
            && self.pins.is_empty()
            && self.left == Leaves::default()
            && !self.has_commands()
    }

    /// Whether its last message has been admitted.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.end, UnitEnd::Closed | UnitEnd::Part)
    }

    /// Whether something of it has been sent to a server.
    pub(crate) fn is_started(&self) -> bool {
        self.progress != Progress::Gathered
    }

    /// From here on its answer is the client's.
    pub(crate) fn commit(&mut self) {
        self.progress = Progress::Committed;
    }

    /// Makes ready for the next unit, keeping the storage.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.notes.clear();
        self.preparing.clear();
        self.succeeded.clear();
        self.unused_databases.clear();
        self.sent = 0;
        self.progress = Progress::Gathered;
        self.admitted = 0;
        self.demand = Demand::default();
        self.level = None;
        self.replica = None;
        self.dropped = None;
        self.pins = PinSet::default();
        self.left = Leaves::default();
        self.unjudged.clear();
        self.runs_unknown = false;
        self.releases = false;
        self.end = UnitEnd::Open;
        self.failed = false;
        self.keeps_portal = false;
    }
}

/// Whether running a text changes anything that the session must know of.
pub(crate) fn is_tracked(class: &Class) -> bool {
    let tracked = |command: &Command| !matches!(command, Command::Plain | Command::Show(_));
    class.commands.iter().any(tracked)
}

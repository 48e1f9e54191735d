//! What a statement is, told from its text.

use std::fmt;

use crate::catalogue::Catalogue;
use crate::leaves::{Leaves, Mentions};
use crate::memo::Memo;
use crate::reason::Reason;
use crate::symbols::Symbols;

/// What a text may do, in the words of the project's corpus of classified statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Safe on a hot standby, and right there, when it commits by itself.
    Read,
    /// Must run on the primary. Whatever was not understood is of this kind.
    Write,
    /// Makes, changes or reads state of the server session, and writes nothing.
    Session,
    /// Both of the above.
    WriteSession,
    /// Opens a transaction that may write.
    BeginReadWrite,
    /// Opens a transaction that may live wholly on a replica.
    BeginReadOnly,
    /// Opens a read-only transaction that a hot standby refuses.
    BeginReadOnlyPrimary,
    /// Belongs to the running transaction.
    TransactionControl,
    /// Every node answers alike: the empty query, for one.
    Either,
}

/// An isolation level named by a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// READ UNCOMMITTED, which PostgreSQL treats as READ COMMITTED, or READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

/// Transaction modes named by BEGIN, SET TRANSACTION or SET SESSION CHARACTERISTICS; the last mention wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// The value of a SET, so that it can be sent again word for word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SettingValue {
    /// The text after `=` or `TO`, as the client wrote it.
    Text(Box<str>),
    /// DEFAULT.
    Default,
}

/// Why a session must keep its server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinReason {
    /// CREATE TEMPORARY, SELECT INTO TEMP and the like.
    TemporaryTable,
    /// DECLARE .. WITH HOLD, or a cursor statement outside a transaction.
    Cursor,
    /// A session-level advisory lock.
    AdvisoryLock,
    /// LISTEN.
    Listen,
    /// PREPARE in SQL.
    SqlPrepare,
    /// SET SESSION AUTHORIZATION.
    Authorization,
    /// Settings changed of which not even the names are known.
    Setting,
    /// `setseed`.
    Seed,
    /// LOAD.
    Load,
    /// `currval`, `lastval`: the sequences advanced on this connection.
    Sequence,
    /// A large-object descriptor.
    LargeObject,
    /// An exported snapshot.
    Snapshot,
    /// The process id of the server connection is told to the client.
    BackendPid,
    /// Code that a statement ran, whose effects on the session are not known.
    Procedure,
    /// Anything else that may leave something behind.
    Other,
}

/// What the session must know of one statement of a text, apart from where it may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Nothing.
    Plain,
    /// BEGIN or START TRANSACTION.
    Begin(Modes),
    /// COMMIT, END; `chain` with AND CHAIN.
    Commit {
        /// AND CHAIN was given.
        chain: bool,
    },
    /// ROLLBACK, ABORT; `chain` with AND CHAIN.
    Rollback {
        /// AND CHAIN was given.
        chain: bool,
    },
    /// PREPARE TRANSACTION.
    PrepareTransaction,
    /// SAVEPOINT, RELEASE or ROLLBACK TO.
    Savepoint,
    /// SET TRANSACTION.
    SetTransaction(Modes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SessionCharacteristics(Modes),
    /// SET `name`; also SET TIME ZONE and SET NAMES under the setting's own name.
    Set {
        /// The setting's name in lower case.
        name: Box<str>,
        /// What it is set to.
        value: SettingValue,
        /// SET LOCAL.
        local: bool,
    },
    /// RESET `name`, or RESET ALL.
    Reset(Option<Box<str>>),
    /// DISCARD ALL.
    DiscardAll,
    /// DEALLOCATE `name` (as the server folds it), or DEALLOCATE ALL.
    Deallocate(Option<Box<str>>),
    /// SHOW `name`, in lower case.
    Show(Box<str>),
    /// It changes relations, functions or anything else the catalogue tells of.
    Definition,
    /// It leaves something on the server connection that is not followed in detail.
    Pin(PinReason),
}

/// The symbolic class of a text: what its syntax says, and what remains to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What the text may do, provided that every symbol resolves to something harmless.
    pub kind: Kind,
    /// Why it is of this kind.
    pub reason: Reason,
    /// One entry for each statement of the text; none for the empty query.
    pub commands: Box<[Command]>,
    /// The names that remain to be looked up, where the kind depends on them.
    pub symbols: Symbols,
    /// What looking them up gave last. Empty in a class that is made from another.
    pub memo: Memo,
    /// What its own calls may leave in the session.
    pub leaves: Leaves,
    /// What it mentions, and so may run.
    pub mentions: Mentions,
    /// Whether that leaves nothing, as was found out last.
    pub leaves_memo: Memo,
    /// It would be a read, if its answer did not belong to the node that gives it; the names are kept for that case.
    pub asks_node: bool,
    /// Something that the session has may be gone afterwards: UNLISTEN, CLOSE, DROP and the like.
    pub releases: bool,
    /// Code is defined that other statements may run.
    pub defines_code: bool,
}

// === impl Kind ===

impl Kind {
    /// The name used by `causeway route` and `EXPLAIN ROUTE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Session => "session",
            Self::WriteSession => "write+session",
            Self::BeginReadWrite => "txn-begin-rw",
            Self::BeginReadOnly => "txn-begin-ro",
            Self::BeginReadOnlyPrimary => "txn-begin-ro-primary",
            Self::TransactionControl => "txn-control",
            Self::Either => "either",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Class ===

impl Class {
    /// A class of one statement that says nothing but where it may run.
    pub fn plain(kind: Kind, reason: Reason) -> Self {
        Self {
            kind,
            reason,
            commands: Box::new([Command::Plain]),
            symbols: Symbols::default(),
            memo: Memo::default(),
            leaves: Leaves::default(),
            mentions: Mentions::default(),
            leaves_memo: Memo::default(),
            asks_node: false,
            releases: false,
            defines_code: false,
        }
    }

    /// The class of a text of which nothing is known: it may write, and leave anything in the session.
    pub fn unknown(reason: Reason) -> Self {
        Self {
            commands: Box::new([Command::Pin(PinReason::Other)]),
            mentions: Mentions::unknown(),
            ..Self::plain(Kind::WriteSession, reason)
        }
    }

    /// A standby refused such a text: in the database of this catalogue it counts as a write from now on, until the catalogue
    /// changes or [`Self::forgive`]. False if the catalogue has no number to remember it by.
    pub fn refuse(&self, catalogue: &Catalogue) -> bool {
        let by = catalogue.identity();
        if let Some(by) = by {
            self.memo.note(by, Err(Reason::Refused));
        }
        by.is_some()
    }

    /// Whether that is what is remembered of it.
    pub fn is_refused(&self) -> bool {
        self.memo.is(Err(Reason::Refused))
    }

    /// Forgets that a standby refused it.
    pub fn forgive(&self) {
        if self.is_refused() {
            self.memo.clear();
        }
    }

    /// The bytes this occupies, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let text = |command: &Command| match command {
            Command::Set { name, value: SettingValue::Text(text), .. } => name.len() + text.len(),
            Command::Set { name, .. }
            | Command::Reset(Some(name))
            | Command::Deallocate(Some(name))
            | Command::Show(name) => name.len(),
            _ => 0,
        };
        let commands: usize = self.commands.iter().map(|command| size_of::<Command>() + text(command)).sum();
        size_of::<Self>() + commands + self.symbols.bytes() + self.leaves.bytes() + self.mentions.bytes()
    }
}

// === impl PinReason ===

impl PinReason {
    /// Every reason, in the order of [`PinReason::index`].
    pub const ALL: &'static [Self] = &[
        Self::TemporaryTable,
        Self::Cursor,
        Self::AdvisoryLock,
        Self::Listen,
        Self::SqlPrepare,
        Self::Authorization,
        Self::Setting,
        Self::Seed,
        Self::Load,
        Self::Sequence,
        Self::LargeObject,
        Self::Snapshot,
        Self::BackendPid,
        Self::Procedure,
        Self::Other,
    ];

    /// The position in [`PinReason::ALL`], for arrays of metric handles.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TemporaryTable => "temporary_table",
            Self::Cursor => "cursor",
            Self::AdvisoryLock => "advisory_lock",
            Self::Listen => "listen",
            Self::SqlPrepare => "sql_prepare",
            Self::Authorization => "authorization",
            Self::Setting => "setting",
            Self::Seed => "seed",
            Self::Load => "load",
            Self::Sequence => "sequence",
            Self::LargeObject => "large_object",
            Self::Snapshot => "snapshot",
            Self::BackendPid => "backend_pid",
            Self::Procedure => "procedure",
            Self::Other => "other",
        }
    }
}

//! What several statements in one text are together.

use crate::class::{Class, Command, Isolation, Kind, Modes};
use crate::classify::{Found, Statement};
use crate::leaves::Gathered;
use crate::memo::Memo;
use crate::reason::Reason;

/// The statements of a text so far.
#[derive(Debug, Default)]
pub(crate) struct Combination {
    commands: Vec<Command>,
    symbols: Found,
    /// What they may leave in the session.
    pub(crate) gathered: Gathered,
    /// The first statement that writes, and why.
    write: Option<Reason>,
    /// The first statement that touches session state, and why.
    session: Option<Reason>,
    /// A statement which says nothing outside a transaction, but belongs to one if there is one.
    control: bool,
    /// The last statement would be a read, if its answer did not belong to the node that gives it.
    asks_node: bool,
    /// Something other than transaction control was run.
    runs: bool,
    transaction: Transaction,
    /// A transaction opened here must be on the primary, whatever is done in it: a standby refuses READ WRITE and
    /// SERIALIZABLE.
    refused: Option<Refused>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    ReadWrite,
    Serializable,
}

/// What is known of the transaction at this point of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Transaction {
    /// That of the session before the text, if any.
    #[default]
    Before,
    /// One opened in the text.
    Open(Modes),
    /// None.
    Ended,
}

// === impl Combination ===

impl Combination {
    pub(crate) fn add(&mut self, statement: Statement) {
        let Statement { kind, reason, command, symbols, asks_node } = statement;
        self.asks_node = asks_node;
        match kind {
            Kind::Write => self.write = self.write.or(Some(reason)),
            Kind::Session => self.session = self.session.or(Some(reason)),
            Kind::WriteSession => {
                self.write = self.write.or(Some(reason));
                self.session = self.session.or(Some(reason));
            }
            Kind::Read | Kind::Either => self.runs = true,
            Kind::BeginReadWrite | Kind::BeginReadOnly | Kind::BeginReadOnlyPrimary => {}
            Kind::TransactionControl => self.control = true,
        }
        match &command {
            Command::Begin(modes) => self.begin(*modes),
            Command::SetTransaction(modes) => self.change(*modes),
            Command::Commit { chain: false } | Command::Rollback { chain: false } => {
                self.transaction = Transaction::Ended;
            }
            // AND CHAIN is an error outside a transaction; inside one, the next begins with the same modes.
            _ => {}
        }
        self.commands.push(command);
        self.symbols.append(symbols);
    }

    fn begin(&mut self, modes: Modes) {
        // BEGIN inside a transaction only warns, and changes no mode.
        let modes = match self.transaction {
            Transaction::Open(before) => overlay(before, modes),
            Transaction::Before | Transaction::Ended => modes,
        };
        self.transaction = Transaction::Open(modes);
        self.note(modes);
    }

    fn change(&mut self, modes: Modes) {
        if let Transaction::Open(before) = self.transaction {
            let modes = overlay(before, modes);
            self.transaction = Transaction::Open(modes);
            self.note(modes);
        }
    }

    fn note(&mut self, modes: Modes) {
        if modes.read_only == Some(false) {
            self.refused = Some(Refused::ReadWrite);
        } else if modes.isolation == Some(Isolation::Serializable) {
            self.refused = self.refused.or(Some(Refused::Serializable));
        }
    }

    pub(crate) fn finish(self) -> Class {
        let (kind, reason) = self.judge();
        let asks_node = self.asks_node && self.commands.len() == 1 && reason == Reason::NodeLocal;
        let keeps =
            asks_node || matches!(kind, Kind::Read | Kind::BeginReadOnly | Kind::Session | Kind::Either);
        let (releases, defines_code) = (self.gathered.releases, self.gathered.defines_code);
        let (leaves, mentions) = self.gathered.finish();
        Class {
            kind,
            reason,
            commands: self.commands.into_boxed_slice(),
            symbols: if keeps { self.symbols.finish() } else { Found::default().finish() },
            memo: Memo::default(),
            leaves,
            mentions,
            leaves_memo: Memo::default(),
            asks_node,
            releases,
            defines_code,
        }
    }

    fn judge(&self) -> (Kind, Reason) {
        let begins = self.commands.iter().any(|command| matches!(command, Command::Begin(_)));
        match (self.transaction, self.write, self.session) {
            _ if self.commands.is_empty() => (Kind::Either, Reason::Empty),
            (Transaction::Open(modes), None, None)
                if modes.read_only == Some(true) && self.refused != Some(Refused::ReadWrite) =>
            {
                let refused = self.refused.is_some();
                let kind = if refused { Kind::BeginReadOnlyPrimary } else { Kind::BeginReadOnly };
                (kind, Reason::TransactionControl)
            }
            (Transaction::Open(_), write, session) => {
                (Kind::BeginReadWrite, write.or(session).unwrap_or(Reason::TransactionControl))
            }
            (_, Some(reason), Some(_)) => (Kind::WriteSession, reason),
            (_, Some(reason), None) => (Kind::Write, reason),
            (_, None, Some(reason)) => (Kind::Session, reason),
            (_, None, None) if self.refused == Some(Refused::Serializable) => {
                (Kind::Write, Reason::Serializable)
            }
            (_, None, None) if self.refused.is_some() => (Kind::Write, Reason::TransactionControl),
            // Only COMMIT and ROLLBACK, which do nothing outside a transaction, may stand among reads.
            (Transaction::Ended, None, None) if self.runs && (begins || self.only_ends()) => {
                (Kind::Read, Reason::Read)
            }
            _ if self.control || begins => (Kind::TransactionControl, Reason::TransactionControl),
            _ if self.runs => (Kind::Read, Reason::Read),
            _ => (Kind::Write, Reason::Unparsable),
        }
    }

    /// Whether all transaction control here is COMMIT and ROLLBACK.
    fn only_ends(&self) -> bool {
        self.commands.iter().all(|command| {
            matches!(
                command,
                Command::Plain
                    | Command::Show(_)
                    | Command::Commit { chain: false }
                    | Command::Rollback { chain: false }
            )
        })
    }
}

/// Modes named later win.
fn overlay(before: Modes, after: Modes) -> Modes {
    Modes {
        read_only: after.read_only.or(before.read_only),
        isolation: after.isolation.or(before.isolation),
        deferrable: after.deferrable.or(before.deferrable),
    }
}

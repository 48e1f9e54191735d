//! What is known of a server connection's session state.

mod settings;
mod statements;

pub use self::settings::{Change, Settings};
pub use self::statements::{StatementId, Statements};

/// The state of the session behind a server connection, as far as its borrowers have changed it.
///
/// The books travel with the connection: the next borrower compares them with what its client expects and sends the
/// difference. They change only when the server has confirmed a change.
#[derive(Debug)]
pub struct Books {
    /// Settings that differ from those the connection was opened with.
    pub settings: Settings,
    /// Named prepared statements on the server.
    pub statements: Statements,
    /// The statement last parsed under the empty name, if that is known.
    pub unnamed: Option<StatementId>,
    /// The borrower that may have advanced a sequence here last: `currval` and `lastval` tell of its sequences.
    pub sequences_of: Option<i32>,
}

// === impl Books ===

impl Books {
    /// The books of a connection just opened, for at most `max_statements` named statements.
    pub fn new(max_statements: usize) -> Self {
        Self {
            settings: Settings::default(),
            statements: Statements::new(max_statements),
            unnamed: None,
            sequences_of: None,
        }
    }
}

//! What the admin console answers; the binary knows the statements, the proxy speaks the protocol.

use std::future::Future;
use std::pin::Pin;

use causeway_protocol::report::ErrorReport;

/// A column of a console table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name shown to the client.
    pub name: &'static str,
    /// The type as clients of PgBouncer's console know it.
    pub kind: ColumnKind,
}

/// The types that console tables use; values travel as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// `text`, type OID 25.
    Text,
    /// `int4`, type OID 23.
    Int4,
    /// `int8`, type OID 20.
    Int8,
    /// `numeric`, type OID 1700.
    Numeric,
}

/// What a console statement gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Rows, followed by a command tag.
    Table {
        /// The columns; also what Describe is told.
        columns: Vec<Column>,
        /// One entry a row, one value a column, `None` for NULL.
        rows: Vec<Vec<Option<String>>>,
        /// The command tag, `SHOW` for one.
        tag: &'static str,
    },
    /// No rows: a command tag alone.
    Done {
        /// The command tag.
        tag: &'static str,
    },
}

/// A reply in the making. Dropping it abandons the statement.
pub type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ErrorReport>> + Send + 'a>>;

/// The statements of the admin databases.
pub trait Console: Send + Sync + 'static {
    /// Whether `database` is an admin database.
    fn owns(&self, database: &str) -> bool;

    /// The error for a user who may not use the console; `None` for one who may.
    fn refuse(&self, user: &str) -> Option<ErrorReport>;

    /// The columns that a statement will give, `None` when it gives no rows.
    ///
    /// # Errors
    ///
    /// The error that running the statement would give, when that can be told from its text.
    fn describe(&self, sql: &str) -> Result<Option<Vec<Column>>, ErrorReport>;

    /// Runs one statement for `user`.
    fn run<'a>(&'a self, user: &'a str, sql: &'a str) -> ReplyFuture<'a>;
}

// === impl ColumnKind ===

impl ColumnKind {
    /// The type's OID (`src/include/catalog/pg_type.dat`) and its length in bytes, -1 for variable.
    pub fn type_oid_and_len(self) -> (u32, i16) {
        match self {
            Self::Text => (25, -1),
            Self::Int4 => (23, 4),
            Self::Int8 => (20, 8),
            Self::Numeric => (1700, -1),
        }
    }
}

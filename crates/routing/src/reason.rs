//! Why a decision was taken: one closed set for metric labels, log fields and `EXPLAIN ROUTE`.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+) => {
        /// Why a statement runs where it does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in the order of [`Reason::index`].
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The metric label.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

reasons! {
    /// A proven read.
    Read = "read",
    /// It writes, or belongs to a kind of statement that may.
    Write = "write",
    /// It makes, changes or reads state of the server session.
    SessionState = "session_state",
    /// It opens, ends or shapes a transaction.
    TransactionControl = "transaction_control",
    /// The client has not ended its pipeline: what follows may write.
    OpenPipeline = "open_pipeline",
    /// It runs in a transaction, which cannot leave its server.
    InTransaction = "in_transaction",
    /// The session is pinned to its server connection.
    Pinned = "pinned",
    /// It takes row or table locks.
    Locking = "locking",
    /// It calls a function that writes or whose effects are not known to be harmless.
    VolatileFunction = "volatile_function",
    /// It calls a function that neither the built-in table nor the catalogue knows.
    UnknownFunction = "unknown_function",
    /// It names a relation that the catalogue does not know.
    UnknownRelation = "unknown_relation",
    /// It uses an operator or type that the catalogue does not know to be harmless.
    UnknownOperatorOrType = "unknown_operator_or_type",
    /// It reads a view whose definition is not a proven read.
    UnprovenView = "unproven_view",
    /// Its answer belongs to one node: statistics, locks, processes, files, sequences.
    NodeLocal = "node_local",
    /// It reads a temporary or an unlogged table.
    TempOrUnlogged = "temp_or_unlogged",
    /// It reads a table with row-level security, whose policies may do anything.
    RowSecurity = "row_security",
    /// The configuration sends whatever uses a function or a table that it names to the primary.
    Configured = "configured",
    /// A comment, or the session's `causeway.route`, asks for a replica.
    Hint = "hint",
    /// No parser could read it.
    Unparsable = "unparsable",
    /// It is longer, or nested deeper, than classification will follow.
    TooComplex = "too_complex",
    /// The session's encoding or string syntax is one that classification does not judge.
    Encoding = "encoding",
    /// It runs at isolation level SERIALIZABLE, which a hot standby refuses.
    Serializable = "serializable",
    /// No catalogue of this database has been loaded yet.
    NoCatalogue = "no_catalogue",
    /// The session's consistency level is `primary`.
    LevelPrimary = "level_primary",
    /// No replica was known in time to have replayed what the read must see.
    Fence = "fence",
    /// No replica is configured, up, within the lag limit and of a weight above zero.
    NoReplica = "no_replica",
    /// A replica refused such a statement lately: SHOW ROUTES on the console lists them.
    Refused = "refused",
    /// A replica refused or lost the statement before any of its result was forwarded.
    Retried = "retried",
    /// An empty query, which any node answers alike.
    Empty = "empty",
    /// Causeway answers itself.
    Local = "local",
}

// === impl Reason ===

impl Reason {
    /// The position in [`Reason::ALL`], for arrays of metric handles.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

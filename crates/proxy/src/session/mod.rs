//! The session machine: what a client's messages mean, what a server is sent, and what comes back of it.
//!
//! Nothing here waits, reads a clock or touches a socket. The shell around it moves bytes:
//!
//! * [`Session::admit`] looks at the client's input and gathers a unit, or answers it on the spot;
//! * [`Session::begin`] and [`Session::emit`] turn the unit into bytes for the server that was chosen;
//! * [`Session::answer`] looks at the server's input and says what the client gets;
//! * [`Session::finish`] takes in what the unit has changed.

mod admit;
mod answer;
mod databases;
mod emit;
mod extended;
mod finish;
mod leftovers;
mod names;
mod own;
mod parameters;
pub(crate) mod settings;
pub(crate) mod statements;
mod unit;
mod whole;

use std::sync::{Arc, Mutex, PoisonError};

use causeway_pool::Settings;
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::encode;
use causeway_protocol::pipeline::Pipeline;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::cache::{StatementCache, SyntaxOptions};
use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Class, Fence, Kind, Level, PinSet, Reason};

pub(crate) use self::admit::Admitted;
pub(crate) use self::answer::Outcome;
pub(crate) use self::finish::Connection;
use self::leftovers::Leftovers;
pub use self::own::{Hint, hint};
pub(crate) use self::parameters::Told;
use self::parameters::{Parameter, Parameters};
use self::settings::SessionSettings;
use self::statements::{ClientStatements, StatementRegistry};
pub(crate) use self::unit::Demand;
use self::unit::{Progress, Unit};
use crate::config::PoolMode;
use crate::metrics::ProcessMetrics;
use crate::refusals::Refusals;

/// Client frames up to this length are looked at whole; longer ones are forwarded as they arrive, unclassified.
const LARGE_FRAME: usize = 1024 * 1024;

/// A unit may be run again while it is at most this long.
const RETRY_LIMIT: usize = 256 * 1024;

/// What the machine looks things up in.
pub(crate) struct Lookups<'a> {
    pub(crate) classifier: &'a Mutex<StatementCache>,
    pub(crate) registry: &'a StatementRegistry,
    pub(crate) refusals: &'a Refusals,
    pub(crate) catalogue: Option<&'a Catalogue>,
    /// The session has defined code so lately that the catalogue may not know.
    pub(crate) defined_lately: bool,
    /// The level of a session that asks for none.
    pub(crate) level: Level,
    pub(crate) metrics: &'a ProcessMetrics,
}

/// What was counted since the shell last took it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) rows: u64,
    pub(crate) errors: u64,
    pub(crate) simple_queries: u64,
    pub(crate) extended_queries: u64,
}

/// One client's session, apart from its sockets.
#[derive(Debug)]
pub(crate) struct Session {
    mode: PoolMode,
    statements: ClientStatements,
    pub(crate) settings: SessionSettings,
    pipeline: Pipeline,
    unit: Unit,
    status: TransactionStatus,
    /// What it may have left on its server connection.
    left: Leftovers,
    /// A BEGIN READ ONLY that has been answered and not sent: the next statement decides where it goes.
    held_begin: Option<Box<[u8]>>,
    /// The BEGIN READ ONLY of a transaction that runs on a replica, has only read there, and takes a snapshot for each
    /// statement: it could as well begin now, and elsewhere.
    movable: Option<Box<[u8]>>,
    /// The unit was refused before its end: what comes up to Sync is thrown away.
    skipping: bool,
    /// How much of a client frame is still to be forwarded, or to be thrown away.
    client_passing: usize,
    client_discarding: usize,
    /// How much of a server frame is still to be forwarded, or to be thrown away.
    server_passing: usize,
    server_discarding: usize,
    /// What is known of the server connection at hand, apart from its books.
    server: ServerSide,
    /// What the running transaction has done.
    transaction: Transaction,
    /// The status that the server gave last.
    next_status: TransactionStatus,
    /// What the client was told of its settings.
    parameters: Parameters,
    /// What the portals of the running transaction will do, where that must be known.
    portals: Vec<(Box<[u8]>, Arc<Class>)>,
    /// What the server connection will have once the injected settings have succeeded.
    injected_settings: Option<Settings>,
    /// The body of the error that the injected settings gave.
    injection_failure: Option<Box<[u8]>>,
    /// ParameterStatus messages seen: name and value.
    reported: Vec<Parameter>,
    counts: Counts,
    /// The running unit is being cancelled: what the client is told in place of the server's words.
    timed_out: Option<Box<ErrorReport>>,
}

/// What is known of the server connection at hand, apart from its books.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four facts that hold or not, each by itself")]
struct ServerSide {
    /// It is a standby's.
    standby: bool,
    /// It has something that the books do not tell of: it serves nobody else.
    unclean: bool,
    /// The sequences last advanced on it are this session's.
    own_sequences: bool,
    /// It has an unnamed statement of this session that was too long to be kept here.
    unread_unnamed: bool,
}

/// What the running transaction has done.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "seven facts that hold or not, each by itself")]
struct Transaction {
    /// Something that was not proven to be a read.
    writes: bool,
    /// Something that changes what the catalogue tells of.
    defines: bool,
    /// Code was defined that statements may run.
    defines_code: bool,
    /// What new sessions begin with was changed.
    changes_defaults: bool,
    /// Settings were reset since something was last sent.
    resets: bool,
    /// It has savepoints.
    savepoints: bool,
    /// It began with an isolation level at which all of its statements see the same.
    keeps_snapshot: bool,
}

// === impl Lookups ===

impl Lookups<'_> {
    fn classify(&self, sql: &[u8], syntax: SyntaxOptions) -> Arc<Class> {
        let cache = || self.classifier.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cache().find(sql, syntax);
        match found {
            Ok(class) => {
                self.metrics.classifier_hits.add(1);
                class
            }
            // Parsed without the lock: it may take milliseconds.
            Err(unknown) => {
                self.metrics.classifier_misses.add(1);
                let parsed = unknown.parse(sql);
                cache().add(parsed)
            }
        }
    }
}

// === impl Session ===

impl Session {
    /// A session that has just logged in.
    pub(crate) fn new(mode: PoolMode, settings: SessionSettings, told: Told) -> Self {
        Self {
            mode,
            statements: ClientStatements::default(),
            settings,
            pipeline: Pipeline::default(),
            unit: Unit::default(),
            status: TransactionStatus::Idle,
            left: Leftovers::default(),
            held_begin: None,
            movable: None,
            skipping: false,
            client_passing: 0,
            client_discarding: 0,
            server_passing: 0,
            server_discarding: 0,
            server: ServerSide::default(),
            transaction: Transaction::default(),
            next_status: TransactionStatus::Idle,
            parameters: Parameters::new(told),
            portals: Vec::new(),
            injected_settings: None,
            injection_failure: None,
            reported: Vec::new(),
            counts: Counts::default(),
            timed_out: None,
        }
    }

    /// The consistency level of the gathered unit, if the session or a statement of it asks for one.
    pub(crate) fn level(&self) -> Option<Level> {
        self.unit.level.or(self.settings.level())
    }

    /// What the gathered unit needs.
    pub(crate) fn demand(&self) -> Demand {
        self.unit.demand
    }

    /// The answer to SHOW causeway.fence.
    pub(crate) fn show_fence(&self, fence: Option<Fence>, reply: &mut Vec<u8>) {
        if let Some(fence) = fence {
            admit::encode_shown(reply, own::FENCE, &fence.to_string());
        } else {
            let message = "the primary did not tell in time how far its log goes";
            let report = ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            encode::error_response(reply, &report);
        }
        encode::ready_for_query(reply, self.status);
    }

    /// The transaction status as the client knows it.
    pub(crate) fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Whether the client is inside a transaction of which no server knows yet.
    pub(crate) fn holds_begin(&self) -> bool {
        self.held_begin.is_some()
    }

    /// Has the running transaction begin anew for the gathered unit, which the replica at hand would refuse and the primary
    /// may run; false if it cannot.
    pub(crate) fn leaves_replica(&mut self) -> bool {
        let wanted = !self.unit.demand.replica && (self.unit.demand.writes || self.unit.begins_transaction());
        if !wanted || self.unit.sent > 0 || self.status != TransactionStatus::InTransaction {
            return false;
        }
        self.held_begin = self.movable.take();
        self.held_begin.is_some()
    }

    /// Whether the running unit could run again on another server.
    pub(crate) fn may_retry(&self) -> bool {
        self.unit.progress == Progress::Held
    }

    /// Whether the gathered unit, inside a transaction, may see more than the transaction's earlier statements did.
    pub(crate) fn takes_new_snapshot(&self) -> bool {
        self.status == TransactionStatus::InTransaction
            && !self.transaction.keeps_snapshot
            && self.unit.demand.kind != Kind::TransactionControl
    }

    /// A standby has refused the gathered unit, as all others would.
    pub(crate) fn belongs_to_primary(&mut self) {
        self.unit.demand.replica = false;
        self.unit.demand.reason = Reason::Refused;
    }

    /// The databases that must have no connections for the gathered unit to succeed.
    pub(crate) fn take_unused_databases(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unit.unused_databases)
    }

    /// Whether the last message of the running unit has been admitted.
    pub(crate) fn unit_closed(&self) -> bool {
        self.unit.is_closed()
    }

    /// Whether the server cannot go on before the client sends more: it gives up when the connection is closed.
    pub(crate) fn awaits_client(&self) -> bool {
        self.pipeline.in_copy() || self.client_passing > 0 || !self.unit.is_closed()
    }

    /// Whether the server connection at hand is between two units and outside a transaction.
    pub(crate) fn is_resting(&self) -> bool {
        self.status == TransactionStatus::Idle
            && self.held_begin.is_none()
            && self.pipeline.is_quiescent()
            && self.unit.sent == 0
            && self.client_passing + self.server_passing + self.server_discarding == 0
    }

    /// Whether the gathered unit leaves something on its server connection.
    pub(crate) fn pinning(&self) -> PinSet {
        self.unit.pins
    }

    /// The sequences last advanced on the server connection at hand are this session's own.
    pub(crate) fn finds_own_sequences(&mut self, own: bool) {
        self.server.own_sequences = own;
    }

    /// The running unit has taken too long and is to be cancelled: this is what the client will be told. False if that is
    /// known already.
    pub(crate) fn time_out(&mut self, report: ErrorReport) -> bool {
        let first = self.timed_out.is_none();
        self.timed_out.get_or_insert_with(|| Box::new(report));
        first
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The parameters that the server has reported since the last call.
    pub(crate) fn take_reported(&mut self) -> Vec<Parameter> {
        std::mem::take(&mut self.reported)
    }
}

#[cfg(test)]
mod tests;

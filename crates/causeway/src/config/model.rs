//! A configuration that has been read and checked.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_pool::Address;
use causeway_protocol::scram::Verifier;
use causeway_routing::{Level, Levels};
use causeway_tls::{TlsClient, TlsServer};
use secrecy::SecretString;
use serde::Deserialize;

pub use super::scalars::{Endpoint, HostPort, Origin};

/// One valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    /// Where clients connect; at least one.
    pub listen: Vec<Endpoint>,
    /// Where metrics and health are served.
    pub http: HostPort,
    /// Whose metrics are shown beside Causeway's own.
    pub metrics_compat: Option<MetricsCompat>,
    /// TLS towards clients; `None` where there is none.
    pub tls: Option<Tls>,
    /// Where the lineage of each cluster is kept across restarts.
    pub state_dir: Option<PathBuf>,
    /// The other Causeways behind the same address: where they listen.
    pub peers: Vec<HostPort>,
    /// At least one.
    pub clusters: Vec<Cluster>,
    /// What holds where nothing else is said.
    pub pool: Pool,
    /// What reads must see where neither database nor user says otherwise, and how they wait for it.
    pub consistency: Consistency,
    /// In order; the first that matches decides.
    pub rules: Vec<Rule>,
    /// By name, `"*"` among them.
    pub databases: Vec<(String, Database)>,
    /// By name.
    pub users: Vec<(String, User)>,
    /// Who may use the console.
    pub admins: Vec<String>,
    /// Who may look at what it shows, and change nothing.
    pub watchers: Vec<String>,
    /// Clients at the same time.
    pub max_clients: u32,
    /// Server-side prepared statements for each server connection.
    pub max_prepared_statements: u32,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The least severe events that are logged.
    pub log_level: LogLevel,
    /// How they are written.
    pub log_format: LogFormat,
    /// What an operator should know although it is valid.
    pub warnings: Vec<String>,
    /// Every value as written, for SHOW CONFIG.
    pub written: Vec<Written>,
}

/// Whose metrics are shown beside Causeway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsCompat {
    /// Those of `pgbouncer_exporter`.
    Pgbouncer,
}

/// A value as it was written; secrets are hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where: `clusters.main.nodes[0].name`.
    pub path: String,
    /// The key it belongs to: `clusters.<name>.nodes[].name`.
    pub pattern: String,
    /// The value.
    pub text: String,
}

/// The section `tls`.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Who needs it.
    pub mode: TlsMode,
    /// The certificate and its key.
    pub server: TlsServer,
}

/// Who needs TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// Who asks for it.
    Allow,
    /// Everybody who comes over TCP.
    Require,
}

/// An entry of `clusters`.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its key.
    pub name: String,
    /// At least one.
    pub nodes: Vec<Node>,
    /// How the monitors log in.
    pub monitor: Monitor,
    /// Replicas that are further behind get no reads.
    pub max_lag: Duration,
    /// How long a statement for the primary waits while there is none.
    pub primary_wait: Duration,
    /// What a fence is read from.
    pub fence_source: Source,
    /// From one check of a node to the next.
    pub check_interval: Duration,
    /// A node that does not answer within this is down.
    pub check_timeout: Duration,
    /// Functions and tables that are forced either way, by database; `"*"` stands for all others.
    pub overrides: HashMap<Box<str>, Arc<causeway_routing::Overrides>>,
    /// Failures after which a replica is left alone.
    pub eject_after: u32,
    /// How long a node that serves again takes to get its whole share.
    pub slow_start: Duration,
}

/// An entry of `nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is called in metrics and messages.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// Its share of the reads; 0 means none.
    pub weight: u32,
    /// Server connections of all pools together; `None`: as many as the pools have.
    pub max_server_connections: Option<u32>,
    /// How its connections are encrypted; `None`: not at all.
    pub tls: Option<TlsClient>,
    /// The levels of the reads it may be given.
    pub levels: Levels,
}

/// How the monitors log in.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// As whom.
    pub user: String,
    /// With what; `None` where the servers ask for nothing.
    pub password: Option<SecretString>,
    /// Where.
    pub database: String,
}

/// When a server connection goes back to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// When the transaction ends.
    Transaction,
    /// When the client leaves.
    Session,
    /// After each statement.
    Statement,
}

/// What becomes of a read that no replica could serve in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The primary serves it.
    #[default]
    Primary,
    /// It goes on waiting, as long as a checkout may.
    Wait,
    /// It fails.
    Error,
}

/// What becomes of a session whose writes may have been lost in a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostWrites {
    /// Its next statement fails, once.
    #[default]
    Error,
    /// It goes on, and is counted.
    Adopt,
}

/// What a fence is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The only one that is always right: the insert position.
    #[default]
    Auto,
    /// Where the log ends.
    Insert,
    /// How far it is on disk: right only where nobody commits asynchronously.
    Flush,
    /// The end of a small commit of its own.
    Commit,
}

/// Whether reads run while it is asked what they must see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// They wait for that.
    #[default]
    Off,
    /// They do, where a replica shows all that is known of, as long as that is mostly enough.
    Auto,
}

/// The section `consistency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consistency {
    /// The level.
    pub level: Level,
    /// How long a read waits for a replica to show what it must see.
    pub wait: Duration,
    /// What becomes of it then.
    pub fallback: Fallback,
    /// How many such reads run on a primary at once.
    pub fallback_limit: u32,
    /// What becomes of a session whose writes may have been lost in a failover.
    pub lost_writes: LostWrites,
    /// Whether reads run while it is asked what they must see.
    pub overlap: Overlap,
}

/// The section `pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// When a server connection goes back.
    pub mode: Mode,
    /// Server connections for each node, database and user.
    pub size: u32,
    /// Clients queued for each pool.
    pub max_waiters: u32,
    /// Logins under way at one node.
    pub max_connecting: u32,
    /// How long a client waits in the queue.
    pub checkout_timeout: Duration,
    /// From connect to the server's first `ReadyForQuery`.
    pub connect_timeout: Duration,
    /// How long a connection may stay unused; zero means for ever.
    pub idle_timeout: Duration,
    /// How old a connection may become; zero means any age.
    pub lifetime: Duration,
    /// TCP keepalive of server connections.
    pub keepalive: Keepalive,
}

/// TCP keepalive, in whole seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// From one probe to the next.
    pub interval: Duration,
    /// Unanswered probes before the connection is lost.
    pub probes: u32,
    /// How long sent data may stay unacknowledged.
    pub user_timeout: Duration,
}

/// What a database or a user says differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `pool.mode`.
    pub mode: Option<Mode>,
    /// `pool.size`.
    pub size: Option<u32>,
    /// `pool.checkout_timeout`.
    pub checkout_timeout: Option<Duration>,
    /// `consistency.default`.
    pub level: Option<Level>,
    /// `consistency.wait`.
    pub wait: Option<Duration>,
    /// `consistency.fallback`.
    pub fallback: Option<Fallback>,
    /// `consistency.lost_writes`.
    pub lost_writes: Option<LostWrites>,
    /// `limits.max_clients`.
    pub max_clients: Option<u32>,
    /// `limits.max_server_connections`.
    pub max_server_connections: Option<u32>,
    /// `timeouts`.
    pub timeouts: TimeoutOverrides,
}

/// What a database or a user says differently of the deadlines of its clients; zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeoutOverrides {
    /// `timeouts.query_timeout`.
    pub query: Option<Duration>,
    /// `timeouts.transaction_timeout`.
    pub transaction: Option<Duration>,
    /// `timeouts.idle_in_transaction_timeout`.
    pub idle_in_transaction: Option<Duration>,
    /// `timeouts.client_idle_timeout`.
    pub client_idle: Option<Duration>,
}

/// An entry of `databases`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The position in [`Config::clusters`].
    pub cluster: usize,
    /// What it says differently from the defaults.
    pub overrides: Overrides,
}

/// What is known of a user's password.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The password: clients are checked against it and servers are given it.
    Password(SecretString),
    /// A SCRAM verifier: clients can be checked, servers must not ask.
    Verifier(Box<Verifier>),
}

/// An entry of `users`.
#[derive(Clone, Debug)]
pub struct User {
    /// Its secret, if any.
    pub credential: Option<Credential>,
    /// What it says differently from its database.
    pub overrides: Overrides,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// It need not.
    Trust,
    /// SCRAM-SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// It is turned away.
    Reject,
}

/// For which connections a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleTls {
    /// Those with TLS, as `hostssl`.
    Require,
    /// Those without, as `hostnossl`.
    None,
}

/// An entry of `auth.rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// From where.
    pub origin: Origin,
    /// To which database; `None` means any.
    pub database: Option<String>,
    /// As which user; `None` means any.
    pub user: Option<String>,
    /// With TLS or without; `None` means either.
    pub tls: Option<RuleTls>,
    /// How.
    pub method: Method,
}

/// The section `timeouts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From accept to the client's first `ReadyForQuery`.
    pub login_timeout: Duration,
    /// How long an accepted login answers later ones like it.
    pub login_cache: Duration,
    /// How long running transactions may go on after SIGTERM.
    pub shutdown_timeout: Duration,
    /// How long clients are still accepted after SIGTERM, readiness being off.
    pub drain_delay: Duration,
    /// How long clients may stay with a process whose listeners another one has taken over.
    pub handover_timeout: Duration,
    /// How long a statement may run; zero means for ever, here and below.
    pub query: Duration,
    /// How long a transaction may last.
    pub transaction: Duration,
    /// How long a client may do nothing inside a transaction.
    pub idle_in_transaction: Duration,
    /// How long a client may do nothing outside a transaction.
    pub client_idle: Duration,
}

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// What stopped something from working.
    Error,
    /// What an operator should look at.
    Warn,
    /// Starts, stops, reloads, role changes.
    #[default]
    Info,
    /// Each session.
    Debug,
    /// Each step.
    Trace,
}

/// How an event is written; always one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

//! The shape of the YAML file; what it means is checked in [`super::validate`].

use std::collections::BTreeMap;

use serde::Deserialize;

use super::model::{
    Fallback, LogFormat, LogLevel, LostWrites, Method, MetricsCompat, Mode, Overlap, RuleTls, Source, TlsMode,
};
use super::routing::ForcedTo;
use super::scalars::{
    Count, Endpoint, HostPort, LevelName, LevelWord, Name, NodeAddress, Origin, Secret, Span, Weight, Word,
};
use super::server_tls::ServerTls;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map of sections")]
pub(super) struct File {
    pub(super) listen: Option<Vec<Endpoint>>,
    pub(super) http: Option<HostPort>,
    pub(super) metrics_compat: Option<MetricsCompat>,
    pub(super) tls: Option<Tls>,
    pub(super) state_dir: Option<Word>,
    pub(super) peers: Option<Vec<HostPort>>,
    pub(super) clusters: Option<BTreeMap<Name, Cluster>>,
    pub(super) pool: Option<Pool>,
    pub(super) consistency: Option<Consistency>,
    pub(super) routing: Option<Routing>,
    pub(super) auth: Option<Auth>,
    pub(super) databases: Option<BTreeMap<String, Option<Database>>>,
    pub(super) users: Option<BTreeMap<String, Option<User>>>,
    pub(super) admin: Option<Admin>,
    pub(super) limits: Option<Limits>,
    pub(super) timeouts: Option<Timeouts>,
    pub(super) log: Option<Log>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with cert_file and key_file")]
pub(super) struct Tls {
    pub(super) cert_file: Word,
    pub(super) key_file: Word,
    pub(super) mode: Option<TlsMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with nodes and a monitor")]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) server_tls: Option<ServerTls>,
    pub(super) monitor: Monitor,
    pub(super) max_lag: Option<Span>,
    pub(super) primary_wait: Option<Span>,
    pub(super) fence_source: Option<Source>,
    pub(super) check_interval: Option<Span>,
    pub(super) check_timeout: Option<Span>,
    pub(super) eject_after: Option<Count>,
    pub(super) slow_start: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with name and address")]
pub(super) struct Node {
    pub(super) name: Name,
    pub(super) address: NodeAddress,
    pub(super) weight: Option<Weight>,
    pub(super) max_server_connections: Option<Count>,
    pub(super) server_tls: Option<ServerTls>,
    pub(super) levels: Option<Vec<LevelWord>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with the monitor's user")]
pub(super) struct Monitor {
    pub(super) user: Word,
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<Word>,
    pub(super) database: Option<Word>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map of pool settings")]
pub(super) struct Pool {
    pub(super) mode: Option<Mode>,
    pub(super) size: Option<Count>,
    pub(super) max_waiters: Option<Count>,
    pub(super) max_connecting: Option<Count>,
    pub(super) checkout_timeout: Option<Span>,
    pub(super) connect_timeout: Option<Span>,
    pub(super) idle_timeout: Option<Span>,
    pub(super) lifetime: Option<Span>,
    pub(super) keepalive: Option<Keepalive>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with idle, interval, probes and user_timeout")]
pub(super) struct Keepalive {
    pub(super) idle: Option<Span>,
    pub(super) interval: Option<Span>,
    pub(super) probes: Option<Count>,
    pub(super) user_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with mode, size and checkout_timeout")]
pub(super) struct PoolOverrides {
    pub(super) mode: Option<Mode>,
    pub(super) size: Option<Count>,
    pub(super) checkout_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with the default level, wait and fallback")]
pub(super) struct Consistency {
    #[serde(rename = "default")]
    pub(super) level: Option<LevelName>,
    pub(super) wait: Option<Span>,
    pub(super) fallback: Option<Fallback>,
    pub(super) fallback_limit: Option<Count>,
    pub(super) lost_writes: Option<LostWrites>,
    pub(super) overlap: Option<Overlap>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a map with the default level, wait, fallback and lost_writes"
)]
pub(super) struct ConsistencyOverrides {
    #[serde(rename = "default")]
    pub(super) level: Option<LevelName>,
    pub(super) wait: Option<Span>,
    pub(super) fallback: Option<Fallback>,
    pub(super) lost_writes: Option<LostWrites>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with functions and tables")]
pub(super) struct Routing {
    pub(super) functions: Option<BTreeMap<String, ForcedTo>>,
    pub(super) tables: Option<BTreeMap<String, ForcedTo>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with rules and a userlist_file")]
pub(super) struct Auth {
    pub(super) rules: Option<Vec<Rule>>,
    pub(super) userlist_file: Option<Word>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with address and method")]
pub(super) struct Rule {
    pub(super) address: Origin,
    pub(super) database: Option<Word>,
    pub(super) user: Option<Word>,
    pub(super) tls: Option<RuleTls>,
    pub(super) method: Method,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with the database's cluster")]
pub(super) struct Database {
    pub(super) cluster: Option<Word>,
    pub(super) pool: Option<PoolOverrides>,
    pub(super) consistency: Option<ConsistencyOverrides>,
    pub(super) routing: Option<Routing>,
    pub(super) limits: Option<LimitOverrides>,
    pub(super) timeouts: Option<TimeoutOverrides>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with the user's password_file")]
pub(super) struct User {
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<Word>,
    pub(super) scram_verifier: Option<Secret>,
    pub(super) pool: Option<PoolOverrides>,
    pub(super) consistency: Option<ConsistencyOverrides>,
    pub(super) limits: Option<LimitOverrides>,
    pub(super) timeouts: Option<TimeoutOverrides>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with users")]
pub(super) struct Admin {
    pub(super) users: Option<Vec<Word>>,
    pub(super) stats_users: Option<Vec<Word>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map of limits")]
pub(super) struct Limits {
    pub(super) max_clients: Option<Count>,
    pub(super) max_prepared_statements: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with max_clients and max_server_connections")]
pub(super) struct LimitOverrides {
    pub(super) max_clients: Option<Count>,
    pub(super) max_server_connections: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[allow(clippy::struct_field_names, reason = "these are the keys of the file")]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a map with query_timeout, transaction_timeout, idle_in_transaction_timeout and client_idle_timeout"
)]
pub(super) struct TimeoutOverrides {
    pub(super) query_timeout: Option<Span>,
    pub(super) transaction_timeout: Option<Span>,
    pub(super) idle_in_transaction_timeout: Option<Span>,
    pub(super) client_idle_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map of timeouts")]
pub(super) struct Timeouts {
    pub(super) login_timeout: Option<Span>,
    pub(super) login_cache: Option<Span>,
    pub(super) shutdown_timeout: Option<Span>,
    pub(super) drain_delay: Option<Span>,
    pub(super) handover_timeout: Option<Span>,
    pub(super) query_timeout: Option<Span>,
    pub(super) transaction_timeout: Option<Span>,
    pub(super) idle_in_transaction_timeout: Option<Span>,
    pub(super) client_idle_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with level and format")]
pub(super) struct Log {
    pub(super) level: Option<LogLevel>,
    pub(super) format: Option<LogFormat>,
}

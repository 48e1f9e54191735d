//! The configuration that the data plane runs on: parsed and checked elsewhere, swapped as a whole.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_pool::{Address, Keepalive};
use causeway_protocol::scram::Verifier;
use causeway_routing::Level;
use causeway_tls::{TlsClient, TlsServer};
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::control::ControlPlane;

/// When a server connection goes back to its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// When the transaction ends, unless the session is pinned.
    #[default]
    Transaction,
    /// When the client leaves.
    Session,
    /// After each statement; transaction blocks are refused.
    Statement,
}

/// What becomes of a read that no replica could serve in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The primary serves it.
    #[default]
    Primary,
    /// It goes on waiting, as long as a checkout may.
    Wait,
    /// It fails.
    Error,
}

/// What becomes of a session whose acknowledged writes may have been lost in a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostWrites {
    /// Its next statement fails, once.
    #[default]
    Error,
    /// It goes on, and is counted.
    Adopt,
}

/// How reads wait for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consistency {
    /// `consistency.wait`: how long a read waits for a replica to show what it must see.
    pub wait: Duration,
    /// `consistency.fallback`: what becomes of it then.
    pub fallback: Fallback,
    /// `consistency.fallback_limit`: how many such reads run on a primary at once.
    pub fallback_limit: usize,
    /// `consistency.lost_writes`: what becomes of a session whose writes may have been lost in a failover.
    pub lost_writes: LostWrites,
    /// `consistency.overlap`: whether reads run while it is asked what they must see.
    pub overlap: Overlap,
}

/// `consistency.overlap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// A read is sent when it is known what it must see.
    #[default]
    Off,
    /// It is sent at once where a replica shows all that is known of, as long as that is mostly enough.
    Auto,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// It need not.
    Trust,
    /// SCRAM-SHA-256 against the user's verifier.
    ScramSha256,
    /// It is turned away.
    Reject,
}

/// An address with a prefix length; `None` matches clients of Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The network's address.
    pub address: IpAddr,
    /// How many leading bits must be equal.
    pub prefix: u8,
}

/// One rule of `auth.rules`; the first that matches decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRule {
    /// From where; `None` means Unix sockets.
    pub network: Option<Network>,
    /// To which database; `None` means any.
    pub database: Option<Box<str>>,
    /// As which user; `None` means any.
    pub user: Option<Box<str>>,
    /// Whether with TLS; `None` means either.
    pub tls: Option<bool>,
    /// How.
    pub method: AuthMethod,
}

/// What a database or a user may say differently from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `pool.mode`.
    pub pool_mode: Option<PoolMode>,
    /// `pool.size`: server connections for each node, database and user.
    pub pool_size: Option<usize>,
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
    /// `limits.max_clients`: of this database, or as this user.
    pub max_clients: Option<usize>,
    /// `limits.max_server_connections`: on each node, over all pools of this database or user.
    pub max_server_connections: Option<usize>,
    /// `timeouts`: those of clients.
    pub timeouts: TimeoutOverrides,
}

/// How long things may take that a client does, or has done; zero means for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// `timeouts.query_timeout`: a statement, from being sent to a server to the end of its answer.
    pub query: Duration,
    /// `timeouts.transaction_timeout`: a transaction, from its first statement on.
    pub transaction: Duration,
    /// `timeouts.idle_in_transaction_timeout`: a pause inside a transaction.
    pub idle_in_transaction: Duration,
    /// `timeouts.client_idle_timeout`: a pause outside of one.
    pub client_idle: Duration,
}

/// What a database or a user says differently of them.
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

impl Timeouts {
    /// The shortest of them, if there is any.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        let all = [self.query, self.transaction, self.idle_in_transaction, self.client_idle];
        all.into_iter().filter(|timeout| !timeout.is_zero()).min()
    }

    fn overridden(self, by: &TimeoutOverrides) -> Self {
        Self {
            query: by.query.unwrap_or(self.query),
            transaction: by.transaction.unwrap_or(self.transaction),
            idle_in_transaction: by.idle_in_transaction.unwrap_or(self.idle_in_transaction),
            client_idle: by.client_idle.unwrap_or(self.client_idle),
        }
    }
}

impl Overrides {
    /// How reads wait where `general` holds otherwise.
    pub(crate) fn consistency(&self, general: Consistency) -> Consistency {
        Consistency {
            wait: self.wait.unwrap_or(general.wait),
            fallback: self.fallback.unwrap_or(general.fallback),
            lost_writes: self.lost_writes.unwrap_or(general.lost_writes),
            fallback_limit: general.fallback_limit,
            overlap: general.overlap,
        }
    }
}

/// What holds where neither database nor user says otherwise.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// `pool.mode`.
    pub pool_mode: PoolMode,
    /// `pool.size`.
    pub pool_size: usize,
    /// `pool.max_waiters`: clients queued for each pool.
    pub max_waiters: usize,
    /// `pool.checkout_timeout`.
    pub checkout_timeout: Duration,
    /// `pool.connect_timeout`.
    pub connect_timeout: Duration,
    /// `pool.idle_timeout`; zero means never.
    pub idle_timeout: Duration,
    /// `pool.lifetime`; zero means never.
    pub lifetime: Duration,
    /// `pool.keepalive`.
    pub keepalive: Keepalive,
    /// `pool.max_connecting`: logins under way at one node.
    pub max_connecting: usize,
    /// `consistency.default`.
    pub level: Level,
    /// `consistency`: how reads wait.
    pub consistency: Consistency,
    /// `login_timeout`: from accept to ReadyForQuery.
    pub login_timeout: Duration,
    /// `login_cache`: how long an accepted login answers later ones of the same database, user and parameters.
    pub login_cache: Duration,
    /// `max_clients`.
    pub max_clients: usize,
    /// `max_prepared_statements`: server-side statements for each server connection.
    pub max_prepared_statements: usize,
    /// `timeouts`: those of clients.
    pub timeouts: Timeouts,
}

/// TLS towards clients.
#[derive(Clone, Debug)]
pub struct Tls {
    /// What clients are shown.
    pub server: TlsServer,
    /// `tls.mode: require`: over TCP, clients are let in with TLS only.
    pub required: bool,
}

/// A node as the data plane reaches it; its position is its [`causeway_routing::NodeId`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// The configured name.
    pub name: Arc<str>,
    /// Where it listens.
    pub address: Address,
    /// `max_server_connections`: over all pools.
    pub max_server_connections: Option<usize>,
    /// `server_tls`: how its connections are encrypted; `None`: not at all.
    pub tls: Option<TlsClient>,
}

/// One cluster: its nodes and who knows the truth about them.
#[derive(Clone)]
pub struct ClusterConfig {
    /// The configured name.
    pub name: Arc<str>,
    /// In the order of [`causeway_routing::View::nodes`].
    pub nodes: Vec<NodeEndpoint>,
    /// Who knows their roles and positions.
    pub control: Arc<dyn ControlPlane>,
    /// Rights to read on its primary in place of a replica: `consistency.fallback_limit` of them.
    pub fallbacks: Arc<Semaphore>,
    /// `primary_wait`: how long a statement for the primary waits while there is none.
    pub primary_wait: Duration,
    /// When a node is left alone, and how it comes back.
    pub health: crate::HealthPolicy,
}

/// An entry of `databases`.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// The position in [`Snapshot::clusters`].
    pub cluster: usize,
    /// What it says differently from the defaults.
    pub overrides: Overrides,
}

/// An entry of `users`.
#[derive(Clone, Debug, Default)]
pub struct UserConfig {
    /// What a client's SCRAM proof is checked against.
    pub verifier: Option<Arc<Verifier>>,
    /// The password for logging in at the servers.
    pub password: Option<SecretString>,
    /// What it says differently from its database.
    pub overrides: Overrides,
}

/// One configuration, whole. A transaction sees one snapshot from its begin to its end.
#[derive(Clone)]
pub struct Snapshot {
    /// Counts reloads.
    pub generation: u64,
    /// The clusters.
    pub clusters: Vec<ClusterConfig>,
    /// By name.
    pub databases: HashMap<Box<str>, DatabaseConfig>,
    /// The entry `"*"`, for every other name.
    pub any_database: Option<DatabaseConfig>,
    /// By name.
    pub users: HashMap<Box<str>, UserConfig>,
    /// In order.
    pub auth_rules: Vec<AuthRule>,
    /// What holds otherwise.
    pub defaults: Defaults,
    /// Where the other Causeways behind the same address listen.
    pub peers: Arc<[causeway_pool::Address]>,
    /// `None`: clients that ask for TLS are told that there is none.
    pub tls: Option<Tls>,
}

// === impl Fallback ===

impl Fallback {
    /// The word used in YAML.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Wait => "wait",
            Self::Error => "error",
        }
    }
}

// === impl Consistency ===

impl Default for Consistency {
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(50),
            fallback: Fallback::Primary,
            fallback_limit: 32,
            lost_writes: LostWrites::Error,
            overlap: Overlap::Off,
        }
    }
}

// === impl PoolMode ===

impl PoolMode {
    /// The word used in YAML and by SHOW POOLS.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Session => "session",
            Self::Statement => "statement",
        }
    }
}

// === impl Network ===

impl Network {
    /// Whether `address` lies in this network; an IPv4 client of a dual-stack socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        fn same(a: u128, b: u128, bits: u8, width: u8) -> bool {
            let ignored = u32::from(width.saturating_sub(bits));
            a.checked_shr(ignored).unwrap_or(0) == b.checked_shr(ignored).unwrap_or(0)
        }
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), self.prefix, 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), self.prefix, 128),
            _ => false,
        }
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// The entry that serves `database`.
    pub fn database(&self, database: &str) -> Option<&DatabaseConfig> {
        self.databases.get(database).or(self.any_database.as_ref())
    }

    /// How long the clients of `database` may take that come as `user`.
    pub(crate) fn timeouts(&self, database: &str, user: &str) -> Timeouts {
        let of_database = self.database(database).map(|entry| &entry.overrides.timeouts);
        let of_user = self.users.get(user).map(|user| &user.overrides.timeouts);
        let overrides = of_database.into_iter().chain(of_user);
        overrides.fold(self.defaults.timeouts, Timeouts::overridden)
    }

    /// The shortest of everybody's timeouts.
    pub(crate) fn shortest_timeout(&self) -> Option<Duration> {
        let of_databases = self.databases.values().chain(&self.any_database).map(|entry| &entry.overrides);
        let overrides = of_databases.chain(self.users.values().map(|user| &user.overrides));
        let all = overrides.map(|overrides| Timeouts::default().overridden(&overrides.timeouts));
        all.chain([self.defaults.timeouts]).filter_map(|timeouts| timeouts.shortest()).min()
    }

    /// How a client from `address` (`None`: a Unix socket), with TLS or without, may log in; no matching rule means SCRAM.
    pub fn auth_method(
        &self,
        (address, encrypted): (Option<IpAddr>, bool),
        database: &str,
        user: &str,
    ) -> AuthMethod {
        let matches = |rule: &&AuthRule| {
            let from = match (&rule.network, address) {
                (Some(network), Some(address)) => network.contains(address),
                (None, None) => true,
                _ => false,
            };
            from && rule.tls.is_none_or(|tls| tls == encrypted)
                && rule.database.as_deref().is_none_or(|name| name == database)
                && rule.user.as_deref().is_none_or(|name| name == user)
        };
        self.auth_rules.iter().find(matches).map_or(AuthMethod::ScramSha256, |rule| rule.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let net = |text: &str, prefix| Network { address: text.parse().unwrap(), prefix };
        assert!(net("127.0.0.0", 8).contains("127.1.2.3".parse().unwrap()));
        assert!(!net("127.0.0.0", 8).contains("128.0.0.1".parse().unwrap()));
        assert!(net("0.0.0.0", 0).contains("8.8.8.8".parse().unwrap()));
        assert!(!net("0.0.0.0", 0).contains("::1".parse().unwrap()));
        assert!(net("10.1.2.3", 32).contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(net("fd00::", 8).contains("fd12::1".parse().unwrap()));
        assert!(net("::", 0).contains("fe80::1".parse().unwrap()));
    }
}

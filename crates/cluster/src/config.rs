//! What a cluster's monitors need to know.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Levels, Overrides};
use causeway_tls::TlsClient;
use secrecy::{ExposeSecret, SecretString};

use crate::election::Writer;
use crate::login::Login;
use crate::source::FenceSource;

/// One cluster: its nodes and how they are watched.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's name, for the log.
    pub name: Arc<str>,
    /// The nodes, in the order of their [`causeway_routing::NodeId`]s. Names are unique.
    pub nodes: Vec<NodeConfig>,
    /// Who asks.
    pub monitor: Monitor,
    /// A replica that has not shown the primary's state for longer is [`causeway_routing::NodeState::Lagging`].
    pub max_lag: Duration,
    /// The time between two probes of a node while nobody waits for one.
    pub interval: Duration,
    /// The least time between the starts of two probes of the primary: the most that fences can cost it.
    pub min_interval: Duration,
    /// How long a read may wait for others to share its probe with, where many read at a time.
    pub gather: Duration,
    /// The least time between the starts of two probes of a replica whose position is waited for.
    pub poll_interval: Duration,
    /// The time between two probes of a node while there is no primary and somebody waits for a fence.
    pub search_interval: Duration,
    /// How many fence probes may be in flight, 1 to 4.
    pub pipeline: usize,
    /// For how long after [`crate::Cluster::need_fence`] the replicas behind its fence are polled.
    pub patience: Duration,
    /// Where fences come from.
    pub fence_source: FenceSource,
    /// The time after which an unanswered commit fence is reported; it is waited for all the same.
    pub commit_timeout: Duration,
    /// The least time between two nudges: before version 17 each takes a transaction id. A fifth of it where others
    /// have taken one since the last, or from that version on.
    pub nudge_interval: Duration,
    /// The limit of a connection attempt, login included, and of a probe's answer.
    pub timeout: Duration,
    /// The age at which a catalogue in use is compared with the database's again.
    pub catalogue_refresh: Duration,
    /// What holds of functions and tables whatever their database says, by database; `"*"` stands for all others.
    pub overrides: HashMap<Box<str>, Arc<Overrides>>,
    /// The pauses between attempts to reach a node that does not answer.
    pub reconnect: Reconnect,
    /// What answers in place of servers.
    #[cfg(feature = "simulation")]
    pub simulation: Option<crate::simulation::Simulation>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The node's name, unique in its cluster.
    pub name: Arc<str>,
    /// A host name, an address, or the directory of a Unix socket (it begins with a slash).
    pub host: String,
    /// The port, also part of a Unix socket's name.
    pub port: u16,
    /// The share of reads; 0 means none.
    pub weight: u32,
    /// The levels of the reads it may be given.
    pub levels: Levels,
    /// How its connections are encrypted; `None`: not at all. Unix sockets never are.
    pub tls: Option<TlsClient>,
}

/// The role the monitors log in with; it needs `CONNECT` everywhere and membership in `pg_monitor`.
#[derive(Clone)]
pub struct Monitor {
    /// The role.
    pub user: String,
    /// Its password, if it needs one.
    pub password: Option<SecretString>,
    /// The database in which the monitors stay connected; not one that clients drop.
    pub database: String,
}

/// Jittered exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// The longest first pause.
    pub first: Duration,
    /// The longest pause.
    pub most: Duration,
}

// === impl Config ===

impl Config {
    /// A configuration with the default limits and intervals.
    pub fn new(name: impl Into<Arc<str>>, nodes: Vec<NodeConfig>, monitor: Monitor) -> Self {
        Self {
            name: name.into(),
            nodes,
            monitor,
            max_lag: Duration::from_secs(10),
            interval: Duration::from_millis(250),
            min_interval: Duration::from_micros(200),
            gather: Duration::from_millis(2),
            poll_interval: Duration::from_micros(500),
            search_interval: Duration::from_millis(10),
            pipeline: 1,
            patience: Duration::from_millis(100),
            fence_source: FenceSource::Auto,
            commit_timeout: Duration::from_millis(250),
            nudge_interval: Duration::from_millis(50),
            timeout: Duration::from_secs(1),
            catalogue_refresh: Duration::from_secs(10),
            overrides: HashMap::new(),
            reconnect: Reconnect::default(),
            #[cfg(feature = "simulation")]
            simulation: None,
        }
    }

    /// What holds of the functions and tables of this database.
    pub(crate) fn overrides(&self, database: &str) -> Arc<Overrides> {
        self.overrides.get(database).or_else(|| self.overrides.get("*")).cloned().unwrap_or_default()
    }

    /// A number from 0 to 1, by which monitors of several routers do not come all at once.
    #[cfg_attr(
        not(feature = "simulation"),
        allow(clippy::unused_self, reason = "only a simulation decides it")
    )]
    pub(crate) fn chance(&self) -> f64 {
        #[cfg(feature = "simulation")]
        if self.simulation.is_some() {
            // A seed decides all of a run.
            return 0.5;
        }
        rand::random()
    }
}

// === impl NodeConfig ===

impl NodeConfig {
    /// What it is known by.
    pub(crate) fn writer(&self) -> Writer {
        Writer { name: self.name.clone(), address: format!("{}:{}", self.host, self.port).into() }
    }

    /// Whether a connection to `other` reaches the same server in the same way.
    pub(crate) fn same_address(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port && self.tls == other.tls
    }
}

impl fmt::Display for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.host, self.port)
    }
}

// === impl Monitor ===

impl Monitor {
    /// Whether `other` logs in alike.
    pub(crate) fn same_login(&self, other: &Self) -> bool {
        let secret = |monitor: &Self| monitor.password.as_ref().map(|p| p.expose_secret().to_owned());
        self.user == other.user && self.database == other.database && secret(self) == secret(other)
    }

    /// How to log in at `node`, in `database`, for reading only.
    pub(crate) fn login(&self, node: &NodeConfig, database: &str, timeout: Duration) -> Login {
        Login::new(self, node, database, timeout)
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

// === impl Reconnect ===

impl Reconnect {
    /// The pause after `failures` failed attempts in a row: between half and all of a power of two, bounded.
    /// `chance` is in 0..1.
    pub(crate) fn pause(&self, failures: u32, chance: f64) -> Duration {
        let doubled =
            self.first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.most).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), most: Duration::from_secs(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let reconnect = Reconnect::default();
        let longest = |failures| reconnect.pause(failures, 1.0).as_millis();
        assert_eq!([longest(1), longest(2), longest(3), longest(5)], [50, 100, 200, 800]);
        assert_eq!([longest(6), longest(31), longest(32), longest(33), longest(u32::MAX)], [1000; 5]);
        assert_eq!(reconnect.pause(1, 0.0).as_millis(), 25);
    }

    #[test]
    fn secrets_are_not_printed() {
        let monitor = Monitor { user: "u".into(), password: Some("hush".into()), database: "d".into() };
        assert!(!format!("{monitor:?}").contains("hush"));
        assert!(monitor.same_login(&monitor.clone()));
        assert!(!monitor.same_login(&Monitor { password: None, ..monitor.clone() }));
    }
}

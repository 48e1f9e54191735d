//! What a pool is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use causeway_tls::TlsClient;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::quota::Quota;

/// Everything a [`Pool`](crate::Pool) needs to know; valid by construction of the outermost crate.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens. A name is resolved anew for every connection.
    pub address: Address,
    /// The database to log in to.
    pub database: Arc<str>,
    /// The role to log in as.
    pub user: Arc<str>,
    /// What the role proves itself with, if the server asks.
    pub password: Option<SecretString>,
    /// How the connections are encrypted; `None`: not at all. Unix sockets never are.
    pub tls: Option<TlsClient>,
    /// Whether the password may be sent as it is if a server reached over TCP without TLS asks for that.
    pub allow_cleartext: bool,
    /// Start-up parameters of every connection beside `user` and `database`.
    pub parameters: Vec<(Box<str>, Box<str>)>,
    /// The most connections open or being opened at a time.
    pub size: usize,
    /// Bounds that hold for the pool together with others. Fixed when the pool is made.
    pub quotas: Vec<Arc<Quota>>,
    /// The most checkouts that wait while nothing can be opened for them.
    pub max_waiters: usize,
    /// The most connections being opened at a time, so that a burst does not become a storm of logins.
    pub max_connecting: usize,
    /// The rights to log in at the server, shared with its other pools.
    pub door: Option<Arc<Semaphore>>,
    /// How long opening a connection may take: name resolution, connecting, login and verification together.
    pub connect_timeout: Duration,
    /// After how long without use a connection is closed, a second more at most; zero: never.
    pub idle_timeout: Duration,
    /// At which age a connection is closed instead of being lent again; each connection's is shortened by up to
    /// 10 %, so that those opened together do not end together; zero: never.
    pub lifetime: Duration,
    /// How dead peers are noticed.
    pub keepalive: Keepalive,
    /// What a new connection must answer before it is lent.
    pub verification: Option<Verification>,
    /// How many prepared statements each connection's books hold at most.
    pub max_statements: usize,
    /// Where the jitter of lifetimes and backoffs starts.
    pub seed: u64,
}

/// TCP's own means against dead peers. A zero leaves the system's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe; zero: no probes at all.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes until the connection is dead.
    pub count: u32,
    /// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
}

/// One query that every new connection must answer acceptably right after login.
#[derive(Clone)]
pub struct Verification {
    /// Run as one simple query; must return exactly one row. The row stays with the connection as its
    /// [`facts`](crate::ServerConn::facts).
    pub query: Box<str>,
    /// Judges the row; an error's text goes into [`ConnectError::Verification`](crate::ConnectError::Verification).
    /// Runs in the connecting task: it must neither block nor call back into the pool.
    pub accept: Accept,
}

/// Judges a row of text values.
pub type Accept = Arc<dyn Fn(&[Option<Box<str>>]) -> Result<(), Box<str>> + Send + Sync>;

// === impl Config ===

impl Config {
    /// A configuration with the defaults of the product: 20 connections, 4 of them opened at a time.
    pub fn new(address: Address, database: impl Into<Arc<str>>, user: impl Into<Arc<str>>) -> Self {
        Self {
            address,
            database: database.into(),
            user: user.into(),
            password: None,
            tls: None,
            allow_cleartext: false,
            parameters: Vec::new(),
            size: 20,
            quotas: Vec::new(),
            max_waiters: 1000,
            max_connecting: 4,
            door: None,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(10),
            lifetime: Duration::from_hours(1),
            keepalive: Keepalive::default(),
            verification: None,
            max_statements: 500,
            seed: 0,
        }
    }

    /// Whether connections opened under `other` are as good as those opened under `self`.
    pub(crate) fn same_identity(&self, other: &Self) -> bool {
        self.address == other.address
            && self.database == other.database
            && self.user == other.user
            && self.parameters == other.parameters
            && self.tls == other.tls
            && same_secret(self.password.as_ref(), other.password.as_ref())
            && self.verification.as_ref().map(|v| &v.query) == other.verification.as_ref().map(|v| &v.query)
    }
}

// === impl Keepalive ===

impl Default for Keepalive {
    /// A dead peer is noticed within a minute when idle, and within 30 seconds when something was sent.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            count: 3,
            user_timeout: Duration::from_secs(30),
        }
    }
}

// === impl Verification ===

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification").field("query", &self.query).finish_non_exhaustive()
    }
}

fn same_secret(one: Option<&SecretString>, other: Option<&SecretString>) -> bool {
    // Both come from the operator's own files: there is nobody to measure the time this takes.
    one.map(ExposeSecret::expose_secret) == other.map(ExposeSecret::expose_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("localhost:5432".parse().unwrap(), "shop", "app")
    }

    #[test]
    fn secrets_are_not_printed() {
        let config = Config { password: Some("hunter2".into()), ..config() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn identity_is_what_a_login_depends_on() {
        let verification = |query: &str| Verification { query: query.into(), accept: Arc::new(|_| Ok(())) };
        let base = Config { verification: Some(verification("SELECT 1")), ..config() };
        let same = Config {
            size: 3,
            idle_timeout: Duration::ZERO,
            verification: Some(verification("SELECT 1")),
            ..config()
        };
        assert!(base.same_identity(&same));
        for other in [
            Config { address: "localhost:1".parse().unwrap(), ..base.clone() },
            Config { database: "other".into(), ..base.clone() },
            Config { user: "other".into(), ..base.clone() },
            Config { password: Some("new".into()), ..base.clone() },
            Config { parameters: vec![("TimeZone".into(), "UTC".into())], ..base.clone() },
            Config { verification: Some(verification("SELECT 2")), ..base.clone() },
            Config { verification: None, ..base.clone() },
        ] {
            assert!(!base.same_identity(&other), "{other:?}");
        }
    }
}

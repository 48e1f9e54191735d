//! From a checked configuration to what each crate runs on.

use std::collections::HashMap;
use std::sync::Arc;

use causeway_cluster::FenceSource;
use causeway_pool::Address;
use causeway_protocol::scram::Verifier;
use causeway_proxy::ControlPlane;
use causeway_proxy::HealthPolicy;
use causeway_proxy::Snapshot;
use causeway_proxy::config::{
    AuthMethod, AuthRule, ClusterConfig, Consistency, DatabaseConfig, Defaults, Fallback, LostWrites,
    Network, NodeEndpoint, Overlap, Overrides, PoolMode, TimeoutOverrides, Timeouts, Tls, UserConfig,
};
use secrecy::ExposeSecret;
use tokio::sync::Semaphore;

use crate::config::{self, Config, Credential, Method, Mode, Origin, TlsMode};

/// The work factor of the verifiers made from passwords, as PostgreSQL's own.
pub(crate) const SCRAM_ITERATIONS: u32 = 4096;

/// The users of a configuration, their passwords turned into verifiers: milliseconds of work for each.
pub type Users = HashMap<Box<str>, UserConfig>;

/// What a cluster's monitors need.
pub fn cluster_config(cluster: &config::Cluster) -> causeway_cluster::Config {
    let node = |node: &config::Node| {
        let (host, port) = match &node.address {
            Address::Tcp { host, port } => (host.to_string(), *port),
            Address::Unix { directory, port } => (directory.display().to_string(), *port),
        };
        causeway_cluster::NodeConfig {
            name: node.name.as_str().into(),
            host,
            port,
            weight: node.weight,
            levels: node.levels,
            tls: node.tls.clone(),
        }
    };
    let monitor = causeway_cluster::Monitor {
        user: cluster.monitor.user.clone(),
        password: cluster.monitor.password.clone(),
        database: cluster.monitor.database.clone(),
    };
    let nodes = cluster.nodes.iter().map(node).collect();
    causeway_cluster::Config {
        max_lag: cluster.max_lag,
        overrides: cluster.overrides.clone(),
        interval: cluster.check_interval,
        timeout: cluster.check_timeout,
        fence_source: match cluster.fence_source {
            config::Source::Auto => FenceSource::Auto,
            config::Source::Insert => FenceSource::Insert,
            config::Source::Flush => FenceSource::Flush,
            config::Source::Commit => FenceSource::Commit,
        },
        ..causeway_cluster::Config::new(cluster.name.as_str(), nodes, monitor)
    }
}

/// The users. Slow: not for the data plane's thread.
pub fn users(config: &Config) -> Users {
    let user = |(name, user): &(String, config::User)| {
        let (verifier, password) = match &user.credential {
            None => (None, None),
            Some(Credential::Verifier(verifier)) => (Some(Verifier::clone(verifier)), None),
            Some(Credential::Password(password)) => {
                let salt: [u8; 16] = rand::random();
                let verifier = Verifier::derive(password.expose_secret().as_bytes(), &salt, SCRAM_ITERATIONS);
                (Some(verifier), Some(password.clone()))
            }
        };
        let overrides = overrides(&user.overrides);
        (name.as_str().into(), UserConfig { verifier: verifier.map(Arc::new), password, overrides })
    };
    config.users.iter().map(user).collect()
}

/// The data plane's configuration; `controls` has one entry for each cluster, in order.
pub fn snapshot(
    config: &Config,
    users: Users,
    controls: Vec<Arc<dyn ControlPlane>>,
    generation: u64,
) -> Snapshot {
    let clusters = config.clusters.iter().zip(controls).map(|(cluster, control)| ClusterConfig {
        name: cluster.name.as_str().into(),
        nodes: cluster
            .nodes
            .iter()
            .map(|node| NodeEndpoint {
                name: node.name.as_str().into(),
                address: node.address.clone(),
                max_server_connections: node.max_server_connections.map(size),
                tls: node.tls.clone(),
            })
            .collect(),
        control,
        fallbacks: Arc::new(Semaphore::new(size(config.consistency.fallback_limit))),
        primary_wait: cluster.primary_wait,
        health: HealthPolicy { eject_after: cluster.eject_after, slow_start: cluster.slow_start },
    });
    let mut databases: HashMap<Box<str>, DatabaseConfig> = config
        .databases
        .iter()
        .map(|(name, database)| {
            let overrides = overrides(&database.overrides);
            (name.as_str().into(), DatabaseConfig { cluster: database.cluster, overrides })
        })
        .collect();
    Snapshot {
        generation,
        clusters: clusters.collect(),
        any_database: databases.remove("*"),
        databases,
        users,
        peers: config.peers.iter().map(peer).collect(),
        auth_rules: config.rules.iter().map(rule).collect(),
        defaults: defaults(config),
        tls: config
            .tls
            .as_ref()
            .map(|tls| Tls { server: tls.server.clone(), required: tls.mode == TlsMode::Require }),
    }
}

fn peer(peer: &config::HostPort) -> Address {
    Address::Tcp { host: peer.host.as_str().into(), port: peer.port }
}

fn defaults(config: &Config) -> Defaults {
    let pool = &config.pool;
    Defaults {
        pool_mode: mode(pool.mode),
        pool_size: size(pool.size),
        max_waiters: size(pool.max_waiters),
        max_connecting: size(pool.max_connecting),
        checkout_timeout: pool.checkout_timeout,
        connect_timeout: pool.connect_timeout,
        idle_timeout: pool.idle_timeout,
        lifetime: pool.lifetime,
        keepalive: causeway_pool::Keepalive {
            idle: pool.keepalive.idle,
            interval: pool.keepalive.interval,
            count: pool.keepalive.probes,
            user_timeout: pool.keepalive.user_timeout,
        },
        level: config.consistency.level,
        consistency: Consistency {
            wait: config.consistency.wait,
            fallback: fallback(config.consistency.fallback),
            fallback_limit: size(config.consistency.fallback_limit),
            lost_writes: lost_writes(config.consistency.lost_writes),
            overlap: overlap(config.consistency.overlap),
        },
        login_timeout: config.timeouts.login_timeout,
        login_cache: config.timeouts.login_cache,
        max_clients: size(config.max_clients),
        max_prepared_statements: size(config.max_prepared_statements),
        timeouts: Timeouts {
            query: config.timeouts.query,
            transaction: config.timeouts.transaction,
            idle_in_transaction: config.timeouts.idle_in_transaction,
            client_idle: config.timeouts.client_idle,
        },
    }
}

fn overrides(overrides: &config::Overrides) -> Overrides {
    Overrides {
        pool_mode: overrides.mode.map(mode),
        pool_size: overrides.size.map(size),
        checkout_timeout: overrides.checkout_timeout,
        level: overrides.level,
        wait: overrides.wait,
        fallback: overrides.fallback.map(fallback),
        lost_writes: overrides.lost_writes.map(lost_writes),
        max_clients: overrides.max_clients.map(size),
        max_server_connections: overrides.max_server_connections.map(size),
        timeouts: TimeoutOverrides {
            query: overrides.timeouts.query,
            transaction: overrides.timeouts.transaction,
            idle_in_transaction: overrides.timeouts.idle_in_transaction,
            client_idle: overrides.timeouts.client_idle,
        },
    }
}

fn fallback(fallback: config::Fallback) -> Fallback {
    match fallback {
        config::Fallback::Primary => Fallback::Primary,
        config::Fallback::Wait => Fallback::Wait,
        config::Fallback::Error => Fallback::Error,
    }
}

fn overlap(overlap: config::Overlap) -> Overlap {
    match overlap {
        config::Overlap::Off => Overlap::Off,
        config::Overlap::Auto => Overlap::Auto,
    }
}

fn lost_writes(lost_writes: config::LostWrites) -> LostWrites {
    match lost_writes {
        config::LostWrites::Error => LostWrites::Error,
        config::LostWrites::Adopt => LostWrites::Adopt,
    }
}

fn rule(rule: &config::Rule) -> AuthRule {
    AuthRule {
        network: match rule.origin {
            Origin::Unix => None,
            Origin::Network(address, prefix) => Some(Network { address, prefix }),
        },
        database: rule.database.as_deref().map(Into::into),
        user: rule.user.as_deref().map(Into::into),
        tls: rule.tls.map(|tls| tls == config::RuleTls::Require),
        method: match rule.method {
            Method::Trust => AuthMethod::Trust,
            Method::ScramSha256 => AuthMethod::ScramSha256,
            Method::Reject => AuthMethod::Reject,
        },
    }
}

fn mode(mode: Mode) -> PoolMode {
    match mode {
        Mode::Transaction => PoolMode::Transaction,
        Mode::Session => PoolMode::Session,
        Mode::Statement => PoolMode::Statement,
    }
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

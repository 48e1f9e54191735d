//! What the running process is made of, for those who look at it: the console, metrics and health checks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use causeway_cluster::Cluster;
use causeway_proxy::Proxy;
use tokio::sync::{mpsc, oneshot};

use crate::assemble;
use crate::config::Config;
use crate::status::History;

/// A running cluster under its configured name.
#[derive(Clone, Debug)]
pub struct NamedCluster {
    /// The name.
    pub name: Arc<str>,
    /// Its monitors.
    pub cluster: Cluster,
    /// Whether its lineage is kept across restarts.
    pub kept: bool,
}

/// What a reload request is answered with.
pub type ReloadAnswer = oneshot::Sender<Result<(), ReloadError>>;

/// Why the old configuration keeps serving.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file is wrong.
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    /// A new address cannot be bound.
    #[error("{0}")]
    Bind(Arc<super::listeners::BindError>),
    /// New sockets cannot be served.
    #[error("cannot serve the new addresses: {0}")]
    Sockets(Arc<std::io::Error>),
    /// The process is on its way out.
    #[error("the process is shutting down")]
    ShuttingDown,
}

/// The running process. Shared by both threads.
pub struct Live {
    /// The data plane.
    pub proxy: Proxy,
    /// The configuration that serves.
    pub config: ArcSwap<Config>,
    /// The clusters of that configuration, in its order.
    pub clusters: ArcSwap<Vec<NamedCluster>>,
    /// Reloads so far.
    pub reloads: Reloads,
    /// When the process began.
    pub started: SystemTime,
    /// Nodes that an operator has taken the reads off.
    pub drained: Drained,
    /// Its last minutes, for the status page.
    pub history: History,
    reload_requests: mpsc::Sender<ReloadAnswer>,
    listening: AtomicBool,
    draining: AtomicBool,
}

/// Counts reloads.
#[derive(Debug)]
pub struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last: Mutex<(bool, SystemTime)>,
}

/// Nodes that an operator has taken the reads off; a reload leaves them so, a restart does not.
#[derive(Debug, Default)]
pub struct Drained(Mutex<BTreeSet<(Box<str>, Box<str>)>>);

/// Why the process is not ready for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// No address has been opened yet.
    #[error("starting: no listener is open yet")]
    Starting,
    /// SIGTERM or SIGINT has arrived.
    #[error("draining: the process is shutting down")]
    Draining,
    /// Nothing that could serve a statement is known.
    #[error("cluster {0}: no primary and no serving replica is known")]
    NoNode(Arc<str>),
}

// === impl Live ===

impl Live {
    /// A process that has a configuration and does not listen yet.
    pub fn new(
        proxy: Proxy,
        config: Arc<Config>,
        clusters: Vec<NamedCluster>,
        reload_requests: mpsc::Sender<ReloadAnswer>,
    ) -> Self {
        let started = SystemTime::now();
        Self {
            proxy,
            config: ArcSwap::new(config),
            clusters: ArcSwap::from_pointee(clusters),
            reloads: Reloads {
                succeeded: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                last: Mutex::new((true, started)),
            },
            started,
            drained: Drained::default(),
            history: History::default(),
            reload_requests,
            listening: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// Clients can connect.
    pub fn set_listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// Whether clients can connect.
    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// The process is on its way out.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether the process is on its way out.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether clients should be sent here.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        if self.is_draining() {
            return Err(NotReady::Draining);
        }
        if !self.listening.load(Ordering::Acquire) {
            return Err(NotReady::Starting);
        }
        for NamedCluster { name, cluster, .. } in self.clusters.load().iter() {
            let view = cluster.view();
            if view.primary.is_none() && !view.nodes.iter().any(causeway_routing::NodeView::serves_reads) {
                return Err(NotReady::NoNode(Arc::clone(name)));
            }
        }
        Ok(())
    }

    /// Reads the configuration again and applies it. Dropping the future does not take the request back.
    ///
    /// # Errors
    ///
    /// Why the old configuration keeps serving.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let (answer, answered) = oneshot::channel();
        if self.reload_requests.send(answer).await.is_err() {
            return Err(ReloadError::ShuttingDown);
        }
        answered.await.unwrap_or(Err(ReloadError::ShuttingDown))
    }
}

// === impl Drained ===

impl Drained {
    /// Whether reads are kept from this node of this cluster.
    pub fn has(&self, cluster: &str, node: &str) -> bool {
        self.set().iter().any(|(of, name)| **of == *cluster && **name == *node)
    }

    /// Keeps reads from the node, or no longer; false if that was so already.
    pub fn put(&self, cluster: &str, node: &str, drained: bool) -> bool {
        let key = (cluster.into(), node.into());
        if drained { self.set().insert(key) } else { self.set().remove(&key) }
    }

    /// What the cluster's monitors need, without a weight for its drained nodes.
    pub fn cluster_config(&self, cluster: &crate::config::Cluster) -> causeway_cluster::Config {
        let mut config = assemble::cluster_config(cluster);
        for node in &mut config.nodes {
            if self.has(&cluster.name, &node.name) {
                node.weight = 0;
            }
        }
        config
    }

    fn set(&self) -> MutexGuard<'_, BTreeSet<(Box<str>, Box<str>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reloads ===

impl Reloads {
    /// A reload has ended.
    pub fn count(&self, success: bool) {
        let counter = if success { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (success, SystemTime::now());
    }

    /// How many have succeeded.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// How many were refused.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether the last one succeeded, and when it ended; the start counts as one.
    pub fn last(&self) -> (bool, SystemTime) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

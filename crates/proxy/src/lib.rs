//! The client-facing data plane: it lets clients in, finds out what their statements are, lends them server
//! connections and moves bytes between the two.
//!
//! One task owns a client's socket and, while it has one, the server's. What a session does is decided by the
//! synchronous machine in `session`; what is known of the nodes comes through [`ControlPlane`].

#![forbid(unsafe_code)]

mod accept;
mod ahead;
mod bounds;
mod client;
pub mod config;
mod consistency;
pub mod console;
mod console_session;
mod control;
mod crowd;
mod deadlines;
mod drain;
mod explain;
mod failover;
mod faults;
mod home;
mod inquire;
mod lease;
mod listener;
mod load;
mod login;
mod memory;
pub mod metrics;
mod pauses;
mod peers;
mod pools;
mod refusals;
mod registry;
mod relay;
mod replication;
mod scratch;
mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use causeway_routing::Load;
use causeway_routing::cache::{CacheLimits, StatementCache};
use causeway_routing::classify::Limits;
use causeway_routing::fingerprint::Key;

pub use crate::config::Snapshot;
pub use crate::control::{ControlPlane, Need};
use crate::crowd::Crowd;
pub use crate::explain::{Candidate, Explanation};
use crate::failover::Reigns;
use crate::home::HabitsOfAll;
pub use crate::listener::Listener;
pub use crate::load::HealthPolicy;
use crate::login::LoginCache;
pub use crate::metrics::Metrics;
use crate::peers::Elsewhere;
use crate::pools::Pools;
use crate::refusals::Refusals;
pub use crate::refusals::RefusedRead;
pub use crate::registry::{ClientInfo, ClientState};
use crate::registry::{Clients, Interrupt};
use crate::session::statements::StatementRegistry;
pub use crate::session::{Hint, hint};

/// The data plane of one process. Clones are the same.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

/// A pool as it stands.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// The node's name.
    pub node: Arc<str>,
    /// The node's position in its cluster.
    pub node_id: causeway_routing::NodeId,
    /// The database.
    pub database: Arc<str>,
    /// The user.
    pub user: Arc<str>,
    /// When its connections come back.
    pub mode: config::PoolMode,
    /// How full it is.
    pub status: causeway_pool::Status,
}

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// That of the snapshot: sessions compare it for each unit.
    pub(crate) generation: AtomicU64,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) classifier: Mutex<StatementCache>,
    pub(crate) registry: StatementRegistry,
    pub(crate) pools: Pools,
    pub(crate) clients: Arc<Clients>,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) logins: LoginCache,
    pub(crate) habits: HabitsOfAll,
    pub(crate) refusals: Refusals,
    pub(crate) reigns: Reigns,
    pub(crate) draining: AtomicBool,
    /// Connections that are accepted and not let in yet.
    pub(crate) arrivals: AtomicUsize,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) pauses: pauses::Pauses,
    /// Makes up verifiers for users that do not exist.
    pub(crate) mock_secret: [u8; 32],
}

// === impl Proxy ===

impl Proxy {
    /// A data plane that runs on this configuration. It does nothing before it is given a listener.
    pub fn new(snapshot: Snapshot, metrics: Arc<Metrics>) -> Self {
        let key = Key(rand::random());
        let classifier = StatementCache::new(CacheLimits::default(), Limits::default(), key);
        let shared = Shared {
            generation: AtomicU64::new(snapshot.generation),
            snapshot: ArcSwap::from_pointee(snapshot),
            metrics,
            classifier: Mutex::new(classifier),
            registry: StatementRegistry::default(),
            pools: Pools::default(),
            clients: Arc::default(),
            crowd: Arc::default(),
            logins: LoginCache::default(),
            habits: HabitsOfAll::default(),
            refusals: Refusals::default(),
            reigns: Reigns::default(),
            draining: AtomicBool::new(false),
            arrivals: AtomicUsize::new(0),
            elsewhere: Elsewhere::default(),
            pauses: pauses::Pauses::default(),
            mock_secret: rand::random(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts a new configuration into force, whole. Running transactions end under the one they began with.
    pub fn apply(&self, snapshot: Snapshot) {
        self.shared.pools.reload(&snapshot);
        let generation = snapshot.generation;
        self.shared.snapshot.store(Arc::new(snapshot));
        self.shared.generation.store(generation, Ordering::Release);
        self.shared.logins.clear();
    }

    /// The configuration in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// The reads that replicas refused lately, and that run on the primary for that.
    pub fn refused_reads(&self) -> Vec<RefusedRead> {
        self.shared.refusals.all()
    }

    /// The clients at hand.
    pub fn clients(&self) -> Vec<ClientInfo> {
        self.shared.clients.all().iter().map(|entry| entry.info()).collect()
    }

    /// Ends the session of the client that was told this process id; false if there is none.
    pub fn kill(&self, id: i32) -> bool {
        let entry = self.shared.clients.by_id(id);
        if let Some(entry) = &entry {
            entry.interrupt(Interrupt { kill: true, ..Interrupt::default() });
        }
        entry.is_some()
    }

    /// The pools at hand.
    pub fn pools(&self) -> Vec<PoolInfo> {
        self.shared.pools.all().iter().map(|pool| PoolInfo::of(pool)).collect()
    }

    /// The server connections at hand, by pool.
    pub fn servers(&self) -> Vec<(PoolInfo, Vec<causeway_pool::ServerInfo>)> {
        let pools = self.shared.pools.all();
        pools.iter().map(|pool| (PoolInfo::of(pool), pool.pool.servers())).collect()
    }

    /// How often each node was left alone for its failures: cluster, node, times.
    pub fn ejections(&self) -> Vec<(Arc<str>, Arc<str>, u64)> {
        self.shared.pools.ejections()
    }

    /// How busy each node is with statements from here: cluster, node, load.
    pub fn nodes_load(&self) -> Vec<(Arc<str>, Arc<str>, Load)> {
        self.shared.pools.loads()
    }
}

// === impl PoolInfo ===

impl PoolInfo {
    fn of(pool: &pools::NodePool) -> Self {
        Self {
            cluster: Arc::clone(&pool.key.cluster),
            node: Arc::clone(&pool.key.node),
            node_id: pool.id,
            database: Arc::clone(&pool.key.database),
            user: Arc::clone(&pool.key.user),
            mode: pool.mode,
            status: pool.pool.status(),
        }
    }
}

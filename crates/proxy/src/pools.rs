//! The pools of all nodes, one for each node, database and user, made when first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_pool::{CloseReason, Pool};
use causeway_routing::{Load, NodeId, Role};
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::bounds::Bounds;
use crate::config::{NodeEndpoint, PoolMode, Snapshot};
use crate::load::NodeLoad;
use crate::metrics::{BackendMetrics, Metrics};

/// What a pool is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) cluster: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
}

/// What holds for one session's pools, merged from defaults, database and user.
#[derive(Clone, Debug)]
pub(crate) struct PoolPolicy {
    pub(crate) mode: PoolMode,
    pub(crate) size: usize,
    pub(crate) password: Option<SecretString>,
}

/// One pool, and what is counted for it.
#[derive(Debug)]
pub(crate) struct NodePool {
    pub(crate) key: PoolKey,
    pub(crate) id: NodeId,
    pub(crate) mode: PoolMode,
    /// The configuration it was last set up from.
    generation: u64,
    pub(crate) pool: Pool,
    pub(crate) load: Arc<NodeLoad>,
    as_primary: Arc<BackendMetrics>,
    as_replica: Arc<BackendMetrics>,
}

/// A cluster's name and a node's.
type NodeName = (Arc<str>, Arc<str>);

/// All pools of the process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    made: Mutex<HashMap<PoolKey, Arc<NodePool>>>,
    loads: Mutex<HashMap<NodeName, Arc<NodeLoad>>>,
    bounds: Bounds,
    /// The rights to log in at each node, and how many there are.
    doors: Mutex<HashMap<NodeName, (usize, Arc<Semaphore>)>>,
}

// === impl NodePool ===

impl NodePool {
    /// What is counted for this node in one role.
    pub(crate) fn metrics(&self, role: Role) -> &Arc<BackendMetrics> {
        if role == Role::Replica { &self.as_replica } else { &self.as_primary }
    }
}

// === impl Pools ===

impl Pools {
    /// The pool of one node for one database and user.
    pub(crate) fn pool(
        &self,
        snapshot: &Snapshot,
        (cluster, id): (usize, NodeId),
        (database, user): (&Arc<str>, &Arc<str>),
        policy: &PoolPolicy,
        metrics: &Metrics,
    ) -> Option<Arc<NodePool>> {
        let cluster = snapshot.clusters.get(cluster)?;
        let node = cluster.nodes.get(usize::from(id.0))?;
        let key = PoolKey {
            cluster: Arc::clone(&cluster.name),
            node: Arc::clone(&node.name),
            database: Arc::clone(database),
            user: Arc::clone(user),
        };
        let mut pools = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get(&key).filter(|known| known.generation == snapshot.generation) {
            return Some(Arc::clone(known));
        }
        let mut config = self.config(snapshot, node, &key);
        config.password.clone_from(&policy.password);
        config.tls.clone_from(&node.tls);
        config.size = policy.size;
        config.verification = cluster.control.verification();
        let pool = match pools.get(&key) {
            Some(known) => {
                known.pool.reconfigure(config);
                known.pool.clone()
            }
            None => Pool::new(config),
        };
        let generation = snapshot.generation;
        self.load(&cluster.name, &node.name).configure(cluster.health);
        let made = Arc::new(self.assemble((key.clone(), id), (policy.mode, generation), pool, metrics));
        pools.insert(key, Arc::clone(&made));
        Some(made)
    }

    /// A pool for one connection with start-up parameters of its own, for whoever asks and nobody else.
    pub(crate) fn apart(
        &self,
        snapshot: &Snapshot,
        (cluster, id): (usize, NodeId),
        key: PoolKey,
        parameters: Vec<(Box<str>, Box<str>)>,
        metrics: &Metrics,
    ) -> Option<Arc<NodePool>> {
        let node = snapshot.clusters.get(cluster)?.nodes.get(usize::from(id.0))?;
        let mut config = self.config(snapshot, node, &key);
        config.password = snapshot.users.get(&*key.user).and_then(|user| user.password.clone());
        config.size = 1;
        config.parameters = parameters;
        let mode = (PoolMode::Session, snapshot.generation);
        Some(Arc::new(self.assemble((key, id), mode, Pool::new(config), metrics)))
    }

    /// What holds for every pool.
    fn config(&self, snapshot: &Snapshot, node: &NodeEndpoint, key: &PoolKey) -> causeway_pool::Config {
        let defaults = &snapshot.defaults;
        let (database, user) = (Arc::clone(&key.database), Arc::clone(&key.user));
        let mut config = causeway_pool::Config::new(node.address.clone(), database, user);
        config.quotas = self.bounds.of(snapshot, key);
        config.max_waiters = defaults.max_waiters;
        config.max_connecting = defaults.max_connecting;
        config.door = Some(self.door(&key.cluster, &key.node, defaults.max_connecting));
        config.connect_timeout = defaults.connect_timeout;
        config.idle_timeout = defaults.idle_timeout;
        config.lifetime = defaults.lifetime;
        config.keepalive = defaults.keepalive;
        config.max_statements = defaults.max_prepared_statements;
        config.seed = rand::random();
        config
    }

    fn assemble(
        &self,
        (key, id): (PoolKey, NodeId),
        (mode, generation): (PoolMode, u64),
        pool: Pool,
        metrics: &Metrics,
    ) -> NodePool {
        NodePool {
            id,
            mode,
            generation,
            pool,
            load: self.load(&key.cluster, &key.node),
            as_primary: metrics.backend(&key.database, &key.node, Role::Primary),
            as_replica: metrics.backend(&key.database, &key.node, Role::Replica),
            key,
        }
    }

    /// After a reload: pools of nodes that are gone are closed, and all are made anew when next asked for, which
    /// gives them their new configuration and keeps their connections where those are still good.
    pub(crate) fn reload(&self, snapshot: &Snapshot) {
        self.bounds.reload(snapshot);
        let mut pools = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|key, known| {
            let cluster = snapshot.clusters.iter().find(|cluster| cluster.name == key.cluster);
            let kept = cluster.is_some_and(|cluster| {
                cluster.nodes.iter().any(|node| node.name == key.node)
                    && snapshot.database(&key.database).is_some()
            });
            if !kept {
                known.pool.close(CloseReason::PoolRemoved);
            }
            kept
        });
    }

    /// Closes the connections to one database on every node: idle ones now, others when they come back.
    pub(crate) fn leave_database(&self, database: &str) {
        for known in self.all() {
            if *known.key.database == *database {
                known.pool.recycle(CloseReason::Recycled);
            }
        }
    }

    /// What a server's session begins with has changed: nobody gets one that began before. Those at work end with their
    /// transactions.
    pub(crate) fn recycle(&self) {
        for known in self.all() {
            known.pool.recycle(CloseReason::Recycled);
        }
    }

    /// The load of one node, whatever the database and user.
    pub(crate) fn load(&self, cluster: &Arc<str>, node: &Arc<str>) -> Arc<NodeLoad> {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loads.entry((Arc::clone(cluster), Arc::clone(node))).or_default())
    }

    /// The rights to log in at one node, whatever the database and user.
    fn door(&self, cluster: &Arc<str>, node: &Arc<str>, most: usize) -> Arc<Semaphore> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || (most, Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))));
        let door = doors.entry((Arc::clone(cluster), Arc::clone(node))).or_insert_with(made);
        if door.0 != most {
            *door = made();
        }
        Arc::clone(&door.1)
    }

    /// How often each node has been left alone for its failures, by cluster and name.
    pub(crate) fn ejections(&self) -> Vec<(Arc<str>, Arc<str>, u64)> {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let ejections = |((cluster, node), load): (&NodeName, &Arc<NodeLoad>)| {
            (Arc::clone(cluster), Arc::clone(node), load.ejections())
        };
        loads.iter().map(ejections).collect()
    }

    /// Every pool.
    pub(crate) fn all(&self) -> Vec<Arc<NodePool>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    /// Every node's load, by cluster and name.
    pub(crate) fn loads(&self) -> Vec<(Arc<str>, Arc<str>, Load)> {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads
            .iter()
            .map(|((cluster, node), load)| (Arc::clone(cluster), Arc::clone(node), load.load()))
            .collect()
    }
}

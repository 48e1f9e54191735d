//! The bounds on server connections that several pools have in common.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_pool::Quota;

use crate::config::Snapshot;
use crate::pools::PoolKey;

/// What the connections of several pools have in common on one node of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Common {
    Node,
    Database(Arc<str>),
    User(Arc<str>),
}

/// Cluster, node, and what else the pools have in common.
type BoundKey = (Arc<str>, Arc<str>, Common);

/// Every bound, configured or not: an unlimited one costs nothing, and a reload may limit it.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    quotas: Mutex<HashMap<BoundKey, Arc<Quota>>>,
}

// === impl Bounds ===

impl Bounds {
    /// What the connections of one pool count against.
    pub(crate) fn of(&self, snapshot: &Snapshot, key: &PoolKey) -> Vec<Arc<Quota>> {
        let common =
            [Common::Node, Common::Database(Arc::clone(&key.database)), Common::User(Arc::clone(&key.user))];
        let mut quotas = self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |common: Common| {
            let bound = (Arc::clone(&key.cluster), Arc::clone(&key.node), common);
            let made = || Quota::new(name(&bound), limit(snapshot, &bound));
            Arc::clone(quotas.entry(bound.clone()).or_insert_with(made))
        };
        common.map(of).into()
    }

    /// Another configuration is in force.
    pub(crate) fn reload(&self, snapshot: &Snapshot) {
        // Those that wait may open connections at once, which must not happen under the mutex.
        let known: Vec<(BoundKey, Arc<Quota>)> = {
            let quotas = self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
            quotas.iter().map(|(bound, quota)| (bound.clone(), Arc::clone(quota))).collect()
        };
        for (bound, quota) in known {
            let limit = limit(snapshot, &bound);
            if quota.limit() != limit {
                quota.set_limit(limit);
            }
        }
    }
}

fn limit(snapshot: &Snapshot, (cluster, node, common): &BoundKey) -> usize {
    let limit = match common {
        Common::Node => {
            let cluster = snapshot.clusters.iter().find(|known| known.name == *cluster);
            let node = cluster.and_then(|known| known.nodes.iter().find(|known| known.name == *node));
            node.and_then(|node| node.max_server_connections)
        }
        Common::Database(name) => {
            snapshot.database(name).and_then(|entry| entry.overrides.max_server_connections)
        }
        Common::User(name) => {
            snapshot.users.get(&**name).and_then(|user| user.overrides.max_server_connections)
        }
    };
    limit.unwrap_or(usize::MAX)
}

/// What it is called in the configuration.
fn name((cluster, node, common): &BoundKey) -> String {
    match common {
        Common::Node => format!("max_server_connections of node {node:?} of cluster {cluster:?}"),
        Common::Database(name) => format!("databases.{name}.limits.max_server_connections"),
        Common::User(name) => format!("users.{name}.limits.max_server_connections"),
    }
}

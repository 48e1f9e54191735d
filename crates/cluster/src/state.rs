//! What the monitors write and everybody reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use causeway_routing::{NodeId, NodeState, NodeView, View};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::config::{Config, NodeConfig};
use crate::monitor::Bell;
use crate::truth::{Key, Published, Sighting, Truth};

/// Shared by the handles and the tasks of one cluster.
#[derive(Debug)]
pub(crate) struct State {
    config: ArcSwap<Config>,
    truth: Mutex<Truth>,
    published: ArcSwap<Published>,
    /// In the order of the nodes' ids.
    monitors: ArcSwap<Vec<(Key, Arc<Bell>)>>,
    base: Instant,
    /// When a fence was wanted last, in nanoseconds since `base`; 0 while it never was.
    wanted: AtomicU64,
    changed: watch::Sender<u64>,
    progress: watch::Sender<u64>,
    /// Rung when a fence turns out to be out of the replicas' reach.
    pub(crate) nudge: Notify,
}

// === impl State ===

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            truth: Mutex::new(Truth::new(config.max_lag)),
            config: ArcSwap::from_pointee(config),
            published: ArcSwap::default(),
            monitors: ArcSwap::default(),
            // One step back, so that no moment from now on is the 0 of `wanted`.
            base: Instant::now() - Duration::from_nanos(1),
            wanted: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            progress: watch::Sender::new(0),
            nudge: Notify::new(),
        }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(crate) fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// `nodes` are the configuration's, each with its monitor's key and bell.
    pub(crate) fn configure(&self, config: Config, nodes: Vec<(Key, Arc<Bell>)>) {
        let known =
            config.nodes.iter().zip(&nodes).map(|(node, (key, _))| (*key, node.name.clone(), node.weight));
        let known: Vec<_> = known.collect();
        let max_lag = config.max_lag;
        self.monitors.store(Arc::new(nodes));
        self.config.store(Arc::new(config));
        self.update(|truth, now| truth.configure(&known, max_lag, now));
    }

    pub(crate) fn sighted(&self, key: Key, sighting: Sighting) {
        self.update(|truth, now| truth.sighted(key, sighting, now));
        if self.stuck() == Some(key) {
            self.nudge.notify_one();
        }
    }

    pub(crate) fn lost(&self, key: Key) {
        self.update(|truth, now| truth.lost(key, now));
    }

    pub(crate) fn down(&self, key: Key, why: String) {
        self.update(|truth, now| truth.down(key, why, now));
    }

    /// Changes what is known and publishes the outcome.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Truth, Instant)) {
        let mut truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut truth, Instant::now());
        let fresh = Arc::new(truth.publish());
        // Still under the lock: publications are in the order of the changes.
        let former = self.published.swap(fresh.clone());
        drop(truth);
        if self.log_changes(&former.view, &fresh) {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Whether the node's next probe is waited for.
    pub(crate) fn awaited(&self, key: Key) -> bool {
        let truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        truth.awaited(key, self.wanted(), Instant::now())
    }

    /// The primary, if a fence that somebody waits for is beyond what it flushed.
    pub(crate) fn stuck(&self) -> Option<Key> {
        let wanted = self.wanted()?;
        let truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        truth.stuck(Some(wanted), Instant::now())
    }

    /// The node that this monitor watches.
    pub(crate) fn node(&self, key: Key) -> Option<NodeConfig> {
        let index = self.monitors.load().iter().position(|(known, _)| *known == key)?;
        self.config.load().nodes.get(index).cloned()
    }

    /// When a fence was wanted last.
    fn wanted(&self) -> Option<Instant> {
        let wanted = self.wanted.load(Ordering::SeqCst);
        (wanted > 0).then(|| self.base + Duration::from_nanos(wanted))
    }

    pub(crate) fn need_fence(&self) {
        let now = u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.wanted.fetch_max(now, Ordering::SeqCst);
        for (_, bell) in self.monitors.load().iter() {
            bell.wanted();
        }
    }

    pub(crate) fn node_failed(&self, node: NodeId) {
        if let Some((_, bell)) = self.monitors.load().get(usize::from(node.0)) {
            bell.urgent();
        }
    }

    /// Logs what changed between two views other than positions; false if nothing did.
    fn log_changes(&self, former: &View, fresh: &Published) -> bool {
        let name_of =
            |view: &View, id: Option<NodeId>| id.and_then(|id| view.node(id)).map(|n| n.name.clone());
        let cluster = self.config.load().name.clone();
        let view = &fresh.view;
        let mut changed = former.nodes.len() != view.nodes.len();
        for (node, why) in view.nodes.iter().zip(&fresh.why) {
            let before = former.nodes.iter().find(|before| before.name == node.name);
            if before.is_some_and(|before| before.role == node.role && before.state == node.state) {
                continue;
            }
            changed = true;
            let first = before.is_none_or(|before| before.state == NodeState::Unknown);
            log_node(&cluster, node, why.as_deref().unwrap_or_default(), first);
        }
        let (before, now) = (name_of(former, former.primary), name_of(view, view.primary));
        if before == now {
            return changed || former.primary != view.primary;
        }
        if let Some(node) = &now {
            let timeline = fresh.epoch.map_or(0, |epoch| epoch.timeline);
            info!(%cluster, %node, timeline, "this node is the primary");
        } else {
            warn!(%cluster, "there is no primary");
        }
        true
    }
}

fn log_node(cluster: &str, view: &NodeView, why: &str, first: bool) {
    let (node, role, state) = (&view.name, view.role.as_str(), view.state.as_str());
    match view.state {
        NodeState::Unknown => {}
        NodeState::Serving => info!(%cluster, %node, role, state, "the node serves"),
        // At first a replica has had no chance yet to show a position of the primary's.
        NodeState::Lagging if first => {
            info!(%cluster, %node, role, state, why, "the node does not serve yet");
        }
        NodeState::Lagging | NodeState::Down | NodeState::Refused => {
            warn!(%cluster, %node, role, state, why, "the node does not serve");
        }
    }
}

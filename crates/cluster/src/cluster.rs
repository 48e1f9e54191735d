//! The handle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Bound, Fence, NodeId, View};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::audit::Auditor;
use crate::catalogues::Catalogues;
use crate::commit::Committer;
use crate::config::{Config, NodeConfig};
use crate::election::Epoch;
use crate::instance::Instance;
use crate::monitor::{Bell, Watch};
use crate::nudge::Nudger;
use crate::source::FenceSource;
use crate::state::State;
use crate::totals::Totals;
use crate::truth::{Key, Observed, Truth};
use crate::waiting::Need;

/// The truth about the nodes of one cluster. Clones share it; the tasks behind it end with the last of them.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Arc<State>,
    runtime: Handle,
    catalogues: Catalogues,
    monitors: Mutex<Monitors>,
}

/// The running monitors; those of a configuration, in its order.
#[derive(Debug, Default)]
struct Monitors {
    running: Vec<Running>,
    errands: JoinSet<()>,
    keys: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Running {
    key: Key,
    node: NodeConfig,
    bell: Arc<Bell>,
    /// Dropping it ends the task.
    task: JoinSet<()>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts a monitor for each node, on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(config: Config) -> Self {
        let state = Arc::new(State::new(config.clone()));
        let runtime = Handle::current();
        let catalogues = Catalogues::new(state.clone(), runtime.clone());
        let shared = Shared { state, runtime, catalogues, monitors: Mutex::default() };
        let cluster = Self { shared: Arc::new(shared) };
        #[cfg(feature = "simulation")]
        let simulated = config.simulation.is_some();
        cluster.reconfigure(config);
        #[cfg(feature = "simulation")]
        if simulated {
            // No errand has a server to go to.
            return cluster;
        }
        let state = &cluster.shared.state;
        let mut monitors = cluster.monitors();
        monitors.errands.spawn(Nudger::new(state.clone()).run());
        monitors.errands.spawn(Committer::new(state.clone()).run());
        monitors.errands.spawn(Auditor::new(state.clone()).run());
        drop(monitors);
        cluster
    }

    /// What is known now. Wait-free.
    pub fn view(&self) -> Arc<View> {
        self.shared.state.published().view.clone()
    }

    /// Counts up whenever [`Cluster::view`] may give another answer. One atomic load.
    pub fn view_version(&self) -> u64 {
        self.shared.state.publications()
    }

    /// A fence of the current primary (of the last one, while there is none) that covers everything acknowledged
    /// before `since`: its probe was sent at or after that moment. Of several the lowest, which a replica reaches
    /// first, so that asking again while waiting does not move the goal. Wait-free, and asks nobody.
    pub fn fence_since(&self, since: Instant) -> Option<Fence> {
        self.shared.state.published().fences.as_ref().and_then(|fences| fences.since(since))
    }

    /// Such a fence as soon as there is one; the primary is asked at once, or as soon as a probe that was sent
    /// before `since` has been answered. It wakes the waiting task once. Dropping it is giving up.
    ///
    /// While there is no primary it waits for one, so it needs a deadline.
    ///
    /// # Errors
    /// The receiver fails after [`Cluster::shutdown`].
    pub fn fence(&self, since: Instant) -> oneshot::Receiver<Fence> {
        self.shared.state.fence(since)
    }

    /// As [`Cluster::fence`], for a task that looks for it with [`Cluster::fence_since`] when it is woken, which it is once.
    /// False if it is known already, and nobody will be woken. Costs no allocation; giving up costs a wake-up for nothing.
    pub fn wake_at_fence(&self, since: Instant, waker: &Waker) -> bool {
        self.shared.state.wake_at_fence(since, waker)
    }

    /// Somebody waits for a fence not yet known, as with [`Cluster::fence`] of this moment, and looks for it
    /// with [`Cluster::fence_since`]. For `patience` from the last call on, the replicas that do not cover it are
    /// polled. Cheap enough for each read: two atomics, and a notification if the monitor sleeps.
    pub fn need_fence(&self) {
        self.shared.state.need_fence();
    }

    /// Ready when a replica meets the need, at once if one does already; the waiting task is woken once, and looks
    /// again at what is known. Until then, and until `need.until`, the replicas it concerns are polled.
    /// Dropping it is giving up.
    ///
    /// # Errors
    /// The receiver fails at the first answer of a node after `need.until`, if there is no such node, and after
    /// [`Cluster::shutdown`].
    pub fn position(&self, need: Need) -> oneshot::Receiver<()> {
        self.shared.state.position(need)
    }

    /// Which server the primary is, as its monitor reaches it, or did a moment ago. `None` while there is no primary.
    pub fn primary_instance(&self) -> Option<Instance> {
        self.shared.state.published().reign.map(|reign| reign.instance)
    }

    /// Moves when another server is elected, and as soon as the elected one is known to be no primary any more: what
    /// was leased on it before is to be cut. Never 0 once there was a primary. Wait-free.
    pub fn era(&self) -> u64 {
        self.shared.state.published().era
    }

    /// Where what was acknowledged before `moment`, by the primary of `era`, ends at the latest. Wait-free.
    pub fn bound(&self, era: u64, moment: Instant) -> Bound {
        self.shared.state.published().past.bound(era, moment)
    }

    /// Something was acknowledged by the primary: a position beyond it is read within moments, so that what becomes of
    /// it in a failover can be told. Cheap enough for each write.
    pub fn wrote(&self) {
        self.shared.state.wrote();
    }

    /// Where fences come from at present (never [`FenceSource::Auto`]), and why not from where they should.
    pub fn fence_source(&self) -> (FenceSource, Option<Arc<str>>) {
        let published = self.shared.state.published();
        (published.source, published.source_why.clone())
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        self.shared.state.totals()
    }

    /// What is known of a replica's content, and which connections may rely on it. `None` for a primary, and
    /// from the loss of the monitor's connection to its next answer.
    pub fn observed(&self, node: NodeId) -> Option<Observed> {
        self.shared.state.published().observed.get(usize::from(node.0)).copied().flatten()
    }

    /// The moment before which everything acknowledged is known to be shown by this replica; `None` if nothing is known.
    /// Wait-free.
    pub fn shown_up_to(&self, node: NodeId) -> Option<Instant> {
        let published = self.shared.state.published();
        let observed = published.observed.get(usize::from(node.0)).copied().flatten()?;
        published.fences.as_ref()?.shown_by(&observed.observation)
    }

    /// Why a node is in its state; `None` for a serving one.
    pub fn reason(&self, node: NodeId) -> Option<String> {
        let published = self.shared.state.published();
        published.why.get(usize::from(node.0)).and_then(Option::as_deref).map(str::to_owned)
    }

    /// A counter that moves when the primary, a role, a state or the set of nodes changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.state.changes()
    }

    /// Returns at the next such change. Cancel-safe; a change between two calls is missed, so loops use
    /// [`Cluster::subscribe`].
    pub async fn changed(&self) {
        // The sender lives as long as `self`.
        drop(self.subscribe().changed().await);
    }

    /// A counter that moves with every answer of a node: fences and positions may have advanced. It wakes everybody
    /// each time; who waits for one of them is better served by [`Cluster::fence`] and [`Cluster::position`].
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.shared.state.progress()
    }

    /// Returns true once every node was tried, false at the deadline. Cancel-safe.
    pub async fn wait_settled(&self, deadline: Instant) -> bool {
        let mut progress = self.progress();
        let settled = progress.wait_for(|_| self.shared.state.published().settled);
        matches!(timeout_at(deadline, settled).await, Ok(Ok(_)))
    }

    /// The data plane could not connect to this node, or lost it: it is probed at once.
    pub fn node_failed(&self, node: NodeId) {
        self.shared.state.node_failed(node);
    }

    /// What users have added to this database. `None` while that is not known: at the first call, which starts
    /// loading it in the background, after a failure, and when it could not be verified for three times
    /// `catalogue_refresh` though there is a primary. Wait-free but for a database's first call.
    pub fn catalogue(&self, database: &str) -> Option<Arc<Catalogue>> {
        self.shared.catalogues.current(database)
    }

    /// A definition in this database was changed: its catalogue, if it is in use, is loaded anew. To be called when
    /// the statement's transaction has ended; the old catalogue is given out until the new one is there.
    pub fn definition_seen(&self, database: &str) {
        self.shared.catalogues.changed(database);
    }

    /// The accepted lineage, to be kept across a restart; `None` until a primary was seen.
    pub fn epoch(&self) -> Option<Epoch> {
        self.shared.state.published().epoch.clone()
    }

    /// Accepts a lineage that was kept, so that a stale primary is refused even if it alone answers. Call it
    /// right after [`Cluster::start`]; a newer timeline of the same system that was seen since stands.
    pub fn remember(&self, epoch: Epoch) {
        self.shared.state.update(|truth, _| truth.remember(epoch));
    }

    /// Forgets the accepted lineage: the next one is chosen from the nodes that answer now. For an operator, after
    /// an upgrade or a restore has given the cluster another system identifier or a lower timeline.
    pub fn accept_lineage(&self) {
        self.shared.state.update(Truth::forget_epoch);
    }

    /// Takes another configuration. A node whose address stays keeps what is known of it, under whatever id the new order
    /// gives it, and its connection if the login stays too; every other one starts unknown.
    pub fn reconfigure(&self, mut config: Config) {
        config.nodes.truncate(usize::from(u16::MAX));
        let shared = &self.shared;
        let mut monitors = self.monitors();
        if monitors.stopped {
            return;
        }
        let same_login = shared.state.config().monitor.same_login(&config.monitor);
        let mut former = std::mem::take(&mut monitors.running);
        let mut fresh = Vec::new();
        for node in &config.nodes {
            let kept = former.iter().position(|running| running.node.same_address(node));
            if let Some(running) = kept.map(|index| former.swap_remove(index)) {
                let running = Running { node: node.clone(), ..running };
                if same_login {
                    monitors.running.push(running);
                } else {
                    // It is the same server: what is known of it holds until the new login tells otherwise.
                    fresh.push(running.key);
                    monitors.running.push(Running { task: JoinSet::new(), ..running });
                }
                continue;
            }
            monitors.keys += 1;
            let running = Running::new(Key(monitors.keys), node.clone());
            fresh.push(running.key);
            monitors.running.push(running);
        }
        drop(former);
        let nodes = monitors.running.iter().map(|running| (running.key, running.bell.clone())).collect();
        shared.state.configure(config, nodes);
        shared.catalogues.reconfigured();
        // Only now, so that a monitor finds its node and the configuration it belongs to.
        for running in monitors.running.iter_mut().filter(|running| fresh.contains(&running.key)) {
            running.start(shared.state.clone(), &shared.runtime);
        }
    }

    /// Ends the tasks and closes their connections; the last view stays.
    pub fn shutdown(&self) {
        *self.monitors() = Monitors { stopped: true, ..Monitors::default() };
        self.shared.catalogues.stop();
        self.shared.state.stop();
    }

    fn monitors(&self) -> MutexGuard<'_, Monitors> {
        self.shared.monitors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Running ===

impl Running {
    fn new(key: Key, node: NodeConfig) -> Self {
        Self { key, node, bell: Arc::default(), task: JoinSet::new() }
    }

    fn start(&mut self, state: Arc<State>, runtime: &Handle) {
        let watch = Watch { key: self.key, node: self.node.clone(), bell: self.bell.clone(), state };
        self.task.spawn_on(watch.run(), runtime);
    }
}

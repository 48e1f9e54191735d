//! What the monitors write and everybody reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use causeway_routing::{NodeId, NodeState, NodeView, View};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::config::{Config, NodeConfig};
use crate::faults::Faults;
use crate::instance::Instance;
use crate::monitor::Bell;
use crate::published::Published;
use crate::ring::Sample;
use crate::totals::{Meter, Totals};
use crate::truth::{Key, Origin, Seat, Sighting, Terms, Truth};
use crate::waiting::{Waiting, same_fences};

/// Shared by the handles and the tasks of one cluster.
#[derive(Debug)]
pub(crate) struct State {
    config: ArcSwap<Config>,
    truth: Mutex<Truth>,
    published: ArcSwap<Published>,
    /// Counts up after each publication, for those who keep what they were given.
    publications: AtomicU64,
    /// In the order of the nodes' ids.
    pub(crate) monitors: ArcSwap<Vec<(Key, Arc<Bell>)>>,
    pub(crate) base: Instant,
    /// The youngest fence wanted: the moment that it must cover, in nanoseconds since `base`; 0 while none was.
    pub(crate) wanted: AtomicU64,
    /// The same for those who did not say for how long they wait.
    pub(crate) loose: AtomicU64,
    /// Something was acknowledged, and no position has been asked for since.
    trailing: AtomicBool,
    waiting: Mutex<Waiting>,
    pub(crate) stopped: AtomicBool,
    pub(crate) meter: Meter,
    changed: watch::Sender<u64>,
    progress: watch::Sender<u64>,
    /// Rung when a fence turns out to be out of the replicas' reach.
    pub(crate) nudge: Notify,
    pub(crate) committer: Bell,
    pub(crate) auditor: Bell,
}

// === impl State ===

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            truth: Mutex::new(Truth::new(terms(&config), Faults::of(&config))),
            config: ArcSwap::from_pointee(config),
            published: ArcSwap::default(),
            publications: AtomicU64::new(0),
            monitors: ArcSwap::default(),
            // One step back, so that no moment from now on is the 0 of `wanted`.
            base: Instant::now() - std::time::Duration::from_nanos(1),
            wanted: AtomicU64::new(0),
            loose: AtomicU64::new(0),
            trailing: AtomicBool::new(false),
            waiting: Mutex::default(),
            stopped: AtomicBool::new(false),
            meter: Meter::default(),
            changed: watch::Sender::new(0),
            progress: watch::Sender::new(0),
            nudge: Notify::new(),
            committer: Bell::default(),
            auditor: Bell::default(),
        }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(crate) fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    pub(crate) fn publications(&self) -> u64 {
        self.publications.load(Ordering::Acquire)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// `nodes` are the configuration's, each with its monitor's key and bell.
    pub(crate) fn configure(&self, config: Config, nodes: Vec<(Key, Arc<Bell>)>) {
        let seats = config.nodes.iter().zip(&nodes);
        let seats = seats.map(|(node, (key, _))| Seat {
            key: *key,
            node: node.writer(),
            weight: node.weight,
            levels: node.levels,
        });
        let seats: Vec<_> = seats.collect();
        let terms = terms(&config);
        self.monitors.store(Arc::new(nodes));
        self.config.store(Arc::new(config));
        self.update(|truth, now| truth.configure(&seats, terms, now));
        // Whatever they wait for may be due now.
        self.ring_all();
    }

    pub(crate) fn sighted(&self, key: Key, sighting: Sighting) {
        let given = match self.sighted_again(key, sighting) {
            Some(given) => given,
            None => self.update(|truth, now| truth.sighted(key, sighting, now)),
        };
        let published = self.published();
        if published.unflushed.is_none() || published.primary.is_none_or(|(primary, _)| primary != key) {
            return;
        }
        let stuck = self.stuck().is_some();
        if given > 0 || stuck {
            Meter::count(&self.meter.fences_unflushed);
        }
        if stuck {
            self.nudge.notify_one();
        }
    }

    /// Fences hold for later moments, and nothing else is new: most answers are of that kind, and cost the least.
    fn sighted_again(&self, key: Key, sighting: Sighting) -> Option<usize> {
        let mut truth = self.truth();
        let now = Instant::now();
        if !truth.sighted_again(key, sighting, now) {
            return None;
        }
        let standing = self.published.load().standing.clone();
        let fresh = Arc::new(Published { standing, fences: truth.fences() });
        // Still under the lock: publications are in the order of the changes.
        self.published.store(fresh.clone());
        drop(truth);
        let given = self.waiting().settle(&fresh, true, now);
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
        self.ring_replicas(&fresh, now);
        Some(given)
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was acknowledged by the primary.
    pub(crate) fn wrote(&self) {
        if self.trailing.load(Ordering::SeqCst) || self.trailing.swap(true, Ordering::SeqCst) {
            return;
        }
        let sampled = self.published().sampled;
        if let Some((_, bell)) = self.monitors.load().iter().find(|(key, _)| Some(*key) == sampled) {
            bell.wanted();
        }
    }

    /// Whether this monitor has to ask on account of that.
    pub(crate) fn trails(&self, key: Key) -> bool {
        self.trailing.load(Ordering::SeqCst) && self.published().sampled == Some(key)
    }

    /// This monitor is about to ask: what was acknowledged up to now is covered by the answer.
    pub(crate) fn asking(&self, key: Key) {
        if self.trails(key) {
            self.trailing.store(false, Ordering::SeqCst);
        }
    }

    pub(crate) fn learnt(&self, key: Key, origin: &Origin) {
        self.update(|truth, now| truth.learnt(key, origin, now));
    }

    pub(crate) fn committed(&self, instance: Instance, sample: Sample) {
        self.update(|truth, _| truth.committed(instance, sample));
    }

    pub(crate) fn audited(&self, instance: Instance, found: Option<Arc<str>>) {
        self.update(|truth, _| truth.audited(instance, found));
    }

    pub(crate) fn lost(&self, key: Key) {
        self.update(|truth, now| truth.lost(key, now));
    }

    pub(crate) fn down(&self, key: Key, why: String) {
        self.update(|truth, now| truth.down(key, why, now));
    }

    /// Changes what is known, publishes the outcome, and wakes those who waited for it. The answer is how many
    /// fences were given to them.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Truth, Instant)) -> usize {
        let mut truth = self.truth();
        let now = Instant::now();
        change(&mut truth, now);
        let fresh = Arc::new(truth.publish());
        // Still under the lock: publications are in the order of the changes.
        let former = self.published.swap(fresh.clone());
        self.publications.fetch_add(1, Ordering::Release);
        drop(truth);
        self.log_source(&former, &fresh);
        let changed = self.log_changes(&former.view, &fresh) || former.era != fresh.era;
        if changed {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
        let given = self.waiting().settle(&fresh, !same_fences(&former, &fresh), now);
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
        if changed || former.primary != fresh.primary || former.source != fresh.source {
            self.ring_all();
        } else {
            self.ring_replicas(&fresh, now);
        }
        given
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn totals(&self) -> Totals {
        let truth = self.truth();
        let tallies = truth.tallies.clone();
        drop(truth);
        self.meter.totals(&tallies)
    }

    /// Whoever waits is told that it is in vain.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.waiting().clear();
    }

    /// The node that this monitor watches.
    pub(crate) fn node(&self, key: Key) -> Option<NodeConfig> {
        let index = self.monitors.load().iter().position(|(known, _)| *known == key)?;
        self.config.load().nodes.get(index).cloned()
    }

    /// Says so when fences are not of the configured kind.
    fn log_source(&self, former: &Published, fresh: &Published) {
        if former.source == fresh.source && former.source_why == fresh.source_why {
            return;
        }
        let (cluster, source) = (self.config.load().name.clone(), fresh.source);
        if let Some(why) = &fresh.source_why {
            warn!(%cluster, %source, %why, "fences are not of the configured source");
        } else {
            info!(%cluster, %source, "the source of fences");
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
            if let Some(why) = view.complaint.as_deref().filter(|_| view.complaint != former.complaint) {
                warn!(%cluster, why, "there is still no primary");
            }
            return changed || former.primary != view.primary;
        }
        if let Some(node) = &now {
            let timeline = fresh.epoch.as_ref().map_or(0, |epoch| epoch.timeline);
            info!(%cluster, %node, timeline, "this node is the primary");
        } else {
            let why = view.complaint.as_deref().unwrap_or("none answers");
            warn!(%cluster, why, "there is no primary");
        }
        true
    }
}

fn terms(config: &Config) -> Terms {
    Terms { max_lag: config.max_lag, source: config.fence_source }
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

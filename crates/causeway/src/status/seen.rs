//! What one look at the process shows, kept until the next one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::counts::{Adder, Counts};
use crate::serve::live::{Live, NamedCluster};

/// The process at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: SystemTime,
    pub(super) counts: Counts,
    pub(super) clusters: Vec<SeenCluster>,
    /// Reloads that succeeded, and that were refused.
    pub(super) reloads: (u64, u64),
    pub(super) draining: bool,
    pub(super) clients: usize,
    pub(super) waiting: usize,
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub(super) struct SeenCluster {
    pub(super) name: Arc<str>,
    pub(super) primary: Option<Arc<str>>,
    pub(super) timeline: Option<u32>,
    pub(super) complaint: Option<Arc<str>>,
    /// Stale primaries refused so far.
    pub(super) refused: u64,
    pub(super) nodes: Vec<SeenNode>,
}

/// A node at one moment.
#[derive(Clone, Debug)]
pub(super) struct SeenNode {
    pub(super) name: Arc<str>,
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    pub(super) weight: u32,
    /// An operator has taken the reads off it.
    pub(super) drained: bool,
    pub(super) lag: Option<Duration>,
}

// === impl Seen ===

impl Seen {
    /// Looks.
    pub(super) fn of(live: &Live) -> Self {
        let clusters = live.clusters.load();
        Self {
            at: SystemTime::now(),
            counts: counts(live),
            clusters: clusters.iter().map(|named| SeenCluster::of(live, named)).collect(),
            reloads: (live.reloads.succeeded(), live.reloads.failed()),
            draining: live.is_draining(),
            clients: live.proxy.clients().len(),
            waiting: live.proxy.pools().iter().map(|pool| pool.status.waiting).sum(),
        }
    }
}

/// What has been counted so far.
pub(super) fn counts(live: &Live) -> Counts {
    let config = live.config.load_full();
    let mut adder = Adder { config: &config, counts: Counts::default() };
    live.proxy.metrics().visit(&mut adder);
    adder.counts
}

// === impl SeenCluster ===

impl SeenCluster {
    fn of(live: &Live, NamedCluster { name, cluster, .. }: &NamedCluster) -> Self {
        let view = cluster.view();
        let node = |node: &causeway_routing::NodeView| SeenNode {
            name: Arc::clone(&node.name),
            state: node.state.as_str(),
            reason: cluster.reason(node.id),
            weight: node.weight,
            drained: live.drained.has(name, &node.name),
            lag: node.lag,
        };
        Self {
            name: Arc::clone(name),
            primary: view.primary.and_then(|id| view.node(id)).map(|node| Arc::clone(&node.name)),
            timeline: view.lineage.as_ref().map(|lineage| lineage.timeline),
            complaint: view.complaint.clone(),
            refused: cluster.totals().stale_primaries_refused,
            nodes: view.nodes.iter().map(node).collect(),
        }
    }
}

//! The data plane's window to a cluster's monitors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use causeway_cluster::{Cluster, Instance};
use causeway_pool::{ServerConn, Verification};
use causeway_proxy::{ControlPlane, Need};
use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Bound, Fence, NodeId, NodeState, NodeView, Role, View};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// A cluster as one configuration knows it.
///
/// A reload may reorder or remove nodes while transactions still run under the old configuration, whose node ids
/// count in the old order. So each configuration has its own adapter, which translates by name once its order is
/// no longer the monitors'.
pub struct ClusterControl {
    cluster: Cluster,
    nodes: Vec<Arc<str>>,
    base: Instant,
    /// When something was last written through this Causeway, in nanoseconds since `base`; at first, what went through
    /// an earlier process or configuration is not known, and `base` is the safe answer.
    last_write: AtomicU64,
}

// === impl ClusterControl ===

impl ClusterControl {
    /// The adapter for a configuration with these nodes, in its order.
    pub fn new(cluster: Cluster, nodes: Vec<Arc<str>>) -> Self {
        Self { cluster, nodes, base: Instant::now(), last_write: AtomicU64::new(0) }
    }

    /// Whether what is known of a replica's position holds for a connection to this instance, opened then.
    pub fn holds_for(&self, node: NodeId, opened_at: Instant, instance: Instance) -> bool {
        let observed = self.monitored(node).and_then(|node| self.cluster.observed(node));
        observed.is_some_and(|observed| opened_at <= observed.requested && instance == observed.instance)
    }

    /// The monitors' id of the node that this configuration calls `node`.
    fn monitored(&self, node: NodeId) -> Option<NodeId> {
        let name = self.nodes.get(usize::from(node.0))?;
        self.cluster.view().nodes.iter().find(|node| node.name == *name).map(|node| node.id)
    }

    fn in_order(&self, view: &View) -> bool {
        let same = |(node, name): (&NodeView, &Arc<str>)| Arc::ptr_eq(&node.name, name) || node.name == *name;
        view.nodes.len() == self.nodes.len() && view.nodes.iter().zip(&self.nodes).all(same)
    }
}

impl ControlPlane for ClusterControl {
    fn view(&self) -> Arc<View> {
        let view = self.cluster.view();
        if self.in_order(&view) { view } else { Arc::new(translate(&view, &self.nodes)) }
    }

    fn view_version(&self) -> u64 {
        self.cluster.view_version()
    }

    fn fence_since(&self, moment: Instant) -> Option<Fence> {
        self.cluster.fence_since(moment)
    }

    fn fence(&self, moment: Instant) -> oneshot::Receiver<Fence> {
        self.cluster.fence(moment)
    }

    fn wake_at_fence(&self, moment: Instant, waker: &Waker) -> bool {
        self.cluster.wake_at_fence(moment, waker)
    }

    fn position(&self, need: &Need) -> oneshot::Receiver<()> {
        // One that the monitors no longer know never comes: the wait ends at once.
        let Some(node) =
            need.node.map(|node| self.monitored(node)).map_or(Some(None), |found| found.map(Some))
        else {
            return oneshot::channel().1;
        };
        self.cluster.position(causeway_cluster::Need {
            fence: need.fence,
            node,
            since: need.since,
            until: need.until,
        })
    }

    fn holds(&self, node: NodeId, conn: &ServerConn) -> bool {
        Instance::from_row(conn.facts())
            .is_some_and(|instance| self.holds_for(node, conn.opened_at(), instance))
    }

    fn era(&self) -> u64 {
        self.cluster.era()
    }

    fn leads(&self, node: NodeId, conn: &ServerConn) -> bool {
        let elected = self.cluster.view().primary;
        let primary =
            self.cluster.primary_instance().filter(|_| elected.is_some() && self.monitored(node) == elected);
        let reached = Instance::from_row(conn.facts());
        // By whichever of its addresses: the start, to the microsecond, tells servers of one system apart.
        primary.zip(reached).is_some_and(|(primary, reached)| {
            (primary.system_id, primary.started) == (reached.system_id, reached.started)
        })
    }

    fn bound(&self, era: u64, moment: Instant) -> Bound {
        self.cluster.bound(era, moment)
    }

    fn shown(&self, node: NodeId, moment: Instant) -> Option<Fence> {
        let observed = self.monitored(node).and_then(|node| self.cluster.observed(node))?;
        let causeway_routing::Observation { system_id, timeline, lsn } = observed.observation;
        (observed.since <= moment && moment <= observed.requested).then_some(Fence {
            system_id,
            timeline,
            lsn,
        })
    }

    fn shown_up_to(&self, node: NodeId) -> Option<Instant> {
        self.cluster.shown_up_to(self.monitored(node)?)
    }

    fn verification(&self) -> Option<Verification> {
        let accept = |row: &[Option<Box<str>>]| match Instance::from_row(row) {
            Some(_) => Ok(()),
            None => Err("it does not tell which server it is".into()),
        };
        Some(Verification { query: Instance::QUERY.into(), accept: Arc::new(accept) })
    }

    fn wrote(&self, moment: Instant) {
        let nanos = moment.saturating_duration_since(self.base).as_nanos();
        self.last_write.fetch_max(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.cluster.wrote();
    }

    fn last_write(&self) -> Instant {
        self.base + Duration::from_nanos(self.last_write.load(Ordering::SeqCst))
    }

    fn catalogue(&self, database: &str) -> Option<Arc<Catalogue>> {
        self.cluster.catalogue(database)
    }

    fn definition_seen(&self, database: &str) {
        self.cluster.definition_seen(database);
    }

    fn node_failed(&self, node: NodeId) {
        if let Some(node) = self.monitored(node) {
            self.cluster.node_failed(node);
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.cluster.subscribe()
    }
}

/// `view` in the order of `names`; a node that the monitors no longer know is down.
fn translate(view: &View, names: &[Arc<str>]) -> View {
    let node = |(position, name): (usize, &Arc<str>)| {
        let id = NodeId(u16::try_from(position).unwrap_or(u16::MAX));
        match view.nodes.iter().find(|node| node.name == *name) {
            Some(node) => NodeView { id, ..node.clone() },
            None => NodeView {
                id,
                name: Arc::clone(name),
                role: Role::Unknown,
                state: NodeState::Down,
                weight: 0,
                levels: causeway_routing::Levels::ALL,
                observation: None,
                lag_bytes: None,
                lag: None,
            },
        }
    };
    let nodes: Vec<NodeView> = names.iter().enumerate().map(node).collect();
    let primary = view
        .primary
        .and_then(|id| view.node(id))
        .and_then(|primary| nodes.iter().find(|node| node.name == primary.name).map(|node| node.id));
    let (lineage, complaint) = (view.lineage.clone(), view.complaint.clone());
    View { nodes, primary, fence: view.fence, lineage, complaint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u16, name: &str, role: Role) -> NodeView {
        NodeView {
            id: NodeId(id),
            name: name.into(),
            role,
            state: NodeState::Serving,
            weight: 1,
            levels: causeway_routing::Levels::ALL,
            observation: None,
            lag_bytes: None,
            lag: None,
        }
    }

    #[test]
    fn ids_follow_the_configuration_that_asks() {
        let nodes = vec![node(0, "c", Role::Replica), node(1, "a", Role::Primary)];
        let view = View { nodes, primary: Some(NodeId(1)), ..View::default() };
        let names: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
        let seen = translate(&view, &names);
        assert_eq!(seen.primary, Some(NodeId(0)));
        let states: Vec<_> =
            seen.nodes.iter().map(|node| (node.id.0, &*node.name, node.role, node.state)).collect();
        assert_eq!(
            states,
            [
                (0, "a", Role::Primary, NodeState::Serving),
                (1, "b", Role::Unknown, NodeState::Down),
                (2, "c", Role::Replica, NodeState::Serving),
            ]
        );
    }

    #[test]
    fn a_primary_that_the_configuration_does_not_know_is_none() {
        let nodes = vec![node(0, "x", Role::Primary)];
        let view = View { nodes, primary: Some(NodeId(0)), ..View::default() };
        assert_eq!(translate(&view, &["a".into()]).primary, None);
    }
}

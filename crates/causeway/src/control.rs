//! The data plane's window to a cluster's monitors.

use std::sync::Arc;

use causeway_cluster::Cluster;
use causeway_proxy::ControlPlane;
use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Fence, NodeId, NodeState, NodeView, Role, View};
use tokio::sync::watch;
use tokio::time::Instant;

/// A cluster as one configuration knows it.
///
/// A reload may reorder or remove nodes while transactions still run under the old configuration, whose node ids
/// count in the old order. So each configuration has its own adapter, which translates by name once its order is
/// no longer the monitors'.
pub struct ClusterControl {
    cluster: Cluster,
    nodes: Vec<Arc<str>>,
}

// === impl ClusterControl ===

impl ClusterControl {
    /// The adapter for a configuration with these nodes, in its order.
    pub fn new(cluster: Cluster, nodes: Vec<Arc<str>>) -> Self {
        Self { cluster, nodes }
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

    fn fence_since(&self, moment: Instant) -> Option<Fence> {
        self.cluster.fence_since(moment)
    }

    fn need_fence(&self) {
        self.cluster.need_fence();
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

    fn observation_requested(&self, node: NodeId) -> Option<Instant> {
        self.cluster.observed(self.monitored(node)?).map(|observed| observed.requested)
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
    View { nodes, primary, fence: view.fence }
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
            observation: None,
            lag_bytes: None,
            lag: None,
        }
    }

    #[test]
    fn ids_follow_the_configuration_that_asks() {
        let nodes = vec![node(0, "c", Role::Replica), node(1, "a", Role::Primary)];
        let view = View { nodes, primary: Some(NodeId(1)), fence: None };
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
        let view = View { nodes: vec![node(0, "x", Role::Primary)], primary: Some(NodeId(0)), fence: None };
        assert_eq!(translate(&view, &["a".into()]).primary, None);
    }
}

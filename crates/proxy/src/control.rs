//! What the data plane asks of the control plane; the binary answers from its monitors.

use std::sync::Arc;

use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Fence, NodeId, View};
use tokio::sync::watch;
use tokio::time::Instant;

/// The truth about the nodes of one cluster, as far as it is known.
///
/// Every method but [`ControlPlane::changes`]' receiver returns at once: the data plane calls them for each statement.
pub trait ControlPlane: Send + Sync + 'static {
    /// The nodes as last seen.
    fn view(&self) -> Arc<View>;

    /// The newest fence whose probe was sent at or after `moment`: it covers everything acknowledged before.
    fn fence_since(&self, moment: Instant) -> Option<Fence>;

    /// A session waits for a fence younger than now and for replicas that cover it.
    fn need_fence(&self);

    /// What is known of the objects of `database`; `None` until it has been loaded, which this call starts.
    fn catalogue(&self, database: &str) -> Option<Arc<Catalogue>>;

    /// A statement that may have changed the catalogue of `database` has been acknowledged.
    fn definition_seen(&self, database: &str);

    /// A server connection of this node could not be made or was lost.
    fn node_failed(&self, node: NodeId);

    /// When the observation of this node that [`ControlPlane::view`] holds was asked for. It tells nothing about
    /// connections opened later: a crash restart moves replay back, and only a connection that is older and lives
    /// proves that there was none.
    fn observation_requested(&self, node: NodeId) -> Option<Instant>;

    /// Counts up whenever a role or state of a node changes.
    fn changes(&self) -> watch::Receiver<u64>;
}

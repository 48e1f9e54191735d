//! What the data plane asks of the control plane; the binary answers from its monitors.

use std::sync::Arc;
use std::task::Waker;

use causeway_pool::{ServerConn, Verification};
use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Bound, Fence, NodeId, View};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// A position that somebody waits for.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// What must have been replayed.
    pub fence: Fence,
    /// Where: on this node, or on any that serves reads.
    pub node: Option<NodeId>,
    /// Only an observation that was asked for at or after this moment counts: the connection at hand was opened then, and
    /// a crash restart moves replay back.
    pub since: Option<Instant>,
    /// When nobody waits any more.
    pub until: Instant,
}

/// The truth about the nodes of one cluster, as far as it is known.
///
/// Every method returns at once: the data plane calls them for each statement. What they return can be waited for, and
/// dropping that ends the wait.
pub trait ControlPlane: Send + Sync + 'static {
    /// The nodes as last seen.
    fn view(&self) -> Arc<View>;

    /// Counts up whenever [`ControlPlane::view`] may give another answer: whoever keeps one asks this first, and must ask
    /// before it asks for the view.
    fn view_version(&self) -> u64;

    /// The lowest fence known whose probe was sent at or after `moment`: it covers everything acknowledged before.
    fn fence_since(&self, moment: Instant) -> Option<Fence>;

    /// Asks for a fence whose probe is sent at or after `moment`, and resolves with it. While there is no primary it does
    /// not end by itself.
    fn fence(&self, moment: Instant) -> oneshot::Receiver<Fence>;

    /// The same for a task that asks [`ControlPlane::fence_since`] when it is woken, which happens once and without an
    /// allocation. False if the fence is known by now: nobody will be woken.
    fn wake_at_fence(&self, moment: Instant, waker: &Waker) -> bool;

    /// Resolves when what is needed is known to have been replayed; the view and [`ControlPlane::holds`] tell where. An
    /// error says that `until` has passed.
    fn position(&self, need: &Need) -> oneshot::Receiver<()>;

    /// Whether what is known of a replica's position holds for this connection to it: it was open when that was asked for,
    /// and reaches the same server.
    fn holds(&self, node: NodeId, conn: &ServerConn) -> bool;

    /// Moves when another server becomes the primary, and as soon as the primary is known to be none any more.
    fn era(&self) -> u64;

    /// Whether this connection reaches the server that is the primary now, `node` being its node.
    fn leads(&self, node: NodeId, conn: &ServerConn) -> bool;

    /// Where what was acknowledged before `moment`, by the primary of `era`, ends at the latest.
    fn bound(&self, era: u64, moment: Instant) -> Bound;

    /// A position that this replica had not gone beyond at `moment`, if one was read since and the same server has been
    /// behind the node's name all the time.
    fn shown(&self, node: NodeId, moment: Instant) -> Option<Fence>;

    /// The moment before which everything acknowledged is known to be shown by this replica.
    fn shown_up_to(&self, node: NodeId) -> Option<Instant>;

    /// What every server connection must answer right after login, so that [`ControlPlane::holds`] can tell which server
    /// it reaches.
    fn verification(&self) -> Option<Verification>;

    /// Something that was not proven to be a read has been acknowledged through this Causeway, or may have happened. To be
    /// called before the first byte of the acknowledgement is passed on.
    fn wrote(&self, moment: Instant);

    /// When that was last; the start of this Causeway if never, since nobody knows what went through an earlier one.
    fn last_write(&self) -> Instant;

    /// What is known of the objects of `database`; `None` until it has been loaded, which this call starts.
    fn catalogue(&self, database: &str) -> Option<Arc<Catalogue>>;

    /// A statement that may have changed the catalogue of `database` has been acknowledged.
    fn definition_seen(&self, database: &str);

    /// A server connection of this node could not be made or was lost.
    fn node_failed(&self, node: NodeId);

    /// Counts up whenever a role or state of a node, or the era changes.
    fn changes(&self) -> watch::Receiver<u64>;
}

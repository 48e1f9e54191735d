//! What is known of the nodes of one cluster at one moment.

use std::sync::Arc;
use std::time::Duration;

use crate::fence::{Fence, Observation};
use crate::level::{Level, Levels};
use crate::lineage::Lineage;

/// The position of a node in its cluster's configuration; stable for the life of one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// What a node was last seen to be. Roles are observed, never configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Not in recovery.
    Primary,
    /// In recovery: a hot standby.
    Replica,
    /// Not seen yet.
    Unknown,
}

/// Whether a node may be given work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// It answers, and belongs to the cluster's lineage.
    Serving,
    /// A replica over the lag limit.
    Lagging,
    /// It does not answer.
    Down,
    /// It answers, but is not of this cluster's lineage or is not its newest primary.
    Refused,
    /// Not seen yet.
    Unknown,
}

/// What is known of one node.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its position in [`View::nodes`].
    pub id: NodeId,
    /// The configured name.
    pub name: Arc<str>,
    /// The observed role.
    pub role: Role,
    /// Whether it may be given work.
    pub state: NodeState,
    /// The configured share of reads; 0 means none.
    pub weight: u32,
    /// The levels of the reads it may be given.
    pub levels: Levels,
    /// What it was last seen to have replayed; replicas only.
    pub observation: Option<Observation>,
    /// How many bytes of WAL it was behind the newest known position of the primary.
    pub lag_bytes: Option<u64>,
    /// For how long it has not shown the primary's state: the age of the newest sampled position that it covers.
    pub lag: Option<Duration>,
}

/// What is known of the nodes of one cluster at one moment, published as a whole.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// One entry a configured node; `nodes[i].id == NodeId(i)`.
    pub nodes: Vec<NodeView>,
    /// The one node that may be written to.
    pub primary: Option<NodeId>,
    /// The newest fence known; `None` until a primary has answered.
    pub fence: Option<Fence>,
    /// The newest timeline that any node was seen on, and its ancestors; `None` until a primary was seen.
    pub lineage: Option<Arc<Lineage>>,
    /// Why there is no primary, where that needs an operator.
    pub complaint: Option<Arc<str>>,
}

/// What the data plane knows of a node's load, copied at the moment of a decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Statements running there through this process.
    pub in_flight: u32,
    /// Smoothed time from sending a statement to the end of its answer.
    pub latency: Duration,
    /// Statements have failed there: it is asked only if no other node will do.
    pub ejected: bool,
    /// The percentage of its share that it does not get yet, having come back lately.
    pub held_back: u8,
}

// === impl View ===

impl View {
    /// The node of this id.
    pub fn node(&self, id: NodeId) -> Option<&NodeView> {
        self.nodes.get(usize::from(id.0))
    }
}

// === impl NodeView ===

impl NodeView {
    /// Whether reads may be sent here, their consistency apart.
    pub fn serves_reads(&self) -> bool {
        self.role == Role::Replica && self.state == NodeState::Serving && self.weight > 0
    }

    /// The same at one level.
    pub fn serves_reads_at(&self, level: Level) -> bool {
        self.serves_reads() && self.levels.contains(level)
    }
}

// === impl Role ===

impl Role {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unknown => "unknown",
        }
    }
}

// === impl NodeState ===

impl NodeState {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Lagging => "lagging",
            Self::Down => "down",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

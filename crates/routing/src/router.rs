//! Which node a statement runs on.

use std::time::Duration;

use crate::balance;
use crate::class::Kind;
use crate::fence::Fence;
use crate::level::Level;
use crate::reason::Reason;
use crate::resolve::Verdict;
use crate::view::{Load, NodeId, NodeView, View};

/// What a read must see, apart from its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing in particular.
    None,
    /// Something was written, and no fence is known to cover it yet.
    Unknown,
    /// Everything that this fence covers.
    Fence(Fence),
}

/// All that a decision depends on, the nodes apart.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What the statement is.
    pub verdict: Verdict,
    /// The session's level.
    pub level: Level,
    /// What the read must see. Ignored at levels `eventual` and `primary`.
    pub requirement: Requirement,
    /// The statement would run at isolation level SERIALIZABLE.
    pub serializable: bool,
    /// Replicas that are not to be asked, because they refused or lost this statement already.
    pub excluded: &'a [NodeId],
}

/// Where a statement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The primary; `None` while none is known.
    Primary(Option<NodeId>),
    /// A replica.
    Replica(NodeId),
    /// No node: Causeway answers.
    Local,
}

/// Where a statement runs, and why there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub target: Target,
    /// Why that one.
    pub reason: Reason,
}

/// Decides where statements run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Router;

// === impl Router ===

impl Router {
    /// Where a statement outside a transaction, or the first of one, runs.
    ///
    /// `loads[i]` is the load of node `i`; a missing one counts as idle. `random` must be uniform and new for each
    /// decision; the same arguments always give the same decision.
    pub fn route(self, request: &Request<'_>, view: &View, loads: &[Load], random: u64) -> Decision {
        let primary = |reason| Decision { target: Target::Primary(view.primary), reason };
        if !matches!(request.verdict.kind, Kind::Read | Kind::BeginReadOnly) {
            return primary(request.verdict.reason);
        }
        if request.level == Level::Primary {
            return primary(Reason::LevelPrimary);
        }
        if request.serializable {
            return primary(Reason::Serializable);
        }
        let requirement = match request.level {
            Level::Eventual | Level::Primary => Requirement::None,
            _ => request.requirement,
        };
        if requirement == Requirement::Unknown {
            return primary(Reason::Fence);
        }
        let covers = |node: &NodeView| match requirement {
            Requirement::Fence(fence) => node.observation.is_some_and(|seen| seen.covers(&fence)),
            Requirement::None | Requirement::Unknown => true,
        };
        let serves =
            |node: &NodeView| node.serves_reads_at(request.level) && !request.excluded.contains(&node.id);
        let load = |id: NodeId| loads.get(usize::from(id.0)).copied().unwrap_or_default();
        let candidates = view.nodes.iter().filter(|node| serves(node) && covers(node));
        let candidates = candidates.map(|node| {
            let percent = 100_u32.saturating_sub(u32::from(load(node.id).held_back));
            balance::Candidate { id: node.id, weight: node.weight.saturating_mul(percent.max(1)) }
        });
        let sound = candidates.clone().filter(|candidate| !load(candidate.id).ejected);
        // Never the last one: what fails now and then is better than what is not asked.
        let picked = balance::pick(sound, load, random).or_else(|| balance::pick(candidates, load, random));
        if let Some(id) = picked {
            let hint = request.verdict.reason == Reason::Hint;
            let reason = if hint { Reason::Hint } else { Reason::Read };
            return Decision { target: Target::Replica(id), reason };
        }
        let mut replicas = view.nodes.iter().filter(|node| node.serves_reads_at(request.level)).peekable();
        primary(match () {
            () if replicas.peek().is_none() => Reason::NoReplica,
            () if !replicas.any(serves) => Reason::Retried,
            () => Reason::Fence,
        })
    }
}

/// The smallest latency the balancer tells apart from none, so that idle nodes differ by what is in flight there.
pub(crate) const LATENCY_FLOOR: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests;

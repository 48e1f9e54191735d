//! Sharing reads among equally good replicas.

use crate::router::LATENCY_FLOOR;
use crate::view::{Load, NodeId};

/// A replica that may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: NodeId,
    pub(crate) weight: u32,
    pub(crate) load: Load,
}

/// One of the candidates: drawn by weight, so that the shares are the weights while the nodes are alike, and left for
/// a second one, drawn evenly, only when its load is more than twice what the other's would be with this statement.
///
/// A plain choice of the less loaded of two would send nearly everything to a node of weight 1 while all nodes idle,
/// and would count the weights twice if it drew by weight.
pub(crate) fn pick(mut candidates: impl Iterator<Item = Candidate> + Clone, random: u64) -> Option<NodeId> {
    let total: u64 = candidates.clone().map(|candidate| u64::from(candidate.weight)).sum();
    let mut ticket = scale(random >> 32, total);
    let mut position = 0;
    let mut first = None;
    for candidate in candidates.clone() {
        let weight = u64::from(candidate.weight);
        if ticket < weight {
            first = Some(candidate);
            break;
        }
        ticket -= weight;
        position += 1;
    }
    let first = first?;
    let others = candidates.clone().count() as u64 - 1;
    if others == 0 {
        return Some(first.id);
    }
    let other = scale(random & 0xFFFF_FFFF, others);
    // The first is not among the others: those after it move up by one.
    let other = other + u64::from(other >= position);
    let second = candidates.nth(usize::try_from(other).unwrap_or(usize::MAX))?;
    // An idle node is not infinitely better than one with a single statement: counting the new one on the other side
    // keeps chance alone from moving statements, which would shift the shares of nodes with small weights.
    let overloaded = load(&first, 0) > load(&second, 1).saturating_mul(2);
    Some(if overloaded { second.id } else { first.id })
}

/// A number below `limit` from 32 uniform bits, without the bias of a remainder.
fn scale(random: u64, limit: u64) -> u64 {
    u64::try_from((u128::from(random) * u128::from(limit)) >> 32).unwrap_or(0)
}

/// What the statements there, and `more` of them, add up to per unit of weight; scaled so that small loads do not round
/// to 0.
fn load(candidate: &Candidate, more: u32) -> u128 {
    let latency = candidate.load.latency.max(LATENCY_FLOOR).as_nanos();
    let in_flight = u128::from(candidate.load.in_flight) + u128::from(more);
    in_flight * latency * 1024 / u128::from(candidate.weight.max(1))
}

//! Sharing reads among equally good replicas.

use crate::router::LATENCY_FLOOR;
use crate::view::{Load, NodeId};

/// A replica that may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: NodeId,
    pub(crate) weight: u32,
}

/// One of the candidates: drawn by weight, so that the shares are the weights while the nodes are alike, and left for
/// a second one, drawn evenly, only when its load is more than twice what the other's would be with this statement.
///
/// A plain choice of the less loaded of two would send nearly everything to a node of weight 1 while all nodes idle,
/// and would count the weights twice if it drew by weight.
#[inline]
pub(crate) fn pick(
    candidates: impl Iterator<Item = Candidate> + Clone,
    load: impl Fn(NodeId) -> Load,
    random: u64,
) -> Option<NodeId> {
    let (mut number, mut total) = (0_u64, 0_u64);
    for candidate in candidates.clone() {
        number += 1;
        total += u64::from(candidate.weight);
    }
    let mut ticket = scale(random >> 32, total);
    // How many of the others come before the second.
    let mut before = scale(random & 0xFFFF_FFFF, number.saturating_sub(1));
    let (mut first, mut second) = (None, None);
    for candidate in candidates {
        let weight = u64::from(candidate.weight);
        if first.is_none() {
            if ticket < weight {
                first = Some(candidate);
                continue;
            }
            ticket -= weight;
        }
        if second.is_none() {
            if before == 0 {
                second = Some(candidate);
            }
            before = before.saturating_sub(1);
        }
    }
    let first = first?;
    let Some(second) = second else { return Some(first.id) };
    // An idle node is not infinitely better than one with a single statement: counting the new one on the other side
    // keeps chance alone from moving statements, which would shift the shares of nodes with small weights.
    let (here, there) = (burden(load(first.id), 0, second.weight), burden(load(second.id), 1, first.weight));
    Some(if here > there.saturating_mul(2) { second.id } else { first.id })
}

/// A number below `limit` from 32 uniform bits, without the bias of a remainder.
fn scale(random: u64, limit: u64) -> u64 {
    // The product of 32 bits and a sum of weights, each of 32 bits, of which there are fewer than 2^16.
    u64::try_from((u128::from(random) * u128::from(limit)) >> 32).unwrap_or(0)
}

/// What the statements there, and `more` of them, add up to per unit of weight, times the weights of both nodes: only to be
/// compared with that of the other, whose weight is given, without a division.
fn burden(load: Load, more: u32, other: u32) -> u128 {
    let latency = u64::try_from(load.latency.max(LATENCY_FLOOR).as_nanos()).unwrap_or(u64::MAX);
    let statements = u64::from(load.in_flight) + u64::from(more);
    (u128::from(statements) * u128::from(latency)).saturating_mul(u128::from(other.max(1)))
}

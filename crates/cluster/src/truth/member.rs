//! What is known of one node.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Lsn, NodeState, NodeView, Observation, Role};
use tokio::time::Instant;

use super::{Key, Observed, Position, Sighting, node_id};
use crate::election::{Ballot, Epoch};
use crate::ring::Ring;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: Key,
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    pub(super) link: Link,
    pub(super) seen: Option<Sighting>,
    /// What was seen before, the connection's end or not.
    pub(super) shown: Option<(Epoch, Lsn)>,
    pub(super) as_of: Option<Instant>,
    pub(super) lag: Option<Duration>,
    pub(super) lag_bytes: Option<u64>,
    pub(super) state: NodeState,
    pub(super) why: Option<Cow<'static, str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Untried,
    Up,
    /// The connection broke and the next attempt has not ended: role and state stand, positions do not.
    Lost,
    Down,
}

// === impl Member ===

impl Member {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            name: Arc::from(""),
            weight: 0,
            link: Link::Untried,
            seen: None,
            shown: None,
            as_of: None,
            lag: None,
            lag_bytes: None,
            state: NodeState::Unknown,
            why: None,
        }
    }

    pub(super) fn role(&self) -> Role {
        match self.seen.map(|seen| seen.position) {
            None => Role::Unknown,
            Some(Position::Inserted { .. }) => Role::Primary,
            Some(Position::Replayed(_)) => Role::Replica,
        }
    }

    pub(super) fn ballot(&self) -> Option<Ballot> {
        let seen = self.seen.filter(|_| matches!(self.link, Link::Up | Link::Lost))?;
        let writable = matches!(seen.position, Position::Inserted { .. });
        Some(Ballot { system_id: seen.instance.system_id, timeline: seen.timeline, writable })
    }

    pub(super) fn observation(&self) -> Option<Observation> {
        match self.seen.filter(|_| self.link == Link::Up)? {
            Sighting { instance, timeline, position: Position::Replayed(lsn), .. } => {
                Some(Observation { system_id: instance.system_id, timeline, lsn })
            }
            _ => None,
        }
    }

    pub(super) fn observed(&self) -> Option<Observed> {
        let (observation, seen) = self.observation().zip(self.seen)?;
        Some(Observed { observation, requested: seen.requested, instance: seen.instance, as_of: self.as_of })
    }

    /// Whether it shows less than it once did: a crash restart replays again what was shown before.
    pub(super) fn regressed(&mut self, seen: &Sighting) -> bool {
        let lineage = Epoch { system_id: seen.instance.system_id, timeline: seen.timeline };
        let (Position::Inserted { end: lsn, .. } | Position::Replayed(lsn)) = seen.position;
        let former = self.shown.replace((lineage, lsn));
        former.is_some_and(|(former, shown)| former == lineage && lsn < shown)
    }

    /// Compares a replica with the primary's samples. On another timeline the numbers say nothing, and what was
    /// shown before ages.
    pub(super) fn measure(&mut self, ring: &Ring, ring_epoch: Option<Epoch>, clock: Instant) {
        let comparable = self
            .observation()
            .filter(|seen| ring_epoch == Some(Epoch { system_id: seen.system_id, timeline: seen.timeline }));
        let covered = comparable.and_then(|seen| ring.covered_by(seen.lsn)).map(|sample| sample.sent);
        self.as_of = self.as_of.max(covered);
        self.lag_bytes = comparable.zip(ring.newest()).map(|(seen, newest)| seen.lsn.behind(newest.lsn));
        self.lag = match self.lag_bytes {
            Some(0) => Some(Duration::ZERO),
            _ => self.as_of.map(|as_of| clock.saturating_duration_since(as_of)),
        };
    }

    pub(super) fn judged(
        &self,
        ballot: Ballot,
        epoch: Option<Epoch>,
        elected: bool,
        max_lag: Duration,
    ) -> (NodeState, &'static str) {
        let Some(epoch) = epoch else {
            return if ballot.writable {
                (NodeState::Refused, "writable nodes have different system identifiers")
            } else {
                (NodeState::Lagging, "no primary was seen to compare it with")
            };
        };
        if ballot.system_id != epoch.system_id {
            return (NodeState::Refused, "it belongs to another system than the accepted one");
        }
        if ballot.timeline < epoch.timeline {
            return (NodeState::Refused, "it is on an older timeline than the newest seen");
        }
        match (ballot.writable, self.lag) {
            (true, _) if elected => (NodeState::Serving, ""),
            (true, _) => (NodeState::Refused, "another node is writable on the same timeline"),
            (false, None) => (NodeState::Lagging, "it has shown no known position of the primary yet"),
            (false, Some(lag)) if lag > max_lag => (NodeState::Lagging, "its lag is over the limit"),
            (false, Some(_)) => (NodeState::Serving, ""),
        }
    }

    pub(super) fn view(&self, index: usize) -> NodeView {
        NodeView {
            id: node_id(index),
            name: self.name.clone(),
            role: self.role(),
            state: self.state,
            weight: self.weight,
            observation: self.observation(),
            lag_bytes: self.lag_bytes,
            lag: self.lag,
        }
    }
}

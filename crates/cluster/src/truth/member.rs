//! What is known of one node.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Levels, Lsn, NodeState, NodeView, Observation, Role, Switch};
use tokio::time::Instant;

use super::{Key, Observed, Position, Sighting, node_id};
use crate::election::{Ballot, Line, Writer};
use crate::instance::Instance;
use crate::ring::Ring;

/// The one that initdb makes.
const FIRST_TIMELINE: u32 = 1;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: Key,
    pub(super) node: Writer,
    pub(super) weight: u32,
    pub(super) levels: Levels,
    pub(super) link: Link,
    pub(super) seen: Option<Sighting>,
    /// When the server that was seen last was seen first, no other in between.
    pub(super) since: Option<Instant>,
    /// What was seen before, the connection's end or not.
    pub(super) shown: Option<(Line, Lsn)>,
    /// The last timeline that it was seen on in recovery, by which server.
    pub(super) followed: Option<(Instance, u32)>,
    /// Where the timeline that this server writes on comes from.
    pub(super) origin: Option<(Instance, u32, Arc<[Switch]>)>,
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
            node: Writer { name: Arc::from(""), address: Arc::from("") },
            weight: 0,
            levels: Levels::ALL,
            link: Link::Untried,
            seen: None,
            since: None,
            shown: None,
            followed: None,
            origin: None,
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
        Some(Ballot {
            line: seen.line(),
            writable,
            ancestors: self.ancestors(&seen),
            node: self.node.clone(),
        })
    }

    /// Of the timeline that it was seen on; `None` while that is being asked.
    fn ancestors(&self, seen: &Sighting) -> Option<Arc<[Switch]>> {
        if seen.timeline <= FIRST_TIMELINE {
            return Some(Arc::default());
        }
        let known = self.origin.as_ref();
        let known = known.filter(|(by, timeline, _)| *by == seen.instance && *timeline == seen.timeline);
        known.map(|(_, _, ancestors)| ancestors.clone())
    }

    /// The parent of a timeline that this server has made, if that is certain: it takes the next free number, which a
    /// server that has seen the last one in use takes from there.
    pub(super) fn parent_of(&self, instance: Instance, timeline: u32) -> Option<u32> {
        let followed = self.followed.filter(|(by, _)| *by == instance).map(|(_, followed)| followed);
        let only = (timeline == FIRST_TIMELINE + 1).then_some(FIRST_TIMELINE);
        only.or(followed.filter(|followed| followed.checked_add(1) == Some(timeline)))
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
        let Sighting { requested, instance, .. } = seen;
        let since = self.since.unwrap_or(requested);
        Some(Observed { observation, requested, instance, since, as_of: self.as_of })
    }

    /// Takes note of a position. Whether it shows less than it once did: a crash restart replays again what was shown
    /// before.
    pub(super) fn regressed(&mut self, seen: &Sighting) -> bool {
        let lineage = seen.line();
        if let Position::Replayed(_) = seen.position {
            self.followed = Some((seen.instance, seen.timeline));
        }
        let (Position::Inserted { end: lsn, .. } | Position::Replayed(lsn)) = seen.position;
        let former = self.shown.replace((lineage, lsn));
        former.is_some_and(|(former, shown)| former == lineage && lsn < shown)
    }

    /// Compares a replica with the primary's samples. On another timeline the numbers say nothing, and what was
    /// shown before ages.
    pub(super) fn measure(&mut self, ring: &Ring, ring_line: Option<Line>, clock: Instant) {
        let comparable = self
            .observation()
            .filter(|seen| ring_line == Some(Line { system_id: seen.system_id, timeline: seen.timeline }));
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
        ballot: &Ballot,
        epoch: Option<Line>,
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
        if ballot.line.system_id != epoch.system_id {
            return (NodeState::Refused, "it belongs to another system than the accepted one");
        }
        if ballot.line.timeline < epoch.timeline {
            return (NodeState::Refused, "it is on an older timeline than the newest seen");
        }
        match (ballot.writable, self.lag) {
            (true, _) if elected => (NodeState::Serving, ""),
            (true, _) if ballot.ancestors.is_none() => (NodeState::Unknown, ""),
            (true, _) => {
                (NodeState::Refused, "split brain: another node writes, or wrote, on the same timeline")
            }
            (false, None) => (NodeState::Lagging, "it has shown no known position of the primary yet"),
            (false, Some(lag)) if lag > max_lag => (NodeState::Lagging, "its lag is over the limit"),
            (false, Some(_)) => (NodeState::Serving, ""),
        }
    }

    pub(super) fn view(&self, index: usize) -> NodeView {
        NodeView {
            id: node_id(index),
            name: self.node.name.clone(),
            role: self.role(),
            state: self.state,
            weight: self.weight,
            levels: self.levels,
            observation: self.observation(),
            lag_bytes: self.lag_bytes,
            lag: self.lag,
        }
    }
}

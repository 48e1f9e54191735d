//! What the monitors' reports add up to: a state machine without input, output or clocks.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Fence, Lsn, NodeId, NodeState, NodeView, Observation, Role, View};
use tokio::time::Instant;

use crate::election::{Ballot, Epoch, Outcome, elect};
use crate::ring::{Ring, Sample};

/// Names a monitor for as long as the process runs; a node keeps it while its address and login stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

/// The answer to one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// When the probe was about to be sent.
    pub(crate) requested: Instant,
    pub(crate) system_id: u64,
    /// `pg_postmaster_start_time()`, in microseconds since 1970.
    pub(crate) started: i64,
    pub(crate) timeline: u32,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Not in recovery; where the last inserted record ends, and whether all of it was flushed.
    Inserted { end: Lsn, flushed: bool },
    /// In recovery; replayed at least that far on the sighting's timeline.
    Replayed(Lsn),
}

/// What is known of a replica's content, and which connections may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The proven position.
    pub observation: Observation,
    /// When the probe was about to be sent. The observation holds for a connection that was opened before this
    /// moment and still answers: a crash restart moves the position back, but ends every connection.
    pub requested: Instant,
    /// `pg_postmaster_start_time()` in microseconds since 1970: which server behind the node's name was asked.
    pub started: i64,
    /// The replica shows everything acknowledged before this moment.
    pub as_of: Option<Instant>,
}

/// Recent fences of one primary, oldest first.
#[derive(Debug)]
pub(crate) struct Fences {
    system_id: u64,
    timeline: u32,
    samples: Box<[Sample]>,
}

/// Everything readers see, published as a whole.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) view: Arc<View>,
    pub(crate) fences: Option<Arc<Fences>>,
    pub(crate) observed: Vec<Option<Observed>>,
    /// Why a node is in its state, where that needs words.
    pub(crate) why: Vec<Option<Cow<'static, str>>>,
    pub(crate) epoch: Option<Epoch>,
    /// Every node was tried once.
    pub(crate) settled: bool,
}

#[derive(Debug)]
pub(crate) struct Truth {
    members: Vec<Member>,
    epoch: Option<Epoch>,
    outcome: Outcome,
    /// Of the last elected primary; kept without one, so that lag stays measurable against it.
    ring: Ring,
    ring_of: Option<(Key, Epoch)>,
    fences: Option<Arc<Fences>>,
    /// Since when there is no primary: lag does not grow then, for there is nothing to lag behind.
    vacant_since: Option<Instant>,
    max_lag: Duration,
    settled: bool,
}

#[derive(Debug)]
struct Member {
    key: Key,
    name: Arc<str>,
    weight: u32,
    link: Link,
    seen: Option<Sighting>,
    as_of: Option<Instant>,
    lag: Option<Duration>,
    lag_bytes: Option<u64>,
    state: NodeState,
    why: Option<Cow<'static, str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Untried,
    Up,
    /// The connection broke and the next attempt has not ended: role and state stand, positions do not.
    Lost,
    Down,
}

/// For how long a wish for a fence keeps the monitors active.
const PATIENCE: Duration = Duration::from_secs(3);

// === impl Truth ===

impl Truth {
    pub(crate) fn new(max_lag: Duration) -> Self {
        Self {
            members: Vec::new(),
            epoch: None,
            outcome: Outcome::Vacant,
            ring: Ring::default(),
            ring_of: None,
            fences: None,
            vacant_since: None,
            max_lag,
            settled: false,
        }
    }

    /// Replaces the nodes; those with a known key keep what is known of them.
    pub(crate) fn configure(&mut self, nodes: &[(Key, Arc<str>, u32)], max_lag: Duration, now: Instant) {
        let mut former = std::mem::take(&mut self.members);
        let renewed = nodes.iter().map(|(key, name, weight)| {
            let known =
                former.iter().position(|member| member.key == *key).map(|index| former.swap_remove(index));
            let member = known.unwrap_or_else(|| Member::new(*key));
            Member { name: name.clone(), weight: *weight, ..member }
        });
        self.members = renewed.collect();
        self.max_lag = max_lag;
        self.assess(now);
    }

    /// Takes a lineage that an earlier process had accepted; a newer timeline already seen stands.
    pub(crate) fn remember(&mut self, epoch: Epoch) {
        if self
            .epoch
            .is_none_or(|known| known.system_id != epoch.system_id || known.timeline < epoch.timeline)
        {
            self.epoch = Some(epoch);
        }
    }

    /// Forgets the accepted lineage; the next one is chosen from the nodes that answer now.
    pub(crate) fn forget_epoch(&mut self, now: Instant) {
        self.epoch = None;
        self.assess(now);
    }

    pub(crate) fn sighted(&mut self, key: Key, sighting: Sighting, now: Instant) {
        let Some(member) = self.member(key) else { return };
        member.link = Link::Up;
        member.seen = Some(sighting);
        self.assess(now);
    }

    /// The monitor's connection broke: a crash restart may follow, which moves the replay position back.
    ///
    /// Fences stay: what was acknowledged before one and survived the crash still ends at or before it.
    pub(crate) fn lost(&mut self, key: Key, now: Instant) {
        let Some(member) = self.member(key) else { return };
        member.link = Link::Lost;
        member.as_of = None;
        self.assess(now);
    }

    /// The node cannot be reached, or did not answer in time.
    pub(crate) fn down(&mut self, key: Key, why: String, now: Instant) {
        let Some(member) = self.member(key) else { return };
        member.link = Link::Down;
        member.as_of = None;
        member.why = Some(why.into());
        self.assess(now);
    }

    /// Whether this node's next probe is awaited by somebody who asked at `wanted`.
    pub(crate) fn awaited(&self, key: Key, wanted: Option<Instant>, now: Instant) -> bool {
        let Some(wanted) = wanted.filter(|wanted| now.saturating_duration_since(*wanted) < PATIENCE) else {
            return false;
        };
        let Some(member) = self.members.iter().find(|member| member.key == key) else { return false };
        match (self.primary(), member.role()) {
            // Whoever is promoted next is among these.
            (None, _) => member.link == Link::Up,
            (Some(primary), _) if primary.key == key => {
                self.ring.newest().is_none_or(|newest| newest.sent < wanted)
            }
            (Some(_), Role::Replica) => {
                member.state == NodeState::Serving && member.as_of.is_none_or(|as_of| as_of < wanted)
            }
            (Some(_), _) => false,
        }
    }

    /// The primary to be made to flush: somebody waits, and its last answer is ahead of what it flushed. No
    /// standby is sent what was not flushed, and a quiet primary takes seconds to do so.
    pub(crate) fn stuck(&self, wanted: Option<Instant>, now: Instant) -> Option<Key> {
        let primary = self.primary().filter(|primary| primary.link == Link::Up)?;
        let unflushed = matches!(primary.seen?.position, Position::Inserted { flushed: false, .. });
        let waiting =
            |member: &Member| member.role() == Role::Replica && self.awaited(member.key, wanted, now);
        (unflushed && self.members.iter().any(waiting)).then_some(primary.key)
    }

    pub(crate) fn publish(&self) -> Published {
        let nodes = self.members.iter().enumerate().map(|(index, member)| member.view(index)).collect();
        let view =
            View { nodes, primary: self.primary_id(), fence: self.fences.as_ref().and_then(|f| f.newest()) };
        Published {
            view: Arc::new(view),
            fences: self.fences.clone(),
            observed: self.members.iter().map(Member::observed).collect(),
            why: self.members.iter().map(|member| member.why.clone()).collect(),
            epoch: self.epoch,
            settled: self.settled,
        }
    }

    fn member(&mut self, key: Key) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.key == key)
    }

    fn primary(&self) -> Option<&Member> {
        match self.outcome {
            Outcome::Elected(index) => self.members.get(index),
            _ => None,
        }
    }

    fn primary_id(&self) -> Option<NodeId> {
        match self.outcome {
            Outcome::Elected(index) => Some(node_id(index)),
            _ => None,
        }
    }

    fn assess(&mut self, now: Instant) {
        self.elect(now);
        self.judge(now);
    }

    fn elect(&mut self, now: Instant) {
        // A stale primary may be the first to answer: nobody is chosen before all were asked.
        self.settled = self.settled || self.members.iter().all(|member| member.link != Link::Untried);
        if !self.settled {
            return;
        }
        let ballots: Vec<_> = self.members.iter().map(Member::ballot).collect();
        self.outcome = elect(&mut self.epoch, &ballots);
        let Some(key) = self.primary().map(|primary| primary.key) else {
            self.vacant_since = self.vacant_since.or(Some(now));
            return;
        };
        self.vacant_since = None;
        let lineage = self.epoch.map(|epoch| (key, epoch));
        if self.ring_of != lineage {
            self.ring_of = lineage;
            self.ring.clear();
            self.fences = None;
        }
        self.sample();
    }

    /// Takes the primary's last answer; one that was taken before changes nothing.
    fn sample(&mut self) {
        let seen = self.primary().filter(|primary| primary.link == Link::Up).and_then(|primary| primary.seen);
        let Some(Sighting { requested: sent, position: Position::Inserted { end: lsn, .. }, .. }) = seen
        else {
            return;
        };
        if self.ring.newest().is_some_and(|newest| newest.sent >= sent) {
            return;
        }
        let sample = Sample { sent, lsn };
        self.ring.push(sample, self.max_lag.saturating_mul(2).max(Duration::from_mins(1)));
        self.fences = self.ring_of.map(|(_, epoch)| {
            let samples = self.ring.digest();
            Arc::new(Fences { system_id: epoch.system_id, timeline: epoch.timeline, samples })
        });
    }

    /// Gives every node its lag and its state.
    fn judge(&mut self, now: Instant) {
        let clock = self.vacant_since.unwrap_or(now);
        let ring_epoch = self.ring_of.map(|(_, epoch)| epoch);
        for (index, member) in self.members.iter_mut().enumerate() {
            match member.link {
                Link::Up => member.measure(&self.ring, ring_epoch, clock),
                Link::Lost => {}
                Link::Untried | Link::Down => (member.lag, member.lag_bytes) = (None, None),
            }
            let elected = self.outcome == Outcome::Elected(index);
            let (state, why) = match (member.link, member.ballot()) {
                (Link::Down, _) => (NodeState::Down, member.why.take()),
                (Link::Up | Link::Lost, Some(ballot)) if self.settled => {
                    let (state, why) = member.judged(ballot, self.epoch, elected, self.max_lag);
                    (state, (!why.is_empty()).then_some(Cow::Borrowed(why)))
                }
                _ => (NodeState::Unknown, None),
            };
            (member.state, member.why) = (state, why);
        }
    }
}

// === impl Member ===

impl Member {
    fn new(key: Key) -> Self {
        Self {
            key,
            name: Arc::from(""),
            weight: 0,
            link: Link::Untried,
            seen: None,
            as_of: None,
            lag: None,
            lag_bytes: None,
            state: NodeState::Unknown,
            why: None,
        }
    }

    fn role(&self) -> Role {
        match self.seen.map(|seen| seen.position) {
            None => Role::Unknown,
            Some(Position::Inserted { .. }) => Role::Primary,
            Some(Position::Replayed(_)) => Role::Replica,
        }
    }

    fn ballot(&self) -> Option<Ballot> {
        let seen = self.seen.filter(|_| matches!(self.link, Link::Up | Link::Lost))?;
        let writable = matches!(seen.position, Position::Inserted { .. });
        Some(Ballot { system_id: seen.system_id, timeline: seen.timeline, writable })
    }

    fn observation(&self) -> Option<Observation> {
        match self.seen.filter(|_| self.link == Link::Up)? {
            Sighting { system_id, timeline, position: Position::Replayed(lsn), .. } => {
                Some(Observation { system_id, timeline, lsn })
            }
            _ => None,
        }
    }

    fn observed(&self) -> Option<Observed> {
        let (observation, seen) = self.observation().zip(self.seen)?;
        Some(Observed { observation, requested: seen.requested, started: seen.started, as_of: self.as_of })
    }

    /// Compares a replica with the primary's samples. On another timeline the numbers say nothing, and what was
    /// shown before ages.
    fn measure(&mut self, ring: &Ring, ring_epoch: Option<Epoch>, clock: Instant) {
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

    fn judged(
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

    fn view(&self, index: usize) -> NodeView {
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

// === impl Fences ===

impl Fences {
    /// The lowest known fence whose probe was sent at or after `since`.
    pub(crate) fn since(&self, since: Instant) -> Option<Fence> {
        self.samples
            .get(self.samples.partition_point(|sample| sample.sent < since))
            .map(|s| self.fence(s.lsn))
    }

    fn newest(&self) -> Option<Fence> {
        self.samples.last().map(|sample| self.fence(sample.lsn))
    }

    fn fence(&self, lsn: Lsn) -> Fence {
        Fence { system_id: self.system_id, timeline: self.timeline, lsn }
    }
}

/// Nodes beyond the ids are cut off when a configuration is taken.
fn node_id(index: usize) -> NodeId {
    NodeId(u16::try_from(index).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;

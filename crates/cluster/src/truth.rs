//! What the monitors' reports add up to: a state machine without input, output or clocks.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Levels, Lineage, Lsn, NodeId, NodeState, Observation, Switch, View};
use tokio::time::Instant;

use crate::election::{Epoch, Line, Outcome, Writer, elect};
use crate::faults::{Fault, Faults};
use crate::fences::Fences;
use crate::instance::Instance;
use crate::published::{Published, Standing};
use crate::ring::{Ring, Sample};
use crate::source::FenceSource;
use crate::totals::Totals;
pub(crate) use ancestry::{Account, Origin};
use former::Formers;
pub(crate) use former::{Past, Reign};
use member::{Link, Member};

/// Names a monitor for as long as the process runs; a node keeps it while its address and login stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

/// The answer to one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// When the probe was about to be sent.
    pub(crate) requested: Instant,
    pub(crate) instance: Instance,
    pub(crate) timeline: u32,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Not in recovery; where the last inserted record ends, and what was flushed a moment later.
    Inserted { end: Lsn, flushed: Lsn },
    /// In recovery; replayed at least that far on the sighting's timeline.
    Replayed(Lsn),
}

/// What is known of a replica's content, and which connections may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The proven position.
    pub observation: Observation,
    /// When the probe was about to be sent. The observation holds for a connection that was logged in by this
    /// moment and still answers: a crash restart moves the position back, but ends every connection.
    pub requested: Instant,
    /// Which server behind the node's name was asked; of another one this says nothing.
    pub instance: Instance,
    /// Since when that server, and no other, has answered.
    pub since: Instant,
    /// The replica shows everything acknowledged before this moment.
    pub as_of: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Truth {
    members: Vec<Member>,
    epoch: Option<Epoch>,
    outcome: Outcome,
    /// Of the last elected primary; kept without one, so that lag stays measurable against it.
    ring: Ring,
    ring_of: Option<(Key, Line)>,
    reign: Option<Reign>,
    era: u64,
    formers: Formers,
    past: Arc<Past>,
    lineage: Option<Arc<Lineage>>,
    /// The ancestors of recent timelines, the latest last.
    ancestry: Vec<(Line, Arc<[Switch]>)>,
    /// Where other fences than the ring's are collected, if those are in force.
    other_fences: Option<Ring>,
    fences: Option<Arc<Fences>>,
    terms: Terms,
    /// The fences in force, and why they are not the configured ones.
    source: (FenceSource, Option<Arc<str>>),
    /// What was seen of asynchronous commit on which primary.
    audit: Option<(Instance, Option<Arc<str>>)>,
    /// Since when there is no primary: lag does not grow then, for there is nothing to lag behind.
    vacant_since: Option<Instant>,
    settled: bool,
    faults: Faults,
    /// Regressions, changes of the epoch and refusals.
    pub(crate) tallies: Totals,
}

/// A node of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) key: Key,
    pub(crate) node: Writer,
    pub(crate) weight: u32,
    pub(crate) levels: Levels,
}

/// What a configuration decides here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) max_lag: Duration,
    pub(crate) source: FenceSource,
}

// === impl Truth ===

impl Truth {
    pub(crate) fn new(terms: Terms, faults: Faults) -> Self {
        Self {
            members: Vec::new(),
            epoch: None,
            outcome: Outcome::Vacant,
            ring: Ring::default(),
            ring_of: None,
            reign: None,
            era: 0,
            formers: Formers::default(),
            past: Arc::default(),
            lineage: None,
            ancestry: Vec::new(),
            other_fences: None,
            fences: None,
            terms,
            source: (FenceSource::Insert, None),
            audit: None,
            vacant_since: None,
            settled: false,
            faults,
            tallies: Totals::default(),
        }
    }

    /// Replaces the nodes; those with a known key keep what is known of them.
    pub(crate) fn configure(&mut self, seats: &[Seat], terms: Terms, now: Instant) {
        let mut former = std::mem::take(&mut self.members);
        let renewed = seats.iter().map(|Seat { key, node, weight, levels }| {
            let known =
                former.iter().position(|member| member.key == *key).map(|index| former.swap_remove(index));
            let member = known.unwrap_or_else(|| Member::new(*key));
            Member { node: node.clone(), weight: *weight, levels: *levels, ..member }
        });
        self.members = renewed.collect();
        self.terms = terms;
        self.assess(now);
    }

    /// Takes a lineage that an earlier process had accepted; a newer timeline already seen stands.
    pub(crate) fn remember(&mut self, epoch: Epoch) {
        if self
            .epoch
            .as_ref()
            .is_none_or(|known| known.system_id != epoch.system_id || known.timeline <= epoch.timeline)
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
        let sighting = self.faults.seen(sighting, self.epoch.as_ref(), now);
        let Some(member) = self.member(key) else { return };
        member.link = Link::Up;
        let same = member.seen.is_some_and(|seen| seen.instance == sighting.instance);
        member.since = member.since.filter(|_| same).or(Some(sighting.requested));
        member.seen = Some(sighting);
        if member.regressed(&sighting) {
            self.tallies.lsn_regressions += 1;
        }
        self.assess(now);
        self.sample_former(key, sighting);
    }

    /// The primary has answered the same as before. False if it has not: what follows from that is not known yet.
    pub(crate) fn sighted_again(&mut self, key: Key, sighting: Sighting, now: Instant) -> bool {
        let sighting = self.faults.seen(sighting, self.epoch.as_ref(), now);
        let elected = self.primary().is_some_and(|primary| primary.key == key && primary.link == Link::Up);
        let Some(seen) = self.primary().and_then(|primary| primary.seen).filter(|_| elected) else {
            return false;
        };
        if self.formers.latest() == Some(key) || (Sighting { requested: seen.requested, ..sighting }) != seen
        {
            return false;
        }
        if let Some(primary) = self.member(key) {
            primary.seen = Some(sighting);
        }
        self.sample();
        true
    }

    /// A commit on the primary, begun at `sent`, ended at `lsn`. It is a fence if that is still the primary.
    pub(crate) fn committed(&mut self, instance: Instance, sample: Sample) {
        if self.source.0 == FenceSource::Commit && self.primary_instance() == Some(instance) {
            if let Some(ring) = &mut self.other_fences {
                ring.push(sample, self.terms.kept());
            }
            self.give_fences();
        }
    }

    /// What was seen of asynchronous commit on that primary: `None` is nothing.
    pub(crate) fn audited(&mut self, instance: Instance, found: Option<Arc<str>>) {
        self.audit = Some((instance, found));
        self.choose_source();
    }

    /// The monitor's connection broke: a crash restart may follow, which moves the replay position back.
    ///
    /// Fences stay: what was acknowledged before one and survived the crash still ends at or before it.
    pub(crate) fn lost(&mut self, key: Key, now: Instant) {
        if self.faults.has(Fault::PositionsKept) {
            return;
        }
        let Some(member) = self.member(key) else { return };
        member.link = Link::Lost;
        member.as_of = None;
        self.assess(now);
    }

    /// The node cannot be reached, or did not answer in time.
    pub(crate) fn down(&mut self, key: Key, why: String, now: Instant) {
        if self.faults.has(Fault::PositionsKept) {
            return;
        }
        let Some(member) = self.member(key) else { return };
        member.link = Link::Down;
        member.as_of = None;
        member.why = Some(why.into());
        self.assess(now);
    }

    pub(crate) fn publish(&self) -> Published {
        let nodes = self.members.iter().enumerate().map(|(index, member)| member.view(index)).collect();
        let view = View {
            nodes,
            primary: self.primary_id(),
            fence: self.fences.as_ref().and_then(|f| f.newest()),
            lineage: self.lineage.clone(),
            complaint: self.complaint(),
        };
        let standing = Standing {
            view: Arc::new(view),
            keys: self.members.iter().map(|member| member.key).collect(),
            source: self.source.0,
            source_why: self.source.1.clone(),
            primary: self.primary().map(|primary| primary.key).zip(self.primary_instance()),
            reign: self.reign.filter(|_| self.primary().is_some()),
            era: self.era,
            past: self.past.clone(),
            sampled: self.ring_of.map(|(key, _)| key),
            unflushed: self.unflushed(),
            observed: self.members.iter().map(Member::observed).collect(),
            why: self.members.iter().map(|member| member.why.clone()).collect(),
            epoch: self.epoch.clone(),
            settled: self.settled,
        };
        Published { standing: Arc::new(standing), fences: self.fences() }
    }

    pub(crate) fn fences(&self) -> Option<Arc<Fences>> {
        self.fences.clone()
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

    /// Of an elected primary whose connection lives.
    fn primary_instance(&self) -> Option<Instance> {
        let primary = self.primary().filter(|primary| primary.link == Link::Up)?;
        primary.seen.map(|seen| seen.instance)
    }

    /// No standby is sent what was not flushed, and a quiet primary takes seconds to do so.
    fn unflushed(&self) -> Option<Lsn> {
        let primary = self.primary().filter(|primary| primary.link == Link::Up)?;
        match primary.seen?.position {
            Position::Inserted { end, flushed } => Some(flushed).filter(|flushed| *flushed < end),
            Position::Replayed(_) => None,
        }
    }

    fn assess(&mut self, now: Instant) {
        self.elect(now);
        self.judge(now);
    }

    fn elect(&mut self, now: Instant) {
        let ballots: Vec<_> = self.members.iter().map(Member::ballot).collect();
        // A stale primary may be the first to answer: nobody is chosen before all were asked.
        let asked = |member: &Member| member.link != Link::Untried;
        let told = ballots.iter().flatten().all(|ballot| !ballot.writable || ballot.ancestors.is_some());
        self.settled = self.settled || told && self.members.iter().all(asked);
        if !self.members.iter().all(asked) && !self.settled {
            return;
        }
        let former = self.epoch.as_ref().map(Epoch::line);
        self.outcome = elect(&mut self.epoch, &ballots);
        if former.is_some() && self.epoch.as_ref().map(Epoch::line) != former {
            self.tallies.epoch_changes += 1;
        }
        self.trace();
        self.crown();
        if self.primary().is_none() {
            self.vacant_since = self.vacant_since.or(Some(now));
            return;
        }
        self.vacant_since = None;
        let lineage = self.reign.map(|reign| (reign.key, reign.line));
        if self.ring_of != lineage {
            if let Some(ended) = self.ring_of {
                // The present era has begun with the present primary.
                self.formers.push(ended, self.era.saturating_sub(1), std::mem::take(&mut self.ring));
            }
            self.ring_of = lineage;
            self.ring.clear();
            self.other_fences = self.other_fences.take().map(|_| Ring::default());
            self.fences = None;
            self.past = self.formers.past(lineage.map(|(_, line)| line));
        }
        self.choose_source();
        self.sample();
    }

    /// A reign ends when another server is elected, and as soon as its server is known to be no primary any more; not
    /// when that only cannot be reached.
    fn crown(&mut self) {
        let elected = self.primary().and_then(|primary| {
            let seen = primary.seen?;
            Some(Reign { key: primary.key, instance: seen.instance, line: seen.line() })
        });
        let Some(former) = self.reign else {
            if elected.is_some() {
                self.reign = elected;
                self.era += 1;
            }
            return;
        };
        let refuted = elected.is_none() && {
            let outdated = self.epoch.as_ref().map(Epoch::line) != Some(former.line);
            let member = self.members.iter().find(|member| member.key == former.key);
            outdated || member.is_none_or(|member| member.ballot().is_some())
        };
        if refuted || elected.is_some_and(|reign| reign != former) {
            self.reign = elected;
            self.era += 1;
        }
    }

    /// Fences of one source say nothing about those of another.
    fn choose_source(&mut self) {
        let primary = self.primary().and_then(|primary| primary.seen).map(|seen| seen.instance);
        let audited = self.audit.as_ref().filter(|(instance, _)| Some(*instance) == primary);
        let chosen = match (self.terms.source, audited) {
            (FenceSource::Auto | FenceSource::Insert, _) => (FenceSource::Insert, None),
            (FenceSource::Commit, _) => (FenceSource::Commit, None),
            (FenceSource::Flush, Some((_, None))) => (FenceSource::Flush, None),
            (FenceSource::Flush, Some((_, Some(found)))) => (FenceSource::Insert, Some(found.clone())),
            (FenceSource::Flush, None) => {
                (FenceSource::Insert, Some("whether commits are asynchronous was not looked at yet".into()))
            }
        };
        if chosen.0 != self.source.0 {
            self.other_fences = (chosen.0 != FenceSource::Insert).then(Ring::default);
            self.give_fences();
        }
        self.source = chosen;
    }

    fn give_fences(&mut self) {
        let samples = self.other_fences.as_ref().unwrap_or(&self.ring).digest();
        self.fences = self.ring_of.and_then(|(_, line)| Fences::new(line, samples));
    }

    /// Takes the primary's last answer; one that was taken before changes nothing.
    fn sample(&mut self) {
        let seen = self.primary().filter(|primary| primary.link == Link::Up).and_then(|primary| primary.seen);
        let Some(Sighting { requested: sent, position: Position::Inserted { end, flushed }, .. }) = seen
        else {
            return;
        };
        if self.ring.newest().is_some_and(|newest| newest.sent >= sent) {
            return;
        }
        let keep = self.terms.kept();
        self.ring.push(Sample { sent, lsn: end }, keep);
        if let Some(ring) = self.other_fences.as_mut().filter(|_| self.source.0 == FenceSource::Flush) {
            ring.push(Sample { sent, lsn: flushed.min(end) }, keep);
        }
        self.give_fences();
    }

    /// What a server that was the primary goes on to show.
    fn sample_former(&mut self, key: Key, seen: Sighting) {
        if let Position::Inserted { end, .. } = seen.position
            && self.formers.latest() == Some(key)
        {
            let sample = Sample { sent: seen.requested, lsn: end };
            self.formers.sample(key, seen.line(), sample, self.terms.kept());
            self.past = self.formers.past(self.ring_of.map(|(_, line)| line));
        }
    }

    /// Gives every node its lag and its state.
    fn judge(&mut self, now: Instant) {
        let clock = self.vacant_since.unwrap_or(now);
        let ring_line = self.ring_of.map(|(_, line)| line);
        for (index, member) in self.members.iter_mut().enumerate() {
            match member.link {
                Link::Up => member.measure(&self.ring, ring_line, clock),
                Link::Lost => {}
                Link::Untried | Link::Down => (member.lag, member.lag_bytes) = (None, None),
            }
            let elected = self.outcome == Outcome::Elected(index);
            let (state, why) = match (member.link, member.ballot()) {
                (Link::Down, _) => (NodeState::Down, member.why.take()),
                (Link::Up | Link::Lost, Some(ballot)) if self.settled => {
                    let line = self.epoch.as_ref().map(Epoch::line);
                    let (state, why) = member.judged(&ballot, line, elected, self.terms.max_lag);
                    let refused = ballot.writable && state == NodeState::Refused;
                    if refused && member.state != NodeState::Refused {
                        self.tallies.stale_primaries_refused += 1;
                    }
                    (state, (!why.is_empty()).then_some(Cow::Borrowed(why)))
                }
                _ => (NodeState::Unknown, None),
            };
            (member.state, member.why) = (state, why);
        }
    }
}

// === impl Sighting ===

impl Sighting {
    pub(crate) fn line(&self) -> Line {
        Line { system_id: self.instance.system_id, timeline: self.timeline }
    }
}

// === impl Terms ===

impl Terms {
    /// For how long samples are kept.
    fn kept(self) -> Duration {
        self.max_lag.saturating_mul(2).max(Duration::from_mins(1))
    }
}

/// Nodes beyond the ids are cut off when a configuration is taken.
fn node_id(index: usize) -> NodeId {
    NodeId(u16::try_from(index).unwrap_or(u16::MAX))
}

mod ancestry;
mod complaint;
mod former;
mod member;
#[cfg(test)]
mod tests;

//! When which node is asked: at the idle interval, and at once for those who wait.

use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use causeway_routing::{Fence, NodeId, Role};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::{Config, NodeConfig};
use crate::crowd::Crowd;
use crate::instance::Instance;
use crate::published::Published;
use crate::source::FenceSource;
use crate::state::State;
use crate::totals::{Meter, ProbeKind};
use crate::truth::Key;
use crate::waiting::{Need, Reader, Want, is_behind};

/// What a monitor has asked so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When the last question left.
    pub(crate) last: Option<Instant>,
    /// How many wait for their answers.
    pub(crate) in_flight: usize,
    /// Since when a replica that was asked for its progress has made none.
    pub(crate) still: Option<Instant>,
    /// Who waits for the primary's.
    pub(crate) crowd: Crowd,
}

/// When to ask next, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) at: Instant,
    pub(crate) kind: ProbeKind,
}

/// A primary that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) node: NodeConfig,
    pub(crate) instance: Instance,
}

/// A replica that stands still is polled more and more rarely: after this part of the time it has.
const STILLNESS: u32 = 16;
/// The least time from a question of the primary's to the one that finds out where the writes since then end. It costs a
/// primary that is written to without a pause a thousandth of a processor; a write acknowledged later than this before
/// the primary is gone cannot be told from a lost one.
const TRAIL: Duration = Duration::from_millis(10);
/// The most fence probes that may be in flight.
const PIPELINE: usize = 4;

// === impl State ===

impl State {
    /// Asks for a fence, and that those behind it are polled for a while.
    pub(crate) fn need_fence(&self) {
        let now = self.nanos(Instant::now());
        self.loose.fetch_max(now, Ordering::SeqCst);
        self.want_fence(now, true);
    }

    pub(crate) fn fence(&self, since: Instant) -> oneshot::Receiver<Fence> {
        let (reply, answer) = oneshot::channel();
        let urgent = {
            let mut waiting = self.waiting();
            // Under the lock: a publication that this look misses finds the waiter.
            if let Some(fence) = self.published().fences.as_ref().and_then(|fences| fences.since(since)) {
                Meter::count(&self.meter.fences_wanted);
                // The receiver is right here.
                let _gone = reply.send(fence);
                return answer;
            }
            !self.stopped.load(Ordering::SeqCst) && waiting.add_fence(since, Reader::Told(reply))
        };
        self.want_fence(self.nanos(since.min(Instant::now())), urgent);
        answer
    }

    /// False if the fence is known already.
    pub(crate) fn wake_at_fence(&self, since: Instant, waker: &Waker) -> bool {
        let urgent = {
            let mut waiting = self.waiting();
            // As above.
            if self.published().fences.as_ref().is_some_and(|fences| fences.since(since).is_some()) {
                Meter::count(&self.meter.fences_wanted);
                return false;
            }
            !self.stopped.load(Ordering::SeqCst) && waiting.add_fence(since, Reader::Woken(waker.clone()))
        };
        self.want_fence(self.nanos(since.min(Instant::now())), urgent);
        true
    }

    pub(crate) fn position(&self, need: Need) -> oneshot::Receiver<()> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let published = self.published();
        if self.stopped.load(Ordering::SeqCst) {
            return answer;
        }
        {
            let mut waiting = self.waiting();
            // Under the lock: a publication that this look misses finds the place.
            waiting.add_position(need, &self.published(), reply);
        }
        self.ring_replicas(&published, now);
        if beyond_flush(&published, &need.fence) {
            self.nudge.notify_one();
        }
        answer
    }

    /// When this monitor has to ask next; `None` while it only has to wait for answers.
    pub(crate) fn turn(&self, key: Key, pace: &Pace) -> Option<Turn> {
        let Some(last) = pace.last else {
            return Some(Turn { at: Instant::now(), kind: ProbeKind::Idle });
        };
        let (config, published) = (self.config(), self.published());
        let turn = |kind, after: Duration| Some(Turn { at: last + after, kind });
        if self.takes_more(key, pace) {
            let wanted = self.wanted().is_some_and(|wanted| wanted > last)
                || pace.in_flight == 0 && self.waiting().wants_fences();
            if wanted {
                let soonest = last + config.min_interval.min(config.interval);
                let at = self.gathered_at(pace, config.gather).map_or(soonest, |at| at.max(soonest));
                return Some(Turn { at, kind: ProbeKind::Fence });
            }
        }
        if pace.in_flight > 0 {
            return None;
        }
        if self.trails(key) {
            return turn(ProbeKind::Trail, TRAIL.min(config.interval));
        }
        if published.view.primary.is_none() && self.is_sought(&config) {
            return turn(ProbeKind::Idle, config.search_interval.min(config.interval));
        }
        let index = published.keys.iter().position(|known| *known == key);
        let want = index.map_or(Want::Nothing, |index| self.wants(&published, index, Instant::now()));
        let poll = config.poll_interval.min(config.interval);
        match want {
            Want::Nothing => turn(ProbeKind::Idle, config.interval),
            Want::Answer => turn(ProbeKind::Position, poll),
            Want::Progress => {
                let stood = pace.still.map_or(Duration::ZERO, |still| last.saturating_duration_since(still));
                turn(ProbeKind::Position, (stood / STILLNESS).clamp(poll, config.interval))
            }
        }
    }

    /// When enough will have come for one probe; `None` if they have.
    fn gathered_at(&self, pace: &Pace, limit: Duration) -> Option<Instant> {
        let enough = if pace.in_flight == 0 { pace.crowd.enough() } else { 0 };
        let (readers, first) = self.waiting().gather(enough)?;
        (readers < enough).then(|| first + pace.crowd.patience(limit))
    }

    /// Whether this monitor may ask for a fence before what it has asked was answered.
    pub(crate) fn takes_more(&self, key: Key, pace: &Pace) -> bool {
        let published = self.published();
        let elected = published.primary.is_some_and(|(primary, _)| primary == key);
        let probed = published.source != FenceSource::Commit;
        elected && probed && pace.in_flight < self.config().pipeline.clamp(1, PIPELINE)
    }

    /// When the next commit fence is to be begun on which primary; `None` until the committer's bell is rung.
    pub(crate) fn commit_turn(&self, last: Option<Instant>) -> Option<(Instant, Primary)> {
        let source = self.published().source;
        let wanted = self.wanted().is_some_and(|wanted| last.is_none_or(|last| wanted > last));
        if source != FenceSource::Commit || !(wanted || self.waiting().wants_fences()) {
            return None;
        }
        let at = last.map_or_else(Instant::now, |last| last + self.config().min_interval);
        self.primary().map(|primary| (at, primary))
    }

    /// The primary and a fence that somebody waits for, if that is beyond what it has flushed.
    pub(crate) fn stuck(&self) -> Option<(Primary, Fence)> {
        let (now, published) = (Instant::now(), self.published());
        let loose = self
            .loose_fence(&published, now)
            .filter(|fence| (0..published.keys.len()).any(|index| is_behind(&published, index, fence)));
        let all = self.waiting().uncovered(now).chain(loose).max_by_key(|fence| fence.lsn)?;
        if beyond_flush(&published, &all) { self.primary().map(|primary| (primary, all)) } else { None }
    }

    /// The elected primary, if its monitor is connected.
    pub(crate) fn primary(&self) -> Option<Primary> {
        let (key, instance) = self.published().primary?;
        self.node(key).map(|node| Primary { node, instance })
    }

    pub(crate) fn node_failed(&self, node: NodeId) {
        if let Some((_, bell)) = self.monitors.load().get(usize::from(node.0)) {
            bell.urgent();
        }
    }

    /// Wakes the monitors of the replicas that are waited for.
    pub(crate) fn ring_replicas(&self, published: &Published, now: Instant) {
        for (key, bell) in self.monitors.load().iter().filter(|(_, bell)| bell.is_armed()) {
            let index = published.keys.iter().position(|known| known == key);
            if index.is_some_and(|index| self.wants(published, index, now) > Want::Nothing) {
                bell.wanted();
            }
        }
    }

    pub(crate) fn ring_all(&self) {
        for (_, bell) in self.monitors.load().iter() {
            bell.wanted();
        }
        self.committer.wanted();
        self.auditor.wanted();
    }

    fn want_fence(&self, moment: u64, urgent: bool) {
        Meter::count(&self.meter.fences_wanted);
        self.wanted.fetch_max(moment, Ordering::SeqCst);
        if !urgent {
            return;
        }
        let published = self.published();
        match published.primary {
            Some(_) if published.source == FenceSource::Commit => self.committer.wanted(),
            Some((primary, _)) => {
                if let Some((_, bell)) = self.monitors.load().iter().find(|(key, _)| *key == primary) {
                    bell.wanted();
                }
            }
            None => self.ring_all(),
        }
    }

    fn wants(&self, published: &Published, index: usize, now: Instant) -> Want {
        if published.view.nodes.get(index).is_none_or(|node| node.role != Role::Replica) {
            return Want::Nothing;
        }
        let loose = self.loose_fence(published, now);
        if loose.is_some_and(|fence| is_behind(published, index, &fence)) {
            return Want::Progress.max(self.waiting().wants(published, index, now));
        }
        self.waiting().wants(published, index, now)
    }

    /// Somebody waits for a fence that only another primary can give.
    fn is_sought(&self, config: &Config) -> bool {
        let lately = |wanted: Instant| wanted.elapsed() < config.patience;
        self.wanted().is_some_and(lately) || self.waiting().wants_fences()
    }

    /// The fence of those who call [`State::need_fence`] and do not say for how long.
    fn loose_fence(&self, published: &Published, now: Instant) -> Option<Fence> {
        let since = self.moment(self.loose.load(Ordering::SeqCst))?;
        let patient = now.saturating_duration_since(since) < self.config().patience;
        if !patient {
            return None;
        }
        published.fences.as_ref()?.since(since)
    }

    /// When a fence was wanted last.
    fn wanted(&self) -> Option<Instant> {
        self.moment(self.wanted.load(Ordering::SeqCst))
    }

    fn nanos(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    fn moment(&self, nanos: u64) -> Option<Instant> {
        (nanos > 0).then(|| self.base + Duration::from_nanos(nanos))
    }
}

/// No replica will cover `fence` before the primary flushes. A flush position itself may be in the middle of a
/// record, as long as there is more to flush.
fn beyond_flush(published: &Published, fence: &Fence) -> bool {
    published.unflushed.is_some_and(|flushed| match published.source {
        FenceSource::Commit => false,
        FenceSource::Flush => flushed <= fence.lsn,
        FenceSource::Auto | FenceSource::Insert => flushed < fence.lsn,
    })
}

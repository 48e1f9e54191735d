//! Who waits for what.

use std::sync::Arc;
use std::task::Waker;

use causeway_routing::{Fence, NodeId, NodeView, Role};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::published::Published;
use crate::truth::Key;

/// A position that a replica has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it must show.
    pub fence: Fence,
    /// The replica, in whatever state it is; `None`: any that serves reads.
    pub node: Option<NodeId>,
    /// Only an observation that was requested at this moment or later counts: the one that a connection opened
    /// before it may rely on.
    pub since: Option<Instant>,
    /// How long somebody waits.
    pub until: Instant,
}

/// Everybody who waits. There are no more of them than there are sessions, and each is woken once.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    fences: Vec<(Instant, Reader)>,
    /// A probe is put off until so many wait for it, or for a time.
    enough: usize,
    positions: Vec<Place>,
}

/// Somebody who waits for a fence.
#[derive(Debug)]
pub(crate) enum Reader {
    /// Is sent it.
    Told(oneshot::Sender<Fence>),
    /// Looks for it when woken.
    Woken(Waker),
}

#[derive(Debug)]
struct Place {
    need: Need,
    /// The monitor of `need.node`: ids change with the configuration.
    key: Option<Key>,
    reply: oneshot::Sender<()>,
}

/// What is wanted of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    Nothing,
    /// Its position is behind.
    Progress,
    /// Its position is not known lately enough.
    Answer,
}

// === impl Waiting ===

impl Waiting {
    /// Whether the monitor has to know at once.
    pub(crate) fn add_fence(&mut self, since: Instant, reader: Reader) -> bool {
        self.fences.push((since, reader));
        self.fences.len() == 1 || self.fences.len() >= self.enough
    }

    /// How many wait for a probe, and the moment that the first of them asks for. Whoever comes while `enough` do not is
    /// told that the monitor need not know.
    pub(crate) fn gather(&mut self, enough: usize) -> Option<(usize, Instant)> {
        self.enough = enough;
        let first = self.fences.iter().map(|(since, _)| *since).min()?;
        Some((self.fences.len(), first))
    }

    /// How many wait for a probe.
    pub(crate) fn gathered(&self) -> usize {
        self.fences.len()
    }

    /// Answers at once if the need is met already.
    pub(crate) fn add_position(&mut self, need: Need, published: &Published, reply: oneshot::Sender<()>) {
        let key = need.node.map(|node| published.keys.get(usize::from(node.0)).copied());
        if key == Some(None) {
            // There is no such node. Without a reply the receiver ends.
            return;
        }
        let place = Place { need, key: key.flatten(), reply };
        if place.met(published) {
            // The receiver is about to be returned.
            let _gone = place.reply.send(());
        } else {
            self.positions.push(place);
        }
    }

    pub(crate) fn wants_fences(&self) -> bool {
        !self.fences.is_empty()
    }

    /// Wakes those whose time has come and forgets those who have gone. The answer is how many fences were given.
    pub(crate) fn settle(&mut self, published: &Published, fences_changed: bool, now: Instant) -> usize {
        let mut given = 0;
        if fences_changed {
            let mut waiting = std::mem::take(&mut self.fences);
            for (since, reader) in waiting.drain(..) {
                match published.fences.as_ref().and_then(|fences| fences.since(since)) {
                    Some(fence) => given += usize::from(reader.give(fence)),
                    None if reader.is_gone() => {}
                    None => self.fences.push((since, reader)),
                }
            }
            if self.fences.is_empty() {
                // The same storage for the next.
                self.fences = waiting;
            }
        }
        if !self.positions.is_empty() {
            self.settle_positions(published, now);
        }
        given
    }

    /// What is wanted of the node at this index.
    pub(crate) fn wants(&self, published: &Published, index: usize, now: Instant) -> Want {
        let alive =
            self.positions.iter().filter(|place| place.alive(now) && place.concerns(published, index));
        alive.map(|place| place.want(published, index)).max().unwrap_or(Want::Nothing)
    }

    /// The fences that replicas are waited for to cover.
    pub(crate) fn uncovered(&self, now: Instant) -> impl Iterator<Item = Fence> {
        self.positions.iter().filter(move |place| place.alive(now)).map(|place| place.need.fence)
    }

    /// Everybody finds that there is nothing more to wait for; who is woken finds nothing new, and waits for its time to pass.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn settle_positions(&mut self, published: &Published, now: Instant) {
        for place in std::mem::take(&mut self.positions) {
            if place.met(published) {
                // One who has gone in the meantime has no use for it.
                let _gone = place.reply.send(());
            } else if place.alive(now) {
                self.positions.push(place);
            }
        }
    }
}

// === impl Reader ===

impl Reader {
    /// Whether it was there to take it, as far as can be told.
    fn give(self, fence: Fence) -> bool {
        match self {
            // One who has gone in the meantime has no use for it.
            Self::Told(reply) => reply.send(fence).is_ok(),
            Self::Woken(waker) => {
                waker.wake();
                true
            }
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Told(reply) if reply.is_closed())
    }
}

// === impl Place ===

impl Place {
    fn alive(&self, now: Instant) -> bool {
        now < self.need.until && !self.reply.is_closed()
    }

    fn met(&self, published: &Published) -> bool {
        let satisfies =
            |index| self.concerns(published, index) && self.want(published, index) == Want::Nothing;
        (0..published.keys.len()).any(satisfies)
    }

    fn concerns(&self, published: &Published, index: usize) -> bool {
        match self.key {
            Some(key) => published.keys.get(index) == Some(&key),
            None => published.view.nodes.get(index).is_some_and(NodeView::serves_reads),
        }
    }

    fn want(&self, published: &Published, index: usize) -> Want {
        let seen = published.observed.get(index).copied().flatten();
        match seen {
            Some(seen) if self.need.since.is_none_or(|since| since <= seen.requested) => {
                if seen.observation.covers(&self.need.fence) { Want::Nothing } else { Want::Progress }
            }
            _ => Want::Answer,
        }
    }
}

/// Whether the node at this index is a replica that may serve reads and does not show what `fence` covers.
pub(crate) fn is_behind(published: &Published, index: usize, fence: &Fence) -> bool {
    let node =
        published.view.nodes.get(index).filter(|node| node.serves_reads() && node.role == Role::Replica);
    node.is_some_and(|node| node.observation.is_none_or(|seen| !seen.covers(fence)))
}

/// The same fences, or as good as.
pub(crate) fn same_fences(former: &Published, fresh: &Published) -> bool {
    match (&former.fences, &fresh.fences) {
        (Some(former), Some(fresh)) => Arc::ptr_eq(former, fresh),
        (former, fresh) => former.is_none() && fresh.is_none(),
    }
}

//! What a session has written and seen, and what its next read must see for that.

use causeway_routing::router::Requirement;
use causeway_routing::{Bound, Fate, Fence, Level, Lineage, NodeId, Role, View};
use tokio::time::Instant;

use crate::control::ControlPlane;
use crate::faults::{Fault, Faults};

/// What a session's reads must see, as far as that is the session's own matter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// When something that was not proven to be a read was last acknowledged.
    last_write: Option<Instant>,
    /// The replica that answered a read last, and when.
    last_read: Option<(NodeId, Instant)>,
    /// When the primary answered a read last.
    last_primary_read: Option<Instant>,
    /// A fence found before, and the moment up to which it covers everything.
    pub(crate) fence: Option<(Instant, Fence)>,
    /// The token that the primary was found to cover, and when; it may have been another primary's.
    pub(crate) proven: Option<(Fence, Instant)>,
    /// The era of the primary that all of this was under.
    pub(crate) era: u64,
    pub(crate) faults: Faults,
}

/// What one read must see.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Must {
    /// Nothing in particular.
    Nothing,
    /// Everything acknowledged before a moment.
    Since(Instant),
    /// Everything that a token covers.
    Token(Fence),
}

/// What has become of what a session knows, after a change of primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// There is no primary, and nothing is known.
    Open,
    /// It is all there.
    Kept,
    /// All that the session has written is, and this fence covers it.
    Carried(Fence),
    /// It hangs on what this replica has shown up to a moment.
    Ask(NodeId, Instant),
    /// Some of it may be lost.
    Lost,
}

// === impl Memory ===

impl Memory {
    /// Nothing is known yet, under the primary of `era`.
    pub(crate) fn new(era: u64) -> Self {
        Self { era, ..Self::default() }
    }

    /// Something that was not proven to be a read has been acknowledged, or may have happened.
    pub(crate) fn wrote(&mut self, now: Instant) {
        self.last_write = Some(self.faults.dirty_since(now));
    }

    /// A unit that began at `started` has been answered. When a write was acknowledged is known better if the relay has
    /// seen it.
    pub(crate) fn answered(
        &mut self,
        (node, role): (NodeId, Role),
        wrote: bool,
        started: Instant,
        now: Instant,
    ) {
        if role == Role::Replica {
            self.last_read = Some((node, now));
        } else if !wrote && !self.faults.has(Fault::PrimaryForgotten) {
            self.last_primary_read = Some(now);
        }
        if wrote && self.last_write.is_none_or(|at| at < started) {
            self.last_write = Some(self.faults.dirty_since(now));
        }
    }

    /// When this replica answered the session's last read.
    pub(crate) fn last_read(&self) -> Option<Instant> {
        self.last_read.map(|(_, at)| at)
    }

    /// Under another configuration nodes have other ids: what was read must be seen, wherever that is.
    pub(crate) fn moved(&mut self) {
        if let Some((_, read)) = self.last_read.take() {
            self.last_primary_read = self.last_primary_read.max(Some(read));
        }
    }

    /// The replica that may go on answering at level `session`: what it has shown, it still shows.
    pub(crate) fn same_replica(&self, view: &View, excluded: &[NodeId]) -> Option<NodeId> {
        let (id, _) = self.last_read?;
        let node =
            view.node(id).filter(|node| node.serves_reads_at(Level::Session) && !excluded.contains(&id))?;
        let Some(elsewhere) = self.last_write.max(self.last_primary_read) else { return Some(id) };
        let (covered, fence) = self.fence?;
        let shown = node.observation.is_some_and(|seen| seen.covers(&fence));
        (covered >= elsewhere && shown).then_some(id)
    }

    pub(crate) fn must(&self, level: Level, now: Instant, control: &dyn ControlPlane) -> Must {
        match level {
            Level::Cluster => Must::Since(now),
            Level::Router => Must::Since(control.last_write()),
            Level::Session => {
                let read = self.last_read().filter(|_| !self.faults.has(Fault::Forgetful));
                let known = self.last_write.max(self.last_primary_read).max(read);
                known.map_or(Must::Nothing, Must::Since)
            }
            // Before the machine started there was nothing to see.
            Level::Bounded(age) => now.checked_sub(age).map_or(Must::Nothing, Must::Since),
            Level::Eventual | Level::Primary => Must::Nothing,
            Level::After(token) => Must::Token(token),
        }
    }

    /// A fence for that, if one is known.
    pub(crate) fn requirement(&mut self, must: Must, view: &View, control: &dyn ControlPlane) -> Requirement {
        let since = match must {
            Must::Nothing => return Requirement::None,
            Must::Token(token) => return Requirement::Fence(carried(token, view)),
            Must::Since(since) => since,
        };
        // One of an earlier timeline that was not carried over is covered by nobody.
        let timeline = view.fence.map(|fence| fence.timeline);
        let known = self.fence.filter(|(covered, fence)| {
            *covered >= since && timeline.is_none_or(|timeline| timeline == fence.timeline)
        });
        let fence = match known {
            Some((_, fence)) => Some(fence),
            None => control.fence_since(since).inspect(|fence| self.fence = Some((since, *fence))),
        };
        fence.map_or(Requirement::Unknown, Requirement::Fence)
    }

    /// What has become of it all under another primary.
    pub(crate) fn account(&self, level: Level, view: &View, control: &dyn ControlPlane) -> Account {
        let Some(lineage) = view.lineage.as_ref().filter(|_| view.primary.is_some()) else {
            return Account::Open;
        };
        let written = self.last_write.map(|moment| self.fate_on_primary(moment, lineage, control));
        if written == Some(Fate::Lost) {
            return Account::Lost;
        }
        // Where nobody counts on seeing again what was seen, only writes are accounted for.
        if matches!(level, Level::Session | Level::Router) {
            let seen = self.last_primary_read.filter(|seen| Some(*seen) > self.last_write);
            if seen.is_some_and(|seen| self.fate_on_primary(seen, lineage, control) == Fate::Lost) {
                return Account::Lost;
            }
            // All that a replica had shown when it was promoted is there.
            let read = self.last_read.filter(|(node, _)| view.primary != Some(*node));
            if let Some((node, at)) = read {
                match control.shown(node, at).map(|seen| lineage.fate(&seen)) {
                    None => return Account::Ask(node, at),
                    Some(Fate::Lost | Fate::Unknown) => return Account::Lost,
                    Some(Fate::Unchanged | Fate::Carried(_)) => {}
                }
            }
        }
        match written {
            Some(Fate::Carried(fence)) => Account::Carried(fence),
            _ => Account::Kept,
        }
    }

    /// Of what the former primary had by `moment`.
    fn fate_on_primary(&self, moment: Instant, lineage: &Lineage, control: &dyn ControlPlane) -> Fate {
        let known = self.fence.filter(|(covered, _)| *covered >= moment).map(|(_, fence)| fence);
        match (control.bound(self.era, moment), known) {
            // Both are beyond it; the lower one is nearer.
            (Bound::At(read), Some(known)) if known.lsn < read.lsn => lineage.fate(&known),
            (Bound::Unknown, Some(known)) => lineage.fate(&known),
            (bound, _) => lineage.fate_of(bound),
        }
    }

    /// All that the session has written is covered by `fence`, on the newest timeline.
    pub(crate) fn carry(&mut self, fence: Fence) {
        self.fence = self.last_write.map(|moment| (moment, fence));
    }

    /// What was known is not to be counted on any more.
    pub(crate) fn forget(&mut self) {
        *self = Self { faults: self.faults, ..Self::default() };
    }
}

/// The token as it reads on the newest timeline, if what it covers is part of that.
pub(crate) fn carried(token: Fence, view: &View) -> Fence {
    match view.lineage.as_ref().map(|lineage| lineage.fate(&token)) {
        Some(Fate::Carried(carried)) => carried,
        _ => token,
    }
}

#[cfg(test)]
mod tests;

//! What is known of where timelines come from.

use std::sync::Arc;

use causeway_routing::{Lsn, Switch};
use tokio::time::Instant;

use super::{Key, Truth};
use crate::election::Line;
use crate::instance::Instance;

/// What a primary has told of where its timeline comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) instance: Instance,
    pub(crate) timeline: u32,
    pub(crate) account: Account,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Every ancestor of the timeline.
    History(Arc<[Switch]>),
    /// It was promoted when it had replayed so far.
    Promoted(Lsn),
    /// It cannot tell.
    None,
}

/// How many timelines' ancestors are remembered.
const ANCESTRIES: usize = 8;

// === impl Truth ===

impl Truth {
    /// What a primary could tell of where its timeline comes from; nothing, if that cannot be learnt.
    pub(crate) fn learnt(&mut self, key: Key, origin: &Origin, now: Instant) {
        let (instance, timeline) = (origin.instance, origin.timeline);
        let parent = self.member(key).and_then(|member| member.parent_of(instance, timeline));
        let ancestors = match &origin.account {
            Account::History(switches) => switches.clone(),
            Account::Promoted(lsn) => {
                self.descent(Line { system_id: instance.system_id, timeline }, parent, *lsn)
            }
            Account::None => Arc::default(),
        };
        let Some(member) = self.member(key) else { return };
        member.origin = Some((instance, timeline, ancestors));
        self.assess(now);
    }

    /// Keeps what is known of the timelines.
    pub(super) fn trace(&mut self) {
        let Some(epoch) = &self.epoch else {
            self.lineage = None;
            return;
        };
        let lineage = epoch.lineage();
        if self.lineage.as_deref() != Some(&lineage) {
            self.lineage = Some(Arc::new(lineage));
            if let Some(ancestors) = &epoch.ancestors {
                let line = epoch.line();
                self.ancestry.retain(|(known, _)| *known != line);
                self.ancestry.push((line, ancestors.clone()));
                let excess = self.ancestry.len().saturating_sub(ANCESTRIES);
                self.ancestry.drain(..excess);
            }
        }
    }

    /// The ancestors of a timeline that was made at `lsn` of its parent, as far as those of the parent are known.
    fn descent(&self, line: Line, parent: Option<u32>, lsn: Lsn) -> Arc<[Switch]> {
        let Some(parent) = parent else { return Arc::default() };
        let of_parent = Line { timeline: parent, ..line };
        let known = self.ancestry.iter().find(|(line, _)| *line == of_parent);
        let known = known.map(|(_, ancestors)| &**ancestors).unwrap_or_default();
        known.iter().copied().chain([Switch { timeline: parent, lsn }]).collect()
    }
}

//! Earlier reigns, for those whose writes were acknowledged in one of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::Bound;
use tokio::time::Instant;

use super::Key;
use crate::election::Line;
use crate::fences::Fences;
use crate::instance::Instance;
use crate::ring::{Ring, Sample};

/// How many timelines are remembered. One whose session has not said a word for longer is told that its writes may be
/// lost.
const REMEMBERED: usize = 4;

/// Which server is the primary, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) key: Key,
    pub(crate) instance: Instance,
    pub(crate) line: Line,
}

/// The positions of a primary that is none any more, on a timeline that is not the newest any more.
#[derive(Clone, Debug)]
struct Former {
    key: Key,
    line: Line,
    /// The last era of its reign.
    last: u64,
    ring: Ring,
    fences: Option<Arc<Fences>>,
}

/// The timelines before the present one, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Formers {
    list: VecDeque<Former>,
    /// The last era of which nothing is remembered.
    forgotten: u64,
}

/// The same for readers.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The latest last.
    timelines: Box<[Ended]>,
    forgotten: u64,
}

#[derive(Debug)]
struct Ended {
    last: u64,
    abandoned: bool,
    fences: Option<Arc<Fences>>,
}

// === impl Formers ===

impl Formers {
    /// A timeline has come to its end, in the era `last`, with the positions that its primary has shown.
    pub(super) fn push(&mut self, (key, line): (Key, Line), last: u64, ring: Ring) {
        if self.list.len() == REMEMBERED
            && let Some(oldest) = self.list.pop_front()
        {
            self.forgotten = oldest.last;
        }
        let fences = Fences::new(line, ring.digest());
        self.list.push_back(Former { key, line, last, ring, fences });
    }

    /// A server goes on after its timeline was left. What it had acknowledged just before is known by what it shows now;
    /// what it writes from now on makes nothing worse, for only the lowest sufficient position counts.
    pub(super) fn sample(&mut self, key: Key, line: Line, sample: Sample, keep: Duration) {
        let Some(former) = self.list.back_mut().filter(|former| former.key == key && former.line == line)
        else {
            return;
        };
        if former.ring.newest().is_none_or(|newest| newest.sent < sample.sent) {
            former.ring.push(sample, keep);
            former.fences = Fences::new(line, former.ring.digest());
        }
    }

    /// Whose former primary is still of interest.
    pub(super) fn latest(&self) -> Option<Key> {
        self.list.back().map(|former| former.key)
    }

    /// As seen from `present`. An operator may have accepted another system, or a timeline that is not newer.
    pub(super) fn past(&self, present: Option<Line>) -> Arc<Past> {
        let follows = |line: Line| {
            present.is_some_and(|now| now.system_id == line.system_id && now.timeline > line.timeline)
        };
        let ended = |former: &Former| Ended {
            last: former.last,
            abandoned: !follows(former.line),
            fences: former.fences.clone(),
        };
        Arc::new(Past { timelines: self.list.iter().map(ended).collect(), forgotten: self.forgotten })
    }
}

// === impl Past ===

impl Past {
    /// What `moment` in `era` means now.
    pub(crate) fn bound(&self, era: u64, moment: Instant) -> Bound {
        if era <= self.forgotten {
            return Bound::Unknown;
        }
        match self.timelines.iter().find(|ended| era <= ended.last) {
            None => Bound::Same,
            Some(ended) if ended.abandoned => Bound::Abandoned,
            Some(ended) => {
                let fence = ended.fences.as_ref().and_then(|fences| fences.since(moment));
                fence.map_or(Bound::Unknown, Bound::At)
            }
        }
    }
}

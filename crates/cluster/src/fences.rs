//! What readers are given of the primary's samples.

use std::sync::Arc;

use causeway_routing::{Fence, Lsn, Observation};
use tokio::time::Instant;

use crate::election::Line;
use crate::ring::Sample;

/// Recent fences of one primary, oldest first; never none.
#[derive(Debug)]
pub(crate) struct Fences {
    lineage: Line,
    samples: Box<[Sample]>,
}

// === impl Fences ===

impl Fences {
    /// `None` without samples.
    pub(crate) fn new(lineage: Line, samples: Box<[Sample]>) -> Option<Arc<Self>> {
        (!samples.is_empty()).then(|| Arc::new(Self { lineage, samples }))
    }

    /// The lowest known fence whose probe was sent at or after `since`.
    pub(crate) fn since(&self, since: Instant) -> Option<Fence> {
        let first = self.samples.partition_point(|sample| sample.sent < since);
        self.samples.get(first).map(|sample| self.fence(sample.lsn))
    }

    /// The moment before which everything acknowledged is shown by a replica with this position.
    pub(crate) fn shown_by(&self, seen: &Observation) -> Option<Instant> {
        if (self.lineage.system_id, self.lineage.timeline) != (seen.system_id, seen.timeline) {
            return None;
        }
        let covered = self.samples.partition_point(|sample| sample.lsn <= seen.lsn);
        covered.checked_sub(1).and_then(|last| self.samples.get(last)).map(|sample| sample.sent)
    }

    pub(crate) fn newest(&self) -> Option<Fence> {
        self.samples.last().map(|sample| self.fence(sample.lsn))
    }

    fn fence(&self, lsn: Lsn) -> Fence {
        Fence { system_id: self.lineage.system_id, timeline: self.lineage.timeline, lsn }
    }
}

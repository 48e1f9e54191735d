//! Timelines: what of a position survives a promotion.

use std::sync::Arc;

use crate::fence::{Fence, Lsn};

/// Where a timeline was left for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The timeline that was left.
    pub timeline: u32,
    /// What was written on it beyond this position is on no later timeline.
    pub lsn: Lsn,
}

/// A timeline with what is known of its ancestors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// `pg_control_system().system_identifier`.
    pub system_id: u64,
    /// The newest timeline.
    pub timeline: u32,
    /// Its ancestors, oldest first, as far as they are known.
    pub ancestors: Arc<[Switch]>,
    /// A primary has been elected on the timeline, so that nothing more is about to be learnt of its ancestors: one that
    /// is not among them counts as none.
    pub settled: bool,
}

/// What has become of the writes that a fence covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The timeline is the fence's own.
    Unchanged,
    /// They are part of the newest timeline, on which this fence covers the same.
    Carried(Fence),
    /// Some of them may not be.
    Lost,
    /// Not known yet.
    Unknown,
}

/// What a moment under an earlier primary means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// That primary's timeline is the present one.
    Same,
    /// What was acknowledged before the moment ended at or before this position.
    At(Fence),
    /// No position was read at or after the moment, or that was too long ago.
    Unknown,
    /// That primary's timeline is no part of the present one, though it may have the same number.
    Abandoned,
}

// === impl Lineage ===

impl Lineage {
    /// What has become of the writes that `fence` covers.
    ///
    /// A server that was promoted at a position has all of the former timeline up to there, and replays the same again on
    /// any server that follows it (`tliInHistory` and `tliSwitchPoint` in `src/backend/access/transam/timeline.c`).
    pub fn fate(&self, fence: &Fence) -> Fate {
        if fence.system_id != self.system_id {
            return Fate::Lost;
        }
        if fence.timeline == self.timeline {
            return Fate::Unchanged;
        }
        if fence.timeline > self.timeline {
            // Somebody has seen a promotion that was not seen here.
            return Fate::Unknown;
        }
        match self.ancestors.iter().find(|switch| switch.timeline == fence.timeline) {
            Some(switch) if fence.lsn <= switch.lsn => {
                Fate::Carried(Fence { timeline: self.timeline, ..*fence })
            }
            Some(_) => Fate::Lost,
            None if self.settled => Fate::Lost,
            None => Fate::Unknown,
        }
    }

    /// What has become of everything that a moment under an earlier primary was bounded by.
    pub fn fate_of(&self, bound: Bound) -> Fate {
        match bound {
            Bound::Same => Fate::Unchanged,
            Bound::At(fence) => self.fate(&fence),
            Bound::Unknown | Bound::Abandoned => Fate::Lost,
        }
    }

    /// Whether two accounts of the same timeline's ancestors cannot both be true: then two servers have made it.
    pub fn contradicts(one: &[Switch], other: &[Switch]) -> bool {
        let differs = |switch: &Switch| {
            other.iter().any(|known| known.timeline == switch.timeline && known.lsn != switch.lsn)
        };
        one.iter().any(differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(switches: &[(u32, u64)]) -> Arc<[Switch]> {
        switches.iter().map(|&(timeline, lsn)| Switch { timeline, lsn: Lsn(lsn) }).collect()
    }

    fn fence(timeline: u32, lsn: u64) -> Fence {
        Fence { system_id: 7, timeline, lsn: Lsn(lsn) }
    }

    #[test]
    fn what_was_written_up_to_the_switch_survives() {
        // Timeline 2 left 1 at 100 and came to nothing: 4 left 1 at 150, by way of 3.
        let ancestors = switches(&[(1, 150), (3, 200)]);
        let lineage = Lineage { system_id: 7, timeline: 4, ancestors, settled: true };
        for (fence, fate) in [
            (fence(4, 900), Fate::Unchanged),
            (fence(1, 150), Fate::Carried(fence(4, 150))),
            (fence(1, 151), Fate::Lost),
            (fence(3, 200), Fate::Carried(fence(4, 200))),
            (fence(3, 201), Fate::Lost),
            (fence(2, 1), Fate::Lost),
            (fence(5, 1), Fate::Unknown),
            (Fence { system_id: 8, ..fence(4, 1) }, Fate::Lost),
        ] {
            assert_eq!(lineage.fate(&fence), fate, "{fence}");
        }
        let unsettled = Lineage { ancestors: switches(&[]), settled: false, ..lineage };
        assert_eq!(unsettled.fate(&fence(1, 1)), Fate::Unknown, "its history may still be learnt");
    }

    #[test]
    fn accounts_of_one_timeline_agree_or_there_are_two_of_it() {
        let one = switches(&[(1, 100), (2, 200)]);
        assert!(!Lineage::contradicts(&one, &switches(&[(2, 200)])), "one of the two is only shorter");
        assert!(!Lineage::contradicts(&one, &switches(&[])));
        assert!(Lineage::contradicts(&one, &switches(&[(2, 201)])));
        assert!(Lineage::contradicts(&switches(&[(1, 99), (2, 200)]), &one));
    }
}

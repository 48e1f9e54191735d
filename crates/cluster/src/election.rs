//! Which node is the primary.

/// The lineage that counts: the newest timeline seen of the system that was accepted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// `pg_control_system().system_identifier`.
    pub system_id: u64,
    /// The newest timeline on which a node of that system was seen.
    pub timeline: u32,
}

/// What a node that answers shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    pub(crate) system_id: u64,
    pub(crate) timeline: u32,
    /// It is not in recovery.
    pub(crate) writable: bool,
}

/// The outcome; an index is one into the ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Elected(usize),
    /// No node that answers is a primary of the epoch.
    Vacant,
    /// Writable nodes of several systems, and none was accepted before.
    SeveralSystems,
    /// Several writable nodes on the newest timeline: which one the cluster follows cannot be told.
    SeveralPrimaries,
}

/// Raises `epoch` to what the ballots prove, then elects the one writable node on it.
///
/// A replica's timeline counts too: one that streams on timeline 2 proves that a primary on timeline 1 is stale.
/// A timeline never goes back, so that a stale primary stays refused when the newer one is out of reach.
pub(crate) fn elect(epoch: &mut Option<Epoch>, ballots: &[Option<Ballot>]) -> Outcome {
    let cast = || ballots.iter().enumerate().filter_map(|(index, ballot)| ballot.map(|b| (index, b)));
    let Some(first) =
        epoch.map(|e| e.system_id).or_else(|| cast().find(|(_, b)| b.writable).map(|(_, b)| b.system_id))
    else {
        return Outcome::Vacant;
    };
    if epoch.is_none() && cast().any(|(_, b)| b.writable && b.system_id != first) {
        return Outcome::SeveralSystems;
    }
    let own = || cast().filter(|(_, b)| b.system_id == first);
    let seen = own().map(|(_, b)| b.timeline).chain(epoch.map(|e| e.timeline)).max().unwrap_or(0);
    *epoch = Some(Epoch { system_id: first, timeline: seen });
    let mut candidates = own().filter(|(_, b)| b.writable && b.timeline == seen);
    match (candidates.next(), candidates.next()) {
        (None, _) => Outcome::Vacant,
        (Some((index, _)), None) => Outcome::Elected(index),
        (Some(_), Some(_)) => Outcome::SeveralPrimaries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(text: &str) -> Option<Ballot> {
        // "p7/2": writable, system 7, timeline 2; "r7/2": in recovery; "-": does not answer.
        let (system_id, timeline) = text.get(1..)?.split_once('/')?;
        let (system_id, timeline) = (system_id.parse().unwrap(), timeline.parse().unwrap());
        Some(Ballot { system_id, timeline, writable: text.starts_with('p') })
    }

    #[test]
    fn table() {
        let epoch = |system_id, timeline| Some(Epoch { system_id, timeline });
        let cases = [
            (None, "- -", Outcome::Vacant, None),
            (None, "r7/1 r7/1", Outcome::Vacant, None),
            (None, "r7/1 p7/1 -", Outcome::Elected(1), epoch(7, 1)),
            (None, "p8/1 r7/1 p7/1", Outcome::SeveralSystems, None),
            (None, "r8/9 p7/1", Outcome::Elected(1), epoch(7, 1)),
            (None, "p7/1 p7/2", Outcome::Elected(1), epoch(7, 2)),
            (None, "p7/2 p7/2 r7/2", Outcome::SeveralPrimaries, epoch(7, 2)),
            (epoch(7, 1), "p8/1 r7/1 p7/1", Outcome::Elected(2), epoch(7, 1)),
            (epoch(7, 1), "p8/4 r7/1", Outcome::Vacant, epoch(7, 1)),
            (epoch(7, 1), "p7/1 r7/2", Outcome::Vacant, epoch(7, 2)),
            (epoch(7, 2), "p7/1 -", Outcome::Vacant, epoch(7, 2)),
            (epoch(7, 2), "p7/1 p7/2", Outcome::Elected(1), epoch(7, 2)),
            (epoch(7, 2), "p7/1 p7/3 r7/2", Outcome::Elected(1), epoch(7, 3)),
            (epoch(7, 2), "p7/1 p7/1", Outcome::Vacant, epoch(7, 2)),
        ];
        for (before, ballots, outcome, after) in cases {
            let mut epoch = before;
            let cast: Vec<_> = ballots.split(' ').map(ballot).collect();
            assert_eq!(elect(&mut epoch, &cast), outcome, "{before:?} {ballots}");
            assert_eq!(epoch, after, "{before:?} {ballots}");
        }
    }
}

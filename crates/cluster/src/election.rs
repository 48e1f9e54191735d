//! Which node is the primary.

use std::sync::Arc;

use causeway_routing::{Lineage, Switch};

/// The lineage that counts: the newest timeline seen of the system that was accepted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// `pg_control_system().system_identifier`.
    pub system_id: u64,
    /// The newest timeline on which a node of that system was seen.
    pub timeline: u32,
    /// Its ancestors, oldest first, as far as they could be learnt; `None` until somebody was asked.
    pub ancestors: Option<Arc<[Switch]>>,
    /// The node that writes on it; `None` until one was elected.
    pub writer: Option<Writer>,
}

/// A node by which a timeline is known: no other one can be writable on the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its configured name.
    pub name: Arc<str>,
    /// Its configured address, `host:port`.
    pub address: Arc<str>,
}

/// A timeline of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) system_id: u64,
    pub(crate) timeline: u32,
}

/// What a node that answers shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    pub(crate) line: Line,
    /// It is not in recovery.
    pub(crate) writable: bool,
    /// The ancestors of its timeline, as far as it could tell; `None` while it is being asked.
    pub(crate) ancestors: Option<Arc<[Switch]>>,
    pub(crate) node: Writer,
}

/// The outcome; an index is one into the ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Elected(usize),
    /// No node that answers is a primary of the epoch.
    Vacant,
    /// A node may be the primary, and is being asked where its timeline comes from.
    Asked(usize),
    /// Writable nodes of several systems, and none was accepted before.
    SeveralSystems,
    /// Several writable nodes on the newest timeline: which one the cluster follows cannot be told.
    SeveralPrimaries,
    /// The only writable node on the newest timeline is not the one that has written on it.
    OtherWriter(usize),
    /// It says that its timeline comes from elsewhere than was said before.
    OtherHistory(usize),
}

// === impl Epoch ===

impl Epoch {
    pub(crate) fn line(&self) -> Line {
        Line { system_id: self.system_id, timeline: self.timeline }
    }

    pub(crate) fn lineage(&self) -> Lineage {
        Lineage {
            system_id: self.system_id,
            timeline: self.timeline,
            ancestors: self.ancestors.clone().unwrap_or_default(),
            settled: self.writer.is_some(),
        }
    }

    fn of(line: Line) -> Self {
        Self { system_id: line.system_id, timeline: line.timeline, ancestors: None, writer: None }
    }
}

// === impl Writer ===

impl Writer {
    /// Whether both are one node: it may have been given another name, or have moved.
    fn is(&self, other: &Self) -> bool {
        self.name == other.name || self.address == other.address
    }
}

/// Raises `epoch` to what the ballots prove, then elects the one writable node on it.
///
/// A replica's timeline counts too: one that streams on timeline 2 proves that a primary on timeline 1 is stale.
/// A timeline never goes back, so that a stale primary stays refused when the newer one is out of reach.
///
/// A timeline is made by one server, at its promotion, and nobody else is ever writable on it; that two servers make the
/// same number, from the same position even, happens when neither knows of the other. Then the one that was seen first
/// stays the timeline's writer, and another is refused even after the first has gone.
pub(crate) fn elect(epoch: &mut Option<Epoch>, ballots: &[Option<Ballot>]) -> Outcome {
    let cast = || ballots.iter().enumerate().filter_map(|(index, ballot)| Some((index, ballot.as_ref()?)));
    let known = epoch.as_ref().map(Epoch::line);
    let first = known.map(|line| line.system_id);
    let first = first.or_else(|| cast().find(|(_, b)| b.writable).map(|(_, b)| b.line.system_id));
    let Some(system_id) = first else { return Outcome::Vacant };
    if known.is_none() && cast().any(|(_, b)| b.writable && b.line.system_id != system_id) {
        return Outcome::SeveralSystems;
    }
    let own = || cast().filter(|(_, b)| b.line.system_id == system_id);
    let newest = own().map(|(_, b)| b.line).chain(known).max().unwrap_or(Line { system_id, timeline: 0 });
    let epoch = match epoch {
        Some(epoch) if epoch.line() == newest => epoch,
        older => older.insert(Epoch::of(newest)),
    };
    let mut candidates = own().filter(|(_, b)| b.writable && b.line == newest);
    match (candidates.next(), candidates.next()) {
        (None, _) => Outcome::Vacant,
        (Some(_), Some(_)) => Outcome::SeveralPrimaries,
        (Some((index, ballot)), None) => enthrone(epoch, index, ballot),
    }
}

fn enthrone(epoch: &mut Epoch, index: usize, ballot: &Ballot) -> Outcome {
    let Some(ancestors) = &ballot.ancestors else { return Outcome::Asked(index) };
    if epoch.writer.as_ref().is_some_and(|writer| !writer.is(&ballot.node)) {
        return Outcome::OtherWriter(index);
    }
    if epoch.ancestors.as_ref().is_some_and(|known| Lineage::contradicts(known, ancestors)) {
        return Outcome::OtherHistory(index);
    }
    // After a restart, a node may no longer be able to tell as much as it did.
    let more = epoch.ancestors.as_ref().is_none_or(|known| known.len() < ancestors.len());
    if more {
        epoch.ancestors = Some(ancestors.clone());
    }
    epoch.writer = Some(ballot.node.clone());
    Outcome::Elected(index)
}

#[cfg(test)]
mod tests {
    use causeway_routing::Lsn;

    use super::*;

    fn line(system_id: u64, timeline: u32) -> Line {
        Line { system_id, timeline }
    }

    fn switches(text: &str) -> Arc<[Switch]> {
        let one = |part: &str| {
            let (timeline, lsn) = part.split_once('-').unwrap();
            Switch { timeline: timeline.parse().unwrap(), lsn: Lsn(lsn.parse().unwrap()) }
        };
        text.split(',').filter(|part| !part.is_empty()).map(one).collect()
    }

    /// "p7/2": writable, system 7, timeline 2; "r7/2": in recovery; "-": does not answer. "p7/2@1-100": timeline 2 left
    /// 1 at 100; "p7/2?": it is being asked.
    fn ballots(text: &str) -> Vec<Option<Ballot>> {
        let ballot = |(index, text): (usize, &str)| {
            let (text, asked) = text.strip_suffix('?').map_or((text, false), |text| (text, true));
            let (text, ancestors) = text.split_once('@').unwrap_or((text, ""));
            let (system_id, timeline) = text.get(1..)?.split_once('/')?;
            let name: Arc<str> = format!("n{index}").into();
            Some(Ballot {
                line: line(system_id.parse().unwrap(), timeline.parse().unwrap()),
                writable: text.starts_with('p'),
                ancestors: (!asked).then(|| switches(ancestors)),
                node: Writer { address: format!("{name}:5432").into(), name },
            })
        };
        text.split(' ').enumerate().map(ballot).collect()
    }

    #[test]
    fn table() {
        let epoch = |system_id, timeline| Some(line(system_id, timeline));
        let cases = [
            (None, "- -", Outcome::Vacant, None),
            (None, "r7/1 r7/1", Outcome::Vacant, None),
            (None, "r7/1 p7/1 -", Outcome::Elected(1), epoch(7, 1)),
            (None, "p8/1 r7/1 p7/1", Outcome::SeveralSystems, None),
            (None, "r8/9 p7/1", Outcome::Elected(1), epoch(7, 1)),
            (None, "p7/1 p7/2", Outcome::Elected(1), epoch(7, 2)),
            (None, "p7/1 p7/2?", Outcome::Asked(1), epoch(7, 2)),
            (None, "p7/2 p7/2 r7/2", Outcome::SeveralPrimaries, epoch(7, 2)),
            (epoch(7, 1), "p8/1 r7/1 p7/1", Outcome::Elected(2), epoch(7, 1)),
            (epoch(7, 1), "p8/4 r7/1", Outcome::Vacant, epoch(7, 1)),
            (epoch(7, 1), "p7/1 r7/2", Outcome::Vacant, epoch(7, 2)),
            (epoch(7, 2), "p7/1 -", Outcome::Vacant, epoch(7, 2)),
            (epoch(7, 2), "p7/1 p7/2", Outcome::Elected(1), epoch(7, 2)),
            (epoch(7, 2), "p7/1 p7/3 r7/2", Outcome::Elected(1), epoch(7, 3)),
            (epoch(7, 2), "p7/1 p7/1", Outcome::Vacant, epoch(7, 2)),
        ];
        for (before, text, outcome, after) in cases {
            let mut epoch = before.map(Epoch::of);
            assert_eq!(elect(&mut epoch, &ballots(text)), outcome, "{before:?} {text}");
            assert_eq!(epoch.as_ref().map(Epoch::line), after, "{before:?} {text}");
        }
    }

    /// Each step's ballots, and the outcome.
    fn play(steps: &[(&str, Outcome)]) -> Epoch {
        let mut epoch = None;
        for (text, outcome) in steps {
            assert_eq!(elect(&mut epoch, &ballots(text)), *outcome, "{text} in {steps:?}");
        }
        epoch.expect("an epoch")
    }

    #[test]
    fn a_timeline_has_one_writer() {
        let epoch = play(&[
            ("p7/1 r7/1 r7/1", Outcome::Elected(0)),
            ("- p7/2@1-100 r7/1", Outcome::Elected(1)),
            ("- - p7/2@1-100", Outcome::OtherWriter(2)),
            ("- p7/2@1-100 p7/2@1-100", Outcome::SeveralPrimaries),
            ("- p7/2@1-100 -", Outcome::Elected(1)),
            // Having fallen behind, the other node is promoted once more.
            ("- - p7/3@1-100,2-120", Outcome::Elected(2)),
        ]);
        assert_eq!(epoch.writer.unwrap().name.as_ref(), "n2");
        assert_eq!(epoch.ancestors, Some(switches("1-100,2-120")));
        // A primary that was copied without being promoted is a second one as well.
        play(&[("p7/1 -", Outcome::Elected(0)), ("- p7/1", Outcome::OtherWriter(1))]);
    }

    #[test]
    fn one_timeline_has_one_past() {
        let epoch = play(&[
            ("p7/2@1-100 -", Outcome::Elected(0)),
            ("p7/2@1-90 -", Outcome::OtherHistory(0)),
            ("p7/2 -", Outcome::Elected(0)),
        ]);
        assert_eq!(epoch.ancestors, Some(switches("1-100")), "what was once known stays known");
    }

    #[test]
    fn a_node_is_known_by_its_name_or_by_its_address() {
        let node = |name: &str, address: &str| Writer { name: name.into(), address: address.into() };
        assert!(node("a", "x:1").is(&node("b", "x:1")));
        assert!(node("a", "x:1").is(&node("a", "y:1")));
        assert!(!node("a", "x:1").is(&node("b", "y:1")));
    }
}

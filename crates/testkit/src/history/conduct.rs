//! How the routers themselves behave: I8 to I15.

use std::collections::HashMap;
use std::time::Duration;

use super::{Event, Level, Moment, Outcome, Violation};

/// A statement with an effect that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Names the statement.
    pub id: u64,
    /// What its client was told.
    pub outcome: Outcome,
    /// How often its effect is there.
    pub effects: u64,
}

/// A replay position that a router has published of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Which router.
    pub router: u16,
    /// Of which node.
    pub node: u16,
    /// Between two losses of the monitor's connection this stays the same.
    pub continuity: u64,
    /// What was published, in this order.
    pub position: u64,
}

/// What a router took for the truth at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Which router; it keeps its number over a restart.
    pub router: u16,
    /// When.
    pub at: Moment,
    /// The newest timeline.
    pub timeline: u32,
    /// The node that it sent writes to.
    pub primary: Option<u16>,
}

/// A session at a change of primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which session.
    pub session: u32,
    /// Whether it had written or read something beyond the point where the new timeline begins.
    pub beyond: bool,
    /// How often it was told of lost writes.
    pub told: u32,
}

/// What fences have cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spending {
    /// In this time,
    pub elapsed: Duration,
    /// so many probes were sent,
    pub probes: u64,
    /// of which so many may be in flight,
    pub pipeline: u32,
    /// each of which takes at least so long.
    pub round_trip: Duration,
    /// So many nudges were sent,
    pub nudges: u64,
    /// which must be so far apart.
    pub nudge_interval: Duration,
}

/// A statement that only the primary may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The statement.
    pub sql: String,
    /// How many of them replicas were given.
    pub on_replicas: u64,
}

/// I8: what was acknowledged happened once, what failed did not, and nothing happened twice.
pub fn executed(executions: &[Execution]) -> Vec<Violation> {
    let wrong = executions.iter().filter(|execution| match execution.outcome {
        Outcome::Done => execution.effects != 1,
        Outcome::Failed => execution.effects != 0,
        Outcome::Unknown | Outcome::Lost => execution.effects > 1,
    });
    wrong.map(|execution| Violation::new(8, format!("not as often as told: {execution:?}"))).collect()
}

/// I9 and I12 of each read: the replica was known to cover the fence, by an observation of the fence's timeline that
/// holds for the connection used; a fence of level `cluster` was asked for after the read arrived.
pub fn proven(events: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for read in events.iter().filter(|event| event.value_read().is_some() && event.on_replica()) {
        let Some(proof) = read.proof else { continue };
        let wrong = if proof.observed.0 != proof.fence.0 {
            Some((9, "the replica was on another timeline than the fence"))
        } else if proof.observed.1 < proof.fence.1 {
            Some((9, "the replica did not cover the fence"))
        } else if proof.opened > proof.requested {
            Some((9, "the connection is younger than what was known of the replica"))
        } else if read.level == Level::Cluster && proof.probed < read.invoked {
            Some((12, "the fence was asked for before the read"))
        } else {
            None
        };
        violations.extend(wrong.map(|(number, what)| Violation::new(number, format!("{what}: {read:?}"))));
    }
    violations
}

/// I9: what is published of a node never falls, as long as the monitor's connection lasts.
pub fn published(publications: &[Publication]) -> Vec<Violation> {
    let mut last: HashMap<(u16, u16, u64), u64> = HashMap::new();
    let fall = |publication: &Publication| {
        let key = (publication.router, publication.node, publication.continuity);
        let before = last.insert(key, publication.position)?;
        let text = || format!("{before} was published, before {publication:?}");
        (publication.position < before).then(|| Violation::new(9, text()))
    };
    publications.iter().filter_map(fall).collect()
}

/// I10: no router goes back to an older timeline, and a timeline has one primary.
pub fn reigns(reigns: &[Reign]) -> Vec<Violation> {
    let mut order: Vec<&Reign> = reigns.iter().collect();
    order.sort_by_key(|reign| (reign.router, reign.at));
    let mut violations = Vec::new();
    for pair in order.windows(2) {
        let [before, after] = pair else { continue };
        if before.router == after.router && after.timeline < before.timeline {
            violations.push(Violation::new(10, format!("{before:?} was followed by {after:?}")));
        }
    }
    let mut primaries: HashMap<u32, u16> = HashMap::new();
    for reign in order {
        let Some(primary) = reign.primary else { continue };
        let first = *primaries.entry(reign.timeline).or_insert(primary);
        if first != primary {
            violations.push(Violation::new(10, format!("node {first} was the primary before {reign:?}")));
        }
    }
    violations
}

/// I11: who had something beyond the switch point is told once, and nobody else is.
pub fn lost_once(losses: &[Loss]) -> Vec<Violation> {
    let wrong = losses.iter().filter(|loss| loss.told != u32::from(loss.beyond));
    wrong.map(|loss| Violation::new(11, format!("told otherwise than once: {loss:?}"))).collect()
}

/// I12: no more probes than fit one after another into the time, and no more nudges than allowed.
pub fn spent(spending: &Spending) -> Vec<Violation> {
    let fit = |each: Duration, at_once: u32| {
        let times = spending.elapsed.as_nanos() / each.as_nanos().max(1) * u128::from(at_once);
        // One more has begun before, or has not ended yet.
        times + 2 * u128::from(at_once)
    };
    let mut violations = Vec::new();
    if u128::from(spending.probes) > fit(spending.round_trip, spending.pipeline) {
        violations.push(Violation::new(12, format!("more probes than fit: {spending:?}")));
    }
    if u128::from(spending.nudges) > fit(spending.nudge_interval, 1) {
        violations.push(Violation::new(12, format!("more nudges than allowed: {spending:?}")));
    }
    violations
}

/// I13: while a replica is healthy, every read at level `cluster` is answered within `limit`.
pub fn waited(events: &[Event], limit: Duration) -> Vec<Violation> {
    let limit = Moment::try_from(limit.as_micros()).unwrap_or(Moment::MAX);
    let reads =
        events.iter().filter(|event| event.level == Level::Cluster && matches!(event.op, super::Op::Read(_)));
    let late = reads
        .filter(|read| read.outcome != Outcome::Done || read.completed.saturating_sub(read.invoked) > limit);
    late.map(|read| Violation::new(13, format!("not answered within {limit} us: {read:?}"))).collect()
}

/// I14: reads at this level of a database in which nothing is written cost no probe.
pub fn idle(level: Level, reads: u64, probes: u64) -> Vec<Violation> {
    let text = || format!("{reads} reads at level {level:?} of an idle database had {probes} probes sent");
    (probes > 0).then(|| Violation::new(14, text())).into_iter().collect()
}

/// I15: what only the primary may answer never reached a replica.
pub fn placed(placements: &[Placement]) -> Vec<Violation> {
    let wrong = placements.iter().filter(|placement| placement.on_replicas > 0);
    wrong.map(|placement| Violation::new(15, format!("{placement:?}"))).collect()
}

//! Registers: I1 to I5, I11 and I16.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Event, Level, Moment, Op, Outcome, Violation};

/// What the checks of registers have found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What must not be.
    pub violations: Vec<Violation>,
    /// Reads at level `session` that went back from a replica to the primary, by a value that was not acknowledged: no
    /// statement of PostgreSQL's can tell, and there are none where no read falls back to the primary.
    pub inversions: usize,
    /// The answered reads that were checked.
    pub reads: usize,
}

/// Greatest values by time.
#[derive(Debug, Default)]
struct Steps(Vec<(Moment, u64)>);

/// Greatest acknowledged values of the keys of each scope.
#[derive(Debug)]
struct Floors<S>(HashMap<(S, u32), Steps>);

/// What was written, as far as a read may see it.
#[derive(Debug, Default)]
struct Written {
    /// When a value was first sent.
    sent: HashMap<(u32, u64), Moment>,
    /// When it was known to be acknowledged.
    acknowledged: HashMap<(u32, u64), Moment>,
}

/// What a session has seen of a key.
#[derive(Clone, Copy, Debug)]
struct Seen {
    value: u64,
    replica: bool,
    /// It wrote it, rather than read it.
    own: bool,
}

/// Checks every read against the writes that it must and may see.
pub fn registers(events: &[Event]) -> Findings {
    let written = Written::of(events);
    let everybody = Floors::new(events, |_| ());
    let routers = Floors::new(events, |event| event.router);
    let mut findings = Findings::default();
    for read in events {
        let Some(value) = read.value_read() else { continue };
        findings.reads += 1;
        findings.violations.extend(written.impossible(read, value));
        let (invariant, floor) = match read.level {
            Level::Cluster | Level::Primary => (1, everybody.before((), read.key, read.invoked)),
            Level::Router => (3, routers.before(read.router, read.key, read.invoked)),
            Level::After(asked) => (4, everybody.before((), read.key, asked)),
            Level::Bounded(age) => (16, everybody.before((), read.key, read.invoked.saturating_sub(age))),
            Level::Session | Level::Eventual => continue,
        };
        if value < floor {
            let text = format!("{floor} had been acknowledged, and was not seen by {read:?}");
            findings.violations.push(Violation::new(invariant, text));
        }
    }
    sessions(events, &written, &mut findings);
    findings
}

/// I5: of reads at level `cluster` that do not overlap, a later one never shows less. It must hold among those that one
/// role has served; where replicas and the primary both serve, it is to be counted.
pub fn going_back<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Violation> {
    let reads: Vec<_> =
        events.filter(|event| event.level == Level::Cluster && event.value_read().is_some()).collect();
    let mut shown: HashMap<u32, Steps> = HashMap::new();
    for read in &reads {
        let steps = shown.entry(read.key).or_default();
        steps.0.push((read.completed, read.value_read().unwrap_or_default()));
    }
    shown.values_mut().for_each(Steps::settle);
    let back = reads.into_iter().filter_map(|read| {
        let floor = shown.get(&read.key).map_or(0, |steps| steps.before(read.invoked));
        let value = read.value_read()?;
        (value < floor).then(|| Violation::new(5, format!("{floor} had been shown, before {read:?}")))
    });
    back.collect()
}

/// I2, and of I11 that nobody goes back without having been told.
fn sessions(events: &[Event], written: &Written, findings: &mut Findings) {
    let mut order: Vec<&Event> = events.iter().collect();
    order.sort_by_key(|event| (event.session, event.invoked));
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    let mut session = None;
    for event in order {
        if session != Some(event.session) || event.op == Op::Told {
            seen.clear();
            session = Some(event.session);
        }
        let now = match (event.op, event.outcome) {
            (Op::Write(value), Outcome::Done | Outcome::Lost) => Seen { value, replica: false, own: true },
            (Op::Read(value), Outcome::Done) => Seen { value, replica: event.on_replica(), own: false },
            _ => continue,
        };
        let before = seen.get(&event.key).copied();
        if let Some(before) = before.filter(|before| now.value < before.value && !now.own)
            && event.level == Level::Session
        {
            let unacknowledged = !written.is_acknowledged(event.key, before.value, event.invoked);
            if before.replica && !now.replica && unacknowledged {
                findings.inversions += 1;
            } else {
                let what = if before.own { "written" } else { "read" };
                let text = format!("{} had been {what} by the same session, before {event:?}", before.value);
                findings.violations.push(Violation::new(2, text));
            }
        }
        if before.is_none_or(|before| before.value <= now.value) {
            seen.insert(event.key, now);
        }
    }
}

// === impl Steps ===

impl Steps {
    /// Sorts, and makes every value the greatest so far.
    fn settle(&mut self) {
        self.0.sort_unstable();
        let mut greatest = 0;
        for (_, value) in &mut self.0 {
            greatest = greatest.max(*value);
            *value = greatest;
        }
    }

    /// The greatest value strictly before `moment`; 0 without one.
    fn before(&self, moment: Moment) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at < moment);
        count.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |(_, value)| *value)
    }
}

// === impl Floors ===

impl<S: Eq + Hash> Floors<S> {
    fn new(events: &[Event], scope: impl Fn(&Event) -> S) -> Self {
        let mut floors: HashMap<(S, u32), Steps> = HashMap::new();
        for event in events {
            if let (Op::Write(value), Outcome::Done) = (event.op, event.outcome) {
                let steps = floors.entry((scope(event), event.key)).or_default();
                steps.0.push((event.completed, value));
            }
        }
        floors.values_mut().for_each(Steps::settle);
        Self(floors)
    }

    fn before(&self, scope: S, key: u32, moment: Moment) -> u64 {
        self.0.get(&(scope, key)).map_or(0, |steps| steps.before(moment))
    }
}

// === impl Written ===

impl Written {
    fn of(events: &[Event]) -> Self {
        let mut written = Self::default();
        for event in events {
            let Op::Write(value) = event.op else { continue };
            if event.outcome != Outcome::Failed {
                written.sent.insert((event.key, value), event.invoked);
            }
            if event.outcome == Outcome::Done {
                written.acknowledged.insert((event.key, value), event.completed);
            }
        }
        written
    }

    /// A value that nobody has written, or not yet, or without success.
    fn impossible(&self, read: &Event, value: u64) -> Option<Violation> {
        if value == 0 {
            return None;
        }
        match self.sent.get(&(read.key, value)) {
            None => Some(Violation::new(1, format!("nobody has written what was seen by {read:?}"))),
            Some(sent) if *sent > read.completed => {
                Some(Violation::new(1, format!("it was written at {sent}, after {read:?}")))
            }
            Some(_) => None,
        }
    }

    fn is_acknowledged(&self, key: u32, value: u64, before: Moment) -> bool {
        self.acknowledged.get(&(key, value)).is_some_and(|at| *at < before)
    }
}

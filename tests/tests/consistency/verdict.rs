//! What the clients' records say together.

use std::collections::BTreeMap;
use std::io::Write as _;

use causeway_testkit::history::{self, Event, Level, Op, Outcome, Violation};

use crate::client::Records;
use crate::stage::Stage;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Answered reads at level `cluster`, and how many of them by replicas.
    pub(crate) reads: u64,
    pub(crate) by_replicas: u64,
    pub(crate) writes: u64,
}

/// Checks a run, prints its figures, and fails with the seed if anything does not hold.
pub(crate) async fn judge(stage: &Stage, name: &str, seed: u64, mut records: Records) -> Figures {
    for execution in &mut records.executions {
        let found = stage.primary(&format!("SELECT count(*) FROM effect WHERE id = {}", execution.id)).await;
        execution.effects = found.trim().parse().expect("a number");
    }
    let found = history::registers(&records.events);
    let mut violations: Vec<Violation> = found.violations;
    violations.extend(history::executed(&records.executions));
    violations.extend(history::prefixes(&records.snapshots));
    violations.extend(history::transactions(&records.transactions));
    // Where one role serves, reads do not go back; where both do, it is counted.
    violations.extend(history::going_back(records.events.iter().filter(|read| served_by(read, true))));
    violations.extend(history::going_back(records.events.iter().filter(|read| served_by(read, false))));
    let mixed = history::going_back(records.events.iter()).len();
    let figures = Figures::of(&records.events);
    let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
    for error in &records.errors {
        *errors.entry(error).or_default() += 1;
    }
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{name}, seed {seed}: {} reads, {} writes, {} snapshots, {} transactions; replicas answered {} of {} reads \
         at cluster ({:.2} %); {mixed} went back between roles, {} of sessions; errors {errors:?}",
        found.reads,
        figures.writes,
        records.snapshots.len(),
        records.transactions.len(),
        figures.by_replicas,
        figures.reads,
        figures.share() * 100.0,
        found.inversions,
    )
    .expect("standard output");
    assert!(violations.is_empty(), "{name}: CAUSEWAY_SEED={seed}: {}", listed(&violations));
    figures
}

fn served_by(read: &Event, replica: bool) -> bool {
    read.served.is_some_and(|served| served.replica == replica)
}

fn listed(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().take(5).map(ToString::to_string).collect();
    format!("{} violations:\n  {}", violations.len(), lines.join("\n  "))
}

// === impl Figures ===

impl Figures {
    fn of(events: &[Event]) -> Self {
        let mut figures = Self::default();
        for event in events.iter().filter(|event| event.outcome == Outcome::Done) {
            match event.op {
                Op::Read(_) if event.level == Level::Cluster => {
                    figures.reads += 1;
                    figures.by_replicas += u64::from(served_by(event, true));
                }
                Op::Write(_) => figures.writes += 1,
                Op::Read(_) | Op::Told => {}
            }
        }
        figures
    }

    /// The share of reads at level `cluster` that replicas have answered.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    pub(crate) fn share(&self) -> f64 {
        self.by_replicas as f64 / self.reads.max(1) as f64
    }
}

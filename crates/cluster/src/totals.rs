//! What has been counted since the process began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a probe was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// It was time for one.
    Idle,
    /// A fence was waited for.
    Fence,
    /// A replica's position was waited for.
    Position,
    /// A fence was waited for, and is the end of a commit.
    Commit,
    /// Something was written, and where that ends was not known.
    Trail,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It was answered.
    Answered,
    /// It ended with an error or with its connection.
    Failed,
    /// It was not answered in time.
    TimedOut,
}

/// All counts, each from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ended probes: by [`ProbeKind`], then by [`ProbeResult`], in the order of their `ALL`.
    pub probes: [[u64; ProbeResult::ALL.len()]; ProbeKind::ALL.len()],
    /// How long the answered ones of kinds [`ProbeKind::Fence`] and [`ProbeKind::Commit`] took.
    pub fence_seconds: Durations,
    /// How often a fence was asked for.
    pub fences_wanted: u64,
    /// How often a fence that somebody waited for was beyond what the primary had flushed.
    pub fences_unflushed: u64,
    /// Commits made so that a primary flushes.
    pub nudges: u64,
    /// Attempts at one that failed.
    pub nudges_failed: u64,
    /// How often a node showed a lower position than before on the same timeline.
    pub lsn_regressions: u64,
    /// How often the accepted lineage was replaced by another.
    pub epoch_changes: u64,
    /// How often a writable node was refused.
    pub stale_primaries_refused: u64,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many there were.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// How many were not longer than each of [`Durations::BOUNDS`] but longer than the one before; the last: longer
    /// than all.
    pub buckets: [u64; Durations::BOUNDS.len() + 1],
}

/// The counters behind [`Totals`].
#[derive(Debug, Default)]
pub(crate) struct Meter {
    probes: [[AtomicU64; ProbeResult::ALL.len()]; ProbeKind::ALL.len()],
    fence_nanos: AtomicU64,
    fence_buckets: [AtomicU64; Durations::BOUNDS.len() + 1],
    pub(crate) fences_wanted: AtomicU64,
    pub(crate) fences_unflushed: AtomicU64,
    pub(crate) nudges: AtomicU64,
    pub(crate) nudges_failed: AtomicU64,
}

// === impl ProbeKind ===

impl ProbeKind {
    /// Each, in the order in which arrays are indexed.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Fence, Self::Position, Self::Commit, Self::Trail];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Fence => "fence",
            Self::Position => "position",
            Self::Commit => "commit",
            Self::Trail => "trail",
        }
    }
}

// === impl ProbeResult ===

impl ProbeResult {
    /// Each, in the order in which arrays are indexed.
    pub const ALL: [Self; 3] = [Self::Answered, Self::Failed, Self::TimedOut];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

// === impl Totals ===

impl Totals {
    /// How many probes of one kind ended, whatever became of them.
    pub fn probes_of(&self, kind: ProbeKind) -> u64 {
        self.probes.get(kind as usize).map_or(0, |results| results.iter().sum())
    }
}

// === impl Durations ===

impl Durations {
    /// The upper bounds of all buckets but the last.
    pub const BOUNDS: [Duration; 14] = [
        Duration::from_micros(100),
        Duration::from_micros(250),
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_micros(2500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_secs(1),
        Duration::from_secs(5),
        Duration::from_secs(30),
    ];
}

// === impl Meter ===

impl Meter {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn probed(&self, kind: ProbeKind, result: ProbeResult, took: Duration) {
        let counter = self.probes.get(kind as usize).and_then(|results| results.get(result as usize));
        counter.map(Self::count).unwrap_or_default();
        if result == ProbeResult::Answered && matches!(kind, ProbeKind::Fence | ProbeKind::Commit) {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.fence_nanos.fetch_add(nanos, Ordering::Relaxed);
            let bucket = Durations::BOUNDS.partition_point(|bound| *bound < took);
            self.fence_buckets.get(bucket).map(Self::count).unwrap_or_default();
        }
    }

    /// All but what the caller has counted.
    pub(crate) fn totals(&self, others: &Totals) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let buckets = self.fence_buckets.each_ref().map(read);
        Totals {
            probes: self.probes.each_ref().map(|results| results.each_ref().map(read)),
            fence_seconds: Durations {
                count: buckets.iter().sum(),
                sum: Duration::from_nanos(read(&self.fence_nanos)),
                buckets,
            },
            fences_wanted: read(&self.fences_wanted),
            fences_unflushed: read(&self.fences_unflushed),
            nudges: read(&self.nudges),
            nudges_failed: read(&self.nudges_failed),
            ..others.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_fall_into_their_places() {
        for (index, kind) in ProbeKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        for (index, result) in ProbeResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, index);
        }
        let meter = Meter::default();
        meter.probed(ProbeKind::Fence, ProbeResult::Answered, Duration::from_micros(50));
        meter.probed(ProbeKind::Commit, ProbeResult::Answered, Duration::from_secs(1));
        meter.probed(ProbeKind::Fence, ProbeResult::TimedOut, Duration::from_secs(2));
        meter.probed(ProbeKind::Idle, ProbeResult::Answered, Duration::from_secs(2));
        let totals = meter.totals(&Totals { epoch_changes: 3, ..Totals::default() });
        assert_eq!(totals.probes, [[1, 0, 0], [1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]]);
        assert_eq!(totals.probes_of(ProbeKind::Fence), 2);
        assert_eq!(totals.epoch_changes, 3);
        let seconds = totals.fence_seconds;
        assert_eq!((seconds.count, seconds.sum), (2, Duration::from_micros(1_000_050)));
        assert_eq!((seconds.buckets[0], seconds.buckets[11]), (1, 1));
    }
}

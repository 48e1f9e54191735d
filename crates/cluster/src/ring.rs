//! Recent positions of the primary and when they were asked for.

use std::collections::VecDeque;
use std::time::Duration;

use causeway_routing::Lsn;
use tokio::time::Instant;

/// The primary, asked at `sent` or later, had everything acknowledged before `sent` at or before `lsn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When the probe was about to be sent.
    pub(crate) sent: Instant,
    /// The normalised insert position it returned.
    pub(crate) lsn: Lsn,
}

/// Samples of one primary on one timeline, oldest first; both fields strictly increase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    samples: VecDeque<Sample>,
}

/// When it is full, samples go where there are many for their age.
const CAPACITY: usize = 4096;
/// Then two samples stay this part of their age apart. Four thousand probes a second leave a thousand of a minute.
const RESOLUTION: u32 = 128;
/// How many samples of a digest are equally far apart.
const DIGEST_GROUP: usize = 32;

// === impl Ring ===

impl Ring {
    /// Adds a sample and forgets what is older than `keep`, one sample excepted, so that there is one to cover.
    ///
    /// An unchanged position only gets its later time: that is as true, and it is all that an idle primary adds.
    /// A lower one (the server crashed and lost its unflushed tail) replaces the higher ones.
    pub(crate) fn push(&mut self, sample: Sample, keep: Duration) {
        if self.samples.back().is_some_and(|last| sample.sent <= last.sent) {
            return;
        }
        while self.samples.back().is_some_and(|last| last.lsn >= sample.lsn) {
            self.samples.pop_back();
        }
        if self.samples.len() >= CAPACITY {
            self.thin();
        }
        self.samples.push_back(sample);
        while self.samples.get(1).is_some_and(|second| sample.sent.duration_since(second.sent) > keep) {
            self.samples.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }

    pub(crate) fn newest(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// The newest sample that a replica which has replayed `lsn` covers: it shows all that was acknowledged
    /// before that sample was sent.
    pub(crate) fn covered_by(&self, lsn: Lsn) -> Option<Sample> {
        let covered = self.samples.partition_point(|sample| sample.lsn <= lsn);
        covered.checked_sub(1).and_then(|last| self.samples.get(last)).copied()
    }

    /// A selection for readers, oldest first: all of the newest, then fewer and fewer, so that whatever moment a
    /// reader asks about, the sample it is given is not much younger.
    pub(crate) fn digest(&self) -> Box<[Sample]> {
        let mut chosen = Vec::new();
        let (mut step, mut index) = (1, self.samples.len());
        while index > 0 {
            chosen.extend(self.samples.get(index - 1));
            if chosen.len().is_multiple_of(DIGEST_GROUP) {
                step *= 2;
            }
            index = index.saturating_sub(step);
        }
        chosen.reverse();
        chosen.into_boxed_slice()
    }

    fn thin(&mut self) {
        let Some(newest) = self.newest().map(|newest| newest.sent) else { return };
        let mut chosen = VecDeque::with_capacity(CAPACITY);
        let mut last = None;
        // The oldest stays whatever its distance: it is the only one that a replica far behind covers.
        while let Some(sample) = self.samples.pop_back() {
            let spacing = newest.duration_since(sample.sent) / RESOLUTION;
            let far = |last: Instant| last.duration_since(sample.sent) >= spacing;
            if self.samples.is_empty() || last.is_none_or(far) {
                chosen.push_front(sample);
                last = Some(sample.sent);
            }
        }
        self.samples = chosen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_hours(1);

    fn ring(base: Instant, samples: &[(u64, u64)]) -> Ring {
        let mut ring = Ring::default();
        for &(ms, lsn) in samples {
            ring.push(Sample { sent: base + Duration::from_millis(ms), lsn: Lsn(lsn) }, KEEP);
        }
        ring
    }

    fn content(ring: &Ring, base: Instant) -> Vec<(u128, u64)> {
        ring.samples.iter().map(|s| ((s.sent - base).as_millis(), s.lsn.0)).collect()
    }

    #[test]
    fn equal_positions_keep_the_later_time_and_lower_ones_replace() {
        let base = Instant::now();
        assert_eq!(content(&ring(base, &[(0, 10), (5, 10), (9, 20)]), base), [(5, 10), (9, 20)]);
        assert_eq!(content(&ring(base, &[(0, 10), (5, 30), (9, 20)]), base), [(0, 10), (9, 20)]);
        assert_eq!(content(&ring(base, &[(5, 10), (5, 30), (3, 20)]), base), [(5, 10)], "sent no later");
    }

    #[test]
    fn coverage() {
        let base = Instant::now();
        let ring = ring(base, &[(0, 10), (5, 20), (9, 30)]);
        let covered = |lsn| ring.covered_by(Lsn(lsn)).map(|s| (s.sent - base).as_millis());
        assert_eq!([covered(9), covered(10), covered(19)], [None, Some(0), Some(0)]);
        assert_eq!(
            [covered(20), covered(29), covered(30), covered(99)],
            [Some(5), Some(5), Some(9), Some(9)]
        );
        assert_eq!(Ring::default().covered_by(Lsn(9)), None);
    }

    #[test]
    fn bounded_in_number_and_age_and_ordered() {
        let base = Instant::now();
        let many: Vec<_> = (0..20_000_u64).map(|i| (i, i * 10)).collect();
        let ring = ring(base, &many);
        assert!(ring.samples.len() <= CAPACITY, "{}", ring.samples.len());
        for age in [1, 10, 100, 1000, 5000, 15_000] {
            let shown = ring.covered_by(Lsn((19_999 - age) * 10)).unwrap().sent - base;
            let younger = Duration::from_millis(19_999 - age).checked_sub(shown).unwrap();
            assert!(
                younger <= Duration::from_millis(age) / 64,
                "of age {age} the sample is {younger:?} older"
            );
        }
        assert!(
            ring.samples
                .iter()
                .zip(ring.samples.iter().skip(1))
                .all(|(a, b)| a.sent < b.sent && a.lsn < b.lsn)
        );
        assert_eq!(content(&ring, base)[0], (0, 0), "thinned, not cut off");
        assert_eq!(ring.newest().unwrap().lsn, Lsn(199_990));

        let mut short = Ring::default();
        for (ms, lsn) in [(0, 1), (10, 2), (50, 3), (200, 4)] {
            let sample = Sample { sent: base + Duration::from_millis(ms), lsn: Lsn(lsn) };
            short.push(sample, Duration::from_millis(100));
        }
        assert_eq!(content(&short, base), [(50, 3), (200, 4)], "one beyond the age stays");
    }

    #[test]
    fn a_digest_is_dense_where_it_is_new_and_reaches_far() {
        let base = Instant::now();
        let few = ring(base, &[(0, 10), (5, 20), (9, 30)]);
        assert_eq!(few.digest().iter().map(|s| s.lsn.0).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(Ring::default().digest().is_empty());

        let many: Vec<_> = (1..=4000_u64).map(|i| (i, i)).collect();
        let digest = ring(base, &many).digest();
        assert!(digest.len() < 250, "{}", digest.len());
        assert!(digest.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
        for age in [0, 1, 30, 60, 300, 1500, 3500] {
            let wanted = 4000 - age;
            let given = digest.iter().find(|sample| sample.lsn.0 >= wanted).unwrap().lsn.0;
            assert!(given - wanted <= age / 16, "of age {age} a sample {} younger is given", given - wanted);
        }
    }
}

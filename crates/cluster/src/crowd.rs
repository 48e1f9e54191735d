//! How many reads a probe should wait for.
//!
//! One probe serves all reads that arrived before it was sent. Sent at once, it serves those that came while the last one
//! was under way: with a server that answers in less time than a read takes those are few, and the primary pays for many
//! probes. Where many read at a time, half of them come soon, and waiting for those costs each little.

use std::time::Duration;

/// What the probes of one connection have found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    /// How many read at a time, by guess.
    size: usize,
    probes: u32,
    /// From a probe to its answer, smoothed.
    answer: Duration,
}

/// Fewer readers than this wait for nobody.
const FEW: usize = 8;
/// So many readers to a probe are enough, however many there are.
const MANY: usize = 16;
/// One in so many probes waits for as long as any may, so that those who have left are missed.
const LOOK: u32 = 128;
/// For so many times as long as a probe takes others are waited for.
const PATIENCE: u32 = 2;

// === impl Crowd ===

impl Crowd {
    /// How many waiting readers need wait for no more.
    pub(crate) fn enough(&self) -> usize {
        match self.size {
            ..FEW => 1,
            _ if self.looks() => usize::MAX,
            size => (size / 2).min(MANY),
        }
    }

    /// How long a reader waits for others, at most `limit`.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        self.answer.saturating_mul(PATIENCE).min(limit)
    }

    /// A probe leaves for so many.
    pub(crate) fn sent(&mut self, readers: usize) {
        self.size = if self.looks() { readers.max(self.size / 2) } else { self.size.max(readers) };
        self.probes = self.probes.wrapping_add(1);
    }

    /// It was answered after so long.
    pub(crate) fn answered(&mut self, took: Duration) {
        self.answer = if self.answer.is_zero() { took } else { (self.answer * 7 + took) / 8 };
    }

    fn looks(&self) -> bool {
        self.probes % LOOK == LOOK - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_crowd_is_enough_and_a_few_wait_for_nobody() {
        let mut crowd = Crowd::default();
        for (readers, enough) in [(1, 1), (7, 1), (8, 4), (5, 4), (20, 10), (64, 16)] {
            crowd.sent(readers);
            assert_eq!(crowd.enough(), enough, "{readers}");
        }
    }

    #[test]
    fn those_who_have_left_are_missed_at_the_next_look() {
        let mut crowd = Crowd::default();
        crowd.sent(32);
        let mut looks = 0;
        while crowd.enough() > 1 {
            looks += u32::from(crowd.enough() == usize::MAX);
            crowd.sent(1);
        }
        assert_eq!(looks, 3, "by half each time, since a look may miss some");
    }

    #[test]
    fn patience_is_that_of_two_probes() {
        let (mut crowd, limit) = (Crowd::default(), Duration::from_millis(1));
        assert_eq!(crowd.patience(limit), Duration::ZERO);
        for _ in 0..100 {
            crowd.answered(Duration::from_micros(100));
        }
        assert_eq!(crowd.patience(limit).as_micros() / 10, 20);
        crowd.answered(Duration::from_secs(1));
        assert_eq!(crowd.patience(limit), limit);
    }
}

//! How long to leave a server alone that could not be reached.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::ConnectError;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The failures since the last success, and until when no new attempt is made because of them.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    last: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    at: Instant,
    until: Instant,
    /// Rounds of attempts that failed in a row; attempts that were under way together are one round.
    rounds: u32,
    error: ConnectError,
}

// === impl Backoff ===

impl Backoff {
    /// An attempt that began at `began` has failed.
    pub(crate) fn failed(&mut self, began: Instant, now: Instant, error: ConnectError, random: &mut Random) {
        let rounds = match &self.last {
            Some(last) if began < last.at => last.rounds,
            Some(last) => last.rounds.saturating_add(1),
            None => 1,
        };
        let full = FIRST.saturating_mul(1 << (rounds - 1).min(5)).min(LONGEST);
        // Half of it is jitter: proxies that lost a server together do not come back together.
        let until = now + full / 2 + random.up_to(full / 2);
        self.last = Some(Failure { at: now, until, rounds, error });
    }

    /// An attempt has succeeded, or the failures are of no account any more.
    pub(crate) fn clear(&mut self) {
        self.last = None;
    }

    /// Until when no attempt is made.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.last.as_ref().map(|failure| failure.until).filter(|&until| now < until)
    }

    /// The last error, while no attempt is made because of it.
    pub(crate) fn error(&self, now: Instant) -> Option<&ConnectError> {
        self.last.as_ref().filter(|failure| now < failure.until).map(|failure| &failure.error)
    }

    /// The last error, if a second round of attempts has failed as well.
    pub(crate) fn lasting_error(&self, now: Instant) -> Option<&ConnectError> {
        self.last.as_ref().filter(|failure| failure.rounds > 1).and_then(|_| self.error(now))
    }
}

/// A small seeded generator (`SplitMix64`, Steele, Lea and Flood 2014): jitter needs no more.
#[derive(Debug)]
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero; the bias is of no account for jitter.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.below(micros + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_rounds_up_to_a_second() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        for full in [50, 100, 200, 400, 800, 1000, 1000, 1000].map(Duration::from_millis) {
            let began = now;
            now += Duration::from_millis(1);
            backoff.failed(began, now, ConnectError::Timeout, &mut random);
            let wait = backoff.until(now).unwrap() - now;
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
            assert!(backoff.error(now).is_some());
            now += wait;
            assert!(backoff.until(now).is_none() && backoff.error(now).is_none());
        }
    }

    #[test]
    fn attempts_made_together_are_one_round() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::default();
        let began = Instant::now();
        let now = began + Duration::from_millis(5);
        for _ in 0..4 {
            backoff.failed(began, now, ConnectError::Timeout, &mut random);
        }
        assert!(backoff.until(now).unwrap() - now <= FIRST);
        assert!(backoff.lasting_error(now).is_none());
        backoff.failed(now, now, ConnectError::Timeout, &mut random);
        assert!(backoff.lasting_error(now).is_some());
        backoff.clear();
        assert!(backoff.until(now).is_none());
    }
}

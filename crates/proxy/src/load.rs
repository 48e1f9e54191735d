//! How busy a node is with statements from here, and how well that goes: what the monitors see of a node is one thing,
//! whether sessions are served there another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_routing::Load;
use tokio::time::Instant;

/// Over how long failures and answers are compared.
const WINDOW: Duration = Duration::from_secs(10);

/// How long a node is left alone at first; each time that it fails again at once, twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// How long at most.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The percentage of its share that a node begins with.
const FIRST_SHARE: u32 = 10;

/// What holds for one cluster's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    /// `eject_after`: failures within ten seconds, as many as answers at least, after which a replica is left alone; 0:
    /// never.
    pub eject_after: u32,
    /// `slow_start`: how long a node that serves again takes to get its whole share; zero: none.
    pub slow_start: Duration,
}

/// One node's load.
#[derive(Debug)]
pub(crate) struct NodeLoad {
    in_flight: AtomicU32,
    latency_nanos: AtomicU64,
    answers: AtomicU32,
    ejections: AtomicU64,
    /// There is more to know than `in_flight` and latency: the clock and the lock are asked only then.
    watched: AtomicBool,
    record: Mutex<Record>,
}

/// What has gone wrong lately.
#[derive(Debug)]
struct Record {
    policy: HealthPolicy,
    window: Instant,
    failures: u32,
    answers_before: u32,
    /// In a row, each on the heels of the last.
    times: u32,
    ejected_until: Option<Instant>,
    warm_from: Option<Instant>,
}

/// A statement that counts as running until this is dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<NodeLoad>);

// === impl NodeLoad ===

impl Default for NodeLoad {
    fn default() -> Self {
        let policy = HealthPolicy::default();
        Self {
            in_flight: AtomicU32::new(0),
            latency_nanos: AtomicU64::new(0),
            answers: AtomicU32::new(0),
            ejections: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            record: Mutex::new(Record {
                policy,
                window: Instant::now(),
                failures: 0,
                answers_before: 0,
                times: 0,
                ejected_until: None,
                warm_from: None,
            }),
        }
    }
}

impl NodeLoad {
    /// A statement is being sent.
    pub(crate) fn start(self: &Arc<Self>) -> Running {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// A statement has been answered after `latency`.
    pub(crate) fn answered(&self, latency: Duration) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let sample = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let old = self.latency_nanos.load(Ordering::Relaxed);
        // An eighth of each new sample; a lost update between two sessions is one sample less.
        let new = if old == 0 { sample } else { old - old / 8 + sample / 8 };
        self.latency_nanos.store(new, Ordering::Relaxed);
    }

    /// A server connection was lost or could not be had, for want neither of room in the pool nor of rights. `jitter` is
    /// uniform: Causeways that lost a node together do not come back together.
    pub(crate) fn failed(&self, now: Instant, jitter: u8) {
        let answers = self.answers.load(Ordering::Relaxed);
        let mut record = self.record();
        if record.failed(now, answers, jitter) {
            self.ejections.fetch_add(1, Ordering::Relaxed);
            self.watched.store(true, Ordering::Relaxed);
        }
    }

    /// The node serves again: it gets its share little by little.
    pub(crate) fn serves_again(&self, now: Instant) {
        let mut record = self.record();
        if !record.policy.slow_start.is_zero() {
            record.warm_from = Some(record.ejected_until.map_or(now, |until| until.max(now)));
            self.watched.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn configure(&self, policy: HealthPolicy) {
        self.record().policy = policy;
    }

    /// How often the node has been left alone for its failures.
    pub(crate) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// The load at this moment.
    pub(crate) fn load(&self) -> Load {
        let mut load = Load {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            latency: Duration::from_nanos(self.latency_nanos.load(Ordering::Relaxed)),
            ..Load::default()
        };
        if self.watched.load(Ordering::Relaxed) {
            let mut record = self.record();
            (load.ejected, load.held_back) = record.standing(Instant::now());
            self.watched.store(record.is_watched(), Ordering::Relaxed);
        }
        load
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Record ===

impl Record {
    /// Whether the node is left alone from now on.
    fn failed(&mut self, now: Instant, answers: u32, jitter: u8) -> bool {
        if now.saturating_duration_since(self.window) > WINDOW {
            (self.window, self.failures, self.answers_before) = (now, 0, answers);
        }
        self.failures = self.failures.saturating_add(1);
        let answered = answers.wrapping_sub(self.answers_before);
        // Back on trial, the first failure is enough.
        let on_trial = self.times > 0 && self.ejected_until.is_none();
        let too_many = self.failures >= self.policy.eject_after && self.failures >= answered;
        if self.policy.eject_after == 0 || self.ejected_until.is_some() || !(on_trial || too_many) {
            return false;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.times.min(4)).min(LONGEST_PAUSE);
        let until = now + pause * 3 / 4 + pause * u32::from(jitter) / 1024;
        self.times = self.times.saturating_add(1);
        self.ejected_until = Some(until);
        self.warm_from = Some(until);
        (self.window, self.failures, self.answers_before) = (now, 0, answers);
        true
    }

    /// Whether it is left alone, and the percentage of its share that it does not get.
    fn standing(&mut self, now: Instant) -> (bool, u8) {
        if self.ejected_until.is_some_and(|until| now < until) {
            return (true, 0);
        }
        self.ejected_until = None;
        let Some(begun) = self.warm_from else { return (false, 0) };
        let (warm, whole) =
            (now.saturating_duration_since(begun).as_millis(), self.policy.slow_start.as_millis());
        if warm >= whole {
            (self.warm_from, self.times) = (None, 0);
            return (false, 0);
        }
        let share = u128::from(FIRST_SHARE) + u128::from(100 - FIRST_SHARE) * warm / whole;
        (false, u8::try_from(100_u128.saturating_sub(share)).unwrap_or(0))
    }

    fn is_watched(&self) -> bool {
        self.ejected_until.is_some() || self.warm_from.is_some()
    }
}

// === impl HealthPolicy ===

impl Default for HealthPolicy {
    fn default() -> Self {
        Self { eject_after: 5, slow_start: Duration::from_secs(10) }
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_fails_is_left_alone_and_comes_back_little_by_little() {
        let node = NodeLoad::default();
        for _ in 0..5 {
            assert!(!node.load().ejected);
            node.failed(Instant::now(), 0);
        }
        assert!(node.load().ejected);
        tokio::time::advance(FIRST_PAUSE * 3 / 4).await;
        assert_eq!((node.load().ejected, node.load().held_back), (false, 90));
        // On trial one failure is enough, and costs more.
        node.failed(Instant::now(), 0);
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(node.load().ejected);
        tokio::time::advance(FIRST_PAUSE / 2 + Duration::from_secs(5)).await;
        assert_eq!(node.load().held_back, 45);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!((node.load().ejected, node.load().held_back), (false, 0));
        assert_eq!(node.ejections(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_failures_among_answers_are_no_reason() {
        let node = NodeLoad::default();
        for _ in 0..20 {
            (0..3).for_each(|_| node.answered(Duration::from_millis(1)));
            node.failed(Instant::now(), 0);
        }
        assert!(!node.load().ejected);
        let never = NodeLoad::default();
        never.configure(HealthPolicy { eject_after: 0, ..HealthPolicy::default() });
        (0..50).for_each(|_| never.failed(Instant::now(), 255));
        assert!(!never.load().ejected);
    }

    #[tokio::test(start_paused = true)]
    async fn old_failures_are_forgotten() {
        let node = NodeLoad::default();
        for _ in 0..9 {
            node.failed(Instant::now(), 0);
            tokio::time::advance(WINDOW / 3).await;
        }
        assert!(!node.load().ejected);
        node.serves_again(Instant::now());
        assert_eq!(node.load().held_back, 90);
    }
}

//! What the data plane counts: plain atomics behind handles that are resolved once, read by whoever exports them.
//!
//! Histograms have fixed buckets, so that a sample costs two additions and nothing grows when nobody scrapes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_routing::{Level, PinReason, Reason, Role};

use crate::session::Counts;

/// Upper bounds of the buckets of every histogram of durations, in seconds; the last bucket has none.
pub const DURATION_BUCKETS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The same in nanoseconds.
const BUCKET_NANOS: [u64; DURATION_BUCKETS.len()] = {
    let mut nanos = [0; DURATION_BUCKETS.len()];
    let mut at = 0;
    while at < nanos.len() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the bounds are positive, and far below what 64 bits of nanoseconds hold"
        )]
        {
            nanos[at] = (DURATION_BUCKETS[at] * 1e9 + 0.5) as u64;
        }
        at += 1;
    }
    nanos
};

/// A value that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A distribution of durations over [`DURATION_BUCKETS`].
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; DURATION_BUCKETS.len() + 1],
    sum_nanos: AtomicU64,
}

/// What a histogram holds, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramValue {
    /// Samples at or below each bound of [`DURATION_BUCKETS`], cumulative; the last entry counts all.
    pub cumulative: [u64; DURATION_BUCKETS.len() + 1],
    /// The sum of all samples in seconds.
    pub sum: f64,
}

/// What is counted for one node, database and role.
#[derive(Debug, Default)]
pub struct BackendMetrics {
    /// Leases taken.
    pub checkouts: Counter,
    /// Time from asking for a lease to having it.
    pub checkout_wait: Histogram,
    /// Leases not had in time.
    pub checkout_timeouts: Counter,
    /// Simple queries answered.
    pub simple_queries: Counter,
    /// Executes answered.
    pub extended_queries: Counter,
    /// Transactions ended, those of a single statement included.
    pub transactions: Counter,
    /// Bytes sent to the server.
    pub sent_bytes: Counter,
    /// Bytes received from the server.
    pub received_bytes: Counter,
    /// Messages received from the server in answer to clients.
    pub messages: Counter,
    /// DataRow and CopyData among them.
    pub rows: Counter,
    /// ErrorResponse among them.
    pub errors: Counter,
    /// Time from sending a request to its ReadyForQuery.
    pub query_duration: Histogram,
}

/// What is counted for one database.
#[derive(Debug)]
pub struct DatabaseMetrics {
    to_primary: Vec<Counter>,
    to_replica: Vec<Counter>,
    local: Vec<Counter>,
    pins: Vec<Counter>,
    /// Reads run again elsewhere before any of their result was forwarded.
    pub retries: Counter,
    /// Sessions whose acknowledged writes may have been lost in a failover.
    pub fences_lost: Counter,
    /// Reads that ran before it was known what they must see.
    overlaps: [Counter; OverlapOutcome::ALL.len()],
    /// Reads that had to see something, by level and outcome.
    reads: [[Counter; ReadOutcome::ALL.len()]; Level::NAMES.len()],
    /// How long they waited, by level.
    read_wait: [Histogram; Level::NAMES.len()],
    /// How old what replicas have shown was at most, by level.
    staleness: [Histogram; Level::NAMES.len()],
}

/// What became of a read that had to see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// What was known was enough.
    Direct,
    /// It waited for a fence or a replica.
    Waited,
    /// No replica showed it in time, and the primary served it.
    FellBack,
    /// No replica showed it in time, and it failed.
    Failed,
}

/// What became of a read that ran before it was known what it must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapOutcome {
    /// The replica showed it all.
    Covered,
    /// It did not, and the answer was thrown away.
    Discarded,
    /// What it must see was not told in time, and the answer was thrown away.
    Late,
}

/// What is counted for the whole process.
#[derive(Debug, Default)]
pub struct ProcessMetrics {
    /// Clients that got through login.
    pub logins: Counter,
    /// Clients turned away by authentication.
    pub auth_failures: Counter,
    /// Clients turned away by a limit.
    pub limit_rejections: Counter,
    /// Clients that left or were cut off.
    pub disconnects: Counter,
    /// Cancel requests that reached a server.
    pub cancels_forwarded: Counter,
    /// Cancel requests whose key is not known here, passed on to whoever may know it.
    pub cancels_passed_on: Counter,
    /// Cancel requests that matched no running query.
    pub cancels_ignored: Counter,
    /// TLS handshakes that exchanged keys and showed a certificate.
    pub tls_full: Counter,
    /// TLS handshakes that took an earlier session up again.
    pub tls_resumed: Counter,
    /// TLS handshakes that came to nothing.
    pub tls_failed: Counter,
    /// Statements whose class was remembered.
    pub classifier_hits: Counter,
    /// Statements that had to be parsed.
    pub classifier_misses: Counter,
}

/// Where a decision sent a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionTarget {
    /// The primary.
    Primary,
    /// A replica.
    Replica,
    /// Causeway answers itself.
    Local,
}

type BackendKey = (Arc<str>, Arc<str>, Role);

/// All counters of the data plane.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The whole process.
    pub process: ProcessMetrics,
    databases: Mutex<HashMap<Arc<str>, Arc<DatabaseMetrics>>>,
    backends: Mutex<HashMap<BackendKey, Arc<BackendMetrics>>>,
}

/// Receives every series of [`Metrics::visit`].
pub trait Visitor {
    /// A counter.
    fn counter(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64);
    /// A histogram of seconds.
    fn histogram(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: &HistogramValue);
}

// === impl Counter ===

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // Most of what a message may count is nothing, and an atomic addition is dear.
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Histogram ===

impl Histogram {
    /// Counts one sample.
    pub fn record(&self, sample: Duration) {
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKET_NANOS.iter().position(|bound| nanos <= *bound);
        if let Some(counter) = self.buckets.get(bucket.unwrap_or(BUCKET_NANOS.len())) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if nanos > 0 {
            self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// What has been counted.
    pub fn value(&self) -> HistogramValue {
        let mut total = 0;
        let cumulative = std::array::from_fn(|i| {
            total += self.buckets.get(i).map_or(0, |bucket| bucket.load(Ordering::Relaxed));
            total
        });
        let nanos = self.sum_nanos.load(Ordering::Relaxed);
        HistogramValue { cumulative, sum: Duration::from_nanos(nanos).as_secs_f64() }
    }
}

// === impl DecisionTarget ===

impl DecisionTarget {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Local => "local",
        }
    }
}

// === impl ReadOutcome ===

impl ReadOutcome {
    /// Every outcome, in their order.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Waited, Self::FellBack, Self::Failed];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Waited => "waited",
            Self::FellBack => "fallback",
            Self::Failed => "error",
        }
    }
}

// === impl OverlapOutcome ===

impl OverlapOutcome {
    /// Every outcome, in their order.
    pub const ALL: [Self; 3] = [Self::Covered, Self::Discarded, Self::Late];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Discarded => "discarded",
            Self::Late => "late",
        }
    }
}

// === impl DatabaseMetrics ===

impl Default for DatabaseMetrics {
    fn default() -> Self {
        let reasons = || Reason::ALL.iter().map(|_| Counter::default()).collect();
        let pins = PinReason::ALL.iter().map(|_| Counter::default()).collect();
        Self {
            to_primary: reasons(),
            to_replica: reasons(),
            local: reasons(),
            pins,
            retries: Counter::default(),
            fences_lost: Counter::default(),
            overlaps: Default::default(),
            reads: Default::default(),
            read_wait: Default::default(),
            staleness: Default::default(),
        }
    }
}

impl DatabaseMetrics {
    /// Counts a routing decision.
    pub fn decided(&self, target: DecisionTarget, reason: Reason) {
        if let Some(counter) = self.decisions(target).get(reason.index()) {
            counter.add(1);
        }
    }

    /// Counts a read that had to see something, and how long it waited for that.
    pub(crate) fn read(&self, level: Level, outcome: ReadOutcome, wait: Duration) {
        if let Some(counter) = self.reads.get(level.index()).and_then(|by| by.get(outcome as usize)) {
            counter.add(1);
        }
        if let Some(histogram) = self.read_wait.get(level.index()) {
            histogram.record(wait);
        }
    }

    /// Counts a read on a replica that shows all but what was acknowledged in the last so long.
    pub(crate) fn stale(&self, level: Level, age: Duration) {
        if let Some(histogram) = self.staleness.get(level.index()) {
            histogram.record(age);
        }
    }

    /// Counts a read that ran before it was known what it must see.
    pub(crate) fn ran_ahead(&self, outcome: OverlapOutcome) {
        if let Some(counter) = self.overlaps.get(outcome as usize) {
            counter.add(1);
        }
    }

    /// Counts a session that begins to keep its server connection.
    pub fn pinned(&self, reason: PinReason) {
        if let Some(counter) = self.pins.get(reason.index()) {
            counter.add(1);
        }
    }

    fn decisions(&self, target: DecisionTarget) -> &[Counter] {
        match target {
            DecisionTarget::Primary => &self.to_primary,
            DecisionTarget::Replica => &self.to_replica,
            DecisionTarget::Local => &self.local,
        }
    }

    fn visit(&self, database: &str, visitor: &mut dyn Visitor) {
        for target in [DecisionTarget::Primary, DecisionTarget::Replica, DecisionTarget::Local] {
            for (reason, counter) in Reason::ALL.iter().zip(self.decisions(target)) {
                let labels =
                    [("database", database), ("target", target.as_str()), ("reason", reason.as_str())];
                visitor.counter("causeway_routing_decisions_total", &labels, counter.value());
            }
        }
        for (reason, counter) in PinReason::ALL.iter().zip(&self.pins) {
            let labels = [("database", database), ("reason", reason.as_str())];
            visitor.counter("causeway_pins_total", &labels, counter.value());
        }
        visitor.counter("causeway_retries_total", &[("database", database)], self.retries.value());
        for (outcome, counter) in OverlapOutcome::ALL.iter().zip(&self.overlaps) {
            let labels = [("database", database), ("outcome", outcome.as_str())];
            visitor.counter("causeway_overlapped_reads_total", &labels, counter.value());
        }
        visitor.counter("causeway_fences_lost_total", &[("database", database)], self.fences_lost.value());
        for ((level, reads), wait) in Level::NAMES.iter().zip(&self.reads).zip(&self.read_wait) {
            for (outcome, counter) in ReadOutcome::ALL.iter().zip(reads) {
                let labels = [("database", database), ("level", *level), ("outcome", outcome.as_str())];
                visitor.counter("causeway_fenced_reads_total", &labels, counter.value());
            }
            let labels = [("database", database), ("level", *level)];
            visitor.histogram("causeway_fence_wait_seconds", &labels, &wait.value());
        }
        for (level, staleness) in Level::NAMES.iter().zip(&self.staleness) {
            let labels = [("database", database), ("level", *level)];
            visitor.histogram("causeway_read_staleness_seconds", &labels, &staleness.value());
        }
    }
}

// === impl BackendMetrics ===

impl BackendMetrics {
    /// Counts a part of a server's answers, of so many bytes.
    pub(crate) fn answered(&self, bytes: usize, counts: &Counts) {
        self.received_bytes.add(bytes as u64);
        self.messages.add(counts.messages);
        self.rows.add(counts.rows);
        self.errors.add(counts.errors);
        self.simple_queries.add(counts.simple_queries);
        self.extended_queries.add(counts.extended_queries);
    }

    fn visit(&self, (database, backend, role): &BackendKey, visitor: &mut dyn Visitor) {
        let labels = [("database", &**database), ("backend", &**backend), ("role", role.as_str())];
        let counters = [
            ("causeway_checkouts_total", &self.checkouts),
            ("causeway_checkout_timeouts_total", &self.checkout_timeouts),
            ("causeway_transactions_total", &self.transactions),
            ("causeway_backend_sent_bytes_total", &self.sent_bytes),
            ("causeway_backend_received_bytes_total", &self.received_bytes),
            ("causeway_backend_messages_total", &self.messages),
            ("causeway_backend_rows_total", &self.rows),
            ("causeway_backend_errors_total", &self.errors),
        ];
        for (name, counter) in counters {
            visitor.counter(name, &labels, counter.value());
        }
        for (protocol, counter) in [("simple", &self.simple_queries), ("extended", &self.extended_queries)] {
            let [database, backend, role] = labels;
            let labels = [database, backend, role, ("protocol", protocol)];
            visitor.counter("causeway_queries_total", &labels, counter.value());
        }
        visitor.histogram("causeway_checkout_wait_seconds", &labels, &self.checkout_wait.value());
        visitor.histogram("causeway_query_duration_seconds", &labels, &self.query_duration.value());
    }
}

// === impl Metrics ===

impl Metrics {
    /// The handle for one database, made when first asked for.
    pub fn database(&self, database: &Arc<str>) -> Arc<DatabaseMetrics> {
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(databases.entry(Arc::clone(database)).or_default())
    }

    /// The handle for one database on one node in one role, made when first asked for.
    pub fn backend(&self, database: &Arc<str>, backend: &Arc<str>, role: Role) -> Arc<BackendMetrics> {
        let key = (Arc::clone(database), Arc::clone(backend), role);
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(backends.entry(key).or_default())
    }

    /// Shows every series to `visitor`.
    pub fn visit(&self, visitor: &mut dyn Visitor) {
        self.process.visit(visitor);
        let databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, metrics) in &databases {
            metrics.visit(name, visitor);
        }
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (key, metrics) in &backends {
            metrics.visit(key, visitor);
        }
    }
}

// === impl ProcessMetrics ===

impl ProcessMetrics {
    fn visit(&self, visitor: &mut dyn Visitor) {
        let connections = "causeway_client_connections_total";
        visitor.counter(connections, &[("result", "accepted")], self.logins.value());
        visitor.counter(connections, &[("result", "auth_failed")], self.auth_failures.value());
        visitor.counter(connections, &[("result", "limit")], self.limit_rejections.value());
        visitor.counter("causeway_client_disconnects_total", &[], self.disconnects.value());
        let cancels = "causeway_cancels_total";
        visitor.counter(cancels, &[("result", "forwarded")], self.cancels_forwarded.value());
        visitor.counter(cancels, &[("result", "passed_on")], self.cancels_passed_on.value());
        visitor.counter(cancels, &[("result", "ignored")], self.cancels_ignored.value());
        let handshakes = "causeway_tls_handshakes_total";
        visitor.counter(handshakes, &[("result", "full")], self.tls_full.value());
        visitor.counter(handshakes, &[("result", "resumed")], self.tls_resumed.value());
        visitor.counter(handshakes, &[("result", "failed")], self.tls_failed.value());
        let lookups = "causeway_classifier_cache_lookups_total";
        visitor.counter(lookups, &[("result", "hit")], self.classifier_hits.value());
        visitor.counter(lookups, &[("result", "miss")], self.classifier_misses.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_is_cumulative() {
        let histogram = Histogram::default();
        for micros in [50, 100, 101, 2_000_000, 99_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let value = histogram.value();
        assert_eq!(value.cumulative, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5]);
        assert!((value.sum - 101.000_251).abs() < 1e-9);
    }
}

//! What the monitors have counted, as metrics.

use causeway_cluster::{Durations, ProbeKind, ProbeResult, Totals};
use causeway_proxy::metrics::{DURATION_BUCKETS, HistogramValue, Visitor};

/// The monitors' histogram has the buckets of all others.
const _: () = assert!(Durations::BOUNDS.len() == DURATION_BUCKETS.len());

/// Shows what one cluster's monitors have counted.
pub(super) fn visit(cluster: &str, totals: &Totals, visitor: &mut dyn Visitor) {
    let labels = [("cluster", cluster)];
    for (kind, results) in ProbeKind::ALL.iter().zip(totals.probes) {
        for (result, count) in ProbeResult::ALL.iter().zip(results) {
            let labels = [("cluster", cluster), ("kind", kind.as_str()), ("result", result.as_str())];
            visitor.counter("causeway_probes_total", &labels, count);
        }
    }
    for (result, count) in [("ok", totals.nudges), ("failed", totals.nudges_failed)] {
        visitor.counter("causeway_nudges_total", &[("cluster", cluster), ("result", result)], count);
    }
    for (name, count) in [
        ("causeway_fences_wanted_total", totals.fences_wanted),
        ("causeway_fences_unflushed_total", totals.fences_unflushed),
        ("causeway_lsn_regressions_total", totals.lsn_regressions),
        ("causeway_epoch_changes_total", totals.epoch_changes),
        ("causeway_stale_primaries_refused_total", totals.stale_primaries_refused),
    ] {
        visitor.counter(name, &labels, count);
    }
    let mut sum = 0;
    let cumulative = totals.fence_seconds.buckets.map(|count| {
        sum += count;
        sum
    });
    let value = HistogramValue { cumulative, sum: totals.fence_seconds.sum.as_secs_f64() };
    visitor.histogram("causeway_fence_probe_seconds", &labels, &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_are_those_of_all_others() {
        for (one, other) in Durations::BOUNDS.iter().zip(DURATION_BUCKETS) {
            assert!((one.as_secs_f64() - other).abs() < 1e-12, "{one:?} {other}");
        }
    }
}

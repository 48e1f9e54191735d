//! The bars that Causeway shall reach, and whether it does.

use super::Results;
use super::cells::{Cell, Work};
use super::figures::{Metric, Ratio};
use super::rounds::{Plan, float};
use crate::lab::peer::Kind;
use crate::lab::pgbench::Protocol;

/// Fewer rounds establish nothing.
const ROUNDS: usize = 15;

/// Whether a bar is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The whole interval is on the right side, by enough rounds; or a count is.
    Met,
    /// The whole interval is on the wrong side; the median by so many percent of the bar.
    MissedBy(f64),
    /// Neither, and why.
    NotEstablished(String),
    /// There are no values.
    NotMeasured,
}

/// A bar with what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Which figure of which work.
    pub figure: String,
    /// At most or at least what.
    pub limit: String,
    /// The median with its bounds, or the count.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// All bars that this plan's work has, judged.
pub fn judge(plan: &Plan, results: &Results) -> Vec<Bar> {
    let mut bars = Vec::new();
    for cell in &plan.cells {
        match cell.work {
            Work::Select { protocol, clients } => select(results, cell, (protocol, clients), &mut bars),
            Work::One { .. } => throughput(results, cell, &mut bars),
            Work::Reconnect => {
                let pair = (Kind::Causeway, Kind::Pgbouncer);
                bars.push(ratio(results, cell, (Metric::Rate, "rate"), (pair, Limit::AtLeast(1.0))));
                bars.push(ratio(results, cell, (Metric::Cpu, "CPU"), (pair, Limit::AtMost(1.1))));
            }
            Work::Paced => {
                let pair = (Kind::Causeway, Kind::Pgbouncer);
                bars.push(ratio(
                    results,
                    cell,
                    (Metric::Middle, "median latency"),
                    (pair, Limit::AtMost(1.0)),
                ));
            }
            Work::Rows(_) | Work::Copy(_) => bulk(results, cell, &mut bars),
            Work::Dump => {}
        }
    }
    let poolers = [(Kind::Causeway, 4.0), (Kind::CausewayTls, 24.0)];
    for (peer, kib) in poolers.into_iter().filter(|(peer, _)| plan.memory && plan.peers.contains(peer)) {
        for clients in [1000, 10_000] {
            let found = results.bytes_per_client(peer, clients).map(|bytes| bytes / 1024.0);
            bars.push(counted(format!("{peer}: KiB a client, {clients} idle"), found, kib));
        }
    }
    bars
}

fn select(results: &Results, cell: &Cell, (protocol, clients): (Protocol, u32), bars: &mut Vec<Bar>) {
    let pair = (Kind::Causeway, Kind::Pgbouncer);
    if clients > 1 {
        bars.push(ratio(results, cell, (Metric::Cpu, "CPU"), (pair, Limit::AtMost(1.0))));
        let found = results.interval(cell, Kind::Causeway, Metric::User);
        let figure = format!("{}: CPU in user mode, us a transaction", cell.name);
        bars.push(Bar::new(figure, Limit::AtMost(3.0), found, ""));
        throughput(results, cell, bars);
    }
    if protocol == Protocol::Simple {
        let count = results.count(cell, Kind::Causeway);
        let found = count.map(|count| float(count.calls.all) / count.amount);
        let limit = if clients > 1 { 4.4 } else { 6.0 };
        bars.push(counted(format!("{}: system calls a transaction", cell.name), found, limit));
    }
}

fn throughput(results: &Results, cell: &Cell, bars: &mut Vec<Bar>) {
    for other in [Kind::Pgbouncer, Kind::Pgpool] {
        let pair = (Kind::Causeway, other);
        bars.push(ratio(results, cell, (Metric::Rate, "rate"), (pair, Limit::AtLeast(1.0))));
    }
}

fn bulk(results: &Results, cell: &Cell, bars: &mut Vec<Bar>) {
    let pair = (Kind::Causeway, Kind::Haproxy);
    bars.push(ratio(results, cell, (Metric::Cpu, "CPU"), (pair, Limit::AtMost(1.2))));
    // Wall time is the inverse of the rate.
    let found = results.ratio(cell, Metric::Rate, (Kind::Direct, Kind::Causeway));
    let figure = format!("{}: wall time, causeway / direct", cell.name);
    bars.push(Bar::new(figure, Limit::AtMost(1.05), found, ""));
}

fn ratio(
    results: &Results,
    cell: &Cell,
    (metric, what): (Metric, &str),
    (pair, limit): ((Kind, Kind), Limit),
) -> Bar {
    let figure = format!("{}: {what}, {} / {}", cell.name, pair.0, pair.1);
    Bar::new(figure, limit, results.ratio(cell, metric, pair), "")
}

/// A figure that has no spread.
fn counted(figure: String, found: Option<f64>, at_most: f64) -> Bar {
    let verdict = match found {
        None => Verdict::NotMeasured,
        Some(found) if found <= at_most => Verdict::Met,
        Some(found) => Verdict::MissedBy((found / at_most - 1.0) * 100.0),
    };
    let measured = found.map_or_else(String::new, |found| format!("{found:.2}"));
    Bar { figure, limit: format!("at most {at_most}"), measured, verdict }
}

// === impl Bar ===

impl Bar {
    fn new(figure: String, limit: Limit, found: Option<Ratio>, unit: &str) -> Self {
        let shown = match limit {
            Limit::AtMost(bar) => format!("at most {bar}{unit}"),
            Limit::AtLeast(bar) => format!("at least {bar}{unit}"),
        };
        let Some(Ratio { interval, disturbed }) = found else {
            return Self { figure, limit: shown, measured: String::new(), verdict: Verdict::NotMeasured };
        };
        let Some(interval) = interval else {
            let verdict = Verdict::NotEstablished(format!("all {disturbed} rounds disturbed"));
            return Self { figure, limit: shown, measured: String::new(), verdict };
        };
        let measured = format!("{:.3} ({:.3} to {:.3})", interval.median, interval.low, interval.high);
        let (right, wrong, miss) = match limit {
            Limit::AtMost(bar) => (interval.high <= bar, interval.low > bar, interval.median / bar - 1.0),
            Limit::AtLeast(bar) => (interval.low >= bar, interval.high < bar, 1.0 - interval.median / bar),
        };
        let verdict = if interval.count < ROUNDS {
            Verdict::NotEstablished(format!("{} calm rounds, {disturbed} disturbed", interval.count))
        } else if right {
            Verdict::Met
        } else if wrong {
            Verdict::MissedBy(miss * 100.0)
        } else {
            Verdict::NotEstablished("the interval holds the bar".to_owned())
        };
        Self { figure, limit: shown, measured, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::samples;
    use super::*;

    fn judged(own: &[f64], other: &[f64]) -> Verdict {
        let mut results = Results::default();
        results.samples.extend(samples("simple-16", Kind::Causeway, own));
        results.samples.extend(samples("simple-16", Kind::Pgbouncer, other));
        let plan = Plan {
            rounds: 15,
            seconds: 1,
            cells: super::super::cells::all(),
            peers: vec![Kind::Causeway, Kind::Pgbouncer],
            causeway: "causeway".into(),
            yaml: String::new(),
            calls: false,
            memory: false,
        };
        judge(&plan, &results)
            .into_iter()
            .find(|bar| bar.figure.starts_with("simple-16: CPU, causeway"))
            .unwrap()
            .verdict
    }

    #[test]
    fn a_bar_needs_rounds_and_a_whole_interval() {
        let fifteen = |value: f64| vec![value; 15];
        assert_eq!(judged(&fifteen(9.0), &fifteen(10.0)), Verdict::Met);
        let Verdict::MissedBy(percent) = judged(&fifteen(12.0), &fifteen(10.0)) else {
            panic!("it is missed")
        };
        assert!((percent - 20.0).abs() < 1e-6);
        assert!(matches!(judged(&[9.0; 14], &[10.0; 14]), Verdict::NotEstablished(_)));
        let mixed: Vec<f64> = (0..15).map(|n| 9.3 + 0.1 * f64::from(n)).collect();
        assert!(matches!(judged(&mixed, &fifteen(10.0)), Verdict::NotEstablished(_)));
        assert_eq!(judged(&fifteen(9.0), &[]), Verdict::NotMeasured);
    }
}

//! What the samples say: medians by cell and proxy, and ratios of proxies within rounds.

use super::cells::{Cell, Work};
use super::statistics::{Interval, interval, median};
use super::{Count, Results, Sample};
use crate::lab::peer::Kind;

/// A pair of samples counts only if nothing else used more of the machine during either, in percent.
pub(super) const CALM: f64 = 20.0;

/// What is read from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    /// Transactions or MB a second.
    Rate,
    /// CPU of the proxy: microseconds a transaction, seconds a GB (10^9 bytes), seconds a dump.
    Cpu,
    /// The part of it in user mode.
    User,
    /// The part of it in the kernel.
    System,
    /// CPU of all servers.
    Servers,
    /// Context switches a transaction, or a MB.
    Switches,
    /// The middle latency, microseconds.
    Middle,
    /// The 99th of a hundred latencies, microseconds.
    Late,
    /// What something else used of the machine, percent.
    Foreign,
}

impl Metric {
    pub(super) fn of(self, work: Work, sample: &Sample) -> f64 {
        // Nanoseconds a byte are seconds a GB.
        let scale = match work {
            Work::Dump => 1e-9,
            work if work.is_bulk() => 1.0,
            _ => 1e-3,
        };
        let per = |ns: f64| ns / sample.amount * scale;
        let [total, user, system] = sample.proxy_ns;
        // The kernel splits in steps of 10 ms what it counts in nanoseconds.
        let share = |part: f64| if user + system > 0.0 { per(total * part / (user + system)) } else { 0.0 };
        match self {
            Self::Rate => sample.rate,
            Self::Cpu => per(total),
            Self::User => share(user),
            Self::System => share(system),
            Self::Servers => per(sample.server_ns),
            Self::Switches => sample.switches / sample.amount * if work.is_bulk() { 1e6 } else { 1.0 },
            Self::Middle => sample.latency_us[0],
            Self::Late => sample.latency_us[1],
            Self::Foreign => sample.foreign,
        }
    }
}

/// Ratios of one proxy to another within the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    /// `None` if there is no calm round.
    pub(super) interval: Option<Interval>,
    /// How many rounds were left out because the machine was not calm.
    pub(super) disturbed: usize,
}

impl Ratio {
    /// `None` if nothing was measured at all.
    fn of(values: &[f64], disturbed: usize) -> Option<Self> {
        (disturbed + values.len() > 0).then(|| Self { interval: interval(values), disturbed })
    }
}

impl Results {
    pub(super) fn of<'a>(&'a self, cell: &'a Cell, peer: Kind) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.cell == cell.name && sample.peer == peer)
    }

    /// The median over all rounds, calm or not.
    pub(super) fn median(&self, cell: &Cell, peer: Kind, metric: Metric) -> Option<f64> {
        median(&self.of(cell, peer).map(|sample| metric.of(cell.work, sample)).collect::<Vec<_>>())
    }

    /// The median over the calm rounds, with its bounds.
    pub(super) fn interval(&self, cell: &Cell, peer: Kind, metric: Metric) -> Option<Ratio> {
        let (calm, disturbed): (Vec<_>, Vec<_>) =
            self.of(cell, peer).partition(|sample| sample.foreign <= CALM);
        let values: Vec<_> = calm.into_iter().map(|sample| metric.of(cell.work, sample)).collect();
        Ratio::of(&values, disturbed.len())
    }

    /// The ratio of `over` to `under` in the rounds that have both.
    pub(super) fn ratio(&self, cell: &Cell, metric: Metric, (over, under): (Kind, Kind)) -> Option<Ratio> {
        let (mut ratios, mut disturbed) = (Vec::new(), 0);
        for sample in self.of(cell, over) {
            let Some(other) = self.of(cell, under).find(|other| other.round == sample.round) else {
                continue;
            };
            if sample.foreign > CALM || other.foreign > CALM {
                disturbed += 1;
                continue;
            }
            let ratio = metric.of(cell.work, sample) / metric.of(cell.work, other);
            ratios.extend(ratio.is_finite().then_some(ratio));
        }
        Ratio::of(&ratios, disturbed)
    }

    /// The system calls of a proxy in a cell.
    pub(super) fn count(&self, cell: &Cell, peer: Kind) -> Option<&Count> {
        self.counts.iter().find(|count| count.cell == cell.name && count.peer == peer)
    }

    /// Bytes of memory a client, at so many clients.
    pub(super) fn bytes_per_client(&self, peer: Kind, clients: usize) -> Option<f64> {
        let of = |clients| {
            let found = self.memory.iter().find(|memory| memory.peer == peer && memory.clients == clients)?;
            Some((super::rounds::float(found.bytes), super::rounds::float(clients as u64)))
        };
        let ((empty, _), (full, clients)) = (of(0)?, of(clients)?);
        Some((full - empty) / clients)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As many rounds as there are values of CPU, microseconds a transaction, with a rate that goes with it.
    pub(crate) fn samples(cell: &str, peer: Kind, cpu: &[f64]) -> Vec<Sample> {
        let sample = |(round, cpu): (u32, &f64)| Sample {
            cell: cell.to_owned(),
            peer,
            round,
            amount: 1000.0,
            rate: 100_000.0 / cpu,
            proxy_ns: [cpu * 1e6, cpu * 0.25e6, cpu * 0.75e6],
            server_ns: 5e7,
            switches: 500.0,
            latency_us: [0.0, 0.0],
            foreign: 1.0,
        };
        (1..).zip(cpu).map(sample).collect()
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let cell = super::super::cells::all().into_iter().find(|cell| cell.name == "simple-16").unwrap();
        let mut results = Results::default();
        // The machine gets slower from round to round: the ratio stays.
        results.samples.extend(samples("simple-16", Kind::Causeway, &[10.0, 20.0, 30.0, 40.0]));
        results.samples.extend(samples("simple-16", Kind::Pgbouncer, &[20.0, 40.0, 60.0, 80.0]));
        let pair = (Kind::Causeway, Kind::Pgbouncer);
        let found = results.ratio(&cell, Metric::Cpu, pair).unwrap().interval.unwrap();
        assert_eq!((found.low, found.median, found.high), (0.5, 0.5, 0.5));
        assert_eq!(results.median(&cell, Kind::Causeway, Metric::Cpu), Some(25.0));
        assert_eq!(results.median(&cell, Kind::Causeway, Metric::User), Some(6.25));
        results.samples[0].foreign = 50.0;
        let ratio = results.ratio(&cell, Metric::Rate, pair).unwrap();
        let found = ratio.interval.unwrap();
        assert_eq!((found.count, ratio.disturbed, found.median), (3, 1, 2.0));
        assert_eq!(results.ratio(&cell, Metric::Cpu, (Kind::Causeway, Kind::Haproxy)), None);
    }
}

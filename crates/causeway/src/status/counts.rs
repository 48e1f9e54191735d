//! What the data plane has counted, summed up as the status page shows it.

use std::collections::BTreeMap;

use causeway_proxy::metrics::{HistogramValue, Visitor};

use crate::config::Config;

/// Sums over the whole process since it began.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// By cluster, node and role.
    pub(super) nodes: BTreeMap<(String, String, String), Work>,
    /// By database.
    pub(super) databases: BTreeMap<String, DatabaseCounts>,
    /// By target and reason.
    pub(super) decisions: BTreeMap<(String, String), u64>,
    /// Reads that had to see something, by level and outcome.
    pub(super) reads: BTreeMap<(String, String), u64>,
    /// Reads run again elsewhere.
    pub(super) retries: u64,
}

/// What the clients of one database had, over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DatabaseCounts {
    /// Server connections lent.
    pub(crate) checkouts: u64,
    pub(crate) transactions: u64,
    pub(crate) queries: u64,
    /// Bytes for the servers, and from them.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// How long servers worked, and how long clients waited for one.
    pub(crate) query_seconds: f64,
    pub(crate) wait_seconds: f64,
}

/// What one node has done in one role.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) queries: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    /// Answered requests, and the time they took together.
    pub(super) requests: u64,
    pub(super) seconds: f64,
}

/// Adds up series; they name databases, and databases their cluster.
pub(super) struct Adder<'a> {
    pub(super) config: &'a Config,
    pub(super) counts: Counts,
}

// === impl Counts ===

impl Counts {
    /// What the nodes have done in this role.
    pub(super) fn in_role(&self, role: &str) -> Work {
        let of_role = self.nodes.iter().filter(|((_, _, own), _)| own == role);
        of_role.fold(Work::default(), |sum, (_, work)| sum.plus(*work))
    }

    /// What one node has done in any role.
    pub(super) fn of_node(&self, cluster: &str, node: &str) -> Work {
        let own = self.nodes.iter().filter(|((of, name, _), _)| of == cluster && name == node);
        own.fold(Work::default(), |sum, (_, work)| sum.plus(*work))
    }
}

// === impl Work ===

impl Work {
    fn plus(self, other: Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            requests: self.requests + other.requests,
            seconds: self.seconds + other.seconds,
        }
    }
}

// === impl Adder ===

impl Adder<'_> {
    fn cluster(&self, database: &str) -> String {
        let named = |wanted: &str| self.config.databases.iter().find(|(name, _)| name == wanted);
        let cluster = named(database).or_else(|| named("*")).map(|(_, database)| database.cluster);
        let cluster = cluster.and_then(|position| self.config.clusters.get(position));
        cluster.map(|cluster| cluster.name.clone()).unwrap_or_default()
    }

    fn database(&mut self, labels: &[(&'static str, &str)]) -> &mut DatabaseCounts {
        self.counts.databases.entry(label(labels, "database").to_owned()).or_default()
    }

    fn work(&mut self, labels: &[(&'static str, &str)]) -> &mut Work {
        let key = (
            self.cluster(label(labels, "database")),
            label(labels, "backend").to_owned(),
            label(labels, "role").to_owned(),
        );
        self.counts.nodes.entry(key).or_default()
    }
}

impl Visitor for Adder<'_> {
    fn counter(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        let pair = |first, second| (label(labels, first).to_owned(), label(labels, second).to_owned());
        match name {
            _ if value == 0 => {}
            "causeway_queries_total" => {
                self.work(labels).queries += value;
                self.database(labels).queries += value;
            }
            "causeway_backend_received_bytes_total" => {
                self.work(labels).bytes += value;
                self.database(labels).sent += value;
            }
            "causeway_backend_sent_bytes_total" => self.database(labels).received += value,
            "causeway_checkouts_total" => self.database(labels).checkouts += value,
            "causeway_transactions_total" => self.database(labels).transactions += value,
            "causeway_backend_errors_total" => self.work(labels).errors += value,
            "causeway_routing_decisions_total" => {
                *self.counts.decisions.entry(pair("target", "reason")).or_default() += value;
            }
            "causeway_fenced_reads_total" => {
                *self.counts.reads.entry(pair("level", "outcome")).or_default() += value;
            }
            "causeway_retries_total" => self.counts.retries += value,
            _ => {}
        }
    }

    fn histogram(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: &HistogramValue) {
        if name == "causeway_query_duration_seconds" {
            let work = self.work(labels);
            work.requests += value.cumulative.last().copied().unwrap_or(0);
            work.seconds += value.sum;
            self.database(labels).query_seconds += value.sum;
        } else if name == "causeway_checkout_wait_seconds" {
            self.database(labels).wait_seconds += value.sum;
        }
    }
}

fn label<'a>(labels: &[(&'static str, &'a str)], name: &str) -> &'a str {
    labels.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
}

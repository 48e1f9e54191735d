//! The text that Prometheus scrapes.
//!
//! Counters and gauges go through a fresh recorder at each scrape: the data plane keeps plain atomics, and a series
//! that is no longer there (a removed node, a pool that was emptied) is simply not set again. Histograms are written
//! here, because their buckets are counted already.

mod fences;
mod names;
mod process;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_cluster::Totals;
use causeway_proxy::metrics::{DURATION_BUCKETS, HistogramValue, Visitor};
use causeway_proxy::{ClientInfo, ClientState, Metrics, PoolInfo};
use causeway_routing::{Load, NodeState, NodeView, Role, View};
use metrics::{Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

pub use self::names::{Kind, METRICS, Metric};
pub use self::process::Process;
use crate::serve::live::Live;
use crate::version;

const METADATA: Metadata<'static> = Metadata::new("causeway", Level::INFO, None);

/// Everything that one scrape shows, read once.
pub struct Sources {
    data: Arc<Metrics>,
    clusters: Vec<Watched>,
    loads: Vec<(Arc<str>, Arc<str>, Load)>,
    ejections: Vec<(Arc<str>, Arc<str>, u64)>,
    pools: Vec<PoolInfo>,
    clients: Vec<ClientInfo>,
    clients_limit: u32,
    reloads: (u64, u64),
    last_reload: (bool, SystemTime),
    started: SystemTime,
    process: Process,
}

/// A cluster, as its monitors see it.
struct Watched {
    name: Arc<str>,
    view: Arc<View>,
    totals: Totals,
    /// Its lineage is kept across restarts.
    kept: bool,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

struct Page {
    recorder: PrometheusRecorder,
    histograms: BTreeMap<&'static str, Vec<(String, HistogramValue)>>,
}

// === impl Sources ===

impl Sources {
    /// What the running process shows now.
    pub fn of(live: &Live) -> Self {
        let clusters = live.clusters.load();
        let cluster = |named: &crate::serve::live::NamedCluster| {
            let (view, totals) = (named.cluster.view(), named.cluster.totals());
            Watched { name: Arc::clone(&named.name), view, totals, kept: named.kept }
        };
        Self {
            data: Arc::clone(live.proxy.metrics()),
            clusters: clusters.iter().map(cluster).collect(),
            loads: live.proxy.nodes_load(),
            ejections: live.proxy.ejections(),
            pools: live.proxy.pools(),
            clients: live.proxy.clients(),
            clients_limit: live.config.load().max_clients,
            reloads: (live.reloads.succeeded(), live.reloads.failed()),
            last_reload: live.reloads.last(),
            started: live.started,
            process: Process::read(),
        }
    }

    /// The page, in the text format 0.0.4.
    pub fn render(&self) -> String {
        let mut page = Page::new();
        self.data.visit(&mut page);
        self.process_wide(&page);
        for Watched { name, view, totals, kept } in &self.clusters {
            page.gauge("causeway_epoch_persisted", &[("cluster", name)], f64::from(u8::from(*kept)));
            view.nodes.iter().for_each(|node| self.node(&page, name, view, node));
            fences::visit(name, totals, &mut page);
        }
        self.pools.iter().for_each(|pool| pool_gauges(&page, pool));
        self.client_gauges(&page);
        let mut text = page.finish();
        self.kernel(&mut text);
        text
    }

    fn process_wide(&self, page: &Page) {
        let commit = version::COMMIT.unwrap_or("unknown");
        page.gauge("causeway_build_info", &[("version", version::VERSION), ("commit", commit)], 1.0);
        page.gauge("causeway_start_time_seconds", &[], unix_seconds(self.started));
        let (succeeded, failed) = self.reloads;
        page.count("causeway_config_reloads_total", &[("result", "success")], succeeded);
        page.count("causeway_config_reloads_total", &[("result", "failure")], failed);
        let (success, moment) = self.last_reload;
        page.gauge("causeway_config_last_reload_success", &[], f64::from(u8::from(success)));
        page.gauge("causeway_config_last_reload_timestamp_seconds", &[], unix_seconds(moment));
        page.gauge("causeway_clients_limit", &[], f64::from(self.clients_limit));
    }

    fn node(&self, page: &Page, cluster: &str, view: &View, node: &NodeView) {
        let labels = [("cluster", cluster), ("backend", &*node.name)];
        let with = |key, value| [labels[0], labels[1], (key, value)];
        let up = !matches!(node.state, NodeState::Down | NodeState::Unknown);
        page.gauge("causeway_backend_up", &labels, f64::from(u8::from(up)));
        for role in [Role::Primary, Role::Replica, Role::Unknown] {
            let is = f64::from(u8::from(node.role == role));
            page.gauge("causeway_backend_role", &with("role", role.as_str()), is);
        }
        for state in
            [NodeState::Serving, NodeState::Lagging, NodeState::Down, NodeState::Refused, NodeState::Unknown]
        {
            let is = f64::from(u8::from(node.state == state));
            page.gauge("causeway_backend_state", &with("state", state.as_str()), is);
        }
        page.gauge("causeway_backend_weight", &labels, f64::from(node.weight));
        if let Some(lag) = node.lag {
            page.gauge("causeway_backend_replay_lag_seconds", &labels, lag.as_secs_f64());
        }
        if let Some(bytes) = node.lag_bytes {
            page.gauge("causeway_backend_replay_lag_bytes", &labels, float(bytes));
        }
        let seen = node.observation.map(|seen| (seen.lsn, seen.timeline));
        let own =
            view.fence.filter(|_| view.primary == Some(node.id)).map(|fence| (fence.lsn, fence.timeline));
        if let Some((lsn, timeline)) = seen.or(own) {
            page.gauge("causeway_backend_replay_lsn_bytes", &labels, float(lsn.0));
            page.gauge("causeway_backend_timeline", &labels, f64::from(timeline));
        }
        let load = self.loads.iter().find(|(of, name, _)| **of == *cluster && *name == node.name);
        let in_flight = load.map_or(0, |(_, _, load)| load.in_flight);
        page.gauge("causeway_backend_in_flight", &labels, f64::from(in_flight));
        let ejected = load.is_some_and(|(_, _, load)| load.ejected);
        page.gauge("causeway_backend_ejected", &labels, f64::from(u8::from(ejected)));
        let ejections = self.ejections.iter().find(|(of, name, _)| **of == *cluster && *name == node.name);
        page.count("causeway_backend_ejections_total", &labels, ejections.map_or(0, |(_, _, times)| *times));
    }

    fn client_gauges(&self, page: &Page) {
        let mut counts: HashMap<(&str, &str, &str), u32> = HashMap::new();
        for client in &self.clients {
            for state in CLIENT_STATES {
                let count = counts.entry((&client.database, &client.user, state_label(state))).or_default();
                *count += u32::from(client.state == state);
            }
        }
        for ((database, user, state), count) in counts {
            let labels = [("database", database), ("user", user), ("state", state)];
            page.gauge("causeway_clients", &labels, f64::from(count));
        }
    }

    /// What the kernel tells; processor time is a counter of fractions, which the recorder has not.
    fn kernel(&self, text: &mut String) {
        let Process { cpu_seconds, resident_bytes, virtual_bytes, open_fds, max_fds } = self.process;
        let values = [
            ("process_cpu_seconds_total", cpu_seconds),
            ("process_resident_memory_bytes", resident_bytes.map(float)),
            ("process_virtual_memory_bytes", virtual_bytes.map(float)),
            ("process_open_fds", open_fds.map(float)),
            ("process_max_fds", max_fds.map(float)),
            ("process_start_time_seconds", Some(unix_seconds(self.started))),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                head(text, name);
                line(text, name, "", value);
            }
        }
    }
}

/// Every state, in the order in which they are shown.
pub(crate) const CLIENT_STATES: [ClientState; 5] = [
    ClientState::Idle,
    ClientState::Waiting,
    ClientState::Active,
    ClientState::InTransaction,
    ClientState::Pinned,
];

/// The metric label, and what SHOW CLIENTS shows.
pub(crate) fn state_label(state: ClientState) -> &'static str {
    match state {
        ClientState::Idle => "idle",
        ClientState::Waiting => "waiting",
        ClientState::Active => "active",
        ClientState::InTransaction => "in_transaction",
        ClientState::Pinned => "pinned",
    }
}

fn pool_gauges(page: &Page, pool: &PoolInfo) {
    let labels = [("database", &*pool.database), ("user", &*pool.user), ("backend", &*pool.node)];
    let status = &pool.status;
    for (state, count) in
        [("active", status.active), ("idle", status.idle), ("connecting", status.connecting)]
    {
        let labels = [labels[0], labels[1], labels[2], ("state", state)];
        page.gauge("causeway_backend_connections", &labels, size(count));
    }
    page.gauge("causeway_backend_connections_limit", &labels, size(status.size));
    page.gauge("causeway_checkout_waiters", &labels, size(status.waiting));
    let oldest = status.oldest_wait.unwrap_or_default();
    page.gauge("causeway_checkout_oldest_wait_seconds", &labels, oldest.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn float(value: u64) -> f64 {
    value as f64
}

fn size(value: usize) -> f64 {
    float(u64::try_from(value).unwrap_or(u64::MAX))
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

// === impl Page ===

impl Page {
    fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in METRICS {
            match metric.kind {
                Kind::Counter => recorder.describe_counter(metric.name.into(), None, metric.help.into()),
                Kind::Gauge => recorder.describe_gauge(metric.name.into(), None, metric.help.into()),
                Kind::Histogram => {}
            }
        }
        Self { recorder, histograms: BTreeMap::new() }
    }

    fn gauge(&self, name: &'static str, labels: Labels<'_>, value: f64) {
        self.recorder.register_gauge(&key(name, labels), &METADATA).set(value);
    }

    fn count(&self, name: &'static str, labels: Labels<'_>, value: u64) {
        self.recorder.register_counter(&key(name, labels), &METADATA).absolute(value);
    }

    fn finish(self) -> String {
        let mut text = self.recorder.handle().render();
        for (name, series) in self.histograms {
            head(&mut text, name);
            for (labels, value) in &series {
                histogram(&mut text, name, labels, value);
            }
        }
        text
    }
}

impl Visitor for Page {
    fn counter(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        self.count(name, labels, value);
    }

    fn histogram(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: &HistogramValue) {
        self.histograms.entry(name).or_default().push((label_text(labels), value.clone()));
    }
}

fn key(name: &'static str, labels: Labels<'_>) -> Key {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(name, labels)
}

/// The labels as they stand between braces; text in which backslash, quote and line feed are escaped.
fn label_text(labels: Labels<'_>) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    labels.join(",")
}

/// The lines HELP and TYPE.
fn head(text: &mut String, name: &str) {
    let Some(metric) = METRICS.iter().find(|metric| metric.name == name) else { return };
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    for part in ["# HELP ", name, " ", metric.help, "\n# TYPE ", name, " ", kind, "\n"] {
        text.push_str(part);
    }
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    for part in [name, &braces, " ", &value.to_string(), "\n"] {
        text.push_str(part);
    }
}

fn histogram(text: &mut String, name: &str, labels: &str, value: &HistogramValue) {
    let comma = if labels.is_empty() { "" } else { "," };
    let bounds = DURATION_BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(value.cumulative) {
        line(text, &format!("{name}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), count);
    }
    line(text, &format!("{name}_sum"), labels, value.sum);
    line(text, &format!("{name}_count"), labels, value.cumulative.last().copied().unwrap_or(0));
}

#[cfg(test)]
mod tests;

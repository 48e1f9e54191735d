//! The JSON document. Numbers say their unit in their name; what is not known is `null`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use causeway_pool::Status;
use causeway_proxy::{ClientInfo, PoolInfo};
use causeway_routing::{Load, NodeView, PinReason, View};
use serde::Serialize;

use super::INTERVAL;
use super::counts::Counts;
use super::history::{Curves, Event, millis};
use super::seen;
use crate::metrics::{CLIENT_STATES, state_label};
use crate::serve::live::{Live, NamedCluster};
use crate::version;

/// Everything that the page shows, read once.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    version: String,
    now_ms: u64,
    started_ms: u64,
    interval_ms: u64,
    ready: bool,
    not_ready_because: Option<String>,
    clients: Clients,
    clusters: Vec<Cluster>,
    routing: Vec<Decision>,
    reads: Vec<Reads>,
    pools: Vec<Pool>,
    pins: Vec<Pin>,
    saved: Saved,
    events: Vec<Event>,
    history: Curves,
}

#[derive(Debug, Serialize)]
struct Clients {
    limit: u32,
    connected: usize,
    by_state: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Serialize)]
struct Cluster {
    name: String,
    primary: Option<String>,
    timeline: Option<u32>,
    complaint: Option<String>,
    fence: Option<String>,
    fences_wanted: u64,
    /// The mean of all questions for a fence.
    fence_ms: Option<f64>,
    lineage_kept: bool,
    nodes: Vec<Node>,
}

#[derive(Debug, Serialize)]
struct Node {
    name: String,
    role: &'static str,
    state: &'static str,
    reason: Option<String>,
    is_primary: bool,
    /// An operator has taken the reads off it.
    drained: bool,
    timeline: Option<u32>,
    replay_lsn: Option<String>,
    lag_ms: Option<u64>,
    lag_bytes: Option<u64>,
    weight: u32,
    in_flight: u32,
    latency_ms: Option<f64>,
    connections: usize,
    queries: u64,
    errors: u64,
}

#[derive(Debug, Serialize)]
struct Decision {
    target: String,
    reason: String,
    count: u64,
    last_minute: u64,
}

/// Reads of one level that had to see something, by how they came to it.
#[derive(Debug, Serialize)]
struct Reads {
    level: String,
    outcomes: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Pool {
    cluster: String,
    node: String,
    database: String,
    user: String,
    mode: &'static str,
    active: usize,
    idle: usize,
    connecting: usize,
    size: usize,
    waiting: usize,
    oldest_wait_ms: u64,
}

#[derive(Debug, Serialize)]
struct Pin {
    reason: &'static str,
    clients: usize,
}

/// What the primary was spared since the process began.
#[derive(Debug, Serialize)]
struct Saved {
    /// Queries that replicas answered.
    queries: u64,
    /// Queries that any node answered.
    of_queries: u64,
    /// How long replicas worked on them.
    seconds: f64,
    /// What they sent.
    bytes: u64,
    /// Reads that a replica could not finish, and that ran again elsewhere unnoticed.
    retries: u64,
}

// === impl Document ===

impl Document {
    /// The process as it stands.
    pub(super) fn of(live: &Live) -> Self {
        let (counts, clients, pools) = (seen::counts(live), live.proxy.clients(), live.proxy.pools());
        let loads = live.proxy.nodes_load();
        let before = live.history.minute_ago().map(|(_, counts)| counts).unwrap_or_default();
        let not_ready = live.ready().err().map(|why| why.to_string());
        let cluster = |named: &NamedCluster| Cluster::of(live, named, &counts, (&pools, &loads));
        Self {
            version: version::long(),
            now_ms: millis(SystemTime::now()),
            started_ms: millis(live.started),
            interval_ms: duration_millis(INTERVAL),
            ready: not_ready.is_none(),
            not_ready_because: not_ready,
            clients: Clients::of(&clients, live.config.load().max_clients),
            clusters: live.clusters.load().iter().map(cluster).collect(),
            routing: decisions(&counts, &before.decisions),
            reads: reads(&counts),
            pools: pools.iter().map(Pool::of).collect(),
            pins: pins(&clients),
            saved: Saved::of(&counts),
            events: live.history.events(),
            history: live.history.curves(),
        }
    }
}

/// The most frequent first.
fn decisions(counts: &Counts, before: &BTreeMap<(String, String), u64>) -> Vec<Decision> {
    let decision = |(key, count): (&(String, String), &u64)| Decision {
        target: key.0.clone(),
        reason: key.1.clone(),
        count: *count,
        last_minute: count.saturating_sub(before.get(key).copied().unwrap_or(0)),
    };
    let mut decisions: Vec<Decision> = counts.decisions.iter().map(decision).collect();
    decisions.sort_by_key(|decision| std::cmp::Reverse((decision.last_minute, decision.count)));
    decisions
}

fn reads(counts: &Counts) -> Vec<Reads> {
    let mut levels: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for ((level, outcome), count) in &counts.reads {
        levels.entry(level).or_default().insert(outcome.clone(), *count);
    }
    levels.into_iter().map(|(level, outcomes)| Reads { level: level.to_owned(), outcomes }).collect()
}

fn pins(clients: &[ClientInfo]) -> Vec<Pin> {
    let pin = |reason: &PinReason| Pin {
        reason: reason.as_str(),
        clients: clients.iter().filter(|client| client.pinned.iter().any(|own| own == *reason)).count(),
    };
    PinReason::ALL.iter().map(pin).filter(|pin| pin.clients > 0).collect()
}

fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Clients ===

impl Clients {
    fn of(clients: &[ClientInfo], limit: u32) -> Self {
        let count =
            |state| (state_label(state), clients.iter().filter(|client| client.state == state).count());
        Self { limit, connected: clients.len(), by_state: CLIENT_STATES.into_iter().map(count).collect() }
    }
}

// === impl Cluster ===

impl Cluster {
    fn of(
        live: &Live,
        named: &NamedCluster,
        counts: &Counts,
        (pools, loads): (&[PoolInfo], &[LoadOf]),
    ) -> Self {
        let (view, totals) = (named.cluster.view(), named.cluster.totals());
        let nodes = view.nodes.iter().map(|node| {
            let load = loads.iter().find(|(of, name, _)| *of == named.name && *name == node.name);
            let connections = pools
                .iter()
                .filter(|pool| pool.cluster == named.name && pool.node == node.name)
                .map(|pool| pool.status.active + pool.status.idle + pool.status.connecting);
            Node {
                reason: named.cluster.reason(node.id),
                connections: connections.sum(),
                drained: live.drained.has(&named.name, &node.name),
                ..Node::of(&view, node, load.map(|(_, _, load)| *load), counts, &named.name)
            }
        });
        let fences = &totals.fence_seconds;
        let mean = |count: u32| (fences.sum / count).as_secs_f64() * 1000.0;
        Self {
            name: named.name.to_string(),
            primary: view.primary.and_then(|id| view.node(id)).map(|node| node.name.to_string()),
            timeline: view.lineage.as_ref().map(|lineage| lineage.timeline),
            complaint: view.complaint.as_deref().map(str::to_owned),
            fence: view.fence.map(|fence| fence.lsn.to_string()),
            fences_wanted: totals.fences_wanted,
            fence_ms: u32::try_from(fences.count).ok().filter(|count| *count > 0).map(mean),
            lineage_kept: named.kept,
            nodes: nodes.collect(),
        }
    }
}

/// Cluster, node, load.
type LoadOf = (std::sync::Arc<str>, std::sync::Arc<str>, Load);

// === impl Node ===

impl Node {
    fn of(view: &View, node: &NodeView, load: Option<Load>, counts: &Counts, cluster: &str) -> Self {
        let is_primary = view.primary == Some(node.id);
        let own = view.fence.filter(|_| is_primary).map(|fence| (fence.lsn, fence.timeline));
        let position = node.observation.map(|seen| (seen.lsn, seen.timeline)).or(own);
        let work = counts.of_node(cluster, &node.name);
        let latency = load.map(|load| load.latency).filter(|latency| !latency.is_zero());
        Self {
            name: node.name.to_string(),
            role: node.role.as_str(),
            state: node.state.as_str(),
            reason: None,
            is_primary,
            drained: false,
            timeline: position.map(|(_, timeline)| timeline),
            replay_lsn: position.map(|(lsn, _)| lsn.to_string()),
            lag_ms: node.lag.map(duration_millis),
            lag_bytes: node.lag_bytes,
            weight: node.weight,
            in_flight: load.map_or(0, |load| load.in_flight),
            latency_ms: latency.map(|latency| latency.as_secs_f64() * 1000.0),
            connections: 0,
            queries: work.queries,
            errors: work.errors,
        }
    }
}

// === impl Pool ===

impl Pool {
    fn of(pool: &PoolInfo) -> Self {
        let Status { idle, active, connecting, waiting, size, oldest_wait } = pool.status;
        Self {
            cluster: pool.cluster.to_string(),
            node: pool.node.to_string(),
            database: pool.database.to_string(),
            user: pool.user.to_string(),
            mode: pool.mode.as_str(),
            active,
            idle,
            connecting,
            size,
            waiting,
            oldest_wait_ms: duration_millis(oldest_wait.unwrap_or_default()),
        }
    }
}

// === impl Saved ===

impl Saved {
    fn of(counts: &Counts) -> Self {
        let (replicas, primary) = (counts.in_role("replica"), counts.in_role("primary"));
        Self {
            queries: replicas.queries,
            of_queries: replicas.queries + primary.queries,
            seconds: replicas.seconds,
            bytes: replicas.bytes,
            retries: counts.retries,
        }
    }
}

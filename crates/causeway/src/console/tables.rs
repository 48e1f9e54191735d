//! Further tables: users, memory, sockets as PgBouncer has them; waiters, lag and fences as only Causeway does.

use causeway_cluster::FenceSource;

use super::commands::Row;
use super::rows;
use crate::metrics::Process;
use crate::serve::live::{Live, NamedCluster};

/// A value that is there, as text.
macro_rules! some {
    ($value:expr) => {
        Some($value.to_string())
    };
}

/// What follows the columns of SHOW CLIENTS in PgBouncer's SHOW SOCKETS: where its buffers stand.
const BUFFERS: usize = 7;
/// How many columns of SHOW CLIENTS and SHOW SERVERS are PgBouncer's.
const SOCKET: usize = 21;
/// The column `state` among them.
const STATE: usize = 4;

pub(super) fn users(live: &Live) -> Vec<Row> {
    let config = live.config.load_full();
    let (pools, clients) = (live.proxy.pools(), live.proxy.clients());
    let row = |(name, user): &(String, crate::config::User)| {
        let own = pools.iter().filter(|pool| *pool.user == **name);
        let open: usize =
            own.map(|pool| pool.status.active + pool.status.idle + pool.status.connecting).sum();
        vec![
            some!(name),
            some!(user.overrides.size.map_or_else(String::new, |size| size.to_string())),
            some!(""),
            user.overrides.mode.map(|mode| rows::mode_word(mode).to_owned()),
            some!(0),
            some!(open),
            some!(0),
            some!(clients.iter().filter(|client| *client.user == **name).count()),
        ]
    };
    config.users.iter().map(row).collect()
}

/// What the kernel tells of the process, in KiB; Causeway's memory has no slabs.
pub(super) fn memory(_: &Live) -> Vec<Row> {
    let process = Process::read();
    let row = |(name, bytes): (&str, Option<u64>)| {
        let bytes = bytes?;
        let total = i32::try_from(bytes).unwrap_or(i32::MAX);
        Some(vec![some!(name), some!(1024), some!(bytes / 1024), some!(0), some!(total)])
    };
    [("resident", process.resident_bytes), ("virtual", process.virtual_bytes)]
        .into_iter()
        .filter_map(row)
        .collect()
}

pub(super) fn sockets(live: &Live) -> Vec<Row> {
    let of = |rows: Vec<Row>, side: &'static str| {
        rows.into_iter().map(move |mut row| {
            row.truncate(SOCKET);
            if let Some(state) = row.get_mut(STATE) {
                *state = Some(format!("{side}_{}", state.as_deref().unwrap_or_default()));
            }
            row.extend(std::iter::repeat_n(some!(0), BUFFERS));
            row
        })
    };
    of(rows::clients(live), "cl").chain(of(rows::servers(live), "sv")).collect()
}

pub(super) fn active_sockets(live: &Live) -> Vec<Row> {
    let active = |row: &Row| {
        row.get(STATE).is_some_and(|state| state.as_deref().is_some_and(|s| s.ends_with("_active")))
    };
    sockets(live).into_iter().filter(active).collect()
}

/// The pools for which clients queue, the longest wait first.
pub(super) fn waiters(live: &Live) -> Vec<Row> {
    let mut pools = live.proxy.pools();
    pools.retain(|pool| pool.status.waiting > 0);
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.status.oldest_wait));
    let row = |pool: causeway_proxy::PoolInfo| {
        vec![
            some!(pool.cluster),
            some!(pool.node),
            some!(pool.database),
            some!(pool.user),
            some!(pool.status.waiting),
            some!(pool.status.oldest_wait.unwrap_or_default().as_millis()),
            some!(pool.status.active),
            some!(pool.status.connecting),
            some!(pool.status.size),
        ]
    };
    pools.into_iter().map(row).collect()
}

/// How far each replica is behind, and whether it shows the newest fence.
pub(super) fn lag(live: &Live) -> Vec<Row> {
    let config = live.config.load_full();
    let mut all = Vec::new();
    for NamedCluster { name, cluster, .. } in live.clusters.load().iter() {
        let view = cluster.view();
        let limit = config.clusters.iter().find(|own| own.name == **name).map(|own| own.max_lag);
        for node in view.nodes.iter().filter(|node| view.primary != Some(node.id)) {
            let shows = view.fence.zip(node.observation).map(|(fence, seen)| {
                let same = fence.system_id == seen.system_id && fence.timeline == seen.timeline;
                if same && seen.lsn >= fence.lsn { "yes" } else { "no" }
            });
            all.push(vec![
                some!(name),
                some!(node.name),
                some!(node.state.as_str()),
                node.observation.map(|seen| seen.timeline.to_string()),
                node.observation.map(|seen| seen.lsn.to_string()),
                view.fence.map(|fence| fence.lsn.to_string()),
                shows.map(str::to_owned),
                node.lag_bytes.map(|bytes| bytes.to_string()),
                node.lag.map(|lag| lag.as_millis().to_string()),
                limit.map(|limit| limit.as_millis().to_string()),
            ]);
        }
    }
    all
}

/// As the key `fence_source` has it.
fn source_word(source: FenceSource) -> &'static str {
    match source {
        FenceSource::Auto => "auto",
        FenceSource::Insert => "insert",
        FenceSource::Flush => "flush",
        FenceSource::Commit => "commit",
    }
}

/// What consistent reads asked of each cluster's primary.
pub(super) fn fences(live: &Live) -> Vec<Row> {
    let row = |NamedCluster { name, cluster, .. }: &NamedCluster| {
        let (totals, (source, why), view) = (cluster.totals(), cluster.fence_source(), cluster.view());
        let answers = &totals.fence_seconds;
        let mean =
            u32::try_from(answers.count).ok().filter(|count| *count > 0).map(|count| answers.sum / count);
        vec![
            some!(name),
            some!(source_word(source)),
            why.as_deref().map(str::to_owned),
            view.fence.map(|fence| fence.to_string()),
            some!(totals.fences_wanted),
            some!(answers.count),
            mean.map(|mean| mean.as_micros().to_string()),
            some!(totals.fences_unflushed),
            some!(totals.nudges),
        ]
    };
    live.clusters.load().iter().map(row).collect()
}

//! What the SHOW commands show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use causeway_pool::{Address, ServerInfo, ServerState};
use causeway_proxy::{ClientInfo, ClientState, PoolInfo, RefusedRead};
use causeway_routing::{Load, NodeView, PinReason, PinSet, Reason, Role};
use tokio::time::Instant;

use super::commands::{COMMANDS, Row};
use crate::config::{ADMIN_DATABASES, Config, KEYS, Mode, Overrides};
use crate::epoch::past;
use crate::logging::timestamp;
use crate::metrics::state_label;
use crate::serve::live::{Live, NamedCluster};
use crate::version;

/// A value that is there, as text.
macro_rules! some {
    ($value:expr) => {
        Some($value.to_string())
    };
}

pub(super) fn help(_: &Live) -> Vec<Row> {
    let shown = COMMANDS.iter().filter(|command| !command.help.is_empty());
    shown.map(|command| vec![some!(synopsis(command.words, command.argument)), some!(command.help)]).collect()
}

/// A command as it is written.
pub(super) fn synopsis(words: &[&str], argument: &str) -> String {
    let words = words.join(" ").to_uppercase();
    if argument.is_empty() { words } else { format!("{words} {argument}") }
}

pub(super) fn version(_: &Live) -> Vec<Row> {
    vec![vec![some!(format!("Causeway {}", version::long()))]]
}

/// What clients of the console are told at login, too.
pub(super) fn server_version(_: &Live) -> Vec<Row> {
    vec![vec![some!(format!("{}/causeway", version::VERSION))]]
}

/// As `PQserverVersion` of libpq reads three numbers (`pqSaveParameterStatus` in `src/interfaces/libpq/fe-exec.c`).
pub(super) fn server_version_num(_: &Live) -> Vec<Row> {
    let parts = version::VERSION.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    vec![vec![some!(parts.fold(0, |number, part| number * 100 + part))]]
}

pub(super) fn state(live: &Live) -> Vec<Row> {
    let yes_or_no = |yes: bool| some!(if yes { "yes" } else { "no" });
    let ready = live.ready();
    vec![
        vec![some!("active"), yes_or_no(!live.is_draining())],
        vec![some!("paused"), yes_or_no(live.proxy.is_paused(None))],
        vec![some!("suspended"), yes_or_no(false)],
        vec![some!("ready"), yes_or_no(ready.is_ok())],
        vec![some!("not_ready_because"), ready.err().map(|why| why.to_string())],
    ]
}

pub(super) fn epoch(live: &Live) -> Vec<Row> {
    let clusters = live.clusters.load();
    let row = |NamedCluster { name, cluster, kept }: &NamedCluster| {
        let (epoch, view) = (cluster.epoch(), cluster.view());
        let primary = view.primary.and_then(|id| view.node(id));
        vec![
            some!(name),
            epoch.as_ref().map(|epoch| epoch.system_id.to_string()),
            epoch.as_ref().map(|epoch| epoch.timeline.to_string()),
            epoch.as_ref().map(past),
            epoch.as_ref().and_then(|epoch| epoch.writer.as_ref()).map(|writer| writer.name.to_string()),
            primary.map(|node| node.name.to_string()),
            view.complaint.as_deref().map(str::to_owned),
            some!(if *kept { "yes" } else { "no" }),
        ]
    };
    clusters.iter().map(row).collect()
}

pub(super) fn nodes(live: &Live) -> Vec<Row> {
    let (config, loads, pools) = (live.config.load_full(), live.proxy.nodes_load(), live.proxy.pools());
    let mut rows = Vec::new();
    for NamedCluster { name, cluster, .. } in live.clusters.load().iter() {
        let view = cluster.view();
        for node in &view.nodes {
            let load =
                loads.iter().find(|(of, on, _)| of == name && *on == node.name).map(|(_, _, load)| *load);
            let connections: usize = pools
                .iter()
                .filter(|pool| pool.cluster == *name && pool.node == node.name)
                .map(|pool| open(&pool.status))
                .sum();
            let is_primary = view.primary == Some(node.id);
            let own = view.fence.filter(|_| is_primary).map(|fence| (fence.lsn, fence.timeline));
            let seen = node.observation.map(|seen| (seen.lsn, seen.timeline)).or(own);
            rows.push(vec![
                some!(name),
                some!(node.name),
                address(&config, name, node).map(ToString::to_string),
                some!(node.role.as_str()),
                some!(node.state.as_str()),
                cluster.reason(node.id).or_else(|| load.and_then(left_alone)),
                some!(node.weight),
                seen.map(|(_, timeline)| timeline.to_string()),
                seen.map(|(lsn, _)| lsn.to_string()),
                node.lag_bytes.map(|bytes| bytes.to_string()),
                node.lag.map(|lag| lag.as_millis().to_string()),
                some!(load.map_or(0, |load| load.in_flight)),
                load.map(|load| load.latency.as_micros().to_string()),
                some!(connections),
                some!(if live.drained.has(name, &node.name) { "yes" } else { "no" }),
            ]);
        }
    }
    rows
}

/// Why a node that serves gets fewer reads than its share.
fn left_alone(load: Load) -> Option<String> {
    match (load.ejected, load.held_back) {
        (true, _) => Some("statements have failed there: it is left alone for a while".to_owned()),
        (false, 0) => None,
        (false, percent) => Some(format!("it is back: {} percent of its share", 100 - percent)),
    }
}

fn address<'a>(config: &'a Config, cluster: &str, node: &NodeView) -> Option<&'a Address> {
    let cluster = config.clusters.iter().find(|configured| configured.name == cluster)?;
    cluster.nodes.iter().find(|configured| *configured.name == *node.name).map(|node| &node.address)
}

fn open(status: &causeway_pool::Status) -> usize {
    status.active + status.idle + status.connecting
}

pub(super) fn routes(live: &Live) -> Vec<Row> {
    let shown = |refused: RefusedRead| {
        vec![
            some!(refused.database),
            some!(refused.text),
            some!(Role::Primary.as_str()),
            some!(Reason::Refused),
            some!(refused.code),
            some!(refused.age.as_secs()),
        ]
    };
    live.proxy.refused_reads().into_iter().map(shown).collect()
}

/// One row for each database and user, over all nodes: tools that read PgBouncer's table expect each pair once.
pub(super) fn pools(live: &Live) -> Vec<Row> {
    let config = live.config.load_full();
    let (pools, clients, servers) = (live.proxy.pools(), live.proxy.clients(), live.proxy.servers());
    let mut pairs: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
    pairs.extend(pools.iter().map(|pool| (Arc::clone(&pool.database), Arc::clone(&pool.user))));
    pairs.extend(clients.iter().map(|client| (Arc::clone(&client.database), Arc::clone(&client.user))));
    let row = |(database, user): (Arc<str>, Arc<str>)| {
        let own: Vec<&PoolInfo> =
            pools.iter().filter(|pool| pool.database == database && pool.user == user).collect();
        let clients_in = |waiting: bool| {
            let ours = |client: &&ClientInfo| client.database == database && client.user == user;
            let state = |client: &&ClientInfo| (client.state == ClientState::Waiting) == waiting;
            clients.iter().filter(ours).filter(state).count()
        };
        let sum =
            |of: fn(&causeway_pool::Status) -> usize| own.iter().map(|pool| of(&pool.status)).sum::<usize>();
        let canceled: usize = servers
            .iter()
            .filter(|(pool, _)| pool.database == database && pool.user == user)
            .map(|(_, servers)| servers.iter().filter(|s| s.state == ServerState::BeingCanceled).count())
            .sum();
        let wait = own.iter().filter_map(|pool| pool.status.oldest_wait).max().unwrap_or_default();
        let mode = own.first().map_or_else(|| mode(&config, &database, &user), |pool| pool.mode.as_str());
        vec![
            some!(database),
            some!(user),
            some!(clients_in(false)),
            some!(clients_in(true)),
            some!(0),
            some!(0),
            some!(sum(|status| status.active).saturating_sub(canceled)),
            some!(0),
            some!(canceled),
            some!(sum(|status| status.idle)),
            some!(0),
            some!(0),
            some!(sum(|status| status.connecting)),
            some!(wait.as_secs()),
            some!(wait.subsec_micros()),
            some!(mode),
            None,
            own.first().map(|pool| pool.cluster.to_string()),
            some!(own.len()),
        ]
    };
    pairs.into_iter().map(row).collect()
}

fn mode(config: &Config, database: &str, user: &str) -> &'static str {
    if ADMIN_DATABASES.contains(&database) {
        // What PgBouncer shows for its own.
        return mode_word(Mode::Statement);
    }
    let user = config.users.iter().find(|(name, _)| name == user).and_then(|(_, user)| user.overrides.mode);
    let database = || overrides_of(config, database).and_then(|overrides| overrides.mode);
    mode_word(user.or_else(database).unwrap_or(config.pool.mode))
}

pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Transaction => "transaction",
        Mode::Session => "session",
        Mode::Statement => "statement",
    }
}

fn overrides_of<'a>(config: &'a Config, database: &str) -> Option<&'a Overrides> {
    let named = |wanted: &str| config.databases.iter().find(|(name, _)| name == wanted);
    named(database).or_else(|| named("*")).map(|(_, database)| &database.overrides)
}

pub(super) fn clients(live: &Live) -> Vec<Row> {
    let row = |client: ClientInfo| {
        let state = match client.state {
            ClientState::Idle => "idle",
            ClientState::Waiting => "waiting",
            ClientState::Active | ClientState::InTransaction | ClientState::Pinned => "active",
        };
        vec![
            some!("C"),
            some!(client.user),
            some!(client.database),
            some!("none"),
            some!(state),
            some!(client.address.map_or_else(|| "unix".to_owned(), |address| address.ip().to_string())),
            some!(client.address.map_or(0, |address| address.port())),
            None,
            None,
            some!(timestamp(client.connected_at)),
            None,
            some!(0),
            some!(0),
            some!(0),
            some!(client.id),
            some!(""),
            some!(0),
            some!(client.tls.map_or_else(String::new, |tls| tls.to_string())),
            some!(client.application_name),
            None,
            some!(client.id),
            some!(state_label(client.state)),
            (!client.pinned.is_empty()).then(|| reasons(client.pinned)),
            client.node.map(|node| node.to_string()),
        ]
    };
    live.proxy.clients().into_iter().map(row).collect()
}

/// The clients that keep their server connection, and why.
pub(super) fn pins(live: &Live) -> Vec<Row> {
    let now = Instant::now();
    let row = |client: ClientInfo| {
        let since = client.pinned_since?;
        Some(vec![
            some!(client.id),
            some!(client.database),
            some!(client.user),
            some!(client.application_name),
            some!(reasons(client.pinned)),
            some!(now.saturating_duration_since(since).as_millis()),
            some!(state_label(client.state)),
            client.node.map(|node| node.to_string()),
        ])
    };
    live.proxy.clients().into_iter().filter_map(row).collect()
}

fn reasons(pins: PinSet) -> String {
    pins.iter().map(PinReason::as_str).collect::<Vec<_>>().join(",")
}

pub(super) fn servers(live: &Live) -> Vec<Row> {
    let row = |pool: &PoolInfo, server: &ServerInfo| {
        let state = match server.state {
            ServerState::Idle => "idle",
            ServerState::Active => "active",
            ServerState::BeingCanceled => "being_canceled",
        };
        let (host, port) = match &server.address {
            Address::Tcp { host, port } => (host.to_string(), *port),
            Address::Unix { port, .. } => ("unix".to_owned(), *port),
        };
        vec![
            some!("S"),
            some!(pool.user),
            some!(pool.database),
            some!("none"),
            some!(state),
            some!(host),
            some!(port),
            None,
            None,
            some!(wall_clock(server.connected_at)),
            some!(wall_clock(server.last_used)),
            some!(0),
            some!(0),
            some!(0),
            some!(format!("{}:{}", pool.node, server.process_id)),
            some!(""),
            some!(server.process_id),
            some!(""),
            None,
            None,
            some!(server.process_id),
            some!(pool.cluster),
            some!(pool.node),
            some!(server.transactions),
        ]
    };
    let pools = live.proxy.servers();
    pools.iter().flat_map(|(pool, servers)| servers.iter().map(|server| row(pool, server))).collect()
}

fn wall_clock(moment: Instant) -> String {
    timestamp(SystemTime::now().checked_sub(moment.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH))
}

pub(super) fn databases(live: &Live) -> Vec<Row> {
    let config = live.config.load_full();
    let (pools, clients) = (live.proxy.pools(), live.proxy.clients());
    let mut names: BTreeSet<&str> = config.databases.iter().map(|(name, _)| name.as_str()).collect();
    names.extend(pools.iter().map(|pool| &*pool.database));
    names.extend(clients.iter().map(|client| &*client.database));
    names.retain(|name| !ADMIN_DATABASES.contains(name));
    names
        .into_iter()
        .filter_map(|name| database_row(&config, (name, live.proxy.is_paused(Some(name))), &pools, &clients))
        .collect()
}

/// `None` for a database that the configuration no longer serves.
fn database_row(
    config: &Config,
    (name, paused): (&str, bool),
    pools: &[PoolInfo],
    clients: &[ClientInfo],
) -> Option<Row> {
    let named = |wanted: &str| config.databases.iter().find(|(name, _)| name == wanted);
    let (_, database) = named(name).or_else(|| named("*"))?;
    let cluster = config.clusters.get(database.cluster)?;
    let (hosts, ports): (Vec<String>, Vec<u16>) = cluster
        .nodes
        .iter()
        .map(|node| match &node.address {
            Address::Tcp { host, port } => (host.to_string(), *port),
            Address::Unix { directory, port } => (directory.display().to_string(), *port),
        })
        .unzip();
    let overrides = &database.overrides;
    let open: usize =
        pools.iter().filter(|pool| *pool.database == *name).map(|pool| open(&pool.status)).sum();
    Some(vec![
        some!(name),
        some!(hosts.join(",")),
        some!(ports.first()?),
        some!(name),
        None,
        some!(overrides.size.unwrap_or(config.pool.size)),
        some!(0),
        some!(0),
        some!(config.pool.lifetime.as_secs()),
        some!(mode_word(overrides.mode.unwrap_or(config.pool.mode))),
        None,
        some!(0),
        some!(open),
        some!(0),
        some!(clients.iter().filter(|client| *client.database == *name).count()),
        some!(u8::from(paused)),
        some!(0),
        some!(cluster.name),
        some!(overrides.level.unwrap_or(config.consistency.level)),
        some!(0),
    ])
}

pub(super) fn lists(live: &Live) -> Vec<Row> {
    let config = live.config.load_full();
    let (pools, clients) = (live.proxy.pools(), live.proxy.clients());
    let pairs: BTreeSet<_> = pools.iter().map(|pool| (&pool.database, &pool.user)).collect();
    let nodes: usize = config.clusters.iter().map(|cluster| cluster.nodes.len()).sum();
    let open: usize = pools.iter().map(|pool| open(&pool.status)).sum();
    let lists = [
        ("databases", config.databases.len()),
        ("users", config.users.len()),
        ("peers", 0),
        ("pools", pairs.len()),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", clients.len()),
        ("login_clients", 0),
        ("free_servers", 0),
        ("used_servers", open),
        ("dns_names", 0),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
        ("clusters", config.clusters.len()),
        ("nodes", nodes),
    ];
    lists.into_iter().map(|(name, items)| vec![some!(name), some!(items)]).collect()
}

/// Every value as it was written, then the defaults of the keys that were not.
pub(super) fn config(live: &Live) -> Vec<Row> {
    config_rows(&live.config.load())
}

pub(super) fn config_rows(config: &Config) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let changeable = |reloads: bool| some!(if reloads { "yes" } else { "no" });
    for written in &config.written {
        let key = KEYS.iter().find(|key| key.path == written.pattern);
        let row = vec![
            some!(written.path),
            some!(written.text),
            key.and_then(|key| key.default).map(str::to_owned),
            changeable(key.is_none_or(|key| key.reloads)),
        ];
        rows.insert(written.path.clone(), row);
    }
    for key in KEYS.iter().filter(|key| !key.path.contains('<')) {
        if !config.written.iter().any(|written| written.pattern == key.path) {
            let path = key.path.trim_end_matches("[]").to_owned();
            let default = key.default.map(str::to_owned);
            rows.insert(path.clone(), vec![Some(path), default.clone(), default, changeable(key.reloads)]);
        }
    }
    rows.into_values().collect()
}

//! The table of console commands.

use causeway_proxy::console::{Column, ColumnKind};

use super::{rows, stats, tables};
use crate::serve::live::Live;

/// One row of a console table.
pub(super) type Row = Vec<Option<String>>;

/// What a command does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    /// Shows something of the running process.
    Show(fn(&Live) -> Vec<Row>),
    /// Shows a setting that drivers ask for.
    Parameter(&'static str),
    /// Says where a statement would run.
    ExplainRoute,
    /// Reads the configuration again.
    Reload,
    /// Forgets a cluster's lineage and takes the one that is there.
    EpochAccept,
    /// Ends every session of a database.
    Kill,
    /// Ends one session.
    KillClient,
    /// Holds back the clients of a database, or all.
    Pause,
    /// Lets them go on.
    Resume,
    /// Takes the reads off a node.
    Drain,
    /// Gives it reads again.
    Undrain,
    /// Accepts a SET that drivers send, and does nothing.
    Set,
}

/// A console command.
pub(super) struct Command {
    /// Its words, in lower case.
    pub(super) words: &'static [&'static str],
    /// What follows them, for HELP and messages; empty if nothing may.
    pub(super) argument: &'static str,
    /// The columns it gives; empty if it gives no rows.
    pub(super) columns: &'static [Column],
    /// What it does.
    pub(super) action: Action,
    /// What it is for; empty for what HELP does not mention.
    pub(super) help: &'static str,
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Text }
}

const fn int4(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Int4 }
}

const fn numeric(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Numeric }
}

const fn int8(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Int8 }
}

const fn show(
    words: &'static [&'static str],
    columns: &'static [Column],
    rows: fn(&Live) -> Vec<Row>,
    help: &'static str,
) -> Command {
    Command { words, argument: "", columns, action: Action::Show(rows), help }
}

const fn parameter(
    words: &'static [&'static str],
    columns: &'static [Column],
    value: &'static str,
) -> Command {
    Command { words, argument: "", columns, action: Action::Parameter(value), help: "" }
}

/// A command whose argument may be left out.
const fn perhaps(
    words: &'static [&'static str],
    argument: &'static str,
    action: Action,
    help: &'static str,
) -> Command {
    Command { words, argument, columns: &[], action, help }
}

const fn act(
    word: &'static [&'static str],
    argument: &'static str,
    action: Action,
    help: &'static str,
) -> Command {
    Command { words: word, argument, columns: &[], action, help }
}

/// Every command. Where PgBouncer has a table of the same name, its columns come first, in its order and types.
pub(super) const COMMANDS: &[Command] = &[
    show(&["show", "help"], &[text("command"), text("meaning")], rows::help, "This table."),
    show(&["show", "version"], &[text("version")], rows::version, "What is running."),
    show(&["show", "state"], &[text("key"), text("value")], rows::state, "Whether clients are served."),
    show(&["show", "nodes"], NODES, rows::nodes, "The nodes: roles, states and why, lag, load."),
    show(
        &["show", "pools"],
        POOLS,
        rows::pools,
        "Clients and server connections for each database and user.",
    ),
    show(&["show", "clients"], CLIENTS, rows::clients, "The clients."),
    show(&["show", "pins"], PINS, rows::pins, "The clients that keep their server connection, and why."),
    show(&["show", "servers"], SERVERS, rows::servers, "The server connections."),
    show(&["show", "databases"], DATABASES, rows::databases, "The databases and what holds for them."),
    show(
        &["show", "routes"],
        ROUTES,
        rows::routes,
        "Reads that replicas refused lately, and that run on the primary.",
    ),
    show(
        &["show", "lag"],
        LAG,
        tables::lag,
        "How far each replica is behind, and whether it shows the newest fence.",
    ),
    show(&["show", "fences"], FENCES, tables::fences, "What consistent reads asked of each primary."),
    show(&["show", "waiters"], WAITERS, tables::waiters, "The pools for which clients queue."),
    show(
        &["show", "stats"],
        STATS,
        stats::stats,
        "Totals of each database, and averages of the last minute.",
    ),
    show(&["show", "stats_totals"], STATS_TOTALS, stats::stats_totals, "The totals alone."),
    show(&["show", "stats_averages"], STATS_AVERAGES, stats::stats_averages, "The averages alone."),
    show(
        &["show", "totals"],
        &[text("name"), numeric("value")],
        stats::all_totals,
        "The same summed over all databases, one a row.",
    ),
    show(&["show", "users"], USERS, tables::users, "The users of the configuration."),
    show(&["show", "sockets"], SOCKETS, tables::sockets, "Clients and server connections together."),
    show(&["show", "active_sockets"], SOCKETS, tables::active_sockets, "Those that are in use."),
    show(&["show", "mem"], MEM, tables::memory, "The memory of the process."),
    show(
        &["show", "lists"],
        &[text("list"), int4("items")],
        rows::lists,
        "How many there are of each thing.",
    ),
    show(
        &["show", "config"],
        &[text("key"), text("value"), text("default"), text("changeable")],
        rows::config,
        "The configuration in force, without secrets.",
    ),
    Command {
        words: &["explain", "route", "database"],
        argument: "<database> [USER <user>] <statement>",
        columns: &[
            text("class"),
            text("target"),
            text("node"),
            text("reason"),
            text("level"),
            text("fence"),
            text("candidates"),
        ],
        action: Action::ExplainRoute,
        help: "Where the statement would run first in a fresh session, and why; it is not run.",
    },
    act(&["reload"], "", Action::Reload, "Reads the configuration again: whole or not at all."),
    show(&["show", "epoch"], EPOCH, rows::epoch, "The accepted lineage of each cluster."),
    act(
        &["epoch", "accept"],
        "<cluster>",
        Action::EpochAccept,
        "Takes the cluster's primary as it is now, after an upgrade, a restore or a split brain.",
    ),
    perhaps(
        &["pause"],
        "[<database>]",
        Action::Pause,
        "Holds clients back, of all databases or one, and closes the server connections once none is in use.",
    ),
    perhaps(&["resume"], "[<database>]", Action::Resume, "Lets them go on."),
    act(
        &["drain"],
        "<node>",
        Action::Drain,
        "Sends no more reads to a replica, and returns when none runs there; <cluster>/<node> if several have the name.",
    ),
    act(&["undrain"], "<node>", Action::Undrain, "Gives it reads again."),
    act(&["kill"], "<database>", Action::Kill, "Ends every session of a database."),
    act(&["kill_client"], "<id>", Action::KillClient, "Ends the session with this id of SHOW CLIENTS."),
    // What drivers say to every server they meet.
    act(&["set"], "<setting>", Action::Set, ""),
    show(&["show", "server_version"], &[text("server_version")], rows::server_version, ""),
    show(&["show", "server_version_num"], &[text("server_version_num")], rows::server_version_num, ""),
    parameter(&["show", "client_encoding"], &[text("client_encoding")], "UTF8"),
    parameter(&["show", "datestyle"], &[text("datestyle")], "ISO"),
    parameter(&["show", "timezone"], &[text("timezone")], "GMT"),
    parameter(&["show", "standard_conforming_strings"], &[text("standard_conforming_strings")], "on"),
    parameter(&["show", "extra_float_digits"], &[text("extra_float_digits")], "2"),
    parameter(&["show", "transaction_isolation"], &[text("transaction_isolation")], "read committed"),
    parameter(
        &["show", "default_transaction_isolation"],
        &[text("default_transaction_isolation")],
        "read committed",
    ),
    parameter(&["show", "in_hot_standby"], &[text("in_hot_standby")], "off"),
];

const NODES: &[Column] = &[
    text("cluster"),
    text("node"),
    text("address"),
    text("role"),
    text("state"),
    text("reason"),
    int4("weight"),
    int4("timeline"),
    text("replay_lsn"),
    int8("lag_bytes"),
    int8("lag_ms"),
    int4("in_flight"),
    int8("latency_us"),
    int4("connections"),
    text("drained"),
];

const LAG: &[Column] = &[
    text("cluster"),
    text("node"),
    text("state"),
    int4("timeline"),
    text("replay_lsn"),
    text("fence"),
    text("shows_fence"),
    int8("lag_bytes"),
    int8("lag_ms"),
    int8("max_lag_ms"),
];

const FENCES: &[Column] = &[
    text("cluster"),
    text("source"),
    text("because"),
    text("newest"),
    int8("wanted"),
    int8("asked"),
    int8("answer_us"),
    int8("unflushed"),
    int8("nudges"),
];

const WAITERS: &[Column] = &[
    text("cluster"),
    text("node"),
    text("database"),
    text("user"),
    int4("waiting"),
    int8("oldest_wait_ms"),
    int4("active"),
    int4("connecting"),
    int4("size"),
];

const USERS: &[Column] = &[
    text("name"),
    text("pool_size"),
    text("reserve_pool_size"),
    text("pool_mode"),
    int4("max_user_connections"),
    int4("current_connections"),
    int4("max_user_client_connections"),
    int4("current_client_connections"),
];

const MEM: &[Column] = &[text("name"), int4("size"), int4("used"), int4("free"), int4("memtotal")];

/// The columns of SHOW STATS and its kin: `database`, followed by totals, averages and `more`.
macro_rules! stats {
    ([$($total:literal),*] [$($average:literal),*] $($more:expr),*) => {
        &[text("database"), $(numeric($total),)* $(numeric($average),)* $($more),*]
    };
}

const STATS: &[Column] = stats!(
    ["total_server_assignment_count", "total_xact_count", "total_query_count", "total_received", "total_sent",
     "total_xact_time", "total_query_time", "total_wait_time", "total_client_parse_count",
     "total_server_parse_count", "total_bind_count"]
    ["avg_server_assignment_count", "avg_xact_count", "avg_query_count", "avg_recv", "avg_sent", "avg_xact_time",
     "avg_query_time", "avg_wait_time", "avg_client_parse_count", "avg_server_parse_count", "avg_bind_count"]
    // As PgBouncer called it before 1.8: there are exporters that still ask for it.
    numeric("total_requests")
);

const STATS_TOTALS: &[Column] = stats!(
    ["total_server_assignment_count", "total_xact_count", "total_query_count", "total_received", "total_sent",
     "total_xact_time", "total_query_time", "total_wait_time", "total_client_parse_count",
     "total_server_parse_count", "total_bind_count"]
    []
);

const STATS_AVERAGES: &[Column] = stats!(
    []
    ["avg_server_assignment_count", "avg_xact_count", "avg_query_count", "avg_recv", "avg_sent", "avg_xact_time",
     "avg_query_time", "avg_wait_time", "avg_client_parse_count", "avg_server_parse_count", "avg_bind_count"]
);

const ROUTES: &[Column] =
    &[text("database"), text("statement"), text("target"), text("reason"), text("sqlstate"), int8("age_s")];

const EPOCH: &[Column] = &[
    text("cluster"),
    text("system_id"),
    int4("timeline"),
    text("ancestors"),
    text("writer"),
    text("primary"),
    text("complaint"),
    text("kept"),
];

const POOLS: &[Column] = &[
    text("database"),
    text("user"),
    int4("cl_active"),
    int4("cl_waiting"),
    int4("cl_active_cancel_req"),
    int4("cl_waiting_cancel_req"),
    int4("sv_active"),
    int4("sv_active_cancel"),
    int4("sv_being_canceled"),
    int4("sv_idle"),
    int4("sv_used"),
    int4("sv_tested"),
    int4("sv_login"),
    int4("maxwait"),
    int4("maxwait_us"),
    text("pool_mode"),
    text("load_balance_hosts"),
    // Causeway's own.
    text("cluster"),
    int4("nodes"),
];

/// The columns of PgBouncer's SHOW CLIENTS and SHOW SERVERS, followed by `more`.
macro_rules! sockets {
    ($($more:expr),*) => {
        &[
            text("type"),
            text("user"),
            text("database"),
            text("replication"),
            text("state"),
            text("addr"),
            int4("port"),
            text("local_addr"),
            int4("local_port"),
            text("connect_time"),
            text("request_time"),
            int4("wait"),
            int4("wait_us"),
            int4("close_needed"),
            text("ptr"),
            text("link"),
            int4("remote_pid"),
            text("tls"),
            text("application_name"),
            int4("prepared_statements"),
            int4("id"),
            $($more),*
        ]
    };
}

const SOCKETS: &[Column] = sockets!(
    int4("recv_pos"),
    int4("pkt_pos"),
    int4("pkt_remain"),
    int4("send_pos"),
    int4("send_remain"),
    int4("pkt_avail"),
    int4("send_avail")
);

const CLIENTS: &[Column] = sockets!(text("session_state"), text("pinned"), text("node"));

const PINS: &[Column] = &[
    int4("id"),
    text("database"),
    text("user"),
    text("application_name"),
    text("reasons"),
    int8("pinned_ms"),
    text("session_state"),
    text("node"),
];

const SERVERS: &[Column] = sockets!(text("cluster"), text("node"), int8("transactions"));

const DATABASES: &[Column] = &[
    text("name"),
    text("host"),
    int4("port"),
    text("database"),
    text("force_user"),
    int4("pool_size"),
    int4("min_pool_size"),
    int4("reserve_pool_size"),
    int4("server_lifetime"),
    text("pool_mode"),
    text("load_balance_hosts"),
    int4("max_connections"),
    int4("current_connections"),
    int4("max_client_connections"),
    int4("current_client_connections"),
    int4("paused"),
    int4("disabled"),
    // Causeway's own.
    text("cluster"),
    text("consistency"),
    // As PgBouncer called it before 1.16: there are exporters that still ask for it.
    int4("reserve_pool"),
];

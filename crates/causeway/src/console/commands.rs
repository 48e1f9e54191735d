//! The table of console commands.

use causeway_proxy::console::{Column, ColumnKind};

use super::rows;
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
];

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
];

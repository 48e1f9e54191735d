//! The configuration of every proxy: its defaults, transaction pooling with 20 server connections, no logging of
//! connections, and what it needs to stand where it stands.

use super::peer::Server;
use super::{DATABASE, USER};

/// Server connections a pool has at most.
pub(super) const POOL_SIZE: u32 = 20;
/// Clients that every proxy shall admit: the measurement of idle clients has ten thousand.
const CLIENTS: u32 = 11_000;

/// A certificate with its key, in PEM files.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Causeway; `extra` is YAML at its top level. A `slow` one runs under valgrind, where checks of the servers would take
/// a larger share than they do.
pub(super) fn causeway(
    servers: &[Server],
    (port, http): (u16, u16),
    certificate: Option<&Certificate>,
    (extra, slow): (&str, bool),
) -> String {
    let checks = if slow { "    check_interval: 2s\n    check_timeout: 10s\n" } else { "" };
    let node = |server: &Server| {
        format!("      - {{ name: {}, address: \"127.0.0.1:{}\" }}\n", server.name, server.port)
    };
    let nodes: Vec<_> = servers.iter().map(node).collect();
    let tls = certificate.map_or(String::new(), |Certificate { certificate, key }| {
        format!("tls: {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n")
    });
    format!(
        "listen: [\"127.0.0.1:{port}\"]\nhttp: \"127.0.0.1:{http}\"\nstate_dir: .\nlog: {{ level: warn }}\n\
         clusters:\n  main:\n    nodes:\n{}    monitor: {{ user: {USER} }}\n{checks}\
         pool: {{ mode: transaction, size: {POOL_SIZE} }}\nlimits: {{ max_clients: {CLIENTS} }}\n\
         auth: {{ rules: [{{ address: \"127.0.0.0/8\", method: trust }}] }}\n\
         databases: {{ \"*\": {{ cluster: main }} }}\n{tls}{extra}",
        nodes.concat()
    )
}

/// PgBouncer, before the primary.
pub(super) fn pgbouncer(
    primary: &Server,
    port: u16,
    mode: &str,
    certificate: Option<&Certificate>,
) -> String {
    let tls = certificate.map_or(String::new(), |Certificate { certificate, key }| {
        format!("client_tls_sslmode = require\nclient_tls_cert_file = {certificate}\nclient_tls_key_file = {key}\n")
    });
    format!(
        "[databases]\n{DATABASE} = host=127.0.0.1 port={} dbname={DATABASE} user={USER}\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n\
         default_pool_size = {POOL_SIZE}\nmax_client_conn = {CLIENTS}\nlog_connections = 0\n\
         log_disconnections = 0\nlog_stats = 0\n{tls}",
        primary.port
    )
}

/// `HAProxy` as a plain TCP proxy before the primary, with two threads. Each client takes a connection of the server's, so
/// it needs no more of them than that has.
pub(super) fn haproxy(primary: &Server, port: u16) -> String {
    format!(
        "global\n    nbthread 2\n    maxconn 650\ndefaults\n    mode tcp\n    timeout connect 5s\n    \
         timeout client 1h\n    timeout server 1h\n    option splice-request\n    option splice-response\n\
         listen postgresql\n    bind 127.0.0.1:{port}\n    server primary 127.0.0.1:{}\n",
        primary.port
    )
}

/// Pgpool-II with reads on the replicas, statement by statement; every client takes one of its children.
pub(super) fn pgpool(servers: &[Server], ports: (u16, u16), directory: &str, children: u32) -> String {
    let (port, pcp_port) = ports;
    let common = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\npcp_port = {pcp_port}\nsocket_dir = '{directory}'\n\
         pcp_socket_dir = '{directory}'\nwd_ipc_socket_dir = '{directory}'\npid_file_name = '{directory}/pgpool.pid'\n\
         logdir = '{directory}'\nbackend_clustering_mode = 'streaming_replication'\nload_balance_mode = on\n\
         statement_level_load_balance = on\nnum_init_children = {children}\nmax_pool = 1\nconnection_cache = on\n\
         memory_cache_enabled = off\nenable_pool_hba = off\nhealth_check_period = 0\nsr_check_user = '{USER}'\n\
         sr_check_database = 'postgres'\nlog_connections = off\nlog_disconnections = off\nlog_statement = off\n\
         log_min_messages = warning\nssl = off\n"
    );
    let backend = |(index, server): (usize, &Server)| {
        let weight = u8::from(index > 0);
        format!(
            "backend_hostname{index} = '127.0.0.1'\nbackend_port{index} = {}\nbackend_weight{index} = {weight}\n\
             backend_flag{index} = 'DISALLOW_TO_FAILOVER'\n",
            server.port
        )
    };
    common + &servers.iter().enumerate().map(backend).collect::<Vec<_>>().concat()
}

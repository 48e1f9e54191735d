//! Every key with its default and what a reload does: for SHOW CONFIG, and held against the documentation.

/// One key of the YAML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its place; `<name>` stands for any name, `[]` for any position.
    pub path: &'static str,
    /// What holds when it is absent; `None` when something must be written or nothing is assumed.
    pub default: Option<&'static str>,
    /// Whether a reload applies a change; otherwise a restart does.
    pub reloads: bool,
}

const fn key(path: &'static str, default: &'static str) -> Key {
    Key { path, default: Some(default), reloads: true }
}

const fn bare(path: &'static str) -> Key {
    Key { path, default: None, reloads: true }
}

const fn fixed(path: &'static str, default: &'static str) -> Key {
    Key { path, default: Some(default), reloads: false }
}

/// Every key, in the order of the documentation.
pub const KEYS: &[Key] = &[
    key("listen[]", "127.0.0.1:6432"),
    key("http", "127.0.0.1:9127"),
    bare("metrics_compat"),
    bare("tls.cert_file"),
    bare("tls.key_file"),
    key("tls.mode", "allow"),
    bare("state_dir"),
    bare("peers[]"),
    bare("clusters.<name>.nodes[].name"),
    bare("clusters.<name>.nodes[].address"),
    key("clusters.<name>.nodes[].weight", "1"),
    bare("clusters.<name>.nodes[].levels[]"),
    bare("clusters.<name>.nodes[].max_server_connections"),
    key("clusters.<name>.nodes[].server_tls.mode", "verify-full"),
    bare("clusters.<name>.nodes[].server_tls.ca_file"),
    bare("clusters.<name>.nodes[].server_tls.crl_file"),
    bare("clusters.<name>.nodes[].server_tls.cert_file"),
    bare("clusters.<name>.nodes[].server_tls.key_file"),
    key("clusters.<name>.nodes[].server_tls.channel_binding", "prefer"),
    key("clusters.<name>.server_tls.mode", "verify-full"),
    bare("clusters.<name>.server_tls.ca_file"),
    bare("clusters.<name>.server_tls.crl_file"),
    bare("clusters.<name>.server_tls.cert_file"),
    bare("clusters.<name>.server_tls.key_file"),
    key("clusters.<name>.server_tls.channel_binding", "prefer"),
    bare("clusters.<name>.monitor.user"),
    bare("clusters.<name>.monitor.password"),
    bare("clusters.<name>.monitor.password_file"),
    key("clusters.<name>.monitor.database", "postgres"),
    key("clusters.<name>.max_lag", "10s"),
    key("clusters.<name>.primary_wait", "10s"),
    key("clusters.<name>.fence_source", "auto"),
    key("clusters.<name>.check_interval", "250ms"),
    key("clusters.<name>.check_timeout", "1s"),
    key("clusters.<name>.eject_after", "5"),
    key("clusters.<name>.slow_start", "10s"),
    key("pool.mode", "transaction"),
    key("pool.size", "20"),
    key("pool.max_waiters", "10000"),
    key("pool.max_connecting", "4"),
    key("pool.checkout_timeout", "5s"),
    key("pool.connect_timeout", "5s"),
    key("pool.idle_timeout", "10m"),
    key("pool.lifetime", "1h"),
    key("pool.keepalive.idle", "30s"),
    key("pool.keepalive.interval", "10s"),
    key("pool.keepalive.probes", "3"),
    key("pool.keepalive.user_timeout", "30s"),
    key("consistency.default", "cluster"),
    key("consistency.wait", "50ms"),
    key("consistency.fallback", "primary"),
    key("consistency.fallback_limit", "32"),
    key("consistency.lost_writes", "error"),
    key("consistency.overlap", "off"),
    bare("routing.functions.<name>"),
    bare("routing.tables.<name>"),
    bare("auth.rules[].address"),
    bare("auth.rules[].database"),
    bare("auth.rules[].user"),
    bare("auth.rules[].tls"),
    bare("auth.rules[].method"),
    bare("auth.userlist_file"),
    bare("databases.<name>.cluster"),
    bare("databases.<name>.pool.mode"),
    bare("databases.<name>.pool.size"),
    bare("databases.<name>.pool.checkout_timeout"),
    bare("databases.<name>.consistency.default"),
    bare("databases.<name>.consistency.wait"),
    bare("databases.<name>.consistency.fallback"),
    bare("databases.<name>.consistency.lost_writes"),
    bare("databases.<name>.routing.functions.<name>"),
    bare("databases.<name>.routing.tables.<name>"),
    bare("databases.<name>.limits.max_clients"),
    bare("databases.<name>.limits.max_server_connections"),
    bare("databases.<name>.timeouts.query_timeout"),
    bare("databases.<name>.timeouts.transaction_timeout"),
    bare("databases.<name>.timeouts.idle_in_transaction_timeout"),
    bare("databases.<name>.timeouts.client_idle_timeout"),
    bare("users.<name>.password"),
    bare("users.<name>.password_file"),
    bare("users.<name>.scram_verifier"),
    bare("users.<name>.pool.mode"),
    bare("users.<name>.pool.size"),
    bare("users.<name>.pool.checkout_timeout"),
    bare("users.<name>.consistency.default"),
    bare("users.<name>.consistency.wait"),
    bare("users.<name>.consistency.fallback"),
    bare("users.<name>.consistency.lost_writes"),
    bare("users.<name>.limits.max_clients"),
    bare("users.<name>.limits.max_server_connections"),
    bare("users.<name>.timeouts.query_timeout"),
    bare("users.<name>.timeouts.transaction_timeout"),
    bare("users.<name>.timeouts.idle_in_transaction_timeout"),
    bare("users.<name>.timeouts.client_idle_timeout"),
    bare("admin.users[]"),
    bare("admin.stats_users[]"),
    key("limits.max_clients", "10000"),
    key("limits.max_prepared_statements", "500"),
    key("timeouts.login_timeout", "1m"),
    key("timeouts.login_cache", "30s"),
    key("timeouts.shutdown_timeout", "1m"),
    key("timeouts.drain_delay", "0s"),
    key("timeouts.handover_timeout", "1h"),
    key("timeouts.query_timeout", "0s"),
    key("timeouts.transaction_timeout", "0s"),
    key("timeouts.idle_in_transaction_timeout", "0s"),
    key("timeouts.client_idle_timeout", "0s"),
    key("log.level", "info"),
    fixed("log.format", "text"),
];

/// The keys whose values are secrets.
pub(super) const SECRETS: [&str; 2] = [".password", ".scram_verifier"];

/// The sections whose keys are names of the operator's own.
pub(super) const NAMED: [&str; 3] = ["clusters", "databases", "users"];

/// The sections whose keys are patterns of names of the databases.
pub(super) const PATTERNS: [&str; 2] = ["routing.functions", "routing.tables"];

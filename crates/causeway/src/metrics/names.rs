//! Every metric that is exported: for HELP and TYPE, and held against the documentation.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution over fixed buckets.
    Histogram,
}

/// One exported metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels, in order, comma-separated.
    pub labels: &'static str,
    /// What it counts or shows, for HELP.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

/// Every metric, in the order of the documentation.
pub const METRICS: &[Metric] = &[
    gauge("causeway_build_info", "version,commit", "Always 1; the labels say what is running."),
    gauge("causeway_start_time_seconds", "", "When the process began, in seconds since 1970."),
    counter("causeway_config_reloads_total", "result", "Reloads of the configuration."),
    gauge("causeway_config_last_reload_success", "", "Whether the last reload, or the start, succeeded."),
    gauge("causeway_config_last_reload_timestamp_seconds", "", "When the last reload, or the start, ended."),
    gauge("causeway_epoch_persisted", "cluster", "Whether the cluster's lineage is kept across restarts."),
    gauge("causeway_clients", "database,user,state", "Clients connected."),
    gauge("causeway_clients_limit", "", "The most clients connected at a time."),
    counter("causeway_client_connections_total", "result", "Clients let in or turned away."),
    counter("causeway_client_disconnects_total", "", "Clients that left or were cut off."),
    counter("causeway_tls_handshakes_total", "result", "TLS handshakes with clients."),
    counter("causeway_cancels_total", "result", "Cancel requests."),
    counter(
        "causeway_routing_decisions_total",
        "database,target,reason",
        "Where statements were sent, and why.",
    ),
    counter(
        "causeway_retries_total",
        "database",
        "Reads run again elsewhere before any of their result was sent.",
    ),
    counter(
        "causeway_fences_lost_total",
        "database",
        "Sessions whose acknowledged writes may have been lost in a failover.",
    ),
    counter(
        "causeway_overlapped_reads_total",
        "database,outcome",
        "Reads that ran while it was asked what they must see.",
    ),
    counter(
        "causeway_fenced_reads_total",
        "database,level,outcome",
        "Reads that had to see something, and how they came to it.",
    ),
    histogram(
        "causeway_read_staleness_seconds",
        "database,level",
        "How old what replicas have shown was at most.",
    ),
    histogram(
        "causeway_fence_wait_seconds",
        "database,level",
        "Time until a read was known to see what it must.",
    ),
    counter("causeway_pins_total", "database,reason", "Sessions that began to keep their server connection."),
    counter(
        "causeway_classifier_cache_lookups_total",
        "result",
        "Statements whose class was, or was not, remembered.",
    ),
    gauge("causeway_backend_up", "cluster,backend", "Whether the node answers its monitor."),
    gauge("causeway_backend_role", "cluster,backend,role", "1 for the role the node was last seen in."),
    gauge("causeway_backend_state", "cluster,backend,state", "1 for the node's state."),
    gauge("causeway_backend_weight", "cluster,backend", "The node's share of the reads; 0 means none."),
    gauge(
        "causeway_backend_replay_lag_seconds",
        "cluster,backend",
        "For how long a replica has not shown the primary's state.",
    ),
    gauge(
        "causeway_backend_replay_lag_bytes",
        "cluster,backend",
        "How many bytes of WAL a replica is behind.",
    ),
    gauge(
        "causeway_backend_replay_lsn_bytes",
        "cluster,backend",
        "The position a replica has replayed; of the primary, its newest known one.",
    ),
    gauge("causeway_backend_timeline", "cluster,backend", "The timeline a node was last seen on."),
    gauge(
        "causeway_backend_in_flight",
        "cluster,backend",
        "Statements running on the node through this process.",
    ),
    gauge("causeway_backend_ejected", "cluster,backend", "Whether a replica is left alone for its failures."),
    counter(
        "causeway_backend_ejections_total",
        "cluster,backend",
        "How often a replica was left alone for its failures.",
    ),
    counter("causeway_probes_total", "cluster,kind,result", "Questions of the monitors to the nodes."),
    histogram(
        "causeway_fence_probe_seconds",
        "cluster",
        "Time from asking the primary for a fence to its answer.",
    ),
    counter("causeway_fences_wanted_total", "cluster", "Fences that reads have asked for."),
    counter(
        "causeway_fences_unflushed_total",
        "cluster",
        "Fences that were beyond what the primary had flushed while somebody waited.",
    ),
    counter("causeway_nudges_total", "cluster,result", "Empty messages that made the primary flush its log."),
    counter(
        "causeway_lsn_regressions_total",
        "cluster",
        "Nodes that showed a lower position than before on the same timeline.",
    ),
    counter("causeway_epoch_changes_total", "cluster", "Changes of the accepted lineage."),
    counter(
        "causeway_stale_primaries_refused_total",
        "cluster",
        "Writable nodes refused, since a newer timeline was seen.",
    ),
    gauge("causeway_backend_connections", "database,user,backend,state", "Server connections."),
    gauge(
        "causeway_backend_connections_limit",
        "database,user,backend",
        "The most server connections of the pool.",
    ),
    gauge(
        "causeway_checkout_waiters",
        "database,user,backend",
        "Clients that queue for a server connection.",
    ),
    gauge(
        "causeway_checkout_oldest_wait_seconds",
        "database,user,backend",
        "For how long the first in the queue has waited.",
    ),
    counter("causeway_checkouts_total", "database,backend,role", "Server connections lent."),
    counter(
        "causeway_checkout_timeouts_total",
        "database,backend,role",
        "Server connections not had in time.",
    ),
    histogram(
        "causeway_checkout_wait_seconds",
        "database,backend,role",
        "Time from asking for a server connection to having it.",
    ),
    counter("causeway_queries_total", "database,backend,role,protocol", "Queries answered."),
    counter(
        "causeway_transactions_total",
        "database,backend,role",
        "Transactions ended, those of one statement included.",
    ),
    histogram(
        "causeway_query_duration_seconds",
        "database,backend,role",
        "Time from sending a request to the end of its answer.",
    ),
    counter("causeway_backend_sent_bytes_total", "database,backend,role", "Bytes sent to the server."),
    counter(
        "causeway_backend_received_bytes_total",
        "database,backend,role",
        "Bytes received from the server.",
    ),
    counter("causeway_backend_messages_total", "database,backend,role", "Messages received from the server."),
    counter(
        "causeway_backend_rows_total",
        "database,backend,role",
        "Rows received from the server, COPY included.",
    ),
    counter("causeway_backend_errors_total", "database,backend,role", "Errors received from the server."),
    counter("process_cpu_seconds_total", "", "Processor time used, in user and system mode."),
    gauge("process_resident_memory_bytes", "", "Memory in use."),
    gauge("process_virtual_memory_bytes", "", "Address space in use."),
    gauge("process_open_fds", "", "Files and sockets open."),
    gauge("process_max_fds", "", "The most files and sockets open at a time."),
    gauge("process_start_time_seconds", "", "When the process began, in seconds since 1970."),
];

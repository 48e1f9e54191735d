//! What is rendered is what is documented, and the text is what Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use causeway_proxy::config::PoolMode;
use causeway_proxy::metrics::DecisionTarget;
use causeway_routing::{Lsn, NodeId, Observation, PinReason, Reason};

use super::*;

fn node(id: u16, name: &str, role: Role, state: NodeState) -> NodeView {
    let observation = Observation { system_id: 7, timeline: 2, lsn: Lsn(4_096) };
    NodeView {
        id: NodeId(id),
        name: name.into(),
        role,
        state,
        weight: 5,
        levels: causeway_routing::Levels::ALL,
        observation: (role == Role::Replica).then_some(observation),
        lag_bytes: (role == Role::Replica).then_some(904),
        lag: (role == Role::Replica).then_some(Duration::from_millis(1_500)),
    }
}

/// A process in which everything that can be shown is there.
fn sources() -> Sources {
    let data = Metrics::default();
    let database = data.database(&"app".into());
    database.decided(DecisionTarget::Replica, Reason::Read);
    database.pinned(PinReason::Listen);
    let backend = data.backend(&"app".into(), &"pg-1".into(), Role::Replica);
    backend.rows.add(3);
    backend.query_duration.record(Duration::from_millis(2));
    backend.query_duration.record(Duration::from_secs(31));
    let view = View {
        nodes: vec![
            node(0, "pg-0", Role::Primary, NodeState::Serving),
            node(1, "pg-1", Role::Replica, NodeState::Lagging),
            node(2, "pg-2", Role::Unknown, NodeState::Down),
        ],
        primary: Some(NodeId(0)),
        fence: Some(causeway_routing::Fence { system_id: 7, timeline: 2, lsn: Lsn(5_000) }),
        ..View::default()
    };
    let status = causeway_pool::Status {
        idle: 2,
        active: 1,
        connecting: 1,
        waiting: 4,
        size: 20,
        oldest_wait: Some(Duration::from_millis(250)),
    };
    let pool = PoolInfo {
        cluster: "main".into(),
        node: "pg-1".into(),
        node_id: NodeId(1),
        database: "app".into(),
        user: "ro\"bot\\".into(),
        mode: PoolMode::Transaction,
        status,
    };
    let client = ClientInfo {
        id: 1,
        database: "app".into(),
        user: "joe".into(),
        application_name: "psql".into(),
        address: None,
        tls: None,
        state: ClientState::Pinned,
        pinned: [PinReason::Listen].into_iter().collect(),
        pinned_since: None,
        connected_at: UNIX_EPOCH,
        node: None,
    };
    Sources {
        data: Arc::new(data),
        clusters: vec![Watched {
            name: "main".into(),
            view: Arc::new(view),
            totals: Totals::default(),
            kept: true,
        }],
        loads: vec![("main".into(), "pg-1".into(), Load { in_flight: 6, ..Load::default() })],
        ejections: vec![("main".into(), "pg-1".into(), 2)],
        pools: vec![pool],
        clients: vec![client],
        clients_limit: 100,
        reloads: (2, 1),
        last_reload: (false, UNIX_EPOCH + Duration::from_secs(9)),
        started: UNIX_EPOCH + Duration::from_secs(5),
        process: Process::read(),
    }
}

/// One series as Prometheus reads it: the metric it belongs to, its labels, its value.
fn series(text: &str) -> Vec<(String, BTreeMap<String, String>, f64)> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (head, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) =
            head.strip_suffix('}').and_then(|head| head.split_once('{')).unwrap_or((head, ""));
        let mut map = BTreeMap::new();
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (key, value) = label.split_once("=\"").unwrap();
            map.insert(key.to_owned(), value.trim_end_matches('"').to_owned());
        }
        all.push((name.to_owned(), map, value.parse().unwrap()));
    }
    all
}

fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let same = |map: &BTreeMap<String, String>| {
        labels.iter().all(|(key, value)| map.get(*key).is_some_and(|v| v == value))
    };
    let found: Vec<f64> = series(text)
        .into_iter()
        .filter(|(n, map, _)| n == name && same(map))
        .map(|(_, _, value)| value)
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}");
    found[0]
}

/// A metric, some of its labels, its value.
type Expected = (&'static str, Labels<'static>, f64);

#[test]
fn values_are_right() {
    let text = sources().render();
    let table: &[Expected] = &[
        ("causeway_backend_up", &[("backend", "pg-1")], 1.0),
        ("causeway_backend_up", &[("backend", "pg-2")], 0.0),
        ("causeway_backend_role", &[("backend", "pg-0"), ("role", "primary")], 1.0),
        ("causeway_backend_role", &[("backend", "pg-0"), ("role", "replica")], 0.0),
        ("causeway_backend_state", &[("backend", "pg-1"), ("state", "lagging")], 1.0),
        ("causeway_backend_replay_lag_seconds", &[("backend", "pg-1")], 1.5),
        ("causeway_backend_replay_lag_bytes", &[("backend", "pg-1")], 904.0),
        ("causeway_backend_replay_lsn_bytes", &[("backend", "pg-1")], 4096.0),
        ("causeway_backend_replay_lsn_bytes", &[("backend", "pg-0")], 5000.0),
        ("causeway_backend_timeline", &[("backend", "pg-0")], 2.0),
        ("causeway_backend_weight", &[("cluster", "main"), ("backend", "pg-2")], 5.0),
        ("causeway_backend_in_flight", &[("backend", "pg-1")], 6.0),
        ("causeway_backend_connections", &[("backend", "pg-1"), ("state", "idle")], 2.0),
        ("causeway_checkout_waiters", &[("backend", "pg-1")], 4.0),
        ("causeway_checkout_oldest_wait_seconds", &[("database", "app")], 0.25),
        ("causeway_clients", &[("user", "joe"), ("state", "pinned")], 1.0),
        ("causeway_clients", &[("user", "joe"), ("state", "idle")], 0.0),
        ("causeway_config_reloads_total", &[("result", "failure")], 1.0),
        ("causeway_config_last_reload_success", &[], 0.0),
        ("causeway_config_last_reload_timestamp_seconds", &[], 9.0),
        ("causeway_routing_decisions_total", &[("target", "replica"), ("reason", "read")], 1.0),
        ("causeway_pins_total", &[("reason", "listen")], 1.0),
        ("causeway_backend_rows_total", &[("backend", "pg-1"), ("role", "replica")], 3.0),
        ("causeway_query_duration_seconds_bucket", &[("le", "0.001")], 0.0),
        ("causeway_query_duration_seconds_bucket", &[("le", "0.0025")], 1.0),
        ("causeway_query_duration_seconds_bucket", &[("le", "30")], 1.0),
        ("causeway_query_duration_seconds_bucket", &[("le", "+Inf")], 2.0),
        ("causeway_query_duration_seconds_count", &[], 2.0),
        ("causeway_query_duration_seconds_sum", &[], 31.002),
        ("process_start_time_seconds", &[], 5.0),
    ];
    for (name, labels, expected) in table {
        assert!((value(&text, name, labels) - expected).abs() < 1e-9, "{name} {labels:?}");
    }
    assert!(text.contains("user=\"ro\\\"bot\\\\\""), "labels are escaped");
}

#[test]
fn what_is_gone_is_not_shown() {
    let mut sources = sources();
    sources.clusters.clear();
    sources.pools.clear();
    sources.clients.clear();
    let text = sources.render();
    assert!(!text.contains("causeway_backend_up") && !text.contains("causeway_clients{"), "{text}");
}

/// HELP and TYPE stand once, before the series, which stand together; every name is one of the table's.
#[test]
fn the_text_is_well_formed() {
    let text = sources().render();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').unwrap();
            assert!(seen.insert(name.to_owned()), "{name} stands twice");
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split_once(' ').unwrap().0, current);
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let suffixes = ["", "_bucket", "_sum", "_count"];
            assert!(
                suffixes.iter().any(|suffix| name == format!("{current}{suffix}")),
                "{name} under {current}"
            );
        }
    }
    let known: BTreeSet<String> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(seen, known, "every metric of the table is rendered, and no other");
}

/// The page lists what is rendered, with type and labels, and nothing else.
#[test]
fn every_metric_is_documented() {
    let page = include_str!("../../../../docs/metrics.md");
    let documented: BTreeSet<(String, String, String)> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<String> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
            (cells[1].clone(), cells[2].clone(), cells[3].replace(", ", ","))
        })
        .collect();
    let text = sources().render();
    let mut kinds = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        kinds.insert(name.to_owned(), kind.to_owned());
    }
    let metric_of = |name: &str| {
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        bare.filter(|bare| kinds.contains_key(*bare)).unwrap_or(name).to_owned()
    };
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, map, _) in series(&text) {
        let keys = map.into_keys().filter(|key| key != "le");
        labels.entry(metric_of(&name)).or_default().extend(keys);
    }
    let sorted =
        |text: &str| text.split(',').filter(|l| !l.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>();
    let rendered: BTreeSet<_> =
        labels.into_iter().map(|(name, labels)| (kinds[&name].clone(), name, labels)).collect();
    let on_page: BTreeSet<_> =
        documented.into_iter().map(|(name, kind, labels)| (kind, name, sorted(&labels))).collect();
    assert_eq!(rendered, on_page);
    for metric in METRICS {
        let labels = sorted(metric.labels);
        assert!(rendered.iter().any(|(_, name, of)| name == metric.name && *of == labels), "{}", metric.name);
    }
}

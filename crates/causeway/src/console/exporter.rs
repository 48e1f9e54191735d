//! The console's tables as `pgbouncer_exporter` shows those of PgBouncer, for dashboards and alerts that are there already.

use super::commands::{Action, COMMANDS};
use crate::serve::live::Live;
use crate::version;

/// One metric: the column it comes from, its name without the prefix, whether it only grows, and what to multiply with.
type Series = (&'static str, &'static str, bool, f64);

/// A table, the columns that become labels with the labels' names, and its metrics.
struct Table {
    words: &'static [&'static str],
    labels: &'static [(&'static str, &'static str)],
    series: &'static [Series],
}

/// A second in microseconds.
const MICROS: f64 = 1e-6;

const TABLES: &[Table] = &[
    Table {
        words: &["show", "pools"],
        labels: &[("database", "database"), ("user", "user")],
        series: &[
            ("cl_active", "pools_client_active_connections", false, 1.0),
            ("cl_waiting", "pools_client_waiting_connections", false, 1.0),
            ("cl_active_cancel_req", "pools_client_active_cancel_connections", false, 1.0),
            ("cl_waiting_cancel_req", "pools_client_waiting_cancel_connections", false, 1.0),
            ("sv_active", "pools_server_active_connections", false, 1.0),
            ("sv_active_cancel", "pools_server_active_cancel_connections", false, 1.0),
            ("sv_being_canceled", "pools_server_being_canceled_connections", false, 1.0),
            ("sv_idle", "pools_server_idle_connections", false, 1.0),
            ("sv_used", "pools_server_used_connections", false, 1.0),
            ("sv_tested", "pools_server_testing_connections", false, 1.0),
            ("sv_login", "pools_server_login_connections", false, 1.0),
            ("maxwait", "pools_client_maxwait_seconds", false, 1.0),
        ],
    },
    Table {
        words: &["show", "stats"],
        labels: &[("database", "database")],
        series: &[
            ("total_server_assignment_count", "stats_server_assignments_total", true, 1.0),
            ("total_xact_count", "stats_sql_transactions_pooled_total", true, 1.0),
            ("total_query_count", "stats_queries_pooled_total", true, 1.0),
            ("total_received", "stats_received_bytes_total", true, 1.0),
            ("total_sent", "stats_sent_bytes_total", true, 1.0),
            ("total_xact_time", "stats_server_in_transaction_seconds_total", true, MICROS),
            ("total_query_time", "stats_queries_duration_seconds_total", true, MICROS),
            ("total_wait_time", "stats_client_wait_seconds_total", true, MICROS),
        ],
    },
    Table {
        words: &["show", "databases"],
        labels: &[
            ("name", "name"),
            ("host", "host"),
            ("port", "port"),
            ("database", "database"),
            ("force_user", "force_user"),
            ("pool_mode", "pool_mode"),
        ],
        series: &[
            ("pool_size", "databases_pool_size", false, 1.0),
            ("min_pool_size", "databases_min_pool_size", false, 1.0),
            ("reserve_pool_size", "databases_reserve_pool_size", false, 1.0),
            ("max_connections", "databases_max_connections", false, 1.0),
            ("current_connections", "databases_current_connections", false, 1.0),
            ("paused", "databases_paused", false, 1.0),
            ("disabled", "databases_disabled", false, 1.0),
        ],
    },
];

/// What SHOW LISTS has, and how the exporter calls it.
const LISTS: &[(&str, &str)] = &[
    ("databases", "databases"),
    ("users", "users"),
    ("pools", "pools"),
    ("free_clients", "free_clients"),
    ("used_clients", "used_clients"),
    ("login_clients", "login_clients"),
    ("free_servers", "free_servers"),
    ("used_servers", "used_servers"),
    ("dns_names", "cached_dns_names"),
    ("dns_zones", "cached_dns_zones"),
    ("dns_queries", "in_flight_dns_queries"),
];

/// All of it, in the text format of Prometheus.
pub(crate) fn text(live: &Live) -> String {
    let mut text = String::new();
    put(&mut text, "up", false, &[(String::new(), "1".to_owned())]);
    let version = format!("{{version=\"{}/causeway\"}}", version::VERSION);
    put(&mut text, "version_info", false, &[(version, "1".to_owned())]);
    for Table { words, labels, series } in TABLES {
        let (columns, rows) = table(live, words);
        let at = |row: &[Option<String>], name: &str| {
            let position = columns.iter().position(|column| *column == name)?;
            row.get(position).cloned().flatten()
        };
        let labelled = |row: &[Option<String>]| {
            let label = |(column, name): &(&str, &str)| {
                format!("{name}=\"{}\"", escaped(&at(row, column).unwrap_or_default()))
            };
            format!("{{{}}}", labels.iter().map(label).collect::<Vec<_>>().join(","))
        };
        for (column, name, grows, factor) in *series {
            let value = |row: &Vec<Option<String>>| {
                let value: f64 = at(row, column)?.parse().ok()?;
                Some((labelled(row), (value * factor).to_string()))
            };
            put(&mut text, name, *grows, &rows.iter().filter_map(value).collect::<Vec<_>>());
        }
    }
    let (_, lists) = table(live, &["show", "lists"]);
    for (list, name) in LISTS {
        let row = lists.iter().find(|row| row.first().and_then(Option::as_deref) == Some(list));
        let items = row.and_then(|row| row.get(1).cloned().flatten());
        put(
            &mut text,
            name,
            false,
            &items.into_iter().map(|items| (String::new(), items)).collect::<Vec<_>>(),
        );
    }
    let limit = live.config.load().max_clients.to_string();
    put(&mut text, "config_max_client_connections", false, &[(String::new(), limit)]);
    text
}

/// The columns and rows of a SHOW command.
fn table(live: &Live, words: &[&str]) -> (Vec<&'static str>, Vec<Vec<Option<String>>>) {
    let command = COMMANDS.iter().find(|command| command.words == words);
    let Some((command, Action::Show(rows))) = command.map(|command| (command, command.action)) else {
        return (Vec::new(), Vec::new());
    };
    (command.columns.iter().map(|column| column.name).collect(), rows(live))
}

fn put(text: &mut String, name: &str, grows: bool, series: &[(String, String)]) {
    let kind = if grows { "counter" } else { "gauge" };
    let head =
        format!("# HELP pgbouncer_{name} As pgbouncer_exporter has it.\n# TYPE pgbouncer_{name} {kind}\n");
    text.push_str(&head);
    for (labels, value) in series {
        for part in ["pgbouncer_", name, labels, " ", value, "\n"] {
            text.push_str(part);
        }
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{YAML, live};

    #[tokio::test]
    async fn every_series_has_a_column_and_a_value() {
        let live = live(YAML).0;
        for Table { words, labels, series } in TABLES {
            let (columns, _) = table(&live, words);
            let wanted =
                labels.iter().map(|(column, _)| column).chain(series.iter().map(|(column, ..)| column));
            for column in wanted {
                assert!(columns.contains(column), "{words:?} has no {column}");
            }
        }
        let text = text(&live);
        for line in [
            "pgbouncer_up 1",
            "pgbouncer_databases_pool_size{name=\"app\",host=\"127.0.0.1,127.0.0.1\",port=\"1\",database=\"app\",\
             force_user=\"\",pool_mode=\"session\"} 7",
            "pgbouncer_used_clients 0",
            "pgbouncer_config_max_client_connections 10000",
            "# TYPE pgbouncer_stats_queries_pooled_total counter",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}:\n{text}");
        }
        for (_, name) in LISTS {
            assert!(text.contains(&format!("\npgbouncer_{name} ")), "{name}");
        }
    }
}

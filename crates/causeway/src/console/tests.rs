//! The table of commands, end to end without a wire.

use std::collections::BTreeSet;

use causeway_proxy::console::ColumnKind;

use super::*;
use crate::testing::{YAML, config, live};

fn console() -> AdminConsole {
    AdminConsole::new(live(YAML).0)
}

fn names(columns: &[Column]) -> Vec<&'static str> {
    columns.iter().map(|column| column.name).collect()
}

async fn rows(console: &AdminConsole, sql: &str) -> Vec<Vec<String>> {
    let Reply::Table { columns, rows, tag } = console.run("operator", sql).await.unwrap() else {
        panic!("{sql}: no table");
    };
    assert_eq!(console.describe(sql).unwrap(), Some(columns.clone()), "{sql}: described otherwise");
    assert!(rows.iter().all(|row| row.len() == columns.len()), "{sql}: rows and columns differ");
    assert_eq!(tag, if sql.starts_with("EXPLAIN") { "EXPLAIN" } else { "SHOW" });
    let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
    rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

#[tokio::test]
async fn every_show_gives_rows_that_fit_its_columns() {
    let console = console();
    for command in
        COMMANDS.iter().filter(|command| command.argument.is_empty() && !command.columns.is_empty())
    {
        let sql = rows::synopsis(command.words, "");
        for row in rows(&console, &format!(" {sql} ; ")).await {
            for (column, value) in command.columns.iter().zip(row) {
                let number = matches!(column.kind, ColumnKind::Int4 | ColumnKind::Int8);
                assert!(
                    !number || value == "NULL" || value.parse::<i64>().is_ok(),
                    "{sql}: {column:?} {value}"
                );
            }
        }
    }
}

/// The columns, in order and type, that tools for PgBouncer 1.25 read.
#[test]
fn the_columns_of_pgbouncer_come_first() {
    let sockets = "type user database replication state addr port local_addr local_port connect_time request_time \
                   wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id";
    let table = [
        (
            "SHOW POOLS",
            "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active \
             sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode \
             load_balance_hosts",
            "ssiiiiiiiiiiiiiss",
        ),
        ("SHOW CLIENTS", sockets, "ssssssisissiiississii"),
        ("SHOW SERVERS", sockets, "ssssssisissiiississii"),
        (
            "SHOW DATABASES",
            "name host port database force_user pool_size min_pool_size reserve_pool_size server_lifetime pool_mode \
             load_balance_hosts max_connections current_connections max_client_connections \
             current_client_connections paused disabled",
            "ssissiiiissiiiiii",
        ),
        ("SHOW LISTS", "list items", "si"),
        (
            "SHOW STATS",
            "database total_server_assignment_count total_xact_count total_query_count total_received total_sent \
             total_xact_time total_query_time total_wait_time total_client_parse_count total_server_parse_count \
             total_bind_count avg_server_assignment_count avg_xact_count avg_query_count avg_recv avg_sent \
             avg_xact_time avg_query_time avg_wait_time avg_client_parse_count avg_server_parse_count \
             avg_bind_count",
            "snnnnnnnnnnnnnnnnnnnnnn",
        ),
        ("SHOW TOTALS", "name value", "sn"),
        (
            "SHOW USERS",
            "name pool_size reserve_pool_size pool_mode max_user_connections current_connections \
             max_user_client_connections current_client_connections",
            "ssssiiii",
        ),
        ("SHOW MEM", "name size used free memtotal", "siiii"),
        ("SHOW CONFIG", "key value default changeable", "ssss"),
        ("SHOW VERSION", "version", "s"),
        ("SHOW STATE", "key value", "ss"),
    ];
    for (sql, expected, kinds) in table {
        let columns = parse(sql).unwrap().command.columns;
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(names(&columns[..expected.len()]), expected, "{sql}");
        let kind = |column: &Column| match column.kind {
            ColumnKind::Text => 's',
            ColumnKind::Numeric => 'n',
            ColumnKind::Int4 | ColumnKind::Int8 => 'i',
        };
        assert_eq!(columns[..expected.len()].iter().map(kind).collect::<String>(), kinds, "{sql}");
    }
}

#[test]
fn commands_are_told_apart() {
    let words: BTreeSet<_> = COMMANDS.iter().map(|command| command.words).collect();
    assert_eq!(words.len(), COMMANDS.len(), "two commands have the same words");
    assert!(COMMANDS.iter().all(|command| command.words.len() <= COMMAND_WORDS));
    let wrong = |sql: &str| {
        let report = parse(sql).map(|_| ()).expect_err(sql);
        assert_eq!(report.code, SqlState::SYNTAX_ERROR, "{sql}");
        (report.message.into_owned(), report.hint.map(std::borrow::Cow::into_owned))
    };
    let unknown = "this is not a command of the console".to_owned();
    let hint = |text: &str| Some(text.to_owned());
    assert_eq!(
        wrong("SHOW POLS"),
        (unknown.clone(), hint("Did you mean SHOW POOLS? SHOW HELP lists all commands."))
    );
    assert_eq!(wrong("VACUUM"), (unknown.clone(), hint("SHOW HELP lists all commands.")));
    assert_eq!(wrong(""), (unknown, hint("SHOW HELP lists all commands.")));
    assert_eq!(wrong("SHOW POOLS x"), ("the command is written: SHOW POOLS".to_owned(), None));
    assert_eq!(wrong("KILL"), ("the command is written: KILL <database>".to_owned(), None));
}

/// The page lists the commands that SHOW HELP lists, in its words.
#[test]
fn every_command_is_documented() {
    let page = include_str!("../../../../docs/console.md");
    let (_, table) = page.split_once("| Command | What it does |\n|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let shown = COMMANDS.iter().filter(|command| !command.help.is_empty());
    let listed: Vec<String> = shown
        .map(|command| {
            format!("| `{}` | {} |", rows::synopsis(command.words, command.argument), command.help)
        })
        .collect();
    assert_eq!(rows, listed);
}

#[tokio::test]
async fn only_admins_get_in() {
    let console = console();
    assert!(console.owns("pgbouncer") && console.owns("causeway") && !console.owns("postgres"));
    assert!(console.refuse("operator").is_none());
    let report = console.refuse("app").unwrap();
    assert_eq!(report.code, SqlState::INSUFFICIENT_PRIVILEGE);
    assert_eq!(report.message, "user \"app\" may not use the console");
}

/// Whoever only watches sees everything and changes nothing.
#[tokio::test]
async fn watchers_only_watch() {
    let yaml = YAML.replace("users: [operator]", "users: [operator], stats_users: [exporter]");
    let console = AdminConsole::new(live(&yaml).0);
    assert!(console.refuse("exporter").is_none() && console.refuse("app").is_some());
    for command in COMMANDS {
        let argument = if command.argument.is_empty() { "" } else { " app SELECT 1" };
        let sql = rows::synopsis(command.words, "") + argument;
        let harmless = ["SHOW", "EXPLAIN", "SET"].iter().any(|word| sql.starts_with(word));
        if harmless {
            assert!(console.run("exporter", &sql).await.is_ok(), "{sql}");
        } else {
            let report = console.run("exporter", &sql).await.unwrap_err();
            assert_eq!(report.code, SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_drained_node_has_no_weight_until_it_is_undrained() {
    let (live, _requests) = live(YAML);
    let console = AdminConsole::new(Arc::clone(&live));
    let weights =
        async || rows(&console, "SHOW NODES").await.into_iter().map(|row| row[6].clone()).collect::<Vec<_>>();
    assert_eq!(console.run("operator", "DRAIN pg-0").await, Ok(Reply::Done { tag: "DRAIN" }));
    assert_eq!(weights().await, ["0", "1"]);
    assert_eq!(rows(&console, "SHOW NODES").await[0].last().unwrap(), "yes");
    // What a reload does with the configuration.
    let config = live.config.load_full();
    assert_eq!(live.drained.cluster_config(&config.clusters[0]).nodes[0].weight, 0);
    assert_eq!(console.run("operator", "UNDRAIN main/pg-0").await, Ok(Reply::Done { tag: "UNDRAIN" }));
    assert_eq!(weights().await, ["3", "1"]);
    for (sql, code) in [
        ("DRAIN pg-9", SqlState::UNDEFINED_OBJECT),
        ("DRAIN other/pg-0", SqlState::UNDEFINED_OBJECT),
        ("DRAIN", SqlState::SYNTAX_ERROR),
        ("PAUSE pgbouncer", SqlState::UNDEFINED_OBJECT),
        ("PAUSE a b", SqlState::SYNTAX_ERROR),
        ("RESUME app", SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE),
    ] {
        assert_eq!(console.run("operator", sql).await.unwrap_err().code, code, "{sql}");
    }
}

#[tokio::test]
async fn a_pause_shows_until_it_is_resumed() {
    let console = console();
    assert_eq!(console.run("operator", "PAUSE app").await, Ok(Reply::Done { tag: "PAUSE" }));
    let paused = async || {
        rows(&console, "SHOW DATABASES").await.into_iter().map(|row| row[15].clone()).collect::<Vec<_>>()
    };
    assert_eq!(paused().await, ["0", "1"]);
    assert_eq!(console.run("operator", "PAUSE").await, Ok(Reply::Done { tag: "PAUSE" }));
    assert_eq!(rows(&console, "SHOW STATE").await[1], ["paused", "yes"]);
    assert_eq!(console.run("operator", "RESUME").await, Ok(Reply::Done { tag: "RESUME" }));
    assert_eq!(paused().await, ["0", "0"]);
}

#[tokio::test]
async fn what_is_shown_is_right() {
    let console = console();
    let nodes = rows(&console, "SHOW NODES").await;
    assert_eq!(nodes.len(), 2);
    assert_eq!(nodes[0][..4], ["main", "pg-0", "127.0.0.1:1", "unknown"]);
    assert_eq!(nodes[0][6], "3");
    let databases = rows(&console, "SHOW DATABASES").await;
    assert_eq!(databases.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["*", "app"]);
    assert_eq!(databases[1][1..3], ["127.0.0.1,127.0.0.1", "1"]);
    assert_eq!((databases[1][5].as_str(), databases[1][9].as_str()), ("7", "session"));
    assert_eq!(databases[1][17..], ["main", "eventual", "0"]);
    assert_eq!(rows(&console, "SHOW standard_conforming_strings").await, [["on"]]);
    let version = rows(&console, "SHOW server_version").await;
    assert!(version[0][0].ends_with("/causeway"));
    assert!(rows(&console, "SHOW server_version_num").await[0][0].parse::<u32>().unwrap() >= 100);
    assert_eq!(console.run("operator", "SET extra_float_digits = 3").await, Ok(Reply::Done { tag: "SET" }));
    assert_eq!(console.describe("RELOAD"), Ok(None));
}

#[test]
fn config_shows_defaults_and_hides_secrets() {
    let rows = rows::config_rows(&config(YAML));
    let row = |key: &str| {
        let row = rows.iter().find(|row| row[0].as_deref() == Some(key)).unwrap();
        row.iter().skip(1).map(|value| value.as_deref().unwrap_or("NULL")).collect::<Vec<_>>()
    };
    assert_eq!(row("users.app.password"), ["<hidden>", "NULL", "yes"]);
    assert_eq!(row("clusters.main.nodes[0].weight"), ["3", "1", "yes"]);
    assert_eq!(row("pool.size"), ["20", "20", "yes"]);
    assert_eq!(row("databases.app.pool.size"), ["7", "NULL", "yes"]);
    assert_eq!(row("log.format"), ["text", "text", "no"]);
    assert!(!format!("{rows:?}").contains("s3cret"));
}

#[tokio::test]
async fn explain_route_says_where_and_why() {
    let console = console();
    let explain = |sql: &'static str| rows(&console, sql);
    // In pool mode session even a read stays with the primary; no node answers yet.
    let read = ["read", "primary", "NULL", "pinned"];
    for sql in ["EXPLAIN ROUTE DATABASE app SELECT 1", "EXPLAIN ROUTE DATABASE app USER \"a b\" SELECT 1"] {
        let row = &explain(sql).await[0];
        assert_eq!(
            (&row[..4], &row[5..]),
            (&read.map(str::to_owned)[..], &["NULL", "NULL"].map(str::to_owned)[..])
        );
    }
    let write = explain("EXPLAIN ROUTE DATABASE app USER app CREATE TABLE t (a int)").await;
    assert_eq!(write[0][..3], ["write", "primary", "NULL"]);
    let missing = console.run("operator", "EXPLAIN ROUTE DATABASE app USER app").await.unwrap_err();
    assert_eq!(missing.code, SqlState::SYNTAX_ERROR);
    assert!(missing.message.ends_with("EXPLAIN ROUTE DATABASE <database> [USER <user>] <statement>"));
}

#[tokio::test]
async fn clients_that_are_not_there_cannot_be_killed() {
    let console = console();
    assert_eq!(console.run("operator", "KILL app").await, Ok(Reply::Done { tag: "KILL" }));
    let missing = console.run("operator", "KILL_CLIENT 4711").await.unwrap_err();
    assert_eq!(missing.code, SqlState::UNDEFINED_OBJECT);
    let not_a_number = console.run("operator", "KILL_CLIENT all").await.unwrap_err();
    assert_eq!(not_a_number.code, SqlState::INVALID_TEXT_REPRESENTATION);
}

#[tokio::test]
async fn reload_tells_why_it_failed() {
    use crate::serve::live::ReloadError;

    let (live, mut requests) = live(YAML);
    let console = AdminConsole::new(live);
    let error = crate::config::parse(std::path::Path::new("c.yaml"), "pol: 1", &|_| None).unwrap_err();
    let answers = async {
        requests.recv().await.unwrap().send(Ok(())).unwrap();
        requests.recv().await.unwrap().send(Err(ReloadError::Config(error))).unwrap();
        drop(requests);
    };
    let asks = async {
        assert_eq!(console.run("operator", "RELOAD").await, Ok(Reply::Done { tag: "RELOAD" }));
        let report = console.run("operator", "reload;").await.unwrap_err();
        assert_eq!(report.code, SqlState::CONFIG_FILE_ERROR);
        assert_eq!(report.detail.unwrap(), "c.yaml:1:1: pol: unknown key; did you mean `pool`?");
        let late = console.run("operator", "RELOAD").await.unwrap_err();
        assert_eq!(late.detail.unwrap(), "the process is shutting down");
    };
    tokio::join!(answers, asks);
}

//! Every key of the file is changed while sessions are under way: the change is in force, and nobody is dropped.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use causeway::config::KEYS;
use causeway_testkit::sandbox::free_ports;
use causeway_testkit::tls::Authority;
use causeway_testkit::wire::{Client, Message};
use causeway_tests::{Place, rows, tags, through};

/// Keys without a case here: the servers of these tests have no TLS, and how a file of users is read has tests of its own.
const OTHERS: [&str; 2] = [".server_tls.", "auth.userlist_file"];

/// One key: what is changed in the file, and what SHOW CONFIG then says of it.
struct Case {
    key: &'static str,
    from: String,
    to: String,
    shown: String,
}

/// A section that is not there yet.
fn added(key: &'static str, text: &str, shown: &str) -> Case {
    Case { key, from: String::new(), to: format!("{text}\n"), shown: shown.to_owned() }
}

/// Another text in place of one that is there.
fn changed(key: &'static str, from: &str, to: &str, shown: &str) -> Case {
    Case { key, from: from.to_owned(), to: to.to_owned(), shown: shown.to_owned() }
}

/// `section: { name: value }`, for the keys of one section.
fn simple(section: &str, keys: &[(&'static str, &str)]) -> Vec<Case> {
    let case = |(key, value): &(&'static str, &str)| {
        let path: Vec<&str> = key.strip_prefix(section).unwrap_or(key).trim_matches('.').split('.').collect();
        let inner = path.iter().rev().fold((*value).to_owned(), |text, name| format!("{{ {name}: {text} }}"));
        added(key, &format!("{section}: {inner}"), value.trim_matches('"'))
    };
    keys.iter().map(case).collect()
}

/// The keys under a database or user of this name.
fn owned(section: &str, name: &str, keys: &[(&'static str, &str)]) -> Vec<Case> {
    let case = |(key, value): &(&'static str, &str)| {
        let path: Vec<&str> = key.split('.').skip(2).collect();
        let path = path.iter().map(|part| if *part == "<name>" { "\"app.*\"" } else { part });
        let inner = path.rev().fold((*value).to_owned(), |text, name| format!("{{ {name}: {text} }}"));
        let shown = value.trim_matches('"');
        if section == "databases" {
            let known = "  \"*\": { cluster: main }\n";
            changed(key, known, &format!("{known}  {name}: {inner}\n"), shown)
        } else {
            added(key, &format!("{section}: {{ {name}: {inner} }}"), shown)
        }
    };
    keys.iter().map(case).collect()
}

fn sections() -> Vec<Case> {
    let pool = [
        ("pool.mode", "session"),
        ("pool.size", "19"),
        ("pool.max_waiters", "900"),
        ("pool.max_connecting", "3"),
        ("pool.checkout_timeout", "6s"),
        ("pool.connect_timeout", "6s"),
        ("pool.idle_timeout", "11m"),
        ("pool.lifetime", "2h"),
        ("pool.keepalive.idle", "31s"),
        ("pool.keepalive.interval", "11s"),
        ("pool.keepalive.probes", "4"),
        ("pool.keepalive.user_timeout", "31s"),
    ];
    let consistency = [
        ("consistency.default", "session"),
        ("consistency.wait", "51ms"),
        ("consistency.fallback", "wait"),
        ("consistency.fallback_limit", "31"),
        ("consistency.lost_writes", "adopt"),
        ("consistency.overlap", "auto"),
    ];
    let limits = [("limits.max_clients", "900"), ("limits.max_prepared_statements", "400")];
    let timeouts = [
        ("timeouts.login_timeout", "2m"),
        ("timeouts.login_cache", "31s"),
        ("timeouts.shutdown_timeout", "2m"),
        ("timeouts.drain_delay", "1ms"),
        ("timeouts.handover_timeout", "2h"),
        ("timeouts.query_timeout", "1h"),
        ("timeouts.transaction_timeout", "1h"),
        ("timeouts.idle_in_transaction_timeout", "1h"),
        ("timeouts.client_idle_timeout", "1h"),
    ];
    let mut cases = simple("pool", &pool);
    cases.extend(simple("consistency", &consistency));
    cases.extend(simple("limits", &limits));
    cases.extend(simple("timeouts", &timeouts));
    cases.extend(simple("log", &[("log.level", "warn"), ("log.format", "text")]));
    cases.extend([
        added("routing.functions.<name>", "routing: { functions: { \"app.f\": primary } }", "primary"),
        added("routing.tables.<name>", "routing: { tables: { \"app.t\": read } }", "read"),
        changed("admin.users[]", "users: [postgres]", "users: [postgres, other]", "other"),
        changed("admin.stats_users[]", "users: [postgres]", "users: [postgres], stats_users: [seer]", "seer"),
        added("metrics_compat", "metrics_compat: pgbouncer", "pgbouncer"),
        added("peers[]", "peers: [\"127.0.0.1:1\"]", "127.0.0.1:1"),
    ]);
    cases
}

macro_rules! for_both {
    ($prefix:literal) => {
        [
            (concat!($prefix, ".pool.mode"), "session"),
            (concat!($prefix, ".pool.size"), "18"),
            (concat!($prefix, ".pool.checkout_timeout"), "7s"),
            (concat!($prefix, ".consistency.default"), "router"),
            (concat!($prefix, ".consistency.wait"), "52ms"),
            (concat!($prefix, ".consistency.fallback"), "error"),
            (concat!($prefix, ".consistency.lost_writes"), "adopt"),
            (concat!($prefix, ".limits.max_clients"), "800"),
            (concat!($prefix, ".limits.max_server_connections"), "90"),
            (concat!($prefix, ".timeouts.query_timeout"), "2h"),
            (concat!($prefix, ".timeouts.transaction_timeout"), "2h"),
            (concat!($prefix, ".timeouts.idle_in_transaction_timeout"), "2h"),
            (concat!($prefix, ".timeouts.client_idle_timeout"), "2h"),
        ]
    };
}

fn databases_and_users(place: &Place, verifier: &str) -> Vec<Case> {
    let mut cases = owned("databases", place.database(), &for_both!("databases.<name>"));
    let more = [
        ("databases.<name>.cluster", "main"),
        ("databases.<name>.routing.functions.<name>", "primary"),
        ("databases.<name>.routing.tables.<name>", "read"),
    ];
    cases.extend(owned("databases", place.database(), &more));
    cases.extend(owned("users", "postgres", &for_both!("users.<name>")));
    let file = file(place, "secret", "another\n");
    let verifier = format!("\"{verifier}\"");
    let secrets = [
        ("users.<name>.password", "another"),
        ("users.<name>.password_file", file.as_str()),
        ("users.<name>.scram_verifier", verifier.as_str()),
    ];
    let hidden = owned("users", "postgres", &secrets).into_iter().map(|case| {
        let shown = if case.key.ends_with("_file") { case.shown } else { String::new() };
        Case { shown, ..case }
    });
    cases.extend(hidden);
    cases
}

/// A file for Causeway's user alone; its path in quotes.
fn file(place: &Place, name: &str, text: &str) -> String {
    let path = place.causeway().directory().join(name);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    format!("\"{}\"", path.display())
}

fn clusters(place: &Place) -> Vec<Case> {
    let in_cluster = |key: &'static str, value: &str| {
        let name = key.rsplit('.').next().unwrap_or(key);
        changed(key, "    monitor:", &format!("    {name}: {value}\n    monitor:"), value)
    };
    let mut cases = vec![
        in_cluster("clusters.<name>.max_lag", "11s"),
        in_cluster("clusters.<name>.primary_wait", "11s"),
        in_cluster("clusters.<name>.fence_source", "insert"),
        in_cluster("clusters.<name>.check_interval", "240ms"),
        in_cluster("clusters.<name>.check_timeout", "1100ms"),
        in_cluster("clusters.<name>.eject_after", "6"),
        in_cluster("clusters.<name>.slow_start", "9s"),
    ];
    let port = place.sandbox().nodes()[1].port();
    let node = format!("{{ name: pg-1, address: \"127.0.0.1:{port}\"");
    let of_node = |key: &'static str, to: String, shown: &str| changed(key, &node, &to, shown);
    let password = file(place, "monitor", "unasked\n");
    cases.extend([
        of_node("clusters.<name>.nodes[].name", node.replace("pg-1", "pg-9"), "pg-9"),
        of_node(
            "clusters.<name>.nodes[].address",
            node.replace("127.0.0.1", "localhost"),
            &format!("localhost:{port}"),
        ),
        of_node("clusters.<name>.nodes[].weight", format!("{node}, weight: 3"), "3"),
        of_node("clusters.<name>.nodes[].levels[]", format!("{node}, levels: [eventual]"), "eventual"),
        of_node(
            "clusters.<name>.nodes[].max_server_connections",
            format!("{node}, max_server_connections: 95"),
            "95",
        ),
        changed(
            "clusters.<name>.monitor.user",
            "monitor: { user: postgres",
            "monitor: { user: watcher",
            "watcher",
        ),
        changed(
            "clusters.<name>.monitor.password",
            "database: postgres }",
            "database: postgres, password: unasked }",
            "",
        ),
        changed(
            "clusters.<name>.monitor.password_file",
            "database: postgres }",
            &format!("database: postgres, password_file: {password} }}"),
            "",
        ),
        changed(
            "clusters.<name>.monitor.database",
            "database: postgres }",
            "database: template1 }",
            "template1",
        ),
    ]);
    let rule = |key, more: &str, shown: &str| {
        added(key, "", shown).with("  rules:\n", &format!("  rules:\n    - {{ {more} }}\n"))
    };
    cases.extend([
        rule("auth.rules[].address", "address: \"10.9.0.0/16\", method: trust", "10.9.0.0/16"),
        rule("auth.rules[].method", "address: \"10.8.0.0/16\", method: reject", "reject"),
        rule("auth.rules[].database", "address: \"10.8.0.0/16\", method: reject, database: closed", "closed"),
        rule("auth.rules[].tls", "address: \"10.8.0.0/16\", method: reject, tls: require", "require"),
        rule("auth.rules[].user", "address: \"10.8.0.0/16\", method: reject, user: nobody", "nobody"),
    ]);
    cases
}

fn sockets(place: &Place, text: &str) -> Vec<Case> {
    let ports = free_ports(2).expect("free ports");
    let line =
        |key: &str| text.lines().find(|line| line.starts_with(key)).expect("the harness has it").to_owned();
    let (listen, http, state) = (line("listen:"), line("http:"), line("state_dir:"));
    let more = format!(", \"127.0.0.1:{}\"]", ports[0]);
    let elsewhere = format!("127.0.0.1:{}", ports[1]);
    let directory = place.causeway().directory().display().to_string();
    let mut cases = vec![
        changed("listen[]", &listen, &listen.replace(']', &more), &format!("127.0.0.1:{}", ports[0])),
        changed("http", &http, &format!("http: \"{elsewhere}\""), &elsewhere),
        changed("state_dir", &state, &format!("state_dir: \"{directory}\""), &directory),
    ];
    let (certificate, key) = Authority::new().issue();
    let (certificate, key) = (file(place, "server.pem", &certificate), file(place, "server.key", &key));
    let tls = format!("tls: {{ cert_file: {certificate}, key_file: {key}, mode: require }}");
    cases.extend([
        added("tls.cert_file", &tls, certificate.trim_matches('"')),
        added("tls.key_file", &tls, key.trim_matches('"')),
        added("tls.mode", &tls, "require"),
    ]);
    cases
}

impl Case {
    fn with(self, from: &str, to: &str) -> Self {
        Self { from: from.to_owned(), to: to.to_owned(), ..self }
    }

    fn apply(&self, text: &str) -> String {
        if self.from.is_empty() {
            return text.to_owned() + &self.to;
        }
        assert!(text.contains(&self.from), "{}: {:?} is not in {text}", self.key, self.from);
        text.replacen(&self.from, &self.to, 1)
    }
}

#[tokio::test]
async fn every_key_is_reloaded_and_nobody_is_dropped() {
    through("admin: { users: [postgres] }\n", async |place: &Place| {
        let causeway = place.causeway();
        for part in ["are let in without a password", "the node", "there is no primary", "config_warning"] {
            causeway.allow_log(part);
        }
        place.admin("CREATE ROLE watcher SUPERUSER LOGIN").await;
        place.admin("CREATE ROLE secretive PASSWORD 'x'").await;
        place.admin_everywhere("SELECT 1").await;
        let verifier = place.admin("SELECT rolpassword FROM pg_authid WHERE rolname = 'secretive'").await;
        let text = fs::read_to_string(causeway.config_path()).expect("the configuration");
        let mut cases = sections();
        cases.extend(databases_and_users(place, &verifier));
        cases.extend(clusters(place));
        cases.extend(sockets(place, &text));
        let covered: BTreeSet<&str> = cases.iter().map(|case| case.key).collect();
        let is_other = |key: &&str| OTHERS.iter().any(|other| key.contains(other));
        let missing: Vec<&str> =
            KEYS.iter().map(|key| key.path).filter(|key| !covered.contains(key) && !is_other(key)).collect();
        assert!(missing.is_empty(), "keys that nobody has tried to reload: {missing:?}");

        let mut console = Client::login(place.port(), "postgres", "causeway").await;
        let (mut idle, mut open, mut pinned) =
            (place.client().await, place.client().await, place.client().await);
        pinned.query("CREATE TEMP TABLE own AS SELECT 7 AS n").await;
        idle.query("SET TimeZone = 'Asia/Tokyo'").await;
        for case in cases {
            assert_eq!(
                tags(&open.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await).len(),
                2
            );
            fs::write(causeway.config_path(), case.apply(&text)).expect("the configuration is written");
            let reloaded = console.query("RELOAD").await;
            assert!(!reloaded.iter().any(|message| message.tag == b'E'), "{}: {reloaded:?}", case.key);
            let last = case.key.rsplit('.').next().unwrap_or(case.key).trim_end_matches("[]");
            let shown = rows(&console.query("SHOW CONFIG").await);
            let found = shown.iter().any(|row| {
                let (path, value) =
                    (row[0].as_deref().unwrap_or_default(), row[1].as_deref().unwrap_or_default());
                (path.contains(last) || last == "<name>") && value.contains(&case.shown)
            });
            assert!(found, "{}: {:?} is not in {shown:?}", case.key, case.shown);
            assert_eq!(idle.one("SHOW TimeZone").await, "Asia/Tokyo", "{}", case.key);
            assert_eq!(pinned.one("SELECT n FROM own").await, "7", "{}", case.key);
            let end = open.query("COMMIT").await;
            assert_eq!((tags(&end), end.last().map(Message::status)), (vec!["COMMIT".to_owned()], Some('I')));
        }
        fs::write(causeway.config_path(), &text).expect("the configuration is written");
        console.query("RELOAD").await;
        assert_eq!(place.client().await.one("SELECT 1").await, "1");
    })
    .await;
}

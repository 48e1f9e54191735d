//! Each mistake gives its exact message, and every key is documented.

mod schema;
mod server_tls;
mod tls;

use super::*;

const MINIMAL: &str = "\
clusters:
  main:
    nodes:
      - { name: pg-0, address: \"10.0.0.10:5432\" }
    monitor: { user: causeway }
";

fn environment(name: &str) -> Option<String> {
    match name {
        "APP_PASSWORD" => Some("s3cret".to_owned()),
        "SIZE" => Some("30".to_owned()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Config, ConfigError> {
    parse(Path::new("c.yaml"), text, &environment)
}

fn mistakes(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn the_smallest_file_has_sensible_defaults() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.listen.len(), 1);
    assert_eq!(config.http.to_string(), "127.0.0.1:9127");
    assert_eq!(config.databases.len(), 1);
    assert_eq!(config.databases[0].0, "*");
    assert_eq!(config.consistency.level, causeway_routing::Level::Cluster);
    assert!(config.rules.is_empty());
    assert!(config.warnings.is_empty());
}

/// What stands in [`KEYS`] as a default is what holds when the key is absent.
#[test]
fn defaults_are_as_listed() {
    fn insert(tree: &mut serde_json::Map<String, serde_json::Value>, path: &str, value: &str) {
        let Some((section, rest)) = path.split_once('.') else {
            let value = value.parse::<i64>().map_or_else(|_| serde_json::json!(value), Into::into);
            tree.insert(path.to_owned(), value);
            return;
        };
        let section = tree.entry(section).or_insert_with(|| serde_json::json!({}));
        insert(section.as_object_mut().unwrap(), rest, value);
    }
    let mut tree = serde_json::Map::new();
    let mut node = serde_json::json!({ "name": "pg-0", "address": "10.0.0.10:5432" });
    let mut cluster = serde_json::json!({ "monitor": { "user": "causeway" } });
    for key in KEYS {
        let Some(default) = key.default else { continue };
        if key.path.contains(".server_tls.") {
            // Without that section there is no TLS, and with it a file has to be there.
        } else if let Some(field) = key.path.strip_prefix("clusters.<name>.nodes[].") {
            insert(node.as_object_mut().unwrap(), field, default);
        } else if let Some(field) = key.path.strip_prefix("clusters.<name>.") {
            insert(cluster.as_object_mut().unwrap(), field, default);
        } else if key.path == "tls.mode" {
            // Without the files that go with it there is no such section; see `tls`.
        } else if key.path == "listen[]" {
            tree.insert("listen".to_owned(), serde_json::json!([default]));
        } else {
            insert(&mut tree, key.path, default);
        }
    }
    cluster.as_object_mut().unwrap().insert("nodes".to_owned(), serde_json::json!([node]));
    tree.insert("clusters".to_owned(), serde_json::json!({ "main": cluster }));
    // JSON is YAML.
    let explicit =
        Config { written: Vec::new(), ..read(&serde_json::Value::from(tree).to_string()).unwrap() };
    let implied = Config { written: Vec::new(), ..read(MINIMAL).unwrap() };
    assert_eq!(format!("{explicit:?}"), format!("{implied:?}"));
}

/// What is added to [`MINIMAL`], and what is said of it.
const MISSHAPEN: &[(&str, &str)] = &[
    ("pol: { size: 3 }", "c.yaml:6:1: pol: unknown key; did you mean `pool`?"),
    ("pool: { sise: 3 }", "c.yaml:6:9: pool.sise: unknown key; did you mean `size`?"),
    ("pool:\n  size: many", "c.yaml:7:9: pool.size: expected a whole number from 1 to 1000000, found text"),
    ("pool: { size: 0 }", "c.yaml:6:15: pool.size: expected a whole number from 1 to 1000000"),
    (
        "pool: { checkout_timeout: 5 }",
        "c.yaml:6:27: pool.checkout_timeout: a duration needs a unit: write \"5s\" for seconds or \"5ms\" for \
         milliseconds",
    ),
    (
        "pool: { checkout_timeout: 5sec }",
        "c.yaml:6:27: pool.checkout_timeout: unknown unit \"sec\": the units are us, ms, s, m, h and d",
    ),
    (
        "pool: { checkout_timeout: soon }",
        "c.yaml:6:27: pool.checkout_timeout: expected a duration with a unit, such as \"250ms\" or \"5s\", found \
         \"soon\"",
    ),
    ("pool: 5", "c.yaml:6:7: pool: expected a map of pool settings, found a number"),
    (
        "pool: { mode: transacton }",
        "c.yaml:6:15: pool.mode: unknown word \"transacton\"; did you mean `transaction`?",
    ),
    (
        "pool: { mode: fast }",
        "c.yaml:6:15: pool.mode: unknown word \"fast\"; expected one of `transaction`, `session`, `statement`",
    ),
    (
        "users: { app: { password: 12345 } }",
        "c.yaml:6:27: users.app.password: expected text, found a number: write it in quotes",
    ),
    (
        "users: { app: { user: { a: s3cret } } }",
        "c.yaml:6:17: users.app.user: unknown key; expected one of `password`, `password_file`, `scram_verifier`, `pool`, `consistency`, `limits`, `timeouts`",
    ),
    (
        "users: { app: s3cret }",
        "c.yaml:6:15: users.app: expected a map with the user's password_file, found text",
    ),
    (
        "auth: { rules: [{ address: \"10.1.0.0/8\", method: trust }] }",
        "c.yaml:6:28: auth.rules[0].address: the address has bits beyond its prefix: write \"10.0.0.0/8\" for the \
         network or \"10.1.0.0\" for the one address",
    ),
    (
        "auth: { rules: [{ address: all, method: trust }] }",
        "c.yaml:6:28: auth.rules[0].address: expected a network such as \"10.0.0.0/8\", an address, or \"unix\", \
         found \"all\"",
    ),
    ("auth: { rules: [{ address: unix }] }", "c.yaml:6:17: auth.rules[0]: the key `method` is missing"),
    (
        "consistency: { default: strong }",
        "c.yaml:6:25: consistency.default: unknown consistency level \"strong\": expected cluster, router, session, \
         bounded(250ms), eventual, primary or \"after\" and a token",
    ),
    (
        "consistency: { default: \"after 1:1:0/0\" }",
        "c.yaml:6:25: consistency.default: a token holds for a session, not for a configuration",
    ),
    (
        "consistency: { default: sesion }",
        "c.yaml:6:25: consistency.default: unknown consistency level \"sesion\"; did you mean `session`?",
    ),
    (
        "listen: [\"0.0.0.0\"]",
        "c.yaml:6:10: listen[0]: expected \"host:port\" or \"unix:/directory\", found \"0.0.0.0\"",
    ),
    ("listen: [\"::1:6432\"]", "c.yaml:6:10: listen[0]: an IPv6 address stands in brackets: \"[::1]:5432\""),
    ("http: \"localhost\"", "c.yaml:6:7: http: the port is missing: write \"localhost:5432\""),
    ("databases: { 2024: {} }", "c.yaml:6:14: databases: the key 2024 is not text: put it in quotes"),
    ("pool: !fast { size: 3 }", "c.yaml:6:7: pool: YAML tags (`!name`) have no meaning here"),
    (
        "users: { app: { password: \"${NOT_SET}\" } }",
        "c.yaml:6:27: users.app.password: the environment variable \"NOT_SET\" is not set",
    ),
];

#[test]
fn the_shape_is_checked() {
    for (more, message) in MISSHAPEN {
        assert_eq!(mistakes(&format!("{MINIMAL}{more}")), *message);
    }
}

#[test]
fn keys_are_there_once() {
    let table = [
        ("clusters: { main: {} }", "c.yaml:6:1: clusters: the key is there twice"),
        ("users:\n  app: {}\n  other: {}\n  app: {}", "c.yaml:9:3: users.app: the key is there twice"),
        ("pool: { size: 3, size: 4 }", "c.yaml:6:18: pool.size: the key is there twice"),
    ];
    for (more, message) in table {
        assert_eq!(mistakes(&format!("{MINIMAL}{more}")), message);
    }
}

#[test]
fn the_meaning_is_checked_and_all_mistakes_are_shown() {
    let text = "\
clusters:
  main:
    nodes:
      - { name: pg-0, address: \"10.0.0.10:5432\" }
      - { name: pg-0, address: \"10.0.0.10:5432\" }
    monitor: { user: causeway, password_file: /nonexistent/monitor.pw }
    max_lag: 0s
    check_interval: 1ms
  spare:
    nodes: []
    monitor: { user: causeway }
databases:
  app: { cluster: mian }
  other: { cluster: zzz }
  third: {}
  pgbouncer: { cluster: main }
users:
  app: { password: a, password_file: b }
  bad: { scram_verifier: md5abc }
pool: { connect_timeout: 0s, keepalive: { idle: 1500ms } }
listen: [\"127.0.0.1:1\", \"127.0.0.1:1\"]
state_dir: /nonexistent
";
    let expected = "\
c.yaml:21:25: listen[1]: 127.0.0.1:1 is there twice
c.yaml:22:12: state_dir: /nonexistent is not a directory
c.yaml:5:17: clusters.main.nodes[1].name: another node is called \"pg-0\"
c.yaml:5:32: clusters.main.nodes[1].address: another node has the address 10.0.0.10:5432
c.yaml:6:47: clusters.main.monitor.password_file: /nonexistent/monitor.pw: No such file or directory (os error 2)
c.yaml:7:14: clusters.main.max_lag: zero is too short: expected a duration such as \"5s\"
c.yaml:8:21: clusters.main.check_interval: expected at least \"10ms\": each check is a query on the node
c.yaml:10:12: clusters.spare.nodes: expected at least one node
c.yaml:20:26: pool.connect_timeout: zero is too short: expected a duration such as \"5s\"
c.yaml:20:49: pool.keepalive.idle: expected whole seconds, such as \"30s\"
c.yaml:13:19: databases.app.cluster: no cluster is called \"mian\"; did you mean `main`?
c.yaml:14:21: databases.other.cluster: no cluster is called \"zzz\": there are main, spare
c.yaml:16:3: databases.pgbouncer: the name \"pgbouncer\" belongs to the console
c.yaml:15:10: databases.third: the key `cluster` is missing: expected one of main, spare
c.yaml:18:38: users.app.password_file: `password` is there too: expected one of the two
c.yaml:19:26: users.bad.scram_verifier: not a verifier: expected rolpassword of pg_authid, \"SCRAM-SHA-256$...\"";
    assert_eq!(mistakes(text), expected);
}

#[test]
fn what_is_no_document_is_refused() {
    assert_eq!(mistakes(""), "c.yaml:1:1: expected a map of sections, found nothing");
    assert_eq!(
        mistakes("listen: []"),
        "c.yaml:1:9: listen: expected at least one address\n\
        c.yaml:1:1: clusters: expected at least one cluster with its nodes"
    );
    assert_eq!(mistakes("- a"), "c.yaml:1:1: expected a map of sections, found a list");
    let unclosed = mistakes("clusters: { main: [ }");
    assert!(unclosed.starts_with("c.yaml:1:21: not valid YAML: "), "{unclosed}");
    let missing = load(Path::new("/nonexistent/c.yaml"), &environment).unwrap_err().to_string();
    assert_eq!(missing, "/nonexistent/c.yaml: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn alias_bombs_are_bounded() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, from) in [('b', 'a'), ('c', 'b'), ('d', 'c'), ('e', 'd'), ('f', 'e'), ('g', 'f'), ('h', 'g')] {
        let aliases = vec![format!("*{from}"); 10].join(", ");
        text = format!("{text}{name}: &{name} [{aliases}]\n");
    }
    let message = mistakes(&text);
    assert!(message.contains("values") || message.contains("repetition limit"), "{message}");
    let deep = "[".repeat(1_000);
    assert!(mistakes(&deep).contains("recursion limit"));
}

#[test]
fn secrets_come_from_files_and_variables_and_are_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    std::fs::write(directory.path().join("app.pw"), "file s3cret\n").unwrap();
    let users = "users:\n  one: { password_file: app.pw }\n  two: { password: \"${APP_PASSWORD}\" }\n  three: { \
                 password: s3cret }\npool: { size: \"${SIZE}\" }\n";
    std::fs::write(&file, format!("{MINIMAL}{users}")).unwrap();
    let config = load(&file, &environment).unwrap();
    let password = |user: &str| {
        let (_, user) = config.users.iter().find(|(name, _)| name == user).unwrap();
        match user.credential.as_ref().unwrap() {
            Credential::Password(password) => secrecy::ExposeSecret::expose_secret(password).to_owned(),
            Credential::Verifier(_) => panic!("a verifier"),
        }
    };
    assert_eq!([password("one"), password("two"), password("three")], ["file s3cret", "s3cret", "s3cret"]);
    assert_eq!(config.pool.size, 30);
    assert!(!format!("{config:?}").contains("s3cret"));
    let written = |path: &str| {
        let written = config.written.iter().find(|written| written.path == path).unwrap();
        (written.pattern.as_str(), written.text.as_str())
    };
    assert_eq!(written("users.three.password"), ("users.<name>.password", "<hidden>"));
    assert_eq!(written("users.one.password_file"), ("users.<name>.password_file", "app.pw"));
    assert_eq!(written("pool.size"), ("pool.size", "${SIZE}"));
    let address = ("clusters.<name>.nodes[].address", "10.0.0.10:5432");
    assert_eq!(written("clusters.main.nodes[0].address"), address);
    std::fs::write(directory.path().join("app.pw"), "two\nlines\n").unwrap();
    assert!(
        load(&file, &environment).unwrap_err().to_string().ends_with("expected one line with the password")
    );
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("monitor.pw"), "m\n").unwrap();
    std::fs::write(directory.path().join("app.pw"), "a\n").unwrap();
    let local = example.replace("/etc/causeway/", "").replace("/var/lib/causeway", ".");
    let config = parse(&directory.path().join("c.yaml"), &local, &environment).unwrap();
    assert_eq!(config.warnings, ["auth.rules[0]: clients from 127.0.0.0/8 are let in without a password"]);
}

/// The page has one row for each key, with its default and whether a reload applies it, and no other row.
#[test]
fn every_key_is_documented() {
    let page = include_str!("../../../../docs/configuration.md");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<(String, String, String)> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        // Other tables of the page have other columns.
        .filter(|cells| cells.len() == 7)
        .map(|cells| (cells[1].replace('`', ""), cells[3].replace('`', ""), cells[4].clone()))
        .collect();
    let listed: Vec<(String, String, String)> = KEYS
        .iter()
        .map(|key| {
            let default = key.default.unwrap_or("-").to_owned();
            (key.path.to_owned(), default, if key.reloads { "yes" } else { "restart" }.to_owned())
        })
        .collect();
    assert_eq!(rows, listed);
}

#[test]
fn every_field_is_listed() {
    let mut fields = schema::fields::<raw::File>();
    let mut listed: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    fields.sort();
    listed.sort();
    assert_eq!(fields, listed);
}

/// What is said of a database goes before what is said of all, and reaches the cluster that holds it.
#[test]
fn functions_and_tables_are_forced_by_database() {
    use causeway_routing::{Forced, Overrides, Pattern};
    let rules = |rules: &[(&str, Forced)]| {
        rules.iter().map(|(text, forced)| (Pattern::parse(text).unwrap(), *forced)).collect::<Vec<_>>()
    };
    let text = "\
routing: { functions: { \"app.get_*\": read }, tables: { \"audit.*\": primary } }
databases: { \"*\": {}, app: { routing: { functions: { get_x: primary } } } }
";
    let config = read(&format!("{MINIMAL}{text}")).unwrap();
    let overrides = &config.clusters[0].overrides;
    let general =
        Overrides::new(rules(&[("app.get_*", Forced::Read)]), rules(&[("audit.*", Forced::Primary)]));
    assert_eq!(*overrides["*"], Overrides::default().over(&general));
    let own = Overrides::new(rules(&[("get_x", Forced::Primary)]), Vec::new());
    assert_eq!(*overrides["app"], own.over(&general));
    let written = config.written.iter().find(|written| written.path == "routing.tables.audit.*").unwrap();
    assert_eq!((&*written.pattern, &*written.text), ("routing.tables.<name>", "primary"));
    for (more, message) in [
        (
            "routing: { tables: { pg_catalog.pg_class: read } }",
            "c.yaml:6:22: routing.tables.pg_catalog.pg_class: the functions and tables of PostgreSQL itself cannot be forced",
        ),
        (
            "routing: { functions: { f: replica } }",
            "c.yaml:6:28: routing.functions.f: unknown word \"replica\"; expected one of `read`, `primary`",
        ),
    ] {
        assert_eq!(mistakes(&format!("{MINIMAL}{more}")), message);
    }
}

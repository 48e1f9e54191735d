//! `causeway import-pgbouncer`: from PgBouncer's ini file and its list of users to YAML.
//!
//! What has no counterpart is said in comments, so that nothing is lost without a word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cli::{complain, say};
use crate::exit::Exit;

/// The parts of PgBouncer's file that mean something here.
#[derive(Debug, Default)]
struct Ini {
    /// In their order: name, and what stands behind the equals sign, by key.
    databases: Vec<(String, BTreeMap<String, String>)>,
    users: Vec<(String, BTreeMap<String, String>)>,
    settings: BTreeMap<String, String>,
}

/// Settings with a counterpart of the same meaning: PgBouncer's name, the section, the key, and its unit.
const TAKEN: &[(&str, &str, &str, Unit)] = &[
    ("pool_mode", "pool", "mode", Unit::Word),
    ("default_pool_size", "pool", "size", Unit::Number),
    ("query_wait_timeout", "pool", "checkout_timeout", Unit::Seconds),
    ("server_connect_timeout", "pool", "connect_timeout", Unit::Seconds),
    ("server_idle_timeout", "pool", "idle_timeout", Unit::Seconds),
    ("server_lifetime", "pool", "lifetime", Unit::Seconds),
    ("max_client_conn", "limits", "max_clients", Unit::Number),
    ("max_prepared_statements", "limits", "max_prepared_statements", Unit::Number),
    ("client_login_timeout", "timeouts", "login_timeout", Unit::Seconds),
];

/// Settings that are read elsewhere here.
const READ: &[&str] = &[
    "listen_addr",
    "listen_port",
    "unix_socket_dir",
    "auth_type",
    "auth_file",
    "admin_users",
    "stats_users",
    "client_tls_sslmode",
    "client_tls_cert_file",
    "client_tls_key_file",
];

/// Settings that need no counterpart, and why.
const NEEDLESS: &[(&str, &str)] = &[
    ("ignore_startup_parameters", "every parameter is taken"),
    ("server_reset_query", "what a session leaves is undone by itself"),
    ("server_check_query", "monitors watch the servers"),
    ("server_check_delay", "monitors watch the servers"),
    ("logfile", "the log goes to standard error"),
    ("pidfile", "systemd knows the process"),
    ("user", "systemd sets the user"),
];

#[derive(Clone, Copy, Debug)]
enum Unit {
    Word,
    Number,
    Seconds,
}

/// Prints the YAML.
pub fn run(file: &Path) -> Exit {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            complain(&format_args!("{}: {error}", file.display()));
            return Exit::Config;
        }
    };
    let ini = match parse(&text) {
        Ok(ini) => ini,
        Err((line, why)) => {
            complain(&format_args!("{}:{line}: {why}", file.display()));
            return Exit::Config;
        }
    };
    let list = ini.settings.get("auth_file").map(|list| file.parent().unwrap_or(Path::new("")).join(list));
    let passwords = match list.as_ref().map(std::fs::read_to_string).transpose() {
        Ok(text) => userlist(&text.unwrap_or_default()),
        Err(error) => {
            complain(&format_args!("{}: {error}", list.unwrap_or_default().display()));
            return Exit::Config;
        }
    };
    say(yaml(&ini, &passwords));
    Exit::Done
}

fn parse(text: &str) -> Result<Ini, (usize, String)> {
    let (mut ini, mut section) = (Ini::default(), String::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        if let Some(file) = line.strip_prefix("%include") {
            return Err((number, format!("%include is not followed: put {} in its place", file.trim())));
        }
        let (key, value) = line.split_once('=').ok_or((number, "expected NAME = VALUE".to_owned()))?;
        let (key, value) = (key.trim().trim_matches('"').to_owned(), value.trim());
        match section.as_str() {
            "databases" => ini.databases.push((key, pairs(value).map_err(|why| (number, why))?)),
            "users" => ini.users.push((key, pairs(value).map_err(|why| (number, why))?)),
            "pgbouncer" => drop(ini.settings.insert(key, value.to_owned())),
            "peers" => {}
            other => return Err((number, format!("[{other}] is no section of PgBouncer"))),
        }
    }
    Ok(ini)
}

/// `host=a port=5432 password='it''s'`, as in libpq's connection strings.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    let (mut pairs, mut rest) = (BTreeMap::new(), text.trim());
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(|| format!("expected KEY=VALUE: {rest}"))?;
        let after = after.trim_start();
        let (value, next) = if let Some(quoted) = after.strip_prefix('\'') {
            unquoted(quoted, '\'').ok_or_else(|| format!("a quote is not closed: {rest}"))?
        } else {
            let (value, next) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
            (value.to_owned(), next)
        };
        pairs.insert(key.trim().to_owned(), value);
        rest = next.trim_start();
    }
    Ok(pairs)
}

/// The text up to the closing quote, which is doubled where it is meant, and what follows.
fn unquoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices().peekable());
    while let Some((at, character)) = characters.next() {
        if character != quote {
            value.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return Some((value, text.get(at + quote.len_utf8()..)?));
        }
    }
    None
}

/// `"user" "password"`, one a line.
fn userlist(text: &str) -> Vec<(String, String)> {
    let user = |line: &str| {
        let (name, rest) = unquoted(line.trim().strip_prefix('"')?, '"')?;
        let (password, _) = unquoted(rest.trim_start().strip_prefix('"')?, '"')?;
        Some((name, password))
    };
    text.lines().filter_map(user).collect()
}

fn yaml(ini: &Ini, passwords: &[(String, String)]) -> String {
    let mut text = String::from(
        "# Made by `causeway import-pgbouncer`. Add the replicas to the nodes of each cluster, and the monitor's password;\n\
         # then `causeway check --live -c FILE`.\n",
    );
    listen(&mut text, ini);
    let clusters = clusters(&mut text, ini);
    for section in ["pool", "limits", "timeouts"] {
        settings(&mut text, ini, section);
    }
    auth(&mut text, ini);
    databases(&mut text, ini, &clusters);
    users(&mut text, ini, passwords);
    let names = |key: &str| {
        let list = ini.settings.get(key).map_or("", String::as_str).split(',').map(str::trim);
        list.filter(|name| !name.is_empty()).map(quoted).collect::<Vec<_>>().join(", ")
    };
    put(
        &mut text,
        format_args!(
            "admin: {{ users: [{}], stats_users: [{}] }}",
            names("admin_users"),
            names("stats_users")
        ),
    );
    left_over(&mut text, ini);
    text
}

fn put(text: &mut String, line: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").ok();
}

/// A YAML text, whatever is in it: JSON's strings are YAML's.
fn quoted(text: &str) -> String {
    // What stands after a dollar sign would be taken for a variable's name.
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

fn listen(text: &mut String, ini: &Ini) {
    let port = ini.settings.get("listen_port").map_or("6432", String::as_str);
    let addresses = ini.settings.get("listen_addr").map_or("", String::as_str).split(',').map(str::trim);
    let address = |address: &str| match address {
        "*" => format!("0.0.0.0:{port}"),
        address if address.contains(':') => format!("[{address}]:{port}"),
        address => format!("{address}:{port}"),
    };
    let mut all: Vec<String> =
        addresses.filter(|own| !own.is_empty()).map(|own| quoted(&address(own))).collect();
    if let Some(directory) =
        ini.settings.get("unix_socket_dir").filter(|directory| directory.starts_with('/'))
    {
        all.push(quoted(&format!("unix:{directory}")));
    }
    if !all.is_empty() {
        put(text, format_args!("listen: [{}]", all.join(", ")));
    }
    let tls = |key: &str| ini.settings.get(key).map(|value| quoted(value));
    if let (Some(cert), Some(key)) = (tls("client_tls_cert_file"), tls("client_tls_key_file")) {
        let strict = ["require", "verify-ca", "verify-full"];
        let required =
            ini.settings.get("client_tls_sslmode").is_some_and(|mode| strict.contains(&mode.as_str()));
        let mode = if required { "require" } else { "allow" };
        put(text, format_args!("tls: {{ cert_file: {cert}, key_file: {key}, mode: {mode} }}"));
    }
    put(text, "state_dir: /var/lib/causeway");
}

/// One cluster for each set of servers; returns the name of that of each database.
fn clusters(text: &mut String, ini: &Ini) -> BTreeMap<String, String> {
    let mut names: Vec<(String, String)> = Vec::new();
    let mut of = BTreeMap::new();
    put(text, "clusters:");
    for (database, pairs) in &ini.databases {
        let host = pairs.get("host").map_or("/var/run/postgresql", String::as_str);
        let port = pairs.get("port").map_or("5432", String::as_str);
        let servers = format!("{host} {port}");
        let known = names.iter().find(|(own, _)| *own == servers).map(|(_, name)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name =
                if names.is_empty() { "main".to_owned() } else { format!("cluster-{}", names.len() + 1) };
            put(text, format_args!("  {name}:\n    nodes:"));
            for (position, host) in host.split(',').map(str::trim).enumerate() {
                let address = if host.starts_with('/') {
                    format!("unix:{host}:{port}")
                } else {
                    format!("{host}:{port}")
                };
                put(text, format_args!("      - {{ name: pg-{position}, address: {} }}", quoted(&address)));
            }
            put(text, "    monitor: { user: causeway, password_file: /etc/causeway/monitor.pw }");
            names.push((servers, name.clone()));
            name
        });
        of.insert(database.clone(), name);
    }
    of
}

fn converted(unit: Unit, value: &str) -> String {
    match unit {
        Unit::Seconds if value.chars().all(|digit| digit.is_ascii_digit()) => format!("{value}s"),
        // PgBouncer takes fractions of a second in places.
        Unit::Seconds => value
            .parse::<f64>()
            .map_or_else(|_| quoted(value), |seconds| format!("{:.0}ms", seconds * 1000.0)),
        Unit::Word | Unit::Number => value.to_owned(),
    }
}

fn settings(text: &mut String, ini: &Ini, section: &str) {
    let own = TAKEN.iter().filter(|(_, of, ..)| *of == section);
    let entry = |(name, _, key, unit): &(&str, &str, &str, Unit)| {
        let value = ini.settings.get(*name)?;
        Some(format!("{key}: {}", converted(*unit, value)))
    };
    let mut entries: Vec<String> = own.filter_map(entry).collect();
    if section == "pool" && !ini.settings.contains_key("pool_mode") {
        // PgBouncer's default, which is not Causeway's.
        entries.insert(0, "mode: session".to_owned());
    }
    if !entries.is_empty() {
        put(text, format_args!("{section}: {{ {} }}", entries.join(", ")));
    }
}

fn auth(text: &mut String, ini: &Ini) {
    let kind = ini.settings.get("auth_type").map_or("md5", String::as_str);
    put(text, "auth:\n  rules:");
    let method = match kind {
        "trust" | "any" => "trust",
        "scram-sha-256" | "md5" | "plain" => "scram-sha-256",
        other => {
            put(
                text,
                format_args!(
                    "    # auth_type = {other}: see docs/configuration.md for what there is; SCRAM until then"
                ),
            );
            "scram-sha-256"
        }
    };
    for address in ["0.0.0.0/0", "::/0", "unix"] {
        put(text, format_args!("    - {{ address: {}, method: {method} }}", quoted(address)));
    }
}

fn overrides(pairs: &BTreeMap<String, String>) -> String {
    let names = [("pool_mode", "mode"), ("pool_size", "size")];
    let entry = |(name, key): (&str, &str)| pairs.get(name).map(|value| format!("{key}: {value}"));
    let entries: Vec<String> = names.into_iter().filter_map(entry).collect();
    if entries.is_empty() { String::new() } else { format!("pool: {{ {} }}", entries.join(", ")) }
}

fn databases(text: &mut String, ini: &Ini, clusters: &BTreeMap<String, String>) {
    put(text, "databases:");
    for (name, pairs) in &ini.databases {
        if let Some(real) = pairs.get("dbname").filter(|real| *real != name) {
            put(
                text,
                format_args!(
                    "  # {name} is {real} on the server; Causeway passes names on: let clients ask for {real}."
                ),
            );
        }
        for key in pairs
            .keys()
            .filter(|key| !["host", "port", "dbname", "pool_mode", "pool_size"].contains(&key.as_str()))
        {
            put(text, format_args!("  # {name}: {key} has no counterpart"));
        }
        let name_on_server = pairs.get("dbname").unwrap_or(name);
        let cluster = clusters.get(name).map_or("main", String::as_str);
        let rest = overrides(pairs);
        let comma = if rest.is_empty() { "" } else { ", " };
        let shown = if name == "*" { name } else { name_on_server };
        put(text, format_args!("  {}: {{ cluster: {cluster}{comma}{rest} }}", quoted(shown)));
    }
}

fn users(text: &mut String, ini: &Ini, passwords: &[(String, String)]) {
    let mut entries: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, password) in passwords {
        let entry = entries.entry(name).or_default();
        if password.starts_with("SCRAM-SHA-256$") {
            entry.push(format!("scram_verifier: {}", quoted(password)));
        } else if password.starts_with("md5") && password.len() == 35 {
            put(
                text,
                format_args!(
                    "# {name}: the list has an MD5 hash, of which no password can be made: write password_file"
                ),
            );
        } else if !password.is_empty() {
            entry.push(format!("password: {}", quoted(password)));
        }
    }
    for (name, pairs) in &ini.users {
        let rest = overrides(pairs);
        if !rest.is_empty() {
            entries.entry(name).or_default().push(rest);
        }
    }
    if !entries.is_empty() {
        put(text, "users:");
    }
    for (name, entry) in entries {
        put(text, format_args!("  {}: {{ {} }}", quoted(name), entry.join(", ")));
    }
}

/// What was not taken, and why where that is known.
fn left_over(text: &mut String, ini: &Ini) {
    for (name, value) in &ini.settings {
        let taken = TAKEN.iter().any(|(own, ..)| own == name) || READ.contains(&name.as_str());
        if taken {
            continue;
        }
        match NEEDLESS.iter().find(|(own, _)| own == name) {
            Some((_, why)) => put(text, format_args!("# {name}: not needed: {why}")),
            None => put(text, format_args!("# {name} = {value}: has no counterpart")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INI: &str = "\
;; a comment
[databases]
app = host=10.0.0.1 port=5433 dbname=app pool_size=40
reports = host=10.0.0.9 dbname=report_db pool_mode=session password='it''s'
* = host=10.0.0.1 port=5433
[users]
batch = pool_mode=session
[pgbouncer]
listen_addr = 127.0.0.1, ::1
listen_port = 6543
auth_type = scram-sha-256
auth_file = userlist.txt
pool_mode = transaction
default_pool_size = 25
query_wait_timeout = 120
max_client_conn = 500
admin_users = postgres, dba
stats_users = exporter
server_reset_query = DISCARD ALL
reserve_pool_size = 5
";

    /// The directory for state is the only thing that has to be there.
    fn read(text: &str) -> crate::config::Config {
        let text = text
            .replace("state_dir: /var/lib/causeway\n", "")
            .replace(", password_file: /etc/causeway/monitor.pw", "");
        crate::config::parse(Path::new("c.yaml"), &text, &|_| None)
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn what_is_made_is_valid_and_means_the_same() {
        let ini = parse(INI).unwrap();
        let list = userlist("\"app\" \"s3cret ${x}\"\n\"old\" \"md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n");
        let text = yaml(&ini, &list);
        let config = read(&text);
        assert_eq!(config.clusters.len(), 2);
        let main = config.clusters.iter().position(|cluster| cluster.name == "main").unwrap();
        assert_eq!(config.clusters[main].nodes[0].address.to_string(), "10.0.0.1:5433");
        assert_eq!((config.pool.size, config.max_clients), (25, 500));
        assert_eq!(config.pool.checkout_timeout, std::time::Duration::from_mins(2));
        assert_eq!(config.listen.len(), 2);
        let app = config.databases.iter().find(|(name, _)| name == "app").unwrap();
        assert_eq!((app.1.overrides.size, app.1.cluster), (Some(40), main));
        let reports = config.databases.iter().find(|(name, _)| name == "report_db").unwrap();
        assert_eq!(reports.1.overrides.mode, Some(crate::config::Mode::Session));
        assert!(config.databases.iter().any(|(name, _)| name == "*"));
        assert_eq!((config.admins.len(), config.watchers.as_slice()), (2, &["exporter".to_owned()][..]));
        assert!(config.users.iter().any(|(name, _)| name == "batch"));
        for part in [
            "reports is report_db on the server",
            "reports: password has no counterpart",
            "old: the list has an MD5 hash",
            "server_reset_query: not needed",
            "reserve_pool_size = 5: has no counterpart",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_file_that_says_little_keeps_pgbouncers_defaults() {
        let config = read(&yaml(&parse("[databases]\na = host=/tmp\n[pgbouncer]\n").unwrap(), &[]));
        assert_eq!(config.pool.mode, crate::config::Mode::Session);
        assert_eq!(config.clusters[0].nodes[0].address.to_string(), "unix:/tmp:5432");
    }

    #[test]
    fn mistakes_have_their_line() {
        assert_eq!(parse("[databases]\nnonsense").unwrap_err().0, 2);
        assert_eq!(parse("\n[nonsense]\na = b").unwrap_err().0, 3);
        assert_eq!(parse("[databases]\na = host='x").unwrap_err().0, 2);
        assert_eq!(parse("%include other.ini").unwrap_err().0, 1);
    }
}

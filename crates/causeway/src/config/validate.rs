//! From the shape of the file to its meaning: defaults, references, limits between values.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causeway_protocol::scram::Verifier;
use causeway_routing::Levels;
use causeway_tls::TlsClient;
use secrecy::{ExposeSecret, SecretString};

use super::model::{
    Cluster, Config, Consistency, Credential, Database, Endpoint, HostPort, Keepalive, Method, Mode, Monitor,
    Node, Origin, Overrides, Pool, Rule, TimeoutOverrides, Timeouts, User,
};
use super::problem::{KeyPath, Problem, nearest};
use super::raw;
use super::scalars::{Count, Name, NodeAddress, Secret, Span, Word};

/// The names under which the console answers.
pub const ADMIN_DATABASES: [&str; 2] = ["causeway", "pgbouncer"];

/// The longest password file read.
const MAX_SECRET_BYTES: u64 = 4096;

/// Collects every mistake, so that one run of `causeway check` shows them all.
pub(super) struct Validation<'a> {
    pub(super) directory: &'a Path,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

/// What `file` means, or every mistake in it. Relative paths of secrets count from `directory`.
pub(super) fn validate(file: raw::File, directory: &Path) -> Result<Config, Vec<Problem>> {
    let mut validation = Validation { directory, problems: Vec::new(), warnings: Vec::new() };
    let config = validation.config(file);
    if !validation.problems.is_empty() {
        return Err(validation.problems);
    }
    Ok(Config { warnings: validation.warnings, ..config })
}

fn top(key: &str) -> KeyPath {
    KeyPath::default().key(key)
}

fn span(value: Option<Span>, default: Duration) -> Duration {
    value.map_or(default, |span| span.0)
}

fn count(value: Option<&Count>, default: u32) -> u32 {
    value.map_or(default, |count| count.0)
}

impl Validation<'_> {
    pub(super) fn refuse(&mut self, path: KeyPath, message: impl Into<String>) {
        self.problems.push(Problem::value(path, message));
    }

    pub(super) fn refuse_key(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// What the operator should know although it holds.
    pub(super) fn warn(&mut self, message: String) {
        self.warnings.push(message);
    }

    /// A duration that may not be zero.
    fn positive(&mut self, value: Option<Span>, default: Duration, path: KeyPath) -> Duration {
        let duration = span(value, default);
        if duration.is_zero() {
            self.refuse(path, "zero is too short: expected a duration such as \"5s\"");
        }
        duration
    }

    fn config(&mut self, file: raw::File) -> Config {
        let listen = self.listen(file.listen);
        let tls = file.tls.as_ref().and_then(|tls| self.tls(tls));
        let state_dir = file.state_dir.map(|word| self.directory(&word.0, top("state_dir")));
        let mut clusters = self.clusters(file.clusters.unwrap_or_default());
        let pool = self.pool(file.pool.unwrap_or_default());
        let auth = file.auth.unwrap_or_default();
        let rules = self.rules(auth.rules.unwrap_or_default());
        let routing = self.routing(file.routing, &top("routing"));
        let databases = self.databases(file.databases, &mut clusters, &routing);
        let mut users = self.users(file.users.unwrap_or_default());
        if let Some(file) = &auth.userlist_file {
            self.userlist(file, &mut users);
        }
        let admin = file.admin.unwrap_or_default();
        let names = |users: Option<Vec<Word>>| users.into_iter().flatten().map(|user| user.0).collect();
        let limits = file.limits.unwrap_or_default();
        let log = file.log.unwrap_or_default();
        Config {
            file: Path::new("").to_owned(),
            listen,
            metrics_compat: file.metrics_compat,
            http: file.http.unwrap_or_else(|| HostPort { host: "127.0.0.1".to_owned(), port: 9127 }),
            tls,
            state_dir,
            peers: file.peers.unwrap_or_default(),
            clusters,
            pool,
            consistency: consistency(&file.consistency.unwrap_or_default()),
            rules,
            databases,
            users,
            admins: names(admin.users),
            watchers: names(admin.stats_users),
            max_clients: count(limits.max_clients.as_ref(), 10_000),
            max_prepared_statements: count(limits.max_prepared_statements.as_ref(), 500),
            timeouts: self.timeouts(&file.timeouts.unwrap_or_default()),
            log_level: log.level.unwrap_or_default(),
            log_format: log.format.unwrap_or_default(),
            warnings: Vec::new(),
            written: Vec::new(),
        }
    }

    fn directory(&mut self, directory: &str, path: KeyPath) -> PathBuf {
        let directory = self.directory.join(directory);
        if !directory.is_dir() {
            self.refuse(path, format!("{} is not a directory", directory.display()));
        }
        directory
    }

    fn listen(&mut self, listen: Option<Vec<Endpoint>>) -> Vec<Endpoint> {
        let default = || vec![Endpoint::Tcp(HostPort { host: "127.0.0.1".to_owned(), port: 6432 })];
        let listen = listen.unwrap_or_else(default);
        if listen.is_empty() {
            self.refuse(top("listen"), "expected at least one address");
        }
        let mut seen = HashSet::new();
        for (index, endpoint) in listen.iter().enumerate() {
            if !seen.insert(endpoint) {
                self.refuse(top("listen").index(index), format!("{endpoint} is there twice"));
            }
        }
        listen
    }

    fn clusters(&mut self, clusters: BTreeMap<Name, raw::Cluster>) -> Vec<Cluster> {
        if clusters.is_empty() {
            self.refuse(top("clusters"), "expected at least one cluster with its nodes");
        }
        clusters.into_iter().map(|(name, cluster)| self.cluster(name.0, cluster)).collect()
    }

    fn cluster(&mut self, name: String, cluster: raw::Cluster) -> Cluster {
        let path = top("clusters").key(&name);
        let tls = cluster.server_tls.and_then(|tls| self.server_tls(&tls, &path.key("server_tls")));
        Cluster {
            nodes: self.nodes(cluster.nodes, tls.as_ref(), &path.key("nodes")),
            monitor: self.monitor(cluster.monitor, &path.key("monitor")),
            max_lag: self.positive(cluster.max_lag, Duration::from_secs(10), path.key("max_lag")),
            primary_wait: span(cluster.primary_wait, Duration::from_secs(10)),
            fence_source: cluster.fence_source.unwrap_or_default(),
            check_interval: self.check_interval(cluster.check_interval, path.key("check_interval")),
            check_timeout: self.positive(
                cluster.check_timeout,
                Duration::from_secs(1),
                path.key("check_timeout"),
            ),
            overrides: HashMap::new(),
            eject_after: cluster.eject_after.map_or(5, |count| count.0),
            slow_start: span(cluster.slow_start, Duration::from_secs(10)),
            name,
        }
    }

    fn check_interval(&mut self, value: Option<Span>, path: KeyPath) -> Duration {
        let interval = span(value, Duration::from_millis(250));
        if interval < Duration::from_millis(10) {
            self.refuse(path, "expected at least \"10ms\": each check is a query on the node");
        }
        interval
    }

    fn nodes(&mut self, nodes: Vec<raw::Node>, tls: Option<&TlsClient>, path: &KeyPath) -> Vec<Node> {
        if nodes.is_empty() {
            self.refuse(path.clone(), "expected at least one node");
        }
        let mut names = HashSet::new();
        let mut addresses = HashSet::new();
        let mut checked = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.into_iter().enumerate() {
            let (Name(name), NodeAddress(address)) = (node.name, node.address);
            let path = path.index(index);
            if !names.insert(name.clone()) {
                self.refuse(path.key("name"), format!("another node is called {name:?}"));
            }
            if !addresses.insert(address.clone()) {
                self.refuse(path.key("address"), format!("another node has the address {address}"));
            }
            let tls = match &node.server_tls {
                None => tls.cloned(),
                Some(own) => self.server_tls(own, &path.key("server_tls")),
            };
            let levels = node.levels.map(|levels| levels.iter().map(|level| level.0).collect::<Vec<_>>());
            checked.push(Node {
                name,
                address,
                weight: node.weight.map_or(1, |weight| weight.0),
                levels: levels.and_then(|levels| Levels::named(&levels)).unwrap_or_default(),
                max_server_connections: node.max_server_connections.map(|count| count.0),
                tls,
            });
        }
        checked
    }

    fn monitor(&mut self, monitor: raw::Monitor, path: &KeyPath) -> Monitor {
        Monitor {
            user: monitor.user.0,
            password: self.password(monitor.password, monitor.password_file, path),
            database: monitor.database.map_or_else(|| "postgres".to_owned(), |database| database.0),
        }
    }

    fn password(
        &mut self,
        inline: Option<Secret>,
        file: Option<Word>,
        path: &KeyPath,
    ) -> Option<SecretString> {
        match (inline, file) {
            (Some(_), Some(_)) => {
                self.refuse(path.key("password_file"), "`password` is there too: expected one of the two");
                None
            }
            (Some(secret), None) => Some(secret.0),
            (None, Some(Word(file))) => match read_secret(&self.directory.join(&file)) {
                Ok(secret) => Some(secret),
                Err(message) => {
                    self.refuse(path.key("password_file"), format!("{file}: {message}"));
                    None
                }
            },
            (None, None) => None,
        }
    }

    fn pool(&mut self, pool: raw::Pool) -> Pool {
        let path = top("pool");
        let keepalive = pool.keepalive.unwrap_or_default();
        let keepalive_path = path.key("keepalive");
        Pool {
            mode: pool.mode.unwrap_or(Mode::Transaction),
            size: count(pool.size.as_ref(), 20),
            max_waiters: count(pool.max_waiters.as_ref(), 10_000),
            max_connecting: count(pool.max_connecting.as_ref(), 4),
            checkout_timeout: self.positive(
                pool.checkout_timeout,
                Duration::from_secs(5),
                path.key("checkout_timeout"),
            ),
            connect_timeout: self.positive(
                pool.connect_timeout,
                Duration::from_secs(5),
                path.key("connect_timeout"),
            ),
            idle_timeout: span(pool.idle_timeout, Duration::from_mins(10)),
            lifetime: span(pool.lifetime, Duration::from_hours(1)),
            keepalive: Keepalive {
                idle: self.seconds(keepalive.idle, Duration::from_secs(30), keepalive_path.key("idle")),
                interval: self.seconds(
                    keepalive.interval,
                    Duration::from_secs(10),
                    keepalive_path.key("interval"),
                ),
                probes: count(keepalive.probes.as_ref(), 3),
                user_timeout: self.positive(
                    keepalive.user_timeout,
                    Duration::from_secs(30),
                    keepalive_path.key("user_timeout"),
                ),
            },
        }
    }

    /// A duration that the operating system takes in whole seconds.
    fn seconds(&mut self, value: Option<Span>, default: Duration, path: KeyPath) -> Duration {
        let duration = span(value, default);
        if duration.is_zero() || duration.subsec_nanos() != 0 {
            self.refuse(path, "expected whole seconds, such as \"30s\"");
        }
        duration
    }

    fn rules(&mut self, rules: Vec<raw::Rule>) -> Vec<Rule> {
        let mut checked = Vec::with_capacity(rules.len());
        for (index, rule) in rules.into_iter().enumerate() {
            if rule.method == Method::Trust {
                let clients = match rule.address {
                    Origin::Unix => "clients of Unix sockets".to_owned(),
                    Origin::Network(address, prefix) => format!("clients from {address}/{prefix}"),
                };
                self.warnings.push(format!("auth.rules[{index}]: {clients} are let in without a password"));
            }
            checked.push(Rule {
                origin: rule.address,
                database: rule.database.map(|word| word.0),
                user: rule.user.map(|word| word.0),
                tls: rule.tls,
                method: rule.method,
            });
        }
        checked
    }

    fn databases(
        &mut self,
        databases: Option<BTreeMap<String, Option<raw::Database>>>,
        clusters: &mut [Cluster],
        general: &causeway_routing::Overrides,
    ) -> Vec<(String, Database)> {
        let everything = || BTreeMap::from([("*".to_owned(), None)]);
        let mut checked = Vec::new();
        for (name, database) in databases.unwrap_or_else(everything) {
            let path = top("databases").key(&name);
            if ADMIN_DATABASES.contains(&name.as_str()) {
                let message = format!("the name {name:?} belongs to the console");
                self.problems.push(Problem::key(path.clone(), message));
            }
            let raw::Database { cluster, pool, consistency, routing, limits, timeouts } =
                database.unwrap_or_default();
            let cluster = self.cluster_of(cluster.as_ref(), clusters, &path);
            let routing = self.routing(routing, &path.key("routing")).over(general);
            if let Some(cluster) = clusters.get_mut(cluster) {
                cluster.overrides.insert(name.as_str().into(), Arc::new(routing));
            }
            let overrides = overrides((pool, consistency), (limits, timeouts));
            checked.push((name, Database { cluster, overrides }));
        }
        checked
    }

    fn cluster_of(&mut self, name: Option<&Word>, clusters: &[Cluster], path: &KeyPath) -> usize {
        let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        match name {
            // A missing or empty `clusters` has been reported already.
            None if names.len() < 2 => 0,
            None => {
                let message = format!("the key `cluster` is missing: expected one of {}", names.join(", "));
                self.refuse(path.clone(), message);
                0
            }
            Some(Word(name)) => names.iter().position(|known| known == name).unwrap_or_else(|| {
                let message = match nearest(name, &names) {
                    Some(known) => format!("no cluster is called {name:?}; did you mean `{known}`?"),
                    None => format!("no cluster is called {name:?}: there are {}", names.join(", ")),
                };
                self.refuse(path.key("cluster"), message);
                0
            }),
        }
    }

    fn users(&mut self, users: BTreeMap<String, Option<raw::User>>) -> Vec<(String, User)> {
        let mut checked = Vec::new();
        for (name, user) in users {
            let path = top("users").key(&name);
            let user = user.unwrap_or_default();
            let verifier = user.scram_verifier;
            if verifier.is_some() && (user.password.is_some() || user.password_file.is_some()) {
                self.refuse(path.key("scram_verifier"), "a password is there too: expected one of the two");
            }
            let password = self.password(user.password, user.password_file, &path);
            let credential = match (password, verifier) {
                (Some(password), _) => Some(Credential::Password(password)),
                (None, Some(verifier)) => self.verifier(&verifier, path.key("scram_verifier")),
                (None, None) => None,
            };
            let overrides = overrides((user.pool, user.consistency), (user.limits, user.timeouts));
            checked.push((name, User { credential, overrides }));
        }
        checked
    }

    fn verifier(&mut self, verifier: &Secret, path: KeyPath) -> Option<Credential> {
        if let Ok(verifier) = Verifier::parse(verifier.0.expose_secret()) {
            return Some(Credential::Verifier(Box::new(verifier)));
        }
        self.refuse(path, "not a verifier: expected rolpassword of pg_authid, \"SCRAM-SHA-256$...\"");
        None
    }

    fn timeouts(&mut self, timeouts: &raw::Timeouts) -> Timeouts {
        Timeouts {
            login_timeout: self.positive(
                timeouts.login_timeout,
                Duration::from_mins(1),
                top("timeouts").key("login_timeout"),
            ),
            login_cache: span(timeouts.login_cache, Duration::from_secs(30)),
            shutdown_timeout: span(timeouts.shutdown_timeout, Duration::from_mins(1)),
            drain_delay: span(timeouts.drain_delay, Duration::ZERO),
            handover_timeout: span(timeouts.handover_timeout, Duration::from_hours(1)),
            query: span(timeouts.query_timeout, Duration::ZERO),
            transaction: span(timeouts.transaction_timeout, Duration::ZERO),
            idle_in_transaction: span(timeouts.idle_in_transaction_timeout, Duration::ZERO),
            client_idle: span(timeouts.client_idle_timeout, Duration::ZERO),
        }
    }
}

fn consistency(section: &raw::Consistency) -> Consistency {
    Consistency {
        level: section.level.map(|level| level.0).unwrap_or_default(),
        wait: section.wait.map_or(Duration::from_millis(50), |wait| wait.0),
        fallback: section.fallback.unwrap_or_default(),
        fallback_limit: section.fallback_limit.as_ref().map_or(32, |limit| limit.0),
        lost_writes: section.lost_writes.unwrap_or_default(),
        overlap: section.overlap.unwrap_or_default(),
    }
}

fn overrides(
    (pool, consistency): (Option<raw::PoolOverrides>, Option<raw::ConsistencyOverrides>),
    (limits, timeouts): (Option<raw::LimitOverrides>, Option<raw::TimeoutOverrides>),
) -> Overrides {
    let (pool, consistency) = (pool.unwrap_or_default(), consistency.unwrap_or_default());
    let (limits, timeouts) = (limits.unwrap_or_default(), timeouts.unwrap_or_default());
    Overrides {
        mode: pool.mode,
        size: pool.size.map(|size| size.0),
        checkout_timeout: pool.checkout_timeout.map(|timeout| timeout.0),
        level: consistency.level.map(|level| level.0),
        wait: consistency.wait.map(|wait| wait.0),
        fallback: consistency.fallback,
        lost_writes: consistency.lost_writes,
        max_clients: limits.max_clients.map(|count| count.0),
        max_server_connections: limits.max_server_connections.map(|count| count.0),
        timeouts: TimeoutOverrides {
            query: timeouts.query_timeout.map(|timeout| timeout.0),
            transaction: timeouts.transaction_timeout.map(|timeout| timeout.0),
            idle_in_transaction: timeouts.idle_in_transaction_timeout.map(|timeout| timeout.0),
            client_idle: timeouts.client_idle_timeout.map(|timeout| timeout.0),
        },
    }
}

/// The file's text without the newline at its end.
fn read_secret(path: &Path) -> Result<SecretString, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_SECRET_BYTES {
        return Err(format!("{length} bytes are too long for a password"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(['\n', '\0']) {
        return Err("expected one line with the password".to_owned());
    }
    Ok(SecretString::from(line))
}

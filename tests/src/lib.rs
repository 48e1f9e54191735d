//! What the end-to-end tests share: a body that runs directly on PostgreSQL first and then through Causeway, so that
//! every expectation has been held against the server itself.

#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "everything here panics when the test has failed")]

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use causeway_testkit::wire::{Client, Message, Request};
use causeway_testkit::{Causeway, Sandbox};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

/// Settings with one server connection for each node, database and user.
pub const ONE_CONNECTION: &str = "pool: { size: 1 }\n";

/// A port at which a database is served: PostgreSQL's own, or Causeway's.
pub struct Place {
    sandbox: &'static Sandbox,
    causeway: Option<Causeway>,
    database: String,
    port: u16,
}

/// Runs `body` on a server directly, then through Causeway with `settings` added to its YAML, each time on a new
/// database with the tables of `tests/cases/setup.sql`.
pub async fn everywhere(settings: &str, body: impl AsyncFn(&Place)) {
    directly(&body).await;
    through(settings, body).await;
}

/// Runs `body` on a server directly.
pub async fn directly(body: impl AsyncFn(&Place)) {
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = shop_database(sandbox).await;
    body(&Place { sandbox, causeway: None, port: sandbox.primary().port(), database }).await;
}

/// Runs `body` through a Causeway of its own, with `settings` added to its YAML, and stops it cleanly.
pub async fn through(settings: &str, body: impl AsyncFn(&Place)) {
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = shop_database(sandbox).await;
    let causeway = start(sandbox, settings).await;
    let place = Place { sandbox, port: causeway.port(), causeway: Some(causeway), database };
    // In session mode the session's server connection is the primary's.
    if !settings.contains("mode: session") {
        reads_use_replicas(place.causeway(), &place.database, "SELECT count(*) FROM shop.item").await;
    }
    body(&place).await;
    if let Some(causeway) = place.causeway {
        causeway.stop().await;
    }
}

/// A Causeway before `sandbox`, with `settings` added to its YAML, once every node serves.
pub async fn start(sandbox: &Sandbox, settings: &str) -> Causeway {
    start_with(sandbox, settings, sandbox.nodes().len()).await
}

/// As [`start`], once `nodes` nodes serve.
pub async fn start_with(sandbox: &Sandbox, settings: &str, nodes: usize) -> Causeway {
    let mut yaml = causeway_testkit::yaml_for(sandbox);
    if settings.contains("databases:") {
        yaml = yaml.replace("databases:\n  \"*\": { cluster: main }\n", "");
    }
    start_yaml(sandbox, &(yaml + settings), nodes).await
}

/// As [`start_with`], with the whole YAML.
pub async fn start_yaml(sandbox: &Sandbox, yaml: &str, nodes: usize) -> Causeway {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let state = sandbox.directory().join(format!("state-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&state).expect("a folder for the state");
    let state = format!("state_dir: \"{}\"\n", state.display());
    let causeway = Causeway::start(&(yaml.to_owned() + &state)).await;
    causeway.allow_log("are let in without a password");
    // A replica is known to be fresh only after it has replayed a position that the primary has shown.
    causeway.allow_log("it has shown no known position of the primary yet");
    serving(&causeway, u32::try_from(nodes).expect("a few nodes")).await;
    causeway
}

/// Waits until `nodes` nodes serve.
pub async fn serving(causeway: &Causeway, nodes: u32) {
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        let serving = causeway.metric("causeway_backend_state", &[("state", "serving")]).await;
        if (serving - f64::from(nodes)).abs() < 0.5 {
            return;
        }
        assert!(Instant::now() < deadline, "{serving} of {nodes} nodes serve");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sends `read` until a replica answers it: until the catalogue of the database is known, every read is the primary's.
pub async fn reads_use_replicas(causeway: &Causeway, database: &str, read: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut client = causeway.client("postgres", database).await;
    let labels = [("database", database), ("role", "replica")];
    while count(causeway, "causeway_queries_total", &labels).await == 0 {
        client.query(read).await;
        assert!(Instant::now() < deadline, "no replica answers reads");
        sleep(Duration::from_millis(5)).await;
    }
    client.terminate().await;
}

/// A new database with the tables of `tests/cases/setup.sql`, present on every node.
pub async fn shop_database(sandbox: &Sandbox) -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let template = TEMPLATE
        .get_or_init(async || {
            let name = causeway_testkit::fresh_database(sandbox).await;
            causeway_testkit::load_shop(sandbox, &name).await;
            name
        })
        .await;
    let name = format!("shop_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    admin(sandbox, "postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    name
}

async fn admin(sandbox: &Sandbox, database: &str, sql: &str) -> String {
    let answer = sandbox.primary().sql(database, sql).await;
    answer.unwrap_or_else(|error| panic!("{sql}: {error}")).trim_end().to_owned()
}

impl Place {
    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The database made for this run.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The servers.
    pub fn sandbox(&self) -> &'static Sandbox {
        self.sandbox
    }

    /// Whether this is PostgreSQL itself.
    pub fn is_direct(&self) -> bool {
        self.causeway.is_none()
    }

    /// The Causeway of this run.
    pub fn causeway(&self) -> &Causeway {
        self.causeway.as_ref().expect("this run goes through Causeway")
    }

    /// A logged-in client.
    pub async fn client(&self) -> Client {
        Client::login(self.port, "postgres", &self.database).await
    }

    /// A logged-in client with further startup parameters, and what the greeting said.
    pub async fn client_with(&self, parameters: &[(&str, &str)]) -> (Client, Vec<Message>) {
        let mut all = vec![("user", "postgres"), ("database", self.database.as_str())];
        all.extend_from_slice(parameters);
        Client::login_with(self.port, &all).await
    }

    /// Runs `sql` on the primary, past Causeway, in this run's database.
    pub async fn admin(&self, sql: &str) -> String {
        admin(self.sandbox, &self.database, sql).await
    }

    /// Runs `sql` on the primary and waits until the replicas have it too.
    pub async fn admin_everywhere(&self, sql: &str) -> String {
        let answer = self.admin(sql).await;
        self.sandbox.replicas_caught_up().await.expect("the replicas catch up");
        answer
    }

    /// Ends every session of this run's database on the primary; returns how many there were. Reading the catalogue
    /// may be among them.
    pub async fn terminate_on_primary(&self) -> usize {
        if let Some(causeway) = &self.causeway {
            causeway.allow_log("catalogue not loaded");
            causeway.allow_log("Connection error: connection closed");
        }
        let terminate = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
                         WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.admin(terminate).await.parse().expect("a number")
    }

    /// Waits until `sql`, run on the primary past Causeway, gives `want`.
    pub async fn admin_until(&self, sql: &str, want: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let got = self.admin(sql).await;
            if got == want {
                return;
            }
            assert!(Instant::now() < deadline, "{sql}: still {got}, not {want}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A number of Causeway's metrics for this run's database in one role, `primary` or `replica`.
    pub async fn count(&self, metric: &str, role: &str) -> u64 {
        count(self.causeway(), metric, &[("database", &self.database), ("role", role)]).await
    }

    /// Says on standard error how many of this run's transactions so far were those of pinned sessions, and what pinned
    /// them; of a hundred at least `percent` must not have been.
    pub async fn is_unpinned(&self, percent: u64) {
        let ours = ("database", self.database.as_str());
        let metrics = self.causeway().metrics().await;
        let total = whole(metrics.sum("causeway_transactions_total", &[ours]));
        let pinned = whole(metrics.sum("causeway_routing_decisions_total", &[ours, ("reason", "pinned")]));
        let pins: Vec<String> = metrics
            .label_values("causeway_pins_total", "reason")
            .into_iter()
            .map(|reason| (whole(metrics.sum("causeway_pins_total", &[ours, ("reason", &reason)])), reason))
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{reason} {count}"))
            .collect();
        let report = format!("{pinned} of {total} transactions in pinned sessions; pins: {pins:?}\n");
        std::io::stderr().write_all(report.as_bytes()).expect("standard error takes a line");
        assert!(total > 0 && pinned * 100 <= total * (100 - percent), "{report}");
    }

    /// The queries of this run's database on one node.
    pub async fn queries_on(&self, backend: &str) -> u64 {
        let labels = [("database", self.database.as_str()), ("backend", backend)];
        count(self.causeway(), "causeway_queries_total", &labels).await
    }
}

/// A counter of Causeway's, summed over the series with these labels.
pub async fn count(causeway: &Causeway, metric: &str, labels: &[(&str, &str)]) -> u64 {
    whole(causeway.metric(metric, labels).await)
}

fn whole(value: f64) -> u64 {
    // A sum over nothing may be minus zero.
    format!("{}", value.abs()).parse().expect("counters are whole")
}

/// The columns of every `DataRow`.
pub fn rows(messages: &[Message]) -> Vec<Vec<Option<String>>> {
    messages.iter().filter(|message| message.tag == b'D').map(Message::columns).collect()
}

/// The first column of the first row.
pub fn value(messages: &[Message]) -> String {
    let first = rows(messages).into_iter().next().and_then(|row| row.into_iter().next().flatten());
    first.unwrap_or_else(|| panic!("no value in {messages:?}"))
}

/// The command tags, in order.
pub fn tags(messages: &[Message]) -> Vec<String> {
    messages.iter().filter(|message| message.tag == b'C').map(Message::command).collect()
}

/// The SQLSTATE of the first error.
pub fn code(messages: &[Message]) -> &str {
    let error = messages.iter().find(|message| message.tag == b'E');
    error.unwrap_or_else(|| panic!("no error in {messages:?}")).code()
}

/// Bind, Execute and Sync of `statement`, with text parameters.
pub fn call(statement: &str, values: &[Option<&str>]) -> [Request; 3] {
    use causeway_testkit::wire::request::{bind, execute, sync};
    [bind("", statement, values), execute("", 0), sync()]
}

//! Servers, two Causeways before them, and what all runs have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use causeway_testkit::history::Moment;
use causeway_testkit::relay::FaultRelay;
use causeway_testkit::{Causeway, Sandbox, SandboxConfig, yaml_through};
use causeway_tests::{reads_use_replicas, start, start_yaml};
use tokio::time::{Instant, sleep};

/// Registers with one writer each.
pub(crate) const KEYS: u32 = 10;

/// What stands for a whole test; the disturbances come and go.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    /// The second one reaches the servers through relays.
    pub(crate) routers: [Causeway; 2],
    pub(crate) relays: Vec<FaultRelay>,
    base: Instant,
    next: AtomicU64,
    /// Which node takes writes, as far as this test has seen to it.
    writable: AtomicUsize,
}

/// `node()` tells who answers: the port, negative on a replica. It is labelled as harmless, and is: where it runs is
/// nothing that a client asks for.
const SETUP: &str = "\
    CREATE TABLE register (key int PRIMARY KEY, value bigint NOT NULL);
    CREATE TABLE list (key int PRIMARY KEY, items bigint[] NOT NULL);
    CREATE TABLE counted (id serial);
    CREATE TABLE effect (id bigint NOT NULL);
    CREATE TABLE bulk (id bigint NOT NULL, filler text NOT NULL);
    CREATE TABLE long (id int PRIMARY KEY, filler text NOT NULL);
    INSERT INTO long SELECT n, repeat('x', 100) FROM generate_series(1, 3000) AS n;
    INSERT INTO list VALUES (0, '{}'), (1, '{}');
    CREATE FUNCTION node() RETURNS int LANGUAGE sql STABLE AS
        'SELECT current_setting(''port'')::int * CASE WHEN pg_is_in_recovery() THEN -1 ELSE 1 END';
    CREATE FUNCTION write_lazily(k int, v bigint) RETURNS void LANGUAGE sql SET synchronous_commit = off AS
        'UPDATE register SET value = v WHERE key = k AND value < v'";

// === impl Stage ===

impl Stage {
    /// A primary with two replicas; `settings` are those of both Causeways.
    pub(crate) async fn start(settings: &str) -> Arc<Self> {
        let config = SandboxConfig::with_replicas(2).setting("max_prepared_transactions", "20");
        let sandbox = Sandbox::start(config).await.expect("the servers start");
        let registers = format!("INSERT INTO register SELECT n, 0 FROM generate_series(0, {KEYS}) AS n");
        for sql in [SETUP, &registers] {
            sandbox.primary().sql("postgres", sql).await.expect("tables");
        }
        sandbox.replicas_caught_up().await.expect("the replicas catch up");
        let mut relays = Vec::new();
        for node in sandbox.nodes() {
            relays.push(FaultRelay::start(&node.address()).await);
        }
        let addresses: Vec<_> = relays.iter().map(FaultRelay::address).collect();
        let yaml = yaml_through(&sandbox, &addresses) + settings;
        let routers = [start(&sandbox, settings).await, start_yaml(&sandbox, &yaml, 3).await];
        for router in &routers {
            // Servers are killed and connections cut: that is complained of.
            router.allow_log("");
            reads_use_replicas(router, "postgres", "SELECT node(), value FROM register WHERE key = 0").await;
        }
        let (base, next, writable) = (Instant::now(), AtomicU64::new(1), AtomicUsize::new(0));
        Arc::new(Self { sandbox, routers, relays, base, next, writable })
    }

    pub(crate) async fn stop(self: Arc<Self>) {
        let stage = Arc::into_inner(self).expect("nobody is left");
        for router in stage.routers {
            router.stop().await;
        }
        stage.sandbox.stop().await.expect("the servers stop");
    }

    /// The moment, for the history.
    pub(crate) fn now(&self) -> Moment {
        Moment::try_from(self.base.elapsed().as_micros()).expect("not that long")
    }

    /// A number that no other call gives: values of registers increase, entries of lists and effects are unlike.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// From now on this node, by its place among them, is the primary.
    pub(crate) fn promoted(&self, node: usize) {
        self.writable.store(node, Ordering::SeqCst);
    }

    /// On the primary, past the routers.
    pub(crate) async fn primary(&self, sql: &str) -> String {
        let node = &self.sandbox.nodes()[self.writable.load(Ordering::SeqCst)];
        let answer = node.sql("postgres", sql).await;
        answer.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Ends what nobody will commit any more; one that its client has just committed is none.
    pub(crate) async fn roll_back_prepared(&self) {
        let node = &self.sandbox.nodes()[self.writable.load(Ordering::SeqCst)];
        for gid in self.primary("SELECT gid FROM pg_prepared_xacts").await.lines() {
            drop(node.sql("postgres", &format!("ROLLBACK PREPARED '{gid}'")).await);
        }
    }

    /// Before a run: everything as it was, everywhere.
    pub(crate) async fn reset(&self) {
        self.roll_back_prepared().await;
        self.primary("UPDATE register SET value = 0; UPDATE list SET items = '{}'; TRUNCATE effect, bulk")
            .await;
        self.recovered().await;
    }

    /// Waits until the nodes serve in both routers again and the replicas have everything.
    pub(crate) async fn recovered(&self) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while let Err(error) = self.sandbox.replicas_caught_up().await {
            assert!(Instant::now() < deadline, "the replicas do not catch up: {error}");
            sleep(Duration::from_millis(100)).await;
        }
        for router in &self.routers {
            causeway_tests::serving(router, 3).await;
        }
    }
}

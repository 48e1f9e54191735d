//! Servers behind relays, Causeway before them, and what must hold when all is quiet again.

use std::collections::HashMap;
use std::time::Duration;

use causeway_testkit::relay::FaultRelay;
use causeway_testkit::sandbox::Node;
use causeway_testkit::{Causeway, Sandbox, SandboxConfig, yaml_through};
use causeway_tests::{reads_use_replicas, serving, start_yaml};
use tokio::time::{Instant, sleep};

use crate::bank::{ACCOUNTS, Ledger, MONEY};
use crate::faults::Fault;

/// Server connections of each node at most.
const POOL: usize = 4;

/// How long recovery may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) relays: Vec<FaultRelay>,
    pub(crate) causeway: Causeway,
    /// Which node is the primary.
    pub(crate) primary: usize,
}

/// What is open when nothing runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline {
    files: usize,
}

const SETUP: &str = "\
    CREATE TABLE account (id int PRIMARY KEY, amount int NOT NULL);
    CREATE TABLE done (token text NOT NULL);
    GRANT ALL ON account, done TO bank";

// === impl Stage ===

impl Stage {
    /// Every commit is on one standby at least before it is acknowledged.
    pub(crate) async fn start() -> Self {
        let config = SandboxConfig::with_replicas(2)
            .setting("synchronous_standby_names", "ANY 1 (*)")
            .setting("restart_after_crash", "on");
        let sandbox = Sandbox::start(config).await.expect("the servers start");
        let primary = sandbox.primary();
        let roles = ["CREATE ROLE bank LOGIN", "CREATE DATABASE bank OWNER bank TEMPLATE template0"];
        for sql in roles {
            primary.sql("postgres", sql).await.expect("a database");
        }
        let accounts =
            format!("INSERT INTO account SELECT n, {MONEY} FROM generate_series(0, {}) AS n", ACCOUNTS - 1);
        for sql in [SETUP, &accounts] {
            primary.sql("bank", sql).await.expect("tables");
        }
        sandbox.replicas_caught_up().await.expect("the replicas catch up");
        let mut relays = Vec::new();
        for node in sandbox.nodes() {
            relays.push(FaultRelay::start(&node.address()).await);
        }
        let addresses: Vec<_> = relays.iter().map(FaultRelay::address).collect();
        // A wait for the primary as long as a promotion takes on a busy machine.
        let yaml = yaml_through(&sandbox, &addresses)
            .replace("    monitor:", "    primary_wait: 20s\n    monitor:")
            + &format!("pool: {{ size: {POOL}, checkout_timeout: 30s }}\n");
        let causeway = start_yaml(&sandbox, &yaml, 3).await;
        // Servers are killed and connections cut: that is complained of.
        causeway.allow_log("");
        reads_use_replicas(&causeway, "bank", "SELECT sum(amount) FROM account").await;
        Self { sandbox, relays, causeway, primary: 0 }
    }

    pub(crate) fn primary(&self) -> &Node {
        &self.sandbox.nodes()[self.primary]
    }

    pub(crate) fn replicas(&self) -> Vec<&Node> {
        let others = self.sandbox.nodes().iter().enumerate().filter(|(index, _)| *index != self.primary);
        others.map(|(_, node)| node).collect()
    }

    /// On the primary, past Causeway; it may only just be up again.
    pub(crate) async fn ask(&self, database: &str, sql: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.primary().sql(database, sql).await {
                Ok(answer) => return answer,
                Err(error) => assert!(Instant::now() < deadline, "{sql}: {error}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Every node serves, and the replicas have everything.
    pub(crate) async fn recovered(&self, fault: Fault, seed: u64) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.sandbox.caught_up_with(self.primary()).await {
            assert!(
                Instant::now() < deadline,
                "{fault:?}, seed {seed}: the replicas do not catch up: {error}"
            );
            sleep(Duration::from_millis(100)).await;
        }
        serving(&self.causeway, 3).await;
    }

    /// What the clients were told, held against what is there.
    pub(crate) async fn audit(&self, fault: Fault, seed: u64, ledger: &Ledger) {
        let total = self.ask("bank", "SELECT sum(amount) FROM account").await;
        assert_eq!(total.trim(), (ACCOUNTS * MONEY).to_string(), "{fault:?}, seed {seed}");
        let mut times: HashMap<String, u32> = HashMap::new();
        for token in self.ask("bank", "SELECT token FROM done").await.lines() {
            *times.entry(token.to_owned()).or_default() += 1;
        }
        let count = |token: &String| times.get(token).copied().unwrap_or(0);
        let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{fault:?}, seed {seed}: done twice: {twice:?}");
        let lost: Vec<_> = ledger.acknowledged.iter().filter(|token| count(token) == 0).collect();
        assert!(lost.is_empty(), "{fault:?}, seed {seed}: acknowledged and lost: {lost:?}");
        let refused: Vec<_> = ledger.refused.iter().filter(|token| count(token) > 0).collect();
        assert!(refused.is_empty(), "{fault:?}, seed {seed}: refused and done: {refused:?}");
        let happened = ledger.unknown.iter().filter(|token| count(token) > 0).count();
        eprintln!(
            "{fault:?}: {} done, {} refused, {} unknown of which {happened} are done; {} reads, {} failed",
            ledger.acknowledged.len(),
            ledger.refused.len(),
            ledger.unknown.len(),
            ledger.reads,
            ledger.failed_reads.len()
        );
    }

    /// What is open once nothing runs any more.
    pub(crate) async fn at_rest(&self) -> Baseline {
        self.idle("at first").await;
        Baseline { files: self.causeway.open_fds() }
    }

    /// Nothing has leaked.
    pub(crate) async fn back_at(&self, baseline: Baseline, fault: Fault, seed: u64) {
        let what = format!("{fault:?}, seed {seed}");
        self.idle(&what).await;
        // The pools may be fuller than they were: a fault moves statements to other nodes. The test's own scrape counts, too.
        let most = baseline.files + 3 * POOL + 2;
        let deadline = Instant::now() + PATIENCE;
        while self.causeway.open_fds() > most {
            let open = self.causeway.open_fds();
            assert!(
                Instant::now() < deadline,
                "{what}: {open} files are open, {most} at most would be right"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// No client is left, and no server connection works.
    async fn idle(&self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.causeway.metrics().await;
            let busy = ["causeway_clients", "causeway_checkout_waiters"].map(|name| metrics.sum(name, &[]));
            let active = metrics.sum("causeway_backend_connections", &[("state", "active")]);
            if busy.iter().sum::<f64>() + active < 0.5 {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: clients, waiting: {busy:?}, active: {active}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

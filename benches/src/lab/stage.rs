//! The servers that all proxies stand before, with their data.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use causeway_sandbox::{Node, Sandbox, SandboxConfig};
use tokio::runtime::Runtime;

use super::pgbench::Pgbench;
use super::{DATABASE, Failure, USER};

/// The lengths of the rows in the tables for large reads, as `DataRow` messages on the wire.
pub const ROW_BYTES: [usize; 6] = [11, 20, 100, 1000, 2000, 8000];
/// Bytes of all `DataRow` messages of such a table.
pub const TABLE_BYTES: usize = 100 * 1024 * 1024;
/// Bytes of a `DataRow` of one column, its value apart.
const ROW_OVERHEAD: usize = 11;
/// pgbench's scale: 100,000 accounts each.
const SCALE: u32 = 10;

/// As fast as servers get, since it is the proxies that are measured; room for the poolers' and the proxies' connections
/// that go through one to one beside each other.
const SETTINGS: [(&str, &str); 6] = [
    ("synchronous_commit", "off"),
    ("shared_buffers", "256MB"),
    ("max_connections", "700"),
    ("autovacuum", "off"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
];

/// A primary with two streaming replicas.
#[derive(Debug)]
pub struct Stage {
    runtime: Runtime,
    sandbox: Sandbox,
}

impl Stage {
    /// Starts the servers and fills pgbench's tables.
    ///
    /// # Errors
    ///
    /// When the servers do not start or a statement fails.
    pub fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let config = SETTINGS
            .into_iter()
            .fold(SandboxConfig::with_replicas(2), |config, (name, value)| config.setting(name, value));
        let sandbox = runtime.block_on(Sandbox::start(config))?;
        let stage = Self { runtime, sandbox };
        stage.sql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        Pgbench::initialise(&stage.primary().address(), SCALE)?;
        stage.settle()?;
        Ok(stage)
    }

    /// Fills the tables for large reads: `s11` to `s8000`.
    ///
    /// # Errors
    ///
    /// When a statement fails.
    pub fn fill_tables(&self) -> Result<(), Failure> {
        for bytes in ROW_BYTES {
            let (value, rows) = (bytes - ROW_OVERHEAD, TABLE_BYTES / bytes);
            let make = format!(
                "CREATE TABLE s{bytes} (v text); ALTER TABLE s{bytes} ALTER v SET STORAGE PLAIN; \
                 INSERT INTO s{bytes} SELECT repeat('x', {value}) FROM generate_series(1, {rows})"
            );
            self.sql(DATABASE, &make)?;
            // Hint bits and the visibility map: the first reader would write them otherwise.
            self.sql(DATABASE, &format!("VACUUM (FREEZE, ANALYZE) s{bytes}"))?;
        }
        self.settle()
    }

    /// The server that takes writes.
    pub fn primary(&self) -> &Node {
        self.sandbox.primary()
    }

    /// All servers, the primary first.
    pub fn nodes(&self) -> &[Node] {
        self.sandbox.nodes()
    }

    /// Where what belongs to the servers is, readable by their account alone.
    pub fn directory(&self) -> &Path {
        self.sandbox.directory()
    }

    /// Makes a directory of this name that the servers' account can write to, as the proxies that refuse root do.
    ///
    /// # Errors
    ///
    /// When it is there already or cannot be made.
    pub fn scratch(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.directory().join(name);
        fs::create_dir(&path)?;
        let owner = fs::metadata(self.directory())?;
        chown(&path, Some(owner.uid()), Some(owner.gid()))?;
        Ok(path)
    }

    /// The processes of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes().iter().filter_map(Node::pid).collect()
    }

    /// One of PostgreSQL's client programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.sandbox.binaries().program(name)
    }

    /// Runs a statement on the primary.
    ///
    /// # Errors
    ///
    /// What psql says.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String, Failure> {
        Ok(self.runtime.block_on(self.primary().sql(database, sql))?)
    }

    /// How often each server has looked up accounts since its start, the primary first, as far as it has reported it.
    ///
    /// # Errors
    ///
    /// What psql says.
    pub fn reads(&self) -> Result<Vec<u64>, Failure> {
        let sql = "SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'pgbench_accounts'";
        let ask = |node: &Node| Ok(self.runtime.block_on(node.sql(DATABASE, sql))?.trim().parse()?);
        self.nodes().iter().map(ask).collect()
    }

    /// Has everything written on every server, so that no checkpoint falls into a measurement.
    fn settle(&self) -> Result<(), Failure> {
        self.sql("postgres", "CHECKPOINT")?;
        self.runtime.block_on(self.sandbox.replicas_caught_up())?;
        for node in self.nodes() {
            self.runtime.block_on(node.sql("postgres", "CHECKPOINT"))?;
        }
        Ok(())
    }

    /// Stops the servers and removes their data.
    ///
    /// # Errors
    ///
    /// When a server is not down after a minute.
    pub fn stop(self) -> Result<(), Failure> {
        let Self { runtime, sandbox } = self;
        Ok(runtime.block_on(sandbox.stop())?)
    }
}

/// Sets what every client of a measurement is told by its environment.
pub fn client_environment(command: &mut std::process::Command, port: u16) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.envs([("PGHOST", "127.0.0.1"), ("PGUSER", USER), ("PGDATABASE", DATABASE)]);
    command.env("PGPORT", port.to_string()).env("PGGSSENCMODE", "disable").env("PGSSLMODE", "disable");
}

//! A primary with its replicas.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::node::{Common, Node, Role, StopMode};
use crate::place::Place;
use crate::port::free_ports;
use crate::watchdog::{Orders, Watchdog};
use crate::{Authentication, SandboxConfig, SandboxError};

/// How long replicas may take to connect, or to replay what they are waited for.
const CATCH_UP: Duration = Duration::from_mins(1);
/// How often another port is tried when somebody was faster.
const PORT_ATTEMPTS: usize = 3;

/// A running throw-away cluster.
///
/// Dropping it stops the servers at once and deletes what was made, which blocks for a fraction of a second;
/// [`stop`](Self::stop) does the same without blocking. Both touch only what this sandbox started. If the process
/// dies instead, SIGKILL included, the [`Watchdog`] does it.
#[derive(Debug)]
pub struct Sandbox {
    nodes: Vec<Node>,
    common: Common,
    /// Last, so that it is dropped after the nodes.
    watchdog: Watchdog,
}

impl Sandbox {
    /// Makes the cluster, or starts the one an earlier sandbox has left in the directory, and waits until every
    /// replica streams. Takes about two seconds and one more for each replica.
    ///
    /// Dropping the future stops and removes what has been started so far.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed, the directory or ports cannot be used, or a server does not start.
    pub async fn start(config: SandboxConfig) -> Result<Self, SandboxError> {
        let binaries = Binaries::find()?;
        let account = Account::detect()?;
        let count = config.replicas + 1;
        if config.ports.as_ref().is_some_and(|ports| ports.len() != count) {
            return Err(SandboxError::Configuration(format!("{count} nodes need {count} ports")));
        }
        for attempt in 1.. {
            match Self::attempt(&config, &binaries, account).await {
                Err(error) if error.is_port_taken() && config.ports.is_none() && attempt < PORT_ATTEMPTS => {
                    tracing::debug!(%error, "a port was taken meanwhile");
                }
                done => return done,
            }
        }
        unreachable!("the loop above ends by returning")
    }

    async fn attempt(
        config: &SandboxConfig,
        binaries: &Binaries,
        account: Account,
    ) -> Result<Self, SandboxError> {
        let place = Place::prepare(config.directory.as_deref(), account)?;
        let ports = match &config.ports {
            Some(ports) => ports.clone(),
            None => free_ports(config.replicas + 1)?,
        };
        let common = Common { binaries: binaries.clone(), account, place, config: config.clone() };
        let nodes: Vec<Node> = ports
            .iter()
            .enumerate()
            .map(|(index, port)| Node::new(format!("pg-{index}"), *port, common.clone()))
            .collect();
        let watchdog = watch(&common, &nodes)?;
        let sandbox = Self { nodes, common, watchdog };
        sandbox.start_nodes().await?;
        Ok(sandbox)
    }

    async fn start_nodes(&self) -> Result<(), SandboxError> {
        // In a kept directory another node than the first may be the primary, after a promotion.
        let made = |node: &&Node| node.directory().join("PG_VERSION").is_file();
        let primary = self.nodes.iter().filter(made).find(|node| node.role() == Role::Primary);
        let primary = primary.unwrap_or_else(|| self.primary());
        if !made(&primary) {
            primary.initialise().await?;
        }
        primary.start().await?;
        let others = self.nodes.iter().filter(|node| node.name() != primary.name());
        for replica in others {
            if made(&replica) && replica.role() == Role::Replica {
                replica.set_source(primary.port());
                replica.start().await?;
            } else {
                replica.rebuild(primary).await?;
            }
        }
        self.replicas_of(primary).await
    }

    /// Waits until all other nodes stream from this one.
    async fn replicas_of(&self, primary: &Node) -> Result<(), SandboxError> {
        let wanted = self.nodes.len() - 1;
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        let deadline = Instant::now() + CATCH_UP;
        while wanted > 0 && primary.sql("postgres", sql).await?.trim() != wanted.to_string() {
            pause_before(deadline, "waiting for the replicas to stream").await?;
        }
        Ok(())
    }

    /// All nodes, `pg-0` first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node that was the primary at the start.
    pub fn primary(&self) -> &Node {
        // There is always one node more than replicas.
        &self.nodes[0]
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// The nodes that were replicas at the start.
    pub fn replicas(&self) -> &[Node] {
        self.nodes.get(1..).unwrap_or_default()
    }

    /// Where data and logs are.
    pub fn directory(&self) -> &Path {
        &self.common.place.root
    }

    /// The directory of the Unix sockets.
    pub fn socket_directory(&self) -> &Path {
        &self.common.place.sockets
    }

    /// The programs the servers run from.
    pub fn binaries(&self) -> &Binaries {
        &self.common.binaries
    }

    /// A command that runs `program` under the account of the servers, which is never root: for what reads and writes
    /// the same files as they do. The caller's `PG*` variables are not passed on, and there is no standard input.
    pub fn command(&self, program: &Path) -> Command {
        self.common.account.command(program)
    }

    /// The superuser's name.
    pub fn superuser(&self) -> &str {
        &self.common.config.superuser
    }

    /// The superuser's password, if clients need one.
    pub fn password(&self) -> Option<&str> {
        match &self.common.config.authentication {
            Authentication::Trust => None,
            Authentication::Scram { password } => Some(password),
        }
    }

    /// Waits until every running replica has replayed what the first node has written up to now.
    ///
    /// # Errors
    ///
    /// When one does not within a minute, or a node cannot be asked.
    pub async fn replicas_caught_up(&self) -> Result<(), SandboxError> {
        self.caught_up_with(self.primary()).await
    }

    /// Waits until every other running node that is a replica has replayed what this one, a primary, has written up
    /// to now. Writes a record of its own first: after a switch of segment the insert position is behind a page header
    /// that no replica replays until something follows it, which may take a quarter of a minute.
    ///
    /// # Errors
    ///
    /// When one does not within a minute, or a node cannot be asked.
    pub async fn caught_up_with(&self, primary: &Node) -> Result<(), SandboxError> {
        let written = primary.position("pg_logical_emit_message(true, 'sandbox', '')").await?;
        let deadline = Instant::now() + CATCH_UP;
        let replicas =
            self.nodes.iter().filter(|node| node.name() != primary.name() && node.role() == Role::Replica);
        for replica in replicas.filter(|replica| replica.pid().is_some()) {
            while replica.position("pg_last_wal_replay_lsn()").await? < written {
                pause_before(deadline, "waiting for a replica to catch up").await?;
            }
        }
        Ok(())
    }

    /// Stops the servers, in fast mode if their data are kept and at once otherwise, and deletes what shall not stay.
    ///
    /// # Errors
    ///
    /// When a server is not down after a minute; it is then killed.
    pub async fn stop(self) -> Result<(), SandboxError> {
        let Self { nodes, common, watchdog } = self;
        let mode = if common.config.keep { StopMode::Fast } else { StopMode::Immediate };
        let mut outcome = Ok(());
        for node in nodes.iter().filter(|node| node.pid().is_some()) {
            outcome = outcome.and(node.stop(mode).await);
        }
        drop(nodes);
        watchdog.finish().await;
        outcome
    }
}

/// Tells a watchdog what is to be stopped and removed; it is the only one that removes anything.
fn watch(common: &Common, nodes: &[Node]) -> Result<Watchdog, SandboxError> {
    let place = &common.place;
    let mut orders = Orders::default();
    for node in nodes {
        orders.stop_server(node.directory());
    }
    if place.temporary {
        orders.remove(&place.root);
    } else if !common.config.keep {
        for node in nodes {
            orders.remove(node.directory());
            orders.remove(&node.log_path());
        }
        orders.remove(&place.marker());
    }
    orders.remove(&place.sockets);
    let signal = if common.config.keep { "INT" } else { "QUIT" };
    Watchdog::spawn(signal, orders)
        .map_err(|source| SandboxError::Program { program: "the watchdog's shell".to_owned(), source })
}

async fn pause_before(deadline: Instant, what: &str) -> Result<(), SandboxError> {
    if Instant::now() >= deadline {
        return Err(SandboxError::Timeout { what: what.to_owned(), limit: CATCH_UP, detail: String::new() });
    }
    sleep(Duration::from_millis(20)).await;
    Ok(())
}

//! Replication connections: each has a server connection of its own, to the primary, and everything passes as it is.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_pool::{CheckoutError, CloseReason, ConnectError, Lease};
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::{Replication, Startup};
use tokio::time::Instant;

use crate::Shared;
use crate::accept::{Door, Turned, closed_door};
use crate::config::{ClusterConfig, Snapshot};
use crate::control::ControlPlane;
use crate::pools::{NodePool, PoolKey};
use crate::registry::{ClientState, Introduction, Registration};
use crate::socket::Socket;

/// How long a server may take to give a connection beyond the time that connecting to it may take.
const GRACE: Duration = Duration::from_secs(1);

/// A client that replicates, and the server connection that it has to itself.
pub(crate) struct Stream {
    entry: Registration,
    lease: Lease,
    /// Keeps the pool of this one connection.
    _pool: Arc<NodePool>,
    control: Arc<dyn ControlPlane>,
    /// In which era the server was the primary.
    era: u64,
}

/// Opens a server connection for a client that has proved who it is, and greets the client in the server's words.
///
/// Cancel-safe: dropping the future closes what was opened.
///
/// # Errors
///
/// What the client is to be told: there is no such database or no primary, a limit was reached, or the server refuses.
pub(crate) async fn open(shared: &Arc<Shared>, door: &mut Door, startup: Startup) -> Result<Stream, Turned> {
    if let Some(report) = closed_door(shared) {
        return Err(Turned::Report(report));
    }
    let snapshot = shared.snapshot.load_full();
    let (database, user): (Arc<str>, Arc<str>) = (Arc::from(&*startup.database), Arc::from(&*startup.user));
    let (position, cluster) = cluster_of(&snapshot, &startup).ok_or_else(|| unknown(&database))?;
    let admission = shared.crowd.admit(&snapshot, &database, &user).map_err(Turned::Report)?;
    let application_name = startup.setting("application_name").unwrap_or_default().into();
    let kind = if startup.replication == Some(Replication::Database) { "database" } else { "true" };
    let mut parameters = startup.settings;
    parameters.push(("replication".into(), kind.into()));
    let control = Arc::clone(&cluster.control);
    let (id, era) = primary(cluster).await?;
    let node = cluster.nodes.get(usize::from(id.0)).ok_or_else(|| Turned::Report(no_primary(cluster)))?;
    let key = PoolKey {
        cluster: Arc::clone(&cluster.name),
        node: Arc::clone(&node.name),
        database: Arc::clone(&database),
        user: Arc::clone(&user),
    };
    let made = shared.pools.apart(&snapshot, (position, id), key, parameters, &shared.metrics);
    let pool = made.ok_or_else(|| unknown(&database))?;
    let deadline = Instant::now() + snapshot.defaults.connect_timeout + GRACE;
    let lease = pool.pool.checkout(deadline).await.map_err(|error| refused(error, &node.name))?;
    let (address, tls) = (door.address, door.stream.tls());
    let who = Introduction { database, user, application_name, address, tls };
    let mut entry = shared.clients.register(who, Some(lease.process_id()));
    entry.admission = Some(admission);
    entry.lend(&pool, lease.number());
    entry.enter(ClientState::Active);
    for (name, value) in lease.parameters() {
        encode::parameter_status(&mut door.outbound, name.as_bytes(), value);
    }
    encode::backend_key_data(&mut door.outbound, &entry.key);
    encode::ready_for_query(&mut door.outbound, TransactionStatus::Idle);
    door.flush().await?;
    shared.metrics.process.logins.add(1);
    lease.count_transaction();
    Ok(Stream { entry, lease, _pool: pool, control, era })
}

/// Where the database is. Physical replication has none: the only cluster serves it, or the one of `"*"`.
fn cluster_of<'a>(snapshot: &'a Snapshot, startup: &Startup) -> Option<(usize, &'a ClusterConfig)> {
    let known = snapshot.database(&startup.database).map(|entry| entry.cluster);
    let only = || {
        let physical = startup.replication == Some(Replication::Physical);
        (physical && snapshot.clusters.len() == 1).then_some(0)
    };
    let position = known.or_else(only)?;
    snapshot.clusters.get(position).map(|cluster| (position, cluster))
}

/// The primary and its era, waiting for one as a statement does.
async fn primary(cluster: &ClusterConfig) -> Result<(causeway_routing::NodeId, u64), Turned> {
    let deadline = Instant::now() + cluster.primary_wait;
    let mut changes = cluster.control.changes();
    loop {
        changes.mark_unchanged();
        let era = cluster.control.era();
        if let Some(id) = cluster.control.view().primary {
            return Ok((id, era));
        }
        if !matches!(tokio::time::timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
            return Err(Turned::Report(no_primary(cluster)));
        }
    }
}

fn no_primary(cluster: &ClusterConfig) -> ErrorReport {
    let waited = cluster.primary_wait.as_millis();
    ErrorReport::fatal(SqlState::CANNOT_CONNECT_NOW, "no primary is available")
        .with_detail(format!("None was found within primary_wait ({waited} ms)."))
        .with_hint("SHOW NODES on the console tells what is known of each node.")
}

fn unknown(database: &str) -> Turned {
    let message = format!("database \"{database}\" does not exist");
    Turned::Report(
        ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, message)
            .with_hint("databases in Causeway's configuration has neither this name nor \"*\"."),
    )
}

fn refused(error: CheckoutError, node: &str) -> Turned {
    if let CheckoutError::Connect(ConnectError::Refused(body)) = error {
        return Turned::Verbatim(body);
    }
    let full = matches!(error, CheckoutError::Timeout { .. });
    let code = if full { SqlState::TOO_MANY_CONNECTIONS } else { SqlState::CANNOT_CONNECT };
    let detail = match &error {
        CheckoutError::Connect(cause) => cause.to_string(),
        other => other.to_string(),
    };
    let message = format!("no replication connection to node \"{node}\" could be made");
    Turned::Report(ErrorReport::fatal(code, message).with_detail(detail))
}

// === impl Stream ===

impl Stream {
    /// Passes on what both sides send until one of them ends, the process does, or the server is no longer the primary.
    /// In the middle of a stream there is no place for a last word: the client sees the connection close.
    pub(crate) async fn relay(mut self, mut door: Door) {
        let mut to_client = std::mem::take(&mut self.lease.inbound);
        let ended = poll_fn(|cx| self.poll_relay(cx, &mut door, &mut to_client)).await;
        if let Err(error) = ended {
            tracing::debug!(client = self.entry.key.process_id, %error, "replication connection broke");
        }
        self.lease.discard(CloseReason::ClientGone);
    }

    fn poll_relay(
        &mut self,
        cx: &mut Context<'_>,
        door: &mut Door,
        to_client: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        self.entry.wake_by(cx.waker());
        let interrupts = self.entry.interrupts();
        self.entry.looked();
        if interrupts.kill || interrupts.drain || self.control.era() != self.era {
            return Poll::Ready(Ok(()));
        }
        let server = &mut self.lease.stream;
        if let Poll::Ready(ended) = poll_pass(cx, server, &mut door.stream, to_client) {
            return Poll::Ready(ended);
        }
        poll_pass(cx, &mut door.stream, server, &mut door.inbound)
    }
}

/// Passes bytes on, never more than a buffer ahead, until there are no more.
fn poll_pass(
    cx: &mut Context<'_>,
    from: &mut impl Socket,
    to: &mut impl Socket,
    buffer: &mut Buffer,
) -> Poll<io::Result<()>> {
    loop {
        while !buffer.is_empty() {
            match to.poll_drain(cx, buffer.filled()) {
                Poll::Ready(written) => buffer.consume(written?),
                Poll::Pending => return Poll::Pending,
            }
        }
        match from.poll_fill(cx, buffer) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
}

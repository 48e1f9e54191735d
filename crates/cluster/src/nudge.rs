//! Making a quiet primary flush what a waiting reader's fence includes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::{Client, NoTls, Statement};
use tracing::warn;

use crate::config::NodeConfig;
use crate::error::ProbeError;
use crate::state::State;

/// The task that nudges. Its connection is never a probe's: a commit can hang, and would take all fences along.
#[derive(Debug)]
pub(crate) struct Nudger {
    state: Arc<State>,
    session: Option<Session>,
    complaint: Option<String>,
}

#[derive(Debug)]
struct Session {
    node: NodeConfig,
    client: Client,
    nudge: Statement,
    /// Dropping it closes the socket.
    _connection: JoinSet<()>,
}

/// The pause between two nudges: before version 17 each takes a transaction id.
const PAUSE: Duration = Duration::from_millis(50);

/// Its commit flushes all that was inserted before it, and ends on a record's end.
const TRANSACTIONAL: &str = "SELECT pg_logical_emit_message(true, 'causeway', '')";
/// Flushes without a transaction id.
const FLUSHING: &str = "SELECT pg_logical_emit_message(false, 'causeway', '', true)";

// === impl Nudger ===

impl Nudger {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, session: None, complaint: None }
    }

    /// Never returns; the task ends by being aborted.
    pub(crate) async fn run(mut self) {
        let mut next = Instant::now();
        loop {
            self.state.nudge.notified().await;
            sleep_until(next).await;
            next = Instant::now() + PAUSE;
            // In the meantime somebody else's commit may have done it.
            let stuck = self.state.stuck().and_then(|key| self.state.node(key));
            let Some(node) = stuck else { continue };
            let limit = self.state.config().timeout;
            let outcome = timeout(limit, self.nudge(&node)).await.unwrap_or(Err(ProbeError::Timeout(limit)));
            self.book(&node, outcome);
        }
    }

    async fn nudge(&mut self, node: &NodeConfig) -> Result<(), ProbeError> {
        if self.session.as_ref().is_none_or(|session| !session.node.same_address(node)) {
            self.session = Some(Session::open(&self.state, node).await?);
        }
        if let Some(session) = &self.session {
            session.client.execute(&session.nudge, &[]).await?;
        }
        Ok(())
    }

    /// Readers that were waiting fall back to the primary, so a failure is worth a line, though not each time.
    fn book(&mut self, node: &NodeConfig, outcome: Result<(), ProbeError>) {
        let complaint = outcome.err().map(|error| error.to_string());
        if let Some(why) = &complaint {
            self.session = None;
            if complaint != self.complaint {
                warn!(%node, why, "the primary could not be made to flush its log: reads wait for it to do so itself");
            }
        }
        self.complaint = complaint;
    }
}

// === impl Session ===

impl Session {
    async fn open(state: &State, node: &NodeConfig) -> Result<Self, ProbeError> {
        let config = state.config();
        let mut login = config.monitor.login(node, &config.monitor.database, config.timeout);
        // A synchronous standby that is gone must not hold up what only has to be flushed here.
        login.options("-c synchronous_commit=local -c search_path=pg_catalog");
        let (client, connection) = login.connect(NoTls).await?;
        let mut task = JoinSet::new();
        // Its own error says less than that of the query which fails with it.
        task.spawn(async move { drop(connection.await) });
        let version = client.query_one("SELECT current_setting('server_version_num')::int4", &[]).await?;
        let flushing = version.try_get::<_, i32>(0)? >= 170_000;
        let nudge = client.prepare(if flushing { FLUSHING } else { TRANSACTIONAL }).await?;
        Ok(Self { node: node.clone(), client, nudge, _connection: task })
    }
}

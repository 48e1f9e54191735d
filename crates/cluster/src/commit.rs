//! Fences that are commits.

use std::sync::Arc;

use causeway_routing::Lsn;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Statement};
use tracing::warn;

use crate::alarm::Alarm;
use crate::demand::Primary;
use crate::errand::{Complaint, Errand};
use crate::error::ProbeError;
use crate::ring::Sample;
use crate::state::State;
use crate::totals::{ProbeKind, ProbeResult};

/// The task that commits whenever a fence is wanted and none is under way.
#[derive(Debug)]
pub(crate) struct Committer {
    state: Arc<State>,
    session: Option<(Errand, Statement)>,
    complaint: Complaint,
    failures: u32,
}

const OPTIONS: &str = "-c synchronous_commit=on -c search_path=pg_catalog";
/// The position returned is the end of the message's record: inserted after everything acknowledged before, and
/// flushed by the statement's own commit.
const COMMIT: &str = "SELECT pg_logical_emit_message(true, 'causeway', '')";

// === impl Committer ===

impl Committer {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, session: None, complaint: Complaint::default(), failures: 0 }
    }

    /// Never returns; the task ends by being aborted.
    pub(crate) async fn run(mut self) {
        let state = self.state.clone();
        let (mut alarm, mut last) = (Alarm::new(), None);
        loop {
            state.committer.arm();
            let Some((at, primary)) = state.commit_turn(last) else {
                state.committer.rung().await;
                continue;
            };
            state.committer.disarm();
            alarm.until(at).await;
            let requested = Instant::now();
            let outcome = self.commit(&primary, requested).await;
            let result = match &outcome {
                Ok(()) => ProbeResult::Answered,
                Err(ProbeError::Timeout(_)) => ProbeResult::TimedOut,
                Err(_) => ProbeResult::Failed,
            };
            state.meter.probed(ProbeKind::Commit, result, requested.elapsed());
            let Err(why) = outcome else {
                self.complaint.is_new(None);
                (last, self.failures) = (Some(requested), 0);
                continue;
            };
            self.session = None;
            self.failures = self.failures.saturating_add(1);
            if self.complaint.is_new(Some(&why)) {
                warn!(node = %primary.node, %why, "no commit fence: reads that need one wait");
            }
            sleep(state.config().reconnect.pause(self.failures, rand::random())).await;
        }
    }

    async fn commit(&mut self, primary: &Primary, requested: Instant) -> Result<(), ProbeError> {
        let (errand, commit) = match self.session.take().filter(|(errand, _)| errand.leads_to(primary)) {
            Some(session) => self.session.insert(session),
            None => self.session.insert(open(&self.state, primary).await?),
        };
        let (commit, limit, node) = (commit.clone(), self.state.config().commit_timeout, &primary.node);
        let complaint = &mut self.complaint;
        let late = || {
            if complaint.is_new(Some(&"no answer in time")) {
                warn!(%node, "a commit fence is not answered: is a synchronous standby gone?");
            }
        };
        let warnings = errand.wire.warnings();
        let work = async move |client: Arc<Client>| client.query_one(&commit, &[]).await;
        let row = errand.outlast(&self.state, limit, work, late).await?;
        if errand.wire.warnings() != warnings {
            // "The transaction has already committed locally, but might not have been replicated to the standby."
            return Err(ProbeError::Nonsense("a commit that did not wait for the synchronous standby"));
        }
        let lsn = Lsn(row.try_get::<_, PgLsn>(0)?.into());
        self.state.committed(errand.instance(), Sample { sent: requested, lsn });
        Ok(())
    }
}

async fn open(state: &State, primary: &Primary) -> Result<(Errand, Statement), ProbeError> {
    let mut errand = Errand::open(state, primary, OPTIONS).await?;
    let client = errand.wire.client();
    let commit = errand.wire.run(client.prepare(COMMIT)).await?;
    Ok((errand, commit))
}

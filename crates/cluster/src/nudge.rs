//! Making a quiet primary flush what a waiting reader's fence includes.

use std::sync::Arc;
use std::time::Duration;

use causeway_routing::Fence;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Statement;
use tokio_postgres::types::PgLsn;
use tracing::warn;

use crate::demand::Primary;
use crate::errand::{Complaint, Errand};
use crate::error::ProbeError;
use crate::source::FenceSource;
use crate::state::State;
use crate::totals::Meter;

/// The task that nudges.
#[derive(Debug)]
pub(crate) struct Nudger {
    state: Arc<State>,
    session: Option<(Errand, Statement)>,
    complaint: Complaint,
}

/// What commits under way may take to flush the fence themselves.
const GRACE: Duration = Duration::from_millis(1);

/// A synchronous standby that is gone must not hold up what only has to be flushed here.
const OPTIONS: &str = "-c synchronous_commit=local -c search_path=pg_catalog";
/// Its commit flushes all that was inserted before it, and ends on a record's end. Nothing is done, and no transaction
/// id taken, if that was flushed in the meantime.
const TRANSACTIONAL: &str =
    "SELECT pg_logical_emit_message(true, 'causeway', '') WHERE pg_current_wal_flush_lsn() < $1";
/// Flushes without a transaction id; from version 17 on.
const FLUSHING: &str =
    "SELECT pg_logical_emit_message(false, 'causeway', '', true) WHERE pg_current_wal_flush_lsn() < $1";

// === impl Nudger ===

impl Nudger {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, session: None, complaint: Complaint::default() }
    }

    /// Never returns; the task ends by being aborted.
    pub(crate) async fn run(mut self) {
        let mut next = Instant::now();
        loop {
            self.state.nudge.notified().await;
            sleep_until(next.max(Instant::now() + GRACE)).await;
            // In the meantime they may have got what they waited for.
            let Some((primary, fence)) = self.state.stuck() else { continue };
            next = Instant::now() + self.state.config().nudge_interval;
            let outcome = self.nudge(&primary, fence).await;
            if outcome.is_err() {
                self.session = None;
            }
            // Readers fall back to the primary meanwhile, so it is worth a line, though not each time.
            if let Err(why) = &outcome {
                Meter::count(&self.state.meter.nudges_failed);
                if self.complaint.is_new(Some(why)) {
                    warn!(node = %primary.node, %why,
                          "the primary could not be made to flush its log: reads wait for it to do so itself");
                }
            } else {
                self.complaint.is_new(None);
            }
        }
    }

    async fn nudge(&mut self, primary: &Primary, fence: Fence) -> Result<(), ProbeError> {
        let (errand, nudge) = match self.session.take().filter(|(errand, _)| errand.leads_to(primary)) {
            Some(session) => self.session.insert(session),
            None => self.session.insert(open(&self.state, primary).await?),
        };
        // A flush position that has not moved since may be in the middle of a record.
        let past = u64::from(self.state.published().source == FenceSource::Flush);
        let fence = PgLsn::from(fence.lsn.0.saturating_add(past));
        let (nudge, limit, node) = (nudge.clone(), self.state.config().timeout, &primary.node);
        let late = || warn!(%node, "the primary takes long to flush its log");
        let work = async move |client: Arc<tokio_postgres::Client>| client.execute(&nudge, &[&fence]).await;
        if errand.outlast(&self.state, limit, work, late).await? > 0 {
            Meter::count(&self.state.meter.nudges);
        }
        Ok(())
    }
}

async fn open(state: &State, primary: &Primary) -> Result<(Errand, Statement), ProbeError> {
    let mut errand = Errand::open(state, primary, OPTIONS).await?;
    let client = errand.wire.client();
    let prepared = async {
        let version = client.query_one("SELECT current_setting('server_version_num')::int4", &[]).await?;
        let flushing = version.try_get::<_, i32>(0)? >= 170_000;
        client.prepare(if flushing { FLUSHING } else { TRANSACTIONAL }).await
    };
    let nudge = errand.wire.run(prepared).await?;
    Ok((errand, nudge))
}

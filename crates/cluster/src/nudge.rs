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
    /// When the primary was made to flush last.
    last: Option<Instant>,
    /// The next transaction id after that one's, if nobody else has taken one.
    next_id: i64,
}

/// What commits under way may take to flush the fence themselves.
const GRACE: Duration = Duration::from_millis(1);
/// Where nudges take no more transaction ids than others do, or none, there may be so many times more of them: writers
/// that commit asynchronously would otherwise hold readers up for the whole pause, again and again.
const BRISKLY: u32 = 5;

/// A synchronous standby that is gone must not hold up what only has to be flushed here.
const OPTIONS: &str = "-c synchronous_commit=local -c search_path=pg_catalog";
/// The next transaction id as of before, whether the fence is beyond what is flushed, and whether that was mended: not
/// if it is not due and no transaction has ended since the last one. A commit flushes all that was inserted before it,
/// and ends on a record's end.
const TRANSACTIONAL: &str = "\
SELECT txid_snapshot_xmax(s.seen), s.behind,
       CASE WHEN s.behind AND ($2 OR txid_snapshot_xmax(s.seen) > $3)
            THEN pg_logical_emit_message(true, 'causeway', '') END IS NOT NULL
  FROM (SELECT txid_current_snapshot() AS seen, pg_current_wal_flush_lsn() < $1 AS behind OFFSET 0) AS s";
/// The same without a transaction id, whenever it is asked for; from version 17 on.
const FLUSHING: &str = "\
SELECT $3::bigint, s.behind,
       CASE WHEN s.behind AND ($2::bool OR true)
            THEN pg_logical_emit_message(false, 'causeway', '', true) END IS NOT NULL
  FROM (SELECT pg_current_wal_flush_lsn() < $1 AS behind OFFSET 0) AS s";

/// What became of a nudge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nudged {
    /// The primary has flushed what it was asked to.
    Now,
    /// It had already.
    Before,
    /// It was not due, and nobody has committed since the last one.
    Not,
}

// === impl Nudger ===

impl Nudger {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, session: None, complaint: Complaint::default(), last: None, next_id: 0 }
    }

    /// Never returns; the task ends by being aborted.
    pub(crate) async fn run(mut self) {
        let mut soonest = Instant::now();
        loop {
            self.state.nudge.notified().await;
            sleep_until(soonest.max(Instant::now() + GRACE)).await;
            // In the meantime they may have got what they waited for.
            let Some((primary, fence)) = self.state.stuck() else { continue };
            let (now, pause) = (Instant::now(), self.state.config().nudge_interval);
            let due = self.last.map_or(now, |last| last + pause);
            soonest = now + pause / BRISKLY;
            let outcome = self.nudge(&primary, fence, now >= due).await;
            match outcome {
                Ok(Nudged::Now) => self.last = Some(now),
                Ok(Nudged::Before) => {}
                Ok(Nudged::Not) => {
                    soonest = due;
                    self.state.nudge.notify_one();
                }
                Err(_) => soonest = now + pause,
            }
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

    async fn nudge(&mut self, primary: &Primary, fence: Fence, due: bool) -> Result<Nudged, ProbeError> {
        let (errand, nudge) = match self.session.take().filter(|(errand, _)| errand.leads_to(primary)) {
            Some(session) => self.session.insert(session),
            None => self.session.insert(open(&self.state, primary).await?),
        };
        // A flush position that has not moved since may be in the middle of a record.
        let past = u64::from(self.state.published().source == FenceSource::Flush);
        let fence = PgLsn::from(fence.lsn.0.saturating_add(past));
        let (nudge, limit, node) = (nudge.clone(), self.state.config().timeout, &primary.node);
        let late = || warn!(%node, "the primary takes long to flush its log");
        let next_id = self.next_id;
        let work = async move |client: Arc<tokio_postgres::Client>| {
            client.query_one(&nudge, &[&fence, &due, &next_id]).await
        };
        let row = errand.outlast(&self.state, limit, work, late).await?;
        let (behind, mended): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        if !mended {
            return Ok(if behind { Nudged::Not } else { Nudged::Before });
        }
        // Its own one is the next.
        self.next_id = row.try_get::<_, i64>(0)?.saturating_add(1);
        Meter::count(&self.state.meter.nudges);
        Ok(Nudged::Now)
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

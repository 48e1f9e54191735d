//! One monitor connection and the questions it asks.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use causeway_routing::Lsn;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Row, Statement};

use crate::error::ProbeError;
use crate::instance::Instance;
use crate::login::Login;
use crate::position::Geometry;
use crate::truth::{Position, Sighting};
use crate::wire::Wire;

/// What a monitor asks, question by question; the answers come in the order of the questions.
pub(crate) trait Link {
    /// Asks, at the moment `requested`, which is now: the question leaves with the next poll.
    fn ask(&mut self, requested: Instant);

    /// The next answer. Also to be polled while nothing was asked: that notices the connection's end. After an
    /// error the link must not be used again.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sighting, ProbeError>>;
}

/// A logged-in monitor connection. Dropping it closes the socket at once, whatever the server does.
#[derive(Debug)]
pub(crate) struct Probe {
    wire: Wire,
    questions: Arc<Questions>,
    flight: VecDeque<Question>,
    /// The last proven position of a replica: true for as long as this connection lives.
    proven: Option<(u32, Lsn)>,
    /// The timeline of a primary: it cannot change, and the server cannot cease to be one, while this connection
    /// lives (both take a restart).
    writes_on: Option<u32>,
}

#[derive(Debug)]
struct Questions {
    position: Statement,
    lineage: Statement,
    fence: Statement,
    server: Server,
}

/// One that waits for its answer.
struct Question {
    requested: Instant,
    answer: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    outcome: Option<Outcome>,
}

/// The timeline, and the position on it.
type Outcome = Result<(u32, Position), ProbeError>;

/// What a server cannot change without ending this connection.
#[derive(Clone, Copy, Debug)]
struct Server {
    instance: Instance,
    geometry: Geometry,
    /// Whether the role may read `pg_stat_wal_receiver`.
    sees_receiver: bool,
}

/// Beside the instance's columns.
const SERVER: &str = "\
pg_size_bytes(current_setting('wal_segment_size')),
pg_size_bytes(current_setting('wal_block_size')),
pg_has_role('pg_read_all_stats', 'USAGE')";

/// `pg_is_in_recovery()` is asked once, behind `OFFSET 0`, and everything else follows its answer, so that a
/// promotion in between cannot pass an insert position off as a replayed one.
///
/// The timeline of a primary is that of its next WAL file: `pg_control_checkpoint()` still names the old one
/// after a promotion. That of a replica is its receiver's: it streams on a timeline only if its own replay has
/// not left that timeline's history (`rescanLatestTimeLine` in `xlogrecovery.c`).
const POSITION: &str = "\
SELECT s.replica,
       CASE WHEN s.replica THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END,
       CASE WHEN s.replica
            THEN (SELECT r.received_tli FROM pg_stat_wal_receiver AS r WHERE r.status = 'streaming')
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int4
       END,
       CASE WHEN NOT s.replica THEN pg_current_wal_flush_lsn() END
  FROM (SELECT pg_is_in_recovery() AS replica OFFSET 0) AS s";

/// All that can change on a primary. A server in recovery answers with an error, so the role needs no look. Flush is
/// read after insert: what it covers was flushed indeed.
const FENCE: &str = "SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()";

/// Positive proof that lags behind: a replica has replayed at least its last restart point's checkpoint, and its
/// minimum recovery point, each on its timeline.
const LINEAGE: &str = "\
SELECT c.timeline_id, c.checkpoint_lsn, r.min_recovery_end_timeline, r.min_recovery_end_lsn
  FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r";

// === impl Probe ===

impl Probe {
    /// Connects, logs in and prepares, all within `limit`.
    pub(crate) async fn connect(login: &Login, limit: Duration) -> Result<Self, ProbeError> {
        timeout(limit, Self::open(login)).await.map_err(|_| ProbeError::Timeout(limit))?
    }

    async fn open(login: &Login) -> Result<Self, ProbeError> {
        let mut wire = Wire::open(login).await?;
        let client = wire.client();
        let questions = wire.run(Questions::prepare(&client)).await?;
        let questions = Arc::new(questions);
        Ok(Self { wire, questions, flight: VecDeque::new(), proven: None, writes_on: None })
    }

    /// Whether timelines of replicas can be read as they are rather than as of a past restart point.
    pub(crate) fn sees_receiver(&self) -> bool {
        self.questions.server.sees_receiver
    }
}

impl Link for Probe {
    fn ask(&mut self, requested: Instant) {
        let (client, questions) = (self.wire.client(), self.questions.clone());
        let answer: Pin<Box<dyn Future<Output = Outcome> + Send>> = if let Some(timeline) = self.writes_on {
            Box::pin(async move { questions.fence(&client, timeline).await })
        } else {
            let proven = self.proven;
            Box::pin(async move { questions.position(&client, proven).await })
        };
        self.flight.push_back(Question { requested, answer, outcome: None });
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sighting, ProbeError>> {
        // In their order, so that they are sent in it.
        for question in &mut self.flight {
            question.poll(cx);
        }
        let Some(first) = self.flight.front_mut() else {
            ready!(self.wire.poll_ended(cx));
            return Poll::Ready(Err(ProbeError::Closed));
        };
        if first.outcome.is_none() {
            // Sends what was put in, or brings the answer. Should it end here, the question fails.
            let _ended = self.wire.poll_ended(cx).is_ready();
            first.poll(cx);
        }
        let Some(outcome) = first.outcome.take() else { return Poll::Pending };
        let (timeline, position) = outcome?;
        let requested = first.requested;
        self.flight.pop_front();
        (self.proven, self.writes_on) = match position {
            Position::Inserted { .. } => (None, Some(timeline)),
            Position::Replayed(lsn) => (Some((timeline, lsn)), None),
        };
        Poll::Ready(Ok(Sighting { requested, instance: self.questions.server.instance, timeline, position }))
    }
}

// === impl Questions ===

impl Questions {
    async fn prepare(client: &Client) -> Result<Self, ProbeError> {
        let server = format!("SELECT {}, {SERVER}", Instance::COLUMNS);
        let server = Server::read(&client.query_one(&server, &[]).await?)?;
        let position = client.prepare(POSITION).await?;
        let lineage = client.prepare(LINEAGE).await?;
        let fence = client.prepare(FENCE).await?;
        Ok(Self { position, lineage, fence, server })
    }

    /// Of a server known to be a primary on `timeline`.
    async fn fence(&self, client: &Client, timeline: u32) -> Outcome {
        let row = client.query_one(&self.fence, &[]).await?;
        let lsn = |column| row.try_get::<_, PgLsn>(column).map(|lsn| Lsn(lsn.into()));
        Ok((timeline, self.inserted(lsn(0)?, lsn(1)?)))
    }

    fn inserted(&self, insert: Lsn, flushed: Lsn) -> Position {
        Position::Inserted { end: self.server.geometry.record_end(insert), flushed }
    }

    async fn position(&self, client: &Client, proven: Option<(u32, Lsn)>) -> Outcome {
        let row = match client.query_one(&self.position, &[]).await {
            // A server that leaves recovery in the middle of the statement: its next answer is the new role's.
            Err(error) if error.code() == Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) => {
                client.query_one(&self.position, &[]).await?
            }
            other => other?,
        };
        let replica: bool = row.try_get(0)?;
        let lsn = row.try_get::<_, Option<PgLsn>>(1)?.map(|lsn| Lsn(lsn.into()));
        let timeline = row.try_get::<_, Option<i32>>(2)?.map(i32::cast_unsigned);
        if replica {
            let replayed = lsn.unwrap_or_default();
            let (timeline, lsn) = match (timeline, proven) {
                (Some(timeline), _) => (timeline, replayed),
                // Without a receiver it may be on its way to another timeline; what was proven stays true.
                (None, Some(proven)) if self.server.sees_receiver => proven,
                (None, _) => self.lineage(client, replayed).await?,
            };
            return Ok((timeline, Position::Replayed(lsn)));
        }
        let flushed = row.try_get::<_, Option<PgLsn>>(3)?.map(|lsn| Lsn(lsn.into()));
        match (timeline, lsn, flushed) {
            (Some(timeline), Some(insert), Some(flushed)) => Ok((timeline, self.inserted(insert, flushed))),
            _ => Err(ProbeError::Nonsense("a primary without an insert position")),
        }
    }

    async fn lineage(&self, client: &Client, replayed: Lsn) -> Result<(u32, Lsn), ProbeError> {
        let row = client.query_one(&self.lineage, &[]).await?;
        let point = |timeline, lsn| -> Result<(u32, Lsn), ProbeError> {
            let timeline = row.try_get::<_, i32>(timeline)?.cast_unsigned();
            Ok((timeline, Lsn(row.try_get::<_, PgLsn>(lsn)?.into())))
        };
        let (timeline, lsn) = point(0, 1)?.max(point(2, 3)?);
        // Who may not see the receiver would never see a replica catch up; the timeline stays a proven one.
        Ok((timeline, if self.server.sees_receiver { lsn.min(replayed) } else { replayed }))
    }
}

// === impl Question ===

impl Question {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = self.answer.as_mut().poll(cx)
        {
            self.outcome = Some(outcome);
        }
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("requested", &self.requested).finish_non_exhaustive()
    }
}

// === impl Server ===

impl Server {
    fn read(row: &Row) -> Result<Self, ProbeError> {
        let size = |index| row.try_get::<_, i64>(index).map(|size| u64::try_from(size).unwrap_or(0));
        Ok(Self {
            instance: Instance::read(row)?.ok_or(ProbeError::Nonsense("an impossible address of its own"))?,
            geometry: Geometry::new(size(4)?, size(5)?)
                .ok_or(ProbeError::Nonsense("impossible WAL sizes"))?,
            sees_receiver: row.try_get(6)?,
        })
    }
}

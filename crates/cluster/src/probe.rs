//! One monitor connection and the questions it asks.

use std::time::Duration;

use causeway_routing::Lsn;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, NoTls, Row, Statement};

use crate::error::ProbeError;
use crate::position::Geometry;
use crate::truth::{Position, Sighting};

/// A logged-in monitor connection. Dropping it closes the socket at once, whatever the server does.
#[derive(Debug)]
pub(crate) struct Probe {
    client: Client,
    connection: JoinSet<()>,
    position: Statement,
    lineage: Statement,
    server: Server,
    /// The last proven position of a replica: true for as long as this connection lives.
    proven: Option<(u32, Lsn)>,
}

/// What a server cannot change without ending this connection.
#[derive(Clone, Copy, Debug)]
struct Server {
    system_id: u64,
    started: i64,
    geometry: Geometry,
    /// Whether the role may read `pg_stat_wal_receiver`.
    sees_receiver: bool,
}

const SERVER: &str = "\
SELECT c.system_identifier,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
       pg_size_bytes(current_setting('wal_segment_size')),
       pg_size_bytes(current_setting('wal_block_size')),
       pg_has_role('pg_read_all_stats', 'USAGE')
  FROM pg_control_system() AS c";

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

/// Positive proof that lags behind: a replica has replayed at least its last restart point's checkpoint, and its
/// minimum recovery point, each on its timeline.
const LINEAGE: &str = "\
SELECT c.timeline_id, c.checkpoint_lsn, r.min_recovery_end_timeline, r.min_recovery_end_lsn
  FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r";

// === impl Probe ===

impl Probe {
    /// Connects, logs in and prepares, all within `limit`.
    pub(crate) async fn connect(login: &tokio_postgres::Config, limit: Duration) -> Result<Self, ProbeError> {
        timeout(limit, Self::open(login)).await.map_err(|_| ProbeError::Timeout(limit))?
    }

    async fn open(login: &tokio_postgres::Config) -> Result<Self, ProbeError> {
        let (client, connection) = login.connect(NoTls).await?;
        let mut task = JoinSet::new();
        // Its own error says less than that of the query which fails with it.
        task.spawn(async move { drop(connection.await) });
        let server = Server::read(&client.query_one(SERVER, &[]).await?)?;
        let position = client.prepare(POSITION).await?;
        let lineage = client.prepare(LINEAGE).await?;
        Ok(Self { client, connection: task, position, lineage, server, proven: None })
    }

    /// Asks once. After an error the connection must not be used again.
    pub(crate) async fn ask(&mut self, limit: Duration) -> Result<Sighting, ProbeError> {
        let requested = Instant::now();
        let answer = timeout(limit, self.answer()).await.map_err(|_| ProbeError::Timeout(limit))?;
        let (timeline, position) = answer?;
        let Server { system_id, started, .. } = self.server;
        Ok(Sighting { requested, system_id, started, timeline, position })
    }

    /// Ends when the connection does; cancel-safe.
    pub(crate) async fn closed(&mut self) {
        while self.connection.join_next().await.is_some() {}
    }

    /// Whether timelines of replicas can be read as they are rather than as of a past restart point.
    pub(crate) fn sees_receiver(&self) -> bool {
        self.server.sees_receiver
    }

    async fn answer(&mut self) -> Result<(u32, Position), ProbeError> {
        let row = match self.client.query_one(&self.position, &[]).await {
            // A server that leaves recovery in the middle of the statement: its next answer is the new role's.
            Err(error) if error.code() == Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) => {
                self.client.query_one(&self.position, &[]).await?
            }
            other => other?,
        };
        let replica: bool = row.try_get(0)?;
        let lsn = row.try_get::<_, Option<PgLsn>>(1)?.map(|lsn| Lsn(lsn.into()));
        let timeline = row.try_get::<_, Option<i32>>(2)?.map(i32::cast_unsigned);
        if replica {
            let (timeline, lsn) = self.replayed(timeline, lsn).await?;
            return Ok((timeline, Position::Replayed(lsn)));
        }
        self.proven = None;
        let flushed = row.try_get::<_, Option<PgLsn>>(3)?.map(|lsn| Lsn(lsn.into()));
        match (timeline, lsn.map(|insert| self.server.geometry.record_end(insert))) {
            (Some(timeline), Some(end)) => Ok((
                timeline,
                Position::Inserted { end, flushed: flushed.is_some_and(|flushed| flushed >= end) },
            )),
            _ => Err(ProbeError::Nonsense("a primary without an insert position")),
        }
    }

    /// The timeline and the position that a replica is proven to have replayed.
    async fn replayed(&mut self, streaming: Option<u32>, lsn: Option<Lsn>) -> Result<(u32, Lsn), ProbeError> {
        let lsn = lsn.unwrap_or_default();
        let proven = match (streaming, self.proven) {
            (Some(timeline), _) => (timeline, lsn),
            // Without a receiver it may be on its way to another timeline; what was proven stays true.
            (None, Some(proven)) if self.server.sees_receiver => proven,
            (None, _) => self.lineage(lsn).await?,
        };
        self.proven = Some(proven);
        Ok(proven)
    }

    async fn lineage(&self, replayed: Lsn) -> Result<(u32, Lsn), ProbeError> {
        let row = self.client.query_one(&self.lineage, &[]).await?;
        let point = |timeline, lsn| -> Result<(u32, Lsn), ProbeError> {
            let timeline = row.try_get::<_, i32>(timeline)?.cast_unsigned();
            Ok((timeline, Lsn(row.try_get::<_, PgLsn>(lsn)?.into())))
        };
        let (timeline, lsn) = point(0, 1)?.max(point(2, 3)?);
        // Who may not see the receiver would never see a replica catch up; the timeline stays a proven one.
        Ok((timeline, if self.server.sees_receiver { lsn.min(replayed) } else { replayed }))
    }
}

// === impl Server ===

impl Server {
    fn read(row: &Row) -> Result<Self, ProbeError> {
        let size = |index| row.try_get::<_, i64>(index).map(|size| u64::try_from(size).unwrap_or(0));
        Ok(Self {
            system_id: row.try_get::<_, i64>(0)?.cast_unsigned(),
            started: row.try_get(1)?,
            geometry: Geometry::new(size(2)?, size(3)?)
                .ok_or(ProbeError::Nonsense("impossible WAL sizes"))?,
            sees_receiver: row.try_get(4)?,
        })
    }
}

//! Where the timeline of a primary comes from: what earlier fences mean on it hangs on that.

use std::sync::Arc;
use std::time::Duration;

use causeway_routing::{Lsn, Switch};
use futures_util::future::Either;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use tracing::debug;

use crate::config::NodeConfig;
use crate::error::ProbeError;
use crate::instance::Instance;
use crate::login::{Login, is_unwelcome};
use crate::replication::Introduced;
use crate::truth::{Account, Origin};

/// Behind the instance's columns. What a server replayed last before its promotion is where it left the former timeline;
/// a restart forgets it (`GetXLogReplayRecPtr` in `src/backend/access/transam/xlogrecovery.c`).
const PROMOTED: &str = "pg_catalog.pg_last_wal_replay_lsn()";

/// Asks the server `instance`, which writes on `timeline`. Never fails: who may not be told is told nothing.
///
/// Takes up to two connections, and up to `limit` for each. Cancel-safe.
pub(crate) async fn ask(
    login: Login,
    node: NodeConfig,
    (instance, timeline): (Instance, u32),
    limit: Duration,
) -> Origin {
    let history = timeout(limit, history(&login, &node, instance, timeline)).await;
    let account = match history.unwrap_or(Err(ProbeError::Timeout(limit))) {
        Ok(switches) => Account::History(switches),
        Err(why) => {
            // Most often the role has no attribute REPLICATION.
            debug!(%node, %why, "the history of its timeline cannot be read");
            let promoted = timeout(limit, promoted(&login, instance)).await;
            match promoted.unwrap_or(Err(ProbeError::Timeout(limit))) {
                Ok(Some(lsn)) => Account::Promoted(lsn),
                Ok(None) => Account::None,
                Err(why) => {
                    debug!(%node, %why, "the position of its promotion cannot be read");
                    Account::None
                }
            }
        }
    };
    Origin { instance, timeline, account }
}

/// The server's own file, which names all ancestors (`SendTimeLineHistory` in `src/backend/replication/walsender.c`).
async fn history(
    login: &Login,
    node: &NodeConfig,
    instance: Instance,
    timeline: u32,
) -> Result<Arc<[Switch]>, ProbeError> {
    let mut failure = ProbeError::Closed;
    for (login, connector) in login.ways() {
        let connected = if node.host.starts_with('/') {
            let path = format!("{}/.s.PGSQL.{}", node.host, node.port);
            let stream = Introduced::new(UnixStream::connect(path).await.map_err(ProbeError::Socket)?);
            let connected = login.connect_raw(stream, connector.to(&node.host)).await;
            connected.map(|(client, connection)| (client, Either::Left(connection)))
        } else {
            let stream = TcpStream::connect((&*node.host, node.port)).await.map_err(ProbeError::Socket)?;
            let connected = login.connect_raw(Introduced::new(stream), connector.to(&node.host)).await;
            connected.map(|(client, connection)| (client, Either::Right(connection)))
        };
        match connected {
            Ok((client, connection)) => {
                return tokio::select! {
                    read = read_history(&client, instance, timeline) => read,
                    _ended = connection => Err(ProbeError::Closed),
                };
            }
            Err(error) if is_unwelcome(&error) => failure = error.into(),
            Err(error) => return Err(error.into()),
        }
    }
    Err(failure)
}

async fn read_history(
    client: &Client,
    instance: Instance,
    timeline: u32,
) -> Result<Arc<[Switch]>, ProbeError> {
    // Replication connections take no prepared statements.
    of_instance(&one_row(client, Instance::QUERY).await?, instance)?;
    let row = one_row(client, &format!("TIMELINE_HISTORY {timeline}")).await?;
    let content = row.try_get(1)?.ok_or(ProbeError::Nonsense("a timeline without a history"))?;
    parse(content).ok_or(ProbeError::Nonsense("a history file that is none"))
}

async fn promoted(login: &Login, instance: Instance) -> Result<Option<Lsn>, ProbeError> {
    let (client, connection) = login.connect().await?;
    let question = format!("SELECT {}, {PROMOTED}", Instance::COLUMNS);
    let row = tokio::select! {
        row = one_row(&client, &question) => row?,
        _ended = connection => return Err(ProbeError::Closed),
    };
    of_instance(&row, instance)?;
    let lsn = row.try_get(INSTANCE_COLUMNS)?.map(str::parse);
    lsn.transpose().map_err(|_| ProbeError::Nonsense("a replay position that is none"))
}

/// How many columns tell the instance.
const INSTANCE_COLUMNS: usize = 4;

/// Behind one name there may be several servers.
fn of_instance(row: &SimpleQueryRow, instance: Instance) -> Result<(), ProbeError> {
    let mut columns = [None; INSTANCE_COLUMNS];
    for (index, column) in columns.iter_mut().enumerate() {
        *column = row.try_get(index)?;
    }
    if Instance::from_row(&columns) == Some(instance) { Ok(()) } else { Err(ProbeError::Stranger) }
}

async fn one_row(client: &Client, sql: &str) -> Result<SimpleQueryRow, ProbeError> {
    let messages = client.simple_query(sql).await.map_err(ProbeError::Server)?;
    let row = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.ok_or(ProbeError::Nonsense("no row"))
}

/// One ancestor a line, oldest first: its number, where it was left, and why, separated by tabs; comments and empty lines
/// (`readTimeLineHistory` in `src/backend/access/transam/timeline.c`). `None` if it is anything else.
fn parse(content: &str) -> Option<Arc<[Switch]>> {
    let lines = content.lines().map(str::trim_start);
    let entries = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let switch = |line: &str| {
        let mut columns = line.split_whitespace();
        let (timeline, lsn) = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
        Some(Switch { timeline, lsn })
    };
    entries.map(switch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_files() {
        let parsed = |text: &str| parse(text).map(|switches| switches.to_vec());
        let switch = |timeline, lsn| Switch { timeline, lsn: Lsn(lsn) };
        let text =
            "1\t0/3000110\tno recovery target specified\n\n# kept\n2\t1/A0\tbefore 2026-01-01 00:00:00+00\n";
        assert_eq!(parsed(text), Some(vec![switch(1, 0x300_0110), switch(2, 0x1_0000_00A0)]));
        assert_eq!(parsed(""), Some(Vec::new()));
        for wrong in ["1", "one\t0/0", "1\t0-0\treason"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}

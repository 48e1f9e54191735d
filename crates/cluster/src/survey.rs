//! One question to one node, outside of any monitor: for those who check a configuration.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::SimpleQueryMessage;

use crate::config::{Monitor, NodeConfig};
use crate::error::ProbeError;
use crate::login::Login;

/// A row by the names of its columns; `None` for NULL.
pub type Row = BTreeMap<String, Option<String>>;

/// Logs in at a node as its monitor does, with TLS where that is configured, and asks. Gives the first row of the answer.
/// Dropping the future closes the connection.
///
/// # Errors
///
/// Why there is none within `limit`, in the server's own words if it has any.
pub async fn ask(
    monitor: &Monitor,
    node: &NodeConfig,
    limit: Duration,
    question: &str,
) -> Result<Row, String> {
    let login = Login::new(monitor, node, &monitor.database, limit);
    let exchange = async {
        let (client, connection) = login.connect().await?;
        let answer = client.simple_query(question);
        let mut connection = pin!(connection);
        let messages = tokio::select! {
            answer = answer => answer?,
            ended = &mut connection => {
                ended?;
                return Err(ProbeError::Closed);
            }
        };
        let row = messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        row.ok_or(ProbeError::Closed)
    };
    match timeout(limit, exchange).await {
        Err(_) => Err("it does not answer in time".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(row)) => {
            let columns = row.columns().iter().enumerate();
            Ok(columns.map(|(i, column)| (column.name().to_owned(), row.get(i).map(str::to_owned))).collect())
        }
    }
}

//! What can go wrong between the control plane and a node.

use std::error::Error;
use std::time::Duration;

/// Why a node did not answer a probe.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    #[error("{0}")]
    Socket(std::io::Error),
    #[error("another server answers than the one that is watched")]
    Stranger,
    #[error("the server reports {0}")]
    Nonsense(&'static str),
}

/// The server's message where there is one, else the innermost cause: the outer ones only say where it happened.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(report) = error.as_db_error() {
        return format!("{} ({})", report.message(), report.code().code());
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

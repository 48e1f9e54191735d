//! What can go wrong with a sandbox.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a sandbox, or one of its servers, could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// No complete set of server programs was found.
    #[error(
        "no PostgreSQL server programs found (looked in {looked}): install them with \
         `apt-get install postgresql`, or name their directory in CAUSEWAY_PG_BIN"
    )]
    BinariesMissing {
        /// Where the search went.
        looked: String,
    },
    /// PostgreSQL refuses to run as root and there is no account to run it under.
    #[error(
        "PostgreSQL does not run as root and there is no user `{name}`: make one with \
         `useradd --system {name}`, or run this as another user"
    )]
    AccountMissing {
        /// The account that was looked for.
        name: String,
    },
    /// The wish cannot be met as it is written.
    #[error("{0}")]
    Configuration(String),
    /// A file or directory could not be used.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started or waited for.
    #[error("running {program}")]
    Program {
        /// Its name.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed: {output}")]
    Failed {
        /// Its name.
        program: String,
        /// What it wrote to standard error.
        output: String,
    },
    /// Something took longer than it may.
    #[error("{what}: not done after {limit:?}{detail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The last lines of the server's log, or empty.
        detail: String,
    },
    /// A server ended while it was started.
    #[error("{node} ended ({status}) while it was starting: {log}")]
    Exited {
        /// The node's name.
        node: String,
        /// Exit status or signal.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The node has no process to do this with.
    #[error("{0} is not running")]
    NotRunning(String),
    /// The node has a process already.
    #[error("{0} is running already")]
    Running(String),
}

impl SandboxError {
    /// Whether a server could not take its port, so that another one may be tried.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Exited { log, .. } if log.contains("could not bind") || log.contains("could not create any TCP/IP"))
    }
}

/// Adds the action and the path to an error of a file operation.
pub(crate) fn on_file<T>(
    action: &'static str,
    path: &std::path::Path,
    result: io::Result<T>,
) -> Result<T, SandboxError> {
    result.map_err(|source| SandboxError::File { action, path: path.to_owned(), source })
}

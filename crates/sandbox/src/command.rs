//! Running a program to its end, within a time limit.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::timeout;

use crate::SandboxError;

/// Runs the command and returns its standard output. Dropping the future kills the program.
pub(crate) async fn run(name: &str, command: Command, limit: Duration) -> Result<String, SandboxError> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = timeout(limit, command.output())
        .await
        .map_err(|_| SandboxError::Timeout { what: name.to_owned(), limit, detail: String::new() })?
        .map_err(|source| SandboxError::Program { program: name.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(SandboxError::Failed { program: name.to_owned(), output: format!("{}: {said}", output.status) })
}

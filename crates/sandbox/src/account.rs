//! The account the servers run under: PostgreSQL refuses root.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::SandboxError;
use crate::error::on_file;

/// The account Debian's packages make; used when this process is root.
const SERVER_ACCOUNT: &str = "postgres";

/// Who runs the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// The user of this process.
    Own,
    /// Another one, because this process is root.
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(crate) fn detect() -> Result<Self, SandboxError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let missing = || SandboxError::AccountMissing { name: SERVER_ACCOUNT.to_owned() };
        let uid = id("-u").ok_or_else(missing)?;
        let gid = id("-g").ok_or_else(missing)?;
        Ok(Self::Other { uid, gid })
    }

    /// A command that runs `program` under this account with the limit of open files raised to the hard one: a
    /// server with 200 connections and a pool of a thousand descriptors outgrows the usual 1,024.
    pub(crate) fn command(self, program: &Path) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -n \"$(ulimit -Hn)\" 2>/dev/null; exec \"$@\"", "sh"]).arg(program);
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        forget_environment(&mut command);
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// Gives a file or directory to this account.
    pub(crate) fn own(self, path: &Path) -> Result<(), SandboxError> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid } => {
                on_file("changing the owner of", path, chown(path, Some(uid), Some(gid)))
            }
        }
    }

    /// Whether this account can enter the directory and write there.
    pub(crate) fn can_use(self, directory: &Path) -> bool {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", "cd \"$1\" && test -w .", "sh"]).arg(directory);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

/// Takes away PGPORT, PGOPTIONS and their like, which would turn the programs to another server.
pub(crate) fn forget_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
}

fn id(option: &str) -> Option<u32> {
    let output = Command::new("id").args([option, SERVER_ACCOUNT]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

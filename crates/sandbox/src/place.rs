//! The directories of a sandbox.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::SandboxError;
use crate::account::Account;
use crate::error::on_file;

/// What `sockaddr_un` holds on Linux, without the final NUL.
const SOCKET_PATH_LIMIT: usize = 107;
/// The name PostgreSQL gives its socket, with the longest port.
const SOCKET_NAME: &str = ".s.PGSQL.65535";

/// Marks a directory as one that sandboxes may fill and clear.
const MARKER: &str = "causeway-sandbox";

/// Where a sandbox keeps its files.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Data directories and logs are below this; without symbolic links, since processes are recognised by it.
    pub(crate) root: PathBuf,
    /// The Unix sockets are here.
    pub(crate) sockets: PathBuf,
    /// Whether the whole root was made for this sandbox and goes with it.
    pub(crate) temporary: bool,
}

impl Place {
    pub(crate) fn prepare(directory: Option<&Path>, account: Account) -> Result<Self, SandboxError> {
        let (root, temporary) = match directory {
            None => (fresh_directory(account)?, true),
            Some(wanted) => chosen_directory(wanted, account)?,
        };
        let sockets = root.join("sockets");
        let fits = sockets.as_os_str().as_bytes().len() + 1 + SOCKET_NAME.len() <= SOCKET_PATH_LIMIT;
        let sockets = if fits {
            on_file("creating", &sockets, private_directory(&sockets).or_else(exists_already))?;
            account.own(&sockets)?;
            sockets
        } else {
            fresh_directory(account)?
        };
        Ok(Self { root, sockets, temporary })
    }

    /// The data directory of a node.
    pub(crate) fn data(&self, node: &str) -> PathBuf {
        self.root.join(node)
    }

    /// The file that marks the root as a sandbox's.
    pub(crate) fn marker(&self) -> PathBuf {
        self.root.join(MARKER)
    }

    /// The log file of a node.
    pub(crate) fn log(&self, node: &str) -> PathBuf {
        self.root.join(format!("{node}.log"))
    }
}

/// The directory the caller wants, or a temporary one with a word of warning if the servers' account cannot use it.
fn chosen_directory(wanted: &Path, account: Account) -> Result<(PathBuf, bool), SandboxError> {
    on_file("creating", wanted, fs::create_dir_all(wanted))?;
    let root = on_file("resolving", wanted, wanted.canonicalize())?;
    let mut entries = on_file("reading", &root, fs::read_dir(&root))?;
    if entries.next().is_some() && !root.join(MARKER).is_file() {
        let complaint = format!("{} is not empty and holds no earlier sandbox", root.display());
        return Err(SandboxError::Configuration(complaint));
    }
    let marker = root.join(MARKER);
    on_file("writing", &marker, fs::write(&marker, "A throw-away PostgreSQL cluster.\n"))?;
    account.own(&root)?;
    if account.can_use(&root) {
        return Ok((root, false));
    }
    on_file("removing", &marker, fs::remove_file(&marker))?;
    let instead = fresh_directory(account)?;
    tracing::warn!(
        wanted = %root.display(),
        used = %instead.display(),
        "the account of the servers cannot enter the directory: a temporary one is used and not kept"
    );
    Ok((instead, true))
}

/// A new directory, readable by its owner alone, below `$TMPDIR` or, if the account cannot go there, `/tmp`.
fn fresh_directory(account: Account) -> Result<PathBuf, SandboxError> {
    let mut parents = vec![std::env::temp_dir()];
    parents.push(PathBuf::from("/tmp"));
    for parent in parents {
        let number = RandomState::new().hash_one(std::process::id());
        let path = parent.join(format!("causeway-{number:016x}"));
        on_file("creating", &path, private_directory(&path))?;
        account.own(&path)?;
        if account.can_use(&path) {
            return on_file("resolving", &path, path.canonicalize());
        }
        on_file("removing", &path, fs::remove_dir(&path))?;
    }
    Err(SandboxError::Configuration("no directory for temporary files that the servers can use".to_owned()))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn exists_already(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_its_sockets_elsewhere() {
        let account = Account::detect().unwrap();
        let outer = fresh_directory(account).unwrap();
        let deep = outer.join("d".repeat(100));
        let place = Place::prepare(Some(&deep), account).unwrap();
        assert!(!place.sockets.starts_with(&place.root));
        assert!(place.sockets.join(SOCKET_NAME).as_os_str().len() <= SOCKET_PATH_LIMIT);
        assert!(!place.temporary);
        fs::remove_dir_all(&outer).unwrap();
        fs::remove_dir_all(&place.sockets).unwrap();
    }

    #[test]
    fn a_directory_with_other_files_is_refused() {
        let account = Account::detect().unwrap();
        let directory = fresh_directory(account).unwrap();
        fs::write(directory.join("thesis.txt"), "precious").unwrap();
        let refused = Place::prepare(Some(&directory), account);
        assert!(matches!(refused, Err(SandboxError::Configuration(_))), "{refused:?}");
        fs::remove_dir_all(&directory).unwrap();
    }
}

//! Where the PostgreSQL programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::SandboxError;

/// The programs a sandbox needs.
const NEEDED: [&str; 4] = ["initdb", "postgres", "pg_basebackup", "psql"];

/// One directory with a complete set of PostgreSQL programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    directory: PathBuf,
    version: u32,
}

impl Binaries {
    /// Looks in `$CAUSEWAY_PG_BIN` (alone, if it is set), then takes the newest of `/usr/lib/postgresql/*/bin`, then
    /// what `pg_config --bindir` names, then the directories of `$PATH`.
    ///
    /// # Errors
    ///
    /// [`SandboxError::BinariesMissing`], which says what to install.
    pub fn find() -> Result<Self, SandboxError> {
        if let Some(named) = std::env::var_os("CAUSEWAY_PG_BIN") {
            let named = PathBuf::from(named);
            return Self::at(&named).ok_or_else(|| SandboxError::BinariesMissing {
                looked: format!("CAUSEWAY_PG_BIN={}", named.display()),
            });
        }
        let packaged = packaged_directories(Path::new("/usr/lib/postgresql"));
        if let Some(newest) =
            packaged.iter().filter_map(|path| Self::at(path)).max_by_key(|found| found.version)
        {
            return Ok(newest);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut elsewhere = pg_config_directory().into_iter().chain(std::env::split_paths(&path));
        elsewhere.find_map(|path| Self::at(&path)).ok_or_else(|| SandboxError::BinariesMissing {
            looked: "/usr/lib/postgresql/*/bin, pg_config --bindir, PATH".to_owned(),
        })
    }

    /// The programs of this directory, if they are complete and `postgres` tells its version.
    pub fn at(directory: &Path) -> Option<Self> {
        if !NEEDED.iter().all(|name| directory.join(name).is_file()) {
            return None;
        }
        let output = Command::new(directory.join("postgres")).arg("--version").output().ok()?;
        let version = major_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { directory: directory.to_owned(), version })
    }

    /// The full path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory of the programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The major version, such as 15.
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// `<root>/<version>/bin` for every version that is there, as Debian's packages lay them out.
fn packaged_directories(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect()
}

fn pg_config_directory() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim_end()))
}

/// Reads `postgres (PostgreSQL) 15.20 (Debian ...)`, also `18beta1`.
fn major_version(text: &str) -> Option<u32> {
    let number = text.strip_prefix("postgres (PostgreSQL) ")?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_releases_and_betas() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_version("something else 15"), None);
    }

    #[test]
    fn an_incomplete_directory_is_not_taken() {
        assert_eq!(Binaries::at(Path::new("/nonexistent")), None);
        assert_eq!(Binaries::at(&std::env::temp_dir()), None);
    }

    #[test]
    fn installed_programs_are_found() {
        let found = Binaries::find().unwrap();
        assert!(found.program("postgres").is_file());
        assert!(found.version() >= 13, "{found:?}");
    }
}

//! Keeps each cluster's lineage across restarts, so that a stale primary is refused even if it alone answers.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use causeway_cluster::{Cluster, Epoch};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    system_id: u64,
    timeline: u32,
}

/// The file in which the lineage of the cluster `name` is kept.
pub(super) fn file(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(format!("{name}.epoch"))
}

/// What was kept; `None` when nothing was.
///
/// # Errors
///
/// When there is a file that cannot be read or does not hold a lineage.
pub(super) fn load(file: &Path) -> io::Result<Option<Epoch>> {
    match std::fs::read(file) {
        Ok(bytes) => {
            let Kept { system_id, timeline } = serde_json::from_slice(&bytes)?;
            Ok(Some(Epoch { system_id, timeline }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps `epoch`: after a crash the file holds either the old one or the new one.
///
/// # Errors
///
/// When the directory cannot be written to.
pub(super) fn store(file: &Path, epoch: Epoch) -> io::Result<()> {
    let kept = serde_json::to_vec(&Kept { system_id: epoch.system_id, timeline: epoch.timeline })?;
    let draft = file.with_extension("epoch.new");
    let mut written = std::fs::File::create(&draft)?;
    written.write_all(&kept)?;
    written.sync_all()?;
    std::fs::rename(&draft, file)?;
    match file.parent() {
        Some(directory) => std::fs::File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Keeps the lineage of `cluster` in `file` whenever it changes. Ends when dropped.
pub(super) async fn follow(cluster: Cluster, name: String, file: PathBuf) {
    let mut changes = cluster.subscribe();
    let mut kept = load(&file).ok().flatten();
    loop {
        let epoch = cluster.epoch();
        if let Some(epoch) = epoch.filter(|_| epoch != kept) {
            match store(&file, epoch) {
                Ok(()) => kept = Some(epoch),
                Err(error) => {
                    tracing::error!(event = "epoch_not_kept", cluster = name, error = %error, "cannot keep the lineage");
                }
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "main");
        assert_eq!(load(&path).unwrap(), None);
        for timeline in [1, 2] {
            let epoch = Epoch { system_id: u64::MAX, timeline };
            store(&path, epoch).unwrap();
            assert_eq!(load(&path).unwrap(), Some(epoch));
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(load(&path).is_err());
        assert!(
            store(&directory.path().join("absent/main.epoch"), Epoch { system_id: 1, timeline: 1 }).is_err()
        );
    }
}

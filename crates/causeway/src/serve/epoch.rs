//! Keeps each cluster's lineage across restarts, so that a stale primary is refused even if it alone answers.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use causeway_cluster::{Cluster, Epoch, Writer};
use causeway_routing::{Lsn, Switch};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    system_id: u64,
    timeline: u32,
    /// Timelines and where they were left; absent if nobody could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ancestors: Option<Vec<(u32, String)>>,
    /// Absent if no primary was seen on the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<KeptWriter>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptWriter {
    name: String,
    address: String,
}

/// The file in which the lineage of the cluster `name` is kept.
pub(crate) fn file(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(format!("{name}.epoch"))
}

/// What was kept; `None` when nothing was.
///
/// # Errors
///
/// When there is a file that cannot be read or does not hold a lineage.
pub(crate) fn load(file: &Path) -> io::Result<Option<Epoch>> {
    match std::fs::read(file) {
        Ok(bytes) => Kept::into_epoch(serde_json::from_slice(&bytes)?).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps `epoch`: after a crash the file holds either the old one or the new one.
///
/// # Errors
///
/// When the directory cannot be written to.
pub(crate) fn store(file: &Path, epoch: &Epoch) -> io::Result<()> {
    let kept = serde_json::to_vec(&Kept::from(epoch))?;
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
        if let Some(epoch) = epoch.filter(|epoch| kept.as_ref() != Some(epoch)) {
            match store(&file, &epoch) {
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

// === impl Kept ===

impl Kept {
    fn into_epoch(self) -> io::Result<Epoch> {
        let switch = |(timeline, lsn): (u32, String)| {
            let lsn: Lsn = lsn.parse().map_err(io::Error::other)?;
            Ok(Switch { timeline, lsn })
        };
        let ancestors = self.ancestors.map(|list| list.into_iter().map(switch).collect::<io::Result<_>>());
        let writer = |KeptWriter { name, address }| Writer { name: name.into(), address: address.into() };
        Ok(Epoch {
            system_id: self.system_id,
            timeline: self.timeline,
            ancestors: ancestors.transpose()?,
            writer: self.writer.map(writer),
        })
    }
}

impl From<&Epoch> for Kept {
    fn from(epoch: &Epoch) -> Self {
        let switch = |switch: &Switch| (switch.timeline, switch.lsn.to_string());
        let writer = |writer: &Writer| {
            let (name, address) = (writer.name.to_string(), writer.address.to_string());
            KeptWriter { name, address }
        };
        Self {
            system_id: epoch.system_id,
            timeline: epoch.timeline,
            ancestors: epoch.ancestors.as_ref().map(|list| list.iter().map(switch).collect()),
            writer: epoch.writer.as_ref().map(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(timeline: u32) -> Epoch {
        Epoch { system_id: u64::MAX, timeline, ancestors: None, writer: None }
    }

    #[test]
    fn what_was_kept_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "main");
        assert_eq!(load(&path).unwrap(), None);
        let ancestors = [Switch { timeline: 1, lsn: Lsn(0x1_0000_00A0) }];
        let writer = Writer { name: "pg-1".into(), address: "10.0.0.1:5432".into() };
        let known = Epoch { ancestors: Some(ancestors.into()), writer: Some(writer), ..epoch(2) };
        for epoch in [epoch(1), known] {
            store(&path, &epoch).unwrap();
            assert_eq!(load(&path).unwrap(), Some(epoch));
        }
        // As an earlier version has written it.
        std::fs::write(&path, r#"{"system_id":18446744073709551615,"timeline":3}"#).unwrap();
        assert_eq!(load(&path).unwrap(), Some(epoch(3)));
        std::fs::write(&path, "{}").unwrap();
        assert!(load(&path).is_err());
        assert!(store(&directory.path().join("absent/main.epoch"), &epoch(1)).is_err());
    }
}

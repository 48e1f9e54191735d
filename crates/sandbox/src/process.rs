//! Processes by their id: signals, children, identity.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to one process.
///
/// # Errors
///
/// Those of `kill(2)`; `ESRCH` when the process is gone.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let raw = i32::try_from(pid).map_err(io::Error::other)?;
    let pid = Pid::from_raw(raw).ok_or_else(|| io::Error::other("process id 0 means a whole group"))?;
    Ok(kill_process(pid, signal)?)
}

/// The processes whose parent is `pid`, zombies left out. Empty when there are none, or none can be seen.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|candidate| {
            stat_fields(*candidate).is_some_and(|fields| {
                fields.first().is_some_and(|state| state != "Z")
                    && fields.get(1).is_some_and(|parent| *parent == pid.to_string())
            })
        })
        .collect()
}

/// When the process started, in clock ticks since the machine's start: with the id it names a process for good, since
/// ids are used again. `None` when it is gone.
pub fn start_time(pid: u32) -> Option<u64> {
    stat_fields(pid)?.get(19)?.parse().ok()
}

/// The fields of `/proc/<pid>/stat` from the third (state) on; the second, the program's name, may hold anything.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_listed_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(start_time(child.id()).unwrap() >= start_time(std::process::id()).unwrap());
        signal(child.id(), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!children(std::process::id()).contains(&child.id()));
        assert_eq!(start_time(child.id()), None);
        assert!(signal(child.id(), Signal::KILL).is_err());
    }

    #[test]
    fn process_zero_is_never_signalled() {
        assert!(signal(0, Signal::CONT).is_err());
    }
}

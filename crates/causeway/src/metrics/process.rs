//! What the kernel says about this process.

use std::fs;

/// User-mode ticks a second: `USER_HZ` is 100 on every architecture of Linux that Rust's standard library supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the kernel says about this process; `None` where it does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Processor time in seconds, user and system.
    pub cpu_seconds: Option<f64>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Address space in bytes.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// The soft limit of open file descriptors.
    pub max_fds: Option<u64>,
}

impl Process {
    /// Reads `/proc/self`.
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            cpu_seconds: fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat)),
            resident_bytes: kilobytes(&status, "VmRSS:"),
            virtual_bytes: kilobytes(&status, "VmSize:"),
            // The listing itself holds one open.
            open_fds: fs::read_dir("/proc/self/fd").ok().and_then(|fds| u64::try_from(fds.count()).ok()),
            max_fds: fs::read_to_string("/proc/self/limits").ok().and_then(|limits| max_fds(&limits)),
        }
    }
}

/// Fields 14 and 15 of `/proc/[pid]/stat`, counted after the command, which is in parentheses and may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn max_fds(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        let process = Process::read();
        assert!(process.cpu_seconds.is_some());
        assert!(process.resident_bytes.unwrap() > 100_000);
        assert!(process.virtual_bytes.unwrap() >= process.resident_bytes.unwrap());
        assert!(process.open_fds.unwrap() >= 3);
        assert!(process.max_fds.unwrap() >= process.open_fds.unwrap());
    }

    #[test]
    fn a_command_may_hold_anything() {
        let stat = "1 (a) b (c) S 0 0 0 0 0 0 0 0 0 0 150 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
    }
}

//! What processes have used, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Add, Sub};

/// Clock ticks a second in `/proc`: `USER_HZ`, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// What a process and its descendants have used since they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds on a processor, those of descendants that have ended included.
    pub total_ns: u64,
    /// Nanoseconds of that in user mode, in steps of 10 ms.
    pub user_ns: u64,
    /// Nanoseconds of that in the kernel, in steps of 10 ms.
    pub system_ns: u64,
    /// Context switches, of their own will or not.
    pub switches: u64,
}

impl Usage {
    /// Of this process and all below it; what cannot be read counts nothing.
    pub fn of_tree(root: u32) -> Self {
        tree(root).into_iter().map(Self::of).fold(Self::default(), Add::add)
    }

    /// Of this process alone, with those it has started and waited for.
    pub fn of(pid: u32) -> Self {
        let stat = stat(pid);
        // man 5 proc: utime, stime, cutime, cstime are the fields 14 to 17 of which the first two are cut off here.
        let ticks = |field: usize| {
            stat.get(field - 3).copied().unwrap_or_default() * 1_000_000_000 / TICKS_PER_SECOND
        };
        let mut usage = Self {
            total_ns: ticks(16) + ticks(17),
            user_ns: ticks(14) + ticks(16),
            system_ns: ticks(15) + ticks(17),
            switches: 0,
        };
        for task in tasks(pid) {
            // schedstat: on the processor (ns), waiting for it (ns), time slices.
            let spent = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
            usage.total_ns +=
                spent.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default();
            let status = fs::read_to_string(format!("{task}/status")).unwrap_or_default();
            let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
            usage.switches += switches.filter_map(last_number).sum::<u64>();
        }
        usage
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            total_ns: self.total_ns + other.total_ns,
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            switches: self.switches + other.switches,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    /// What has been used since `earlier`. A process that ended between takes its switches with it, so nothing is
    /// assumed of the order.
    fn sub(self, earlier: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// Nanoseconds that the machine's processors have been busy, whoever used them, since its start; steal included, as it
/// disturbs in the same way.
pub fn machine_busy_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal (guest times are part of user and nice)
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|field| fields.get(field)).sum::<u64>();
    busy * 1_000_000_000 / TICKS_PER_SECOND
}

/// How many processors the machine has.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The process and all its descendants.
pub fn tree(root: u32) -> Vec<u32> {
    // One look at all processes, and not one for each descendant: a proxy may have hundreds.
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in all().into_iter().filter_map(|pid| Some((pid, parent(pid)?))) {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn parent(pid: u32) -> Option<u32> {
    u32::try_from(*stat(pid).get(1)?).ok()
}

/// Memory of the process and its descendants in bytes, what several share being divided among them (PSS).
pub fn memory_of_tree(root: u32) -> u64 {
    let of = |pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        text.lines().find(|line| line.starts_with("Pss:")).and_then(first_number).unwrap_or_default() * 1024
    };
    tree(root).into_iter().map(of).sum()
}

fn tasks(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.path().to_string_lossy().into_owned()).collect()
}

/// The fields of `/proc/<pid>/stat` from the third on, as numbers; the state, a letter, is 0.
fn stat(pid: u32) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = text.rsplit_once(") ") else { return Vec::new() };
    rest.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect()
}

fn first_number(line: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.parse().ok())
}

fn last_number(line: &str) -> Option<u64> {
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn what_a_process_computes_is_counted() {
        let before = (Usage::of_tree(std::process::id()), machine_busy_ns());
        for n in 0..100_000_000_u64 {
            black_box(n);
        }
        let used = Usage::of_tree(std::process::id()) - before.0;
        assert!(used.total_ns > 10_000_000, "{used:?}");
        assert!(machine_busy_ns() > before.1);
    }

    #[test]
    fn a_tree_has_the_children_of_children() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sh -c 'echo; sleep 60; true'; true"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The inner shell is there once it has written.
        std::io::Read::read(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let tree = tree(shell.id());
        assert!(tree.len() >= 2, "{tree:?}");
        for pid in tree.into_iter().rev() {
            causeway_sandbox::signal(pid, causeway_sandbox::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn this_process_has_memory() {
        assert!(memory_of_tree(std::process::id()) > 500_000);
    }
}

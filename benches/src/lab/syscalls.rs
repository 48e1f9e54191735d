//! System calls of a proxy, counted by perf's tracepoints.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_sandbox::{Signal, signal};

use super::{Failure, pause};

/// What a call is for, and the names the kernel has for it.
const GROUPS: [(&str, &[&str]); 4] = [
    ("receive", &["recvfrom", "recvmsg", "read", "readv", "splice"]),
    ("send", &["sendto", "sendmsg", "write", "writev"]),
    ("poll", &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"]),
    ("rearm", &["epoll_ctl", "futex"]),
];
const ALL: &str = "raw_syscalls:sys_enter";

/// A count that runs until it is asked for.
#[derive(Debug)]
pub struct Counter {
    perf: Child,
}

/// Calls by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Calls {
    /// All of them.
    pub all: u64,
    /// Receives and reads.
    pub receive: u64,
    /// Sends and writes.
    pub send: u64,
    /// Waits for events.
    pub poll: u64,
    /// Changes of what is waited for, and wake-ups between threads.
    pub rearm: u64,
}

impl Counter {
    /// Begins to count what these processes call.
    ///
    /// # Errors
    ///
    /// When perf is not there or not allowed to.
    pub fn start(pids: &[u32]) -> Result<Self, Failure> {
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        let names =
            GROUPS.iter().flat_map(|(_, names)| *names).map(|name| format!("syscalls:sys_enter_{name}"));
        let events: Vec<_> = std::iter::once(ALL.to_owned()).chain(names).collect();
        let mut perf = Command::new("perf")
            .args(["stat", "-x", ",", "-e", &events.join(","), "-p", &pids.join(",")])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("perf: {error}"))?;
        // Until it has attached; it says nothing about that.
        pause(Duration::from_millis(300));
        if perf.try_wait()?.is_some() {
            return Err(format!("perf: {}", said(&mut perf)?.trim_end()).into());
        }
        Ok(Self { perf })
    }

    /// Ends the count.
    ///
    /// # Errors
    ///
    /// When perf says something else than counts.
    pub fn finish(mut self) -> Result<Calls, Failure> {
        signal(self.perf.id(), Signal::INT)?;
        let text = said(&mut self.perf)?;
        self.perf.wait()?;
        parse(&text)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if matches!(self.perf.try_wait(), Ok(None)) {
            drop(self.perf.kill());
            drop(self.perf.wait());
        }
    }
}

fn said(perf: &mut Child) -> Result<String, Failure> {
    let mut text = String::new();
    perf.stderr.take().ok_or("perf is read once")?.read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Result<Calls, Failure> {
    // count,unit,event,...
    let row = |line: &str| {
        let mut fields = line.split(',');
        let count = fields.next()?.parse::<u64>().ok()?;
        Some((fields.nth(1)?.to_owned(), count))
    };
    let counts: BTreeMap<String, u64> = text.lines().filter_map(row).collect();
    let group = |wanted: &str| {
        let names = GROUPS.iter().filter(|(group, _)| *group == wanted).flat_map(|(_, names)| *names);
        names.filter_map(|name| counts.get(&format!("syscalls:sys_enter_{name}"))).sum()
    };
    let all = *counts.get(ALL).ok_or_else(|| format!("perf: {}", text.trim_end()))?;
    Ok(Calls {
        all,
        receive: group("receive"),
        send: group("send"),
        poll: group("poll"),
        rearm: group("rearm"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let text = "441,,raw_syscalls:sys_enter,2000,100.00,,\n100,,syscalls:sys_enter_recvfrom,2000,100.00,,\n\
                    5,,syscalls:sys_enter_read,1,100.00,,\n<not supported>,,syscalls:sys_enter_select,0,0.00,,\n";
        assert_eq!(parse(text).unwrap(), Calls { all: 441, receive: 105, ..Calls::default() });
        assert!(parse("Error: access denied\n").is_err());
    }
}

//! A process that cleans up after this one.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The shell's program; see there.
const SCRIPT: &str = include_str!("watchdog.sh");

/// What a watchdog shall do, in this order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    arguments: Vec<OsString>,
}

impl Orders {
    /// Stop the server whose data directory this is.
    pub(crate) fn stop_server(&mut self, data: &Path) {
        self.arguments.extend(["server".into(), data.into(), "-".into()]);
    }

    /// Kill the process, if it is still the one that started then.
    pub(crate) fn kill_process(&mut self, pid: u32, start_time: u64) {
        let words = ["process".to_owned(), pid.to_string(), start_time.to_string()];
        self.arguments.extend(words.map(OsString::from));
    }

    /// Remove the file or directory with all that is in it.
    pub(crate) fn remove(&mut self, path: &Path) {
        self.arguments.extend(["remove".into(), path.into(), "-".into()]);
    }
}

/// A shell that holds one end of a pipe and does its orders when the other end closes: when this value is dropped,
/// and also when this process ends in a way that runs no destructor, SIGKILL included. The kernel's parent-death
/// signal would not do: it fires when the *thread* that started a server ends, and a test's runtime is one.
#[derive(Debug)]
pub struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Watches over one process that this one has started: it is killed when the watchdog is let go, unless it has
    /// ended by then.
    ///
    /// # Errors
    ///
    /// When the process is gone already, or no shell can be started.
    pub fn over_process(pid: u32) -> io::Result<Self> {
        let start_time = crate::start_time(pid)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such process"))?;
        let mut orders = Orders::default();
        orders.kill_process(pid, start_time);
        Self::spawn("KILL", orders)
    }

    /// `signal` is the name, as `kill -s` takes it, of what stops a server.
    pub(crate) fn spawn(signal: &str, orders: Orders) -> io::Result<Self> {
        // Without its comments, since the whole of it shows in lists of processes.
        let lines = SCRIPT.lines().filter(|line| !line.trim_start().starts_with('#'));
        let script = lines.collect::<Vec<_>>().join("\n");
        let shell = Command::new("/bin/sh")
            .args(["-c", &script, "watchdog", signal])
            .args(orders.arguments)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of the terminal's interrupt, which kills the owner first.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }

    /// Does the orders and returns when they are done, without blocking the runtime.
    pub(crate) async fn finish(mut self) {
        drop(self.shell.stdin.take());
        // Polled, since the runtime this is awaited on need not be the one the shell was started on.
        while matches!(self.shell.try_wait(), Ok(None)) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Blocks until the servers are down, a quarter of a second as a rule: after a drop nothing is left.
        if let Err(error) = self.shell.wait() {
            tracing::warn!(%error, "waiting for the watchdog");
        }
    }
}

//! One PostgreSQL server.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::account::{Account, forget_environment};
use crate::binaries::Binaries;
use crate::command;
use crate::error::on_file;
use crate::place::Place;
use crate::process::{children, signal};
use crate::{SandboxConfig, SandboxError};

mod files;

/// A server that has not done within this what it was told to is taken to be stuck.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at a file or process.
const POLL: Duration = Duration::from_millis(10);

/// What a server is at a moment; a sandbox's first node begins as the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Replays what the primary writes.
    Replica,
}

/// How a server is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for the clients to leave.
    Smart,
    /// Disconnects the clients (57P01), writes a checkpoint and sends it to the replicas.
    Fast,
    /// Breaks off at once; the next start recovers from the log.
    Immediate,
}

/// What all nodes of a sandbox have in common.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) binaries: Binaries,
    pub(crate) account: Account,
    pub(crate) place: Place,
    pub(crate) config: SandboxConfig,
}

/// One server of a sandbox. Methods may be called from any runtime and any thread; two calls that start or stop the
/// same node must not overlap.
#[derive(Debug)]
pub struct Node {
    name: String,
    port: u16,
    common: Common,
    data: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Child>,
    /// Settings of this node alone.
    settings: BTreeMap<String, String>,
    /// Name and port of the node this one replays from.
    source: Option<u16>,
}

impl Node {
    pub(crate) fn new(name: String, port: u16, common: Common) -> Self {
        let data = common.place.data(&name);
        Self { name, port, common, data, state: Mutex::default() }
    }

    /// `pg-0`, `pg-1` and so on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The TCP port on 127.0.0.1; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.data
    }

    /// The file with the server's log.
    pub fn log_path(&self) -> PathBuf {
        self.common.place.log(&self.name)
    }

    /// The whole log as text; what is not UTF-8 is replaced.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn log(&self) -> Result<String, SandboxError> {
        let path = self.log_path();
        let bytes = on_file("reading", &path, fs::read(&path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The process id of the postmaster, `None` while the server is down.
    pub fn pid(&self) -> Option<u32> {
        let mut state = self.state();
        let child = state.process.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    /// What the files say: a server that is down keeps its role. True for a replica until its promotion is complete.
    pub fn role(&self) -> Role {
        if self.data.join("standby.signal").exists() { Role::Replica } else { Role::Primary }
    }

    /// Starts the server and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// When it runs already, ends again (with the end of its log), or is not ready after a minute.
    pub async fn start(&self) -> Result<(), SandboxError> {
        if self.pid().is_some() {
            return Err(SandboxError::Running(self.name.clone()));
        }
        self.write_configuration()?;
        let log_path = self.log_path();
        let log =
            on_file("opening", &log_path, OpenOptions::new().create(true).append(true).open(&log_path))?;
        let error_log = on_file("opening", &log_path, log.try_clone())?;
        let mut command = self.common.account.command(&self.common.binaries.program("postgres"));
        command.arg("-D").arg(&self.data).current_dir(&self.common.place.root).stdout(log).stderr(error_log);
        // Out of reach of the terminal's interrupt: whoever owns the sandbox stops it in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .spawn()
            .map_err(|source| SandboxError::Program { program: "postgres".to_owned(), source })?;
        let pid = child.id();
        self.state().process = Some(child);
        self.wait_until_ready(pid).await
    }

    /// `postmaster.pid` tells in its eighth line how far the start is, as `pg_ctl` reads it (utils/pidfile.h); that
    /// costs no connection and needs no password.
    async fn wait_until_ready(&self, pid: u32) -> Result<(), SandboxError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exit_status() {
                let log = self.log_tail();
                return Err(SandboxError::Exited {
                    node: self.name.clone(),
                    status: status.to_string(),
                    log,
                });
            }
            let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
            let mut lines = file.lines();
            let is_ours = lines.next() == Some(pid.to_string().as_str());
            if is_ours && lines.nth(6).is_some_and(|status| status.trim_end() == "ready") {
                return Ok(());
            }
            self.pause_before(deadline, "to start").await?;
        }
    }

    /// Stops the server and waits until its process has ended. A paused one is resumed, or it would not notice.
    ///
    /// # Errors
    ///
    /// When it is not running, or not down after a minute.
    pub async fn stop(&self, mode: StopMode) -> Result<(), SandboxError> {
        let pid = self.running()?;
        let asked = match mode {
            StopMode::Smart => Signal::TERM,
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        };
        // First: once asked, it may be gone before it could be resumed.
        self.resume()?;
        send(pid, asked)?;
        self.wait_until_down().await
    }

    /// [`stop`](Self::stop) in fast mode, then [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// Those of the two.
    pub async fn restart(&self) -> Result<(), SandboxError> {
        self.stop(StopMode::Fast).await?;
        self.start().await
    }

    /// Kills the postmaster and every process of the server with SIGKILL, with no word to the clients, as
    /// when the power fails. Each server process leads a session of its own, so they are found by their parent.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn kill_postmaster(&self) -> Result<(), SandboxError> {
        let pid = self.running()?;
        // All are stopped before any is killed: the postmaster must start no more of them while they are counted, and
        // a backend that sees the postmaster gone would still send its client a 57P01.
        self.pause()?;
        for backend in children(pid) {
            // One that has ended by itself meanwhile is as good as killed.
            drop(signal(backend, Signal::KILL));
        }
        send(pid, Signal::KILL)?;
        self.wait_until_down().await
    }

    /// Freezes the server: its sockets stay open and nothing answers, as on a machine that hangs. Connections are
    /// still accepted by the kernel.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&self) -> Result<(), SandboxError> {
        let pid = self.running()?;
        send(pid, Signal::STOP)?;
        for backend in children(pid) {
            drop(signal(backend, Signal::STOP));
        }
        Ok(())
    }

    /// Lets a paused server go on; does nothing to one that is not paused.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&self) -> Result<(), SandboxError> {
        let pid = self.running()?;
        for backend in children(pid) {
            drop(signal(backend, Signal::CONT));
        }
        send(pid, Signal::CONT)
    }

    /// Promotes a replica and waits until it takes writes; its timeline is then a new one.
    ///
    /// # Errors
    ///
    /// When it is no replica, or not promoted within a minute.
    pub async fn promote(&self) -> Result<(), SandboxError> {
        let done = self.sql("postgres", "SELECT pg_promote(true, 60)").await?;
        if done.trim() == "t" {
            return Ok(());
        }
        Err(SandboxError::Timeout {
            what: format!("promoting {}", self.name),
            limit: PATIENCE,
            detail: format!(": {}", self.log_tail()),
        })
    }

    /// Makes a replica replay from another node, without a restart if it is running.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be written.
    pub async fn follow(&self, source: &Node) -> Result<(), SandboxError> {
        self.state().source = Some(source.port);
        self.reload().await
    }

    /// Throws the node's data away and makes it a replica of `source` again, on the same port: what becomes of an old
    /// primary after a failover. Stops the server first if it is running; it is running afterwards.
    ///
    /// # Errors
    ///
    /// When `source` gives no base backup, or the server does not start from it.
    pub async fn rebuild(&self, source: &Node) -> Result<(), SandboxError> {
        if self.pid().is_some() {
            self.stop(StopMode::Immediate).await?;
        }
        if self.data.exists() {
            on_file("removing", &self.data, fs::remove_dir_all(&self.data))?;
        }
        self.copy_from(source).await?;
        self.start().await
    }

    /// Sets a server setting on this node alone and waits until new sessions have it; the running ones follow within
    /// moments. A setting that needs a restart is only written.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or the server does not load it.
    pub async fn configure(&self, name: &str, value: &str) -> Result<(), SandboxError> {
        self.state().settings.insert(name.to_owned(), value.to_owned());
        self.reload().await
    }

    /// Runs SQL as the superuser over the Unix socket, with psql: one line a row, columns separated by `|`. Several
    /// statements in one text are one transaction, as in a simple Query.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Failed`] with what psql says, or a timeout after a minute. Dropping the future kills psql.
    pub async fn sql(&self, database: &str, sql: &str) -> Result<String, SandboxError> {
        let mut command = self.psql(database);
        command.args(["-c", sql]);
        command::run("psql", command, PATIENCE).await
    }

    /// Runs a file of SQL as the superuser, statement by statement, and stops at the first error.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn sql_file(&self, database: &str, path: &Path) -> Result<(), SandboxError> {
        let mut command = self.psql(database);
        command.arg("-f").arg(path);
        command::run("psql", command, PATIENCE).await.map(drop)
    }

    /// The insert position of a primary, or the replay position of a replica, in bytes. The first may be a few bytes
    /// beyond anything a replica can reach until more is written: see [`Sandbox::caught_up_with`].
    ///
    /// [`Sandbox::caught_up_with`]: crate::Sandbox::caught_up_with
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn wal_position(&self) -> Result<u64, SandboxError> {
        let position = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
                        ELSE pg_current_wal_insert_lsn() END";
        self.position(position).await
    }

    /// An SQL expression of type `pg_lsn` as a number of bytes.
    pub(crate) async fn position(&self, expression: &str) -> Result<u64, SandboxError> {
        let text = self.sql("postgres", &format!("SELECT {expression} - '0/0'::pg_lsn")).await?;
        text.trim().parse().map_err(|_| SandboxError::Failed { program: "psql".to_owned(), output: text })
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.common.binaries.program("psql"));
        forget_environment(&mut command);
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", &self.common.config.superuser]);
        command.arg("-h").arg(&self.common.place.sockets).args([
            "-p",
            &self.port.to_string(),
            "-d",
            database,
        ]);
        command
    }

    pub(crate) fn set_source(&self, port: u16) {
        self.state().source = Some(port);
    }

    async fn reload(&self) -> Result<(), SandboxError> {
        let load_time = "SELECT pg_conf_load_time()";
        let Some(pid) = self.pid() else { return self.write_configuration() };
        let before = self.sql("postgres", load_time).await?;
        self.write_configuration()?;
        send(pid, Signal::HUP)?;
        let deadline = Instant::now() + PATIENCE;
        while self.sql("postgres", load_time).await? == before {
            self.pause_before(deadline, "to load its configuration").await?;
        }
        Ok(())
    }

    async fn wait_until_down(&self) -> Result<(), SandboxError> {
        let deadline = Instant::now() + PATIENCE;
        while self.exit_status().is_none() {
            self.pause_before(deadline, "to end").await?;
        }
        Ok(())
    }

    /// The exit status once the process has ended; it is then forgotten.
    fn exit_status(&self) -> Option<ExitStatus> {
        let mut state = self.state();
        let Some(child) = state.process.as_mut() else { return Some(ExitStatus::default()) };
        let status = child.try_wait().ok().flatten()?;
        state.process = None;
        Some(status)
    }

    async fn pause_before(&self, deadline: Instant, what: &str) -> Result<(), SandboxError> {
        if Instant::now() >= deadline {
            return Err(SandboxError::Timeout {
                what: format!("waiting for {} {what}", self.name),
                limit: PATIENCE,
                detail: format!(": {}", self.log_tail()),
            });
        }
        sleep(POLL).await;
        Ok(())
    }

    fn running(&self) -> Result<u32, SandboxError> {
        self.pid().ok_or_else(|| SandboxError::NotRunning(self.name.clone()))
    }

    fn log_tail(&self) -> String {
        let log = self.log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
    }

    /// A panic of another holder leaves nothing half done here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(pid) = self.pid() else { return };
        // The watchdog would find a server by its `postmaster.pid`, which one in its first moments has not written.
        let how = if self.common.config.keep { Signal::INT } else { Signal::QUIT };
        if let Err(error) = signal(pid, how) {
            tracing::warn!(node = self.name, %error, "stopping the server");
        }
    }
}

fn send(pid: u32, which: Signal) -> Result<(), SandboxError> {
    signal(pid, which).map_err(|source| SandboxError::Program { program: format!("kill {pid}"), source })
}

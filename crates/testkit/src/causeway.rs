//! The built Causeway as a process.

use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_sandbox::{Signal, Watchdog, free_ports, signal, start_time};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::binary;
use crate::http::{self, Response};
use crate::log::{Log, LogLine};
use crate::metrics::Metrics;
use crate::wire::{Client, PATIENCE};

/// Between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(10);
/// How often other ports are tried when somebody took one first.
const PORT_ATTEMPTS: usize = 3;
/// The counter that moves with every reload, good or bad.
const RELOADS: &str = "causeway_config_reloads_total";

/// Causeway did not come up: it ended before it was ready.
#[derive(Debug)]
pub struct Refusal {
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote.
    pub log: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "causeway ended ({}) before it was ready:\n{}", self.status, self.log)
    }
}

/// A running Causeway with a configuration of its own on free ports.
///
/// When it is dropped the process is killed, and the test fails if it had ended by itself with an error, or if its log
/// holds a WARN, an ERROR or a line that is not JSON, unless [`allow_log`](Self::allow_log) was told of it. It also
/// dies with the test process, however that ends.
#[derive(Debug)]
pub struct Causeway {
    process: Mutex<Child>,
    log: Mutex<Log>,
    allowed: Mutex<Vec<String>>,
    directory: TempDir,
    port: u16,
    http_port: u16,
    /// Set when the test has seen the end itself, so that it is not taken for a crash.
    exit_seen: Mutex<bool>,
    /// The process that has taken over last; it is no child of this one.
    successor: Mutex<Option<Successor>>,
    _watchdog: Watchdog,
}

/// A process that has taken over.
#[derive(Debug)]
struct Successor {
    pid: u32,
    start_time: u64,
    _watchdog: Watchdog,
}

impl Causeway {
    /// Starts it with this configuration and waits until `/readyz` answers 200. `listen`, `http` and `state_dir` are
    /// added unless the text has them at its top level.
    pub async fn start(yaml: &str) -> Self {
        Self::try_start(yaml).await.unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    /// As [`start`](Self::start) for configurations that may be refused.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the process ends before it is ready.
    pub async fn try_start(yaml: &str) -> Result<Self, Refusal> {
        Self::start_until(yaml, "/readyz").await
    }

    /// As [`start`](Self::start) where no node will serve: waits until clients are let in.
    pub async fn start_unready(yaml: &str) -> Self {
        let started = Self::start_until(yaml, "/livez").await.unwrap_or_else(|refusal| panic!("{refusal}"));
        started.wait_for_log("ready for clients").await;
        started
    }

    async fn start_until(yaml: &str, path: &str) -> Result<Self, Refusal> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::attempt(yaml, path).await {
                Err(refusal) if refusal.log.contains("Address already in use") => {}
                done => return done,
            }
        }
        Self::attempt(yaml, path).await
    }

    async fn attempt(yaml: &str, path: &str) -> Result<Self, Refusal> {
        let program = binary::causeway().await;
        let ports = free_ports(2).expect("two free ports");
        let directory =
            tempfile::Builder::new().prefix("causeway-test-").tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("state")).expect("a directory for the state");
        let config = directory.path().join("causeway.yaml");
        fs::write(&config, complete(yaml, ports[0], ports[1], directory.path()))
            .expect("writing the configuration");
        let mut process = Command::new(program)
            .args(["--log-format", "json", "run", "-c"])
            .arg(&config)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("running {}: {error}", program.display()));
        let log = Log::collect(process.stderr.take().expect("the pipe just asked for"));
        let watchdog = Watchdog::over_process(process.id()).expect("a watchdog");
        let started = Self {
            process: Mutex::new(process),
            log: Mutex::new(log),
            allowed: Mutex::default(),
            directory,
            port: ports[0],
            http_port: ports[1],
            exit_seen: Mutex::new(false),
            successor: Mutex::default(),
            _watchdog: watchdog,
        };
        // Every test's configuration trusts loopback, which Causeway rightly warns of.
        started.allow_log("let in without a password");
        started.until_ready(path).await
    }

    async fn until_ready(self, path: &str) -> Result<Self, Refusal> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.try_exit() {
                *lock(&self.exit_seen) = true;
                let lines = lock(&self.log).finish();
                // The refusal carries the log to the test, which judges it.
                self.allow_log("");
                return Err(Refusal { status, log: joined(&lines) });
            }
            match http::get(self.http_port, path).await {
                Ok(Response { status: 200, .. }) => return Ok(self),
                answer => {
                    let lines = self.logs();
                    assert!(Instant::now() < deadline, "not ready: {answer:?}\n{}", joined(&lines));
                }
            }
            sleep(POLL).await;
        }
    }

    /// The port for PostgreSQL clients on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port for HTTP on 127.0.0.1.
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// The process id; after [`hand_over`](Self::hand_over), that of the process that serves now.
    pub fn pid(&self) -> u32 {
        lock(&self.successor).as_ref().map_or_else(|| lock(&self.process).id(), |successor| successor.pid)
    }

    /// Sends SIGUSR2 and waits until another process has taken over: that is the one meant from now on. The former one
    /// goes on as long as it has clients.
    pub async fn hand_over(&self) {
        let over = |lines: &[LogLine]| -> Vec<u32> {
            let done = lines.iter().filter(|line| line.value["event"] == "handed_over");
            done.filter_map(|line| line.value["pid"].as_u64()?.try_into().ok()).collect()
        };
        let before = over(&self.logs()).len();
        self.signal(Signal::USR2);
        let deadline = Instant::now() + PATIENCE;
        let pid = loop {
            let lines = self.logs();
            if let Some(pid) = over(&lines).get(before) {
                break *pid;
            }
            assert!(Instant::now() < deadline, "nobody has taken over:\n{}", joined(&lines));
            sleep(POLL).await;
        };
        let start_time = start_time(pid).expect("the process that has taken over is there");
        let watchdog = Watchdog::over_process(pid).expect("a watchdog");
        *lock(&self.successor) = Some(Successor { pid, start_time, _watchdog: watchdog });
    }

    /// Whether the process that was started first is there still.
    pub fn first_is_running(&self) -> bool {
        lock(&self.process).try_wait().expect("waiting for a child").is_none()
    }

    /// Where the configuration and the state are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("causeway.yaml")
    }

    /// Whether the process is there.
    pub fn is_running(&self) -> bool {
        self.try_exit().is_none()
    }

    /// A client that has logged in.
    pub async fn client(&self, user: &str, database: &str) -> Client {
        Client::login(self.port, user, database).await
    }

    /// GET of a path on the HTTP port.
    pub async fn http_get(&self, path: &str) -> Response {
        http::get(self.http_port, path).await.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// All metrics at this moment.
    pub async fn metrics(&self) -> Metrics {
        let response = self.http_get("/metrics").await;
        assert_eq!(response.status, 200, "GET /metrics: {response:?}");
        Metrics::parse(&response.body)
    }

    /// The sum of the series of this name that carry these labels.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().await.sum(name, labels)
    }

    /// Waits until the sum of these series fulfils the condition; returns it.
    pub async fn wait_for_metric(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        fulfilled: impl Fn(f64) -> bool,
    ) -> f64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(name, labels).await;
            if fulfilled(value) {
                return value;
            }
            assert!(Instant::now() < deadline, "{name} {labels:?} stayed at {value}");
            sleep(POLL).await;
        }
    }

    /// Sends a signal to the process, which must be there: its id may be another's by now otherwise.
    pub fn signal(&self, which: Signal) {
        assert!(self.is_running(), "causeway has ended:\n{}", joined(&self.logs()));
        signal(self.pid(), which).unwrap_or_else(|error| panic!("sending {which:?}: {error}"));
    }

    /// Puts another configuration in place, sends SIGHUP and waits until the reload is counted, whether it was
    /// accepted or refused. The ports stay.
    pub async fn reload(&self, yaml: &str) {
        let before = self.metric(RELOADS, &[]).await;
        let text = complete(yaml, self.port, self.http_port, self.directory());
        fs::write(self.config_path(), text).expect("writing the configuration");
        self.signal(Signal::HUP);
        self.wait_for_metric(RELOADS, &[], |now| now > before).await;
    }

    /// Memory in use (`VmRSS`), in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.status_field("VmRSS:") * 1024
    }

    /// How many threads the process has.
    pub fn threads(&self) -> u64 {
        self.status_field("Threads:")
    }

    /// How many file descriptors the process has open.
    pub fn open_fds(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid());
        fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}")).count()
    }

    fn status_field(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{path} has no {name}"))
    }

    /// The log up to now.
    pub fn logs(&self) -> Vec<LogLine> {
        lock(&self.log).lines()
    }

    /// Waits for a line of the log that holds this text.
    pub async fn wait_for_log(&self, part: &str) -> LogLine {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.logs();
            if let Some(line) = lines.iter().find(|line| line.text.contains(part)) {
                return line.clone();
            }
            assert!(Instant::now() < deadline, "the log never said {part:?}:\n{}", joined(&lines));
            sleep(POLL).await;
        }
    }

    /// Lines that hold this text do not fail the test.
    pub fn allow_log(&self, part: &str) {
        lock(&self.allowed).push(part.to_owned());
    }

    /// Waits until the process ends, after a signal.
    pub async fn wait_exit(&self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.try_exit() {
                *lock(&self.exit_seen) = true;
                return status;
            }
            assert!(Instant::now() < deadline, "still running:\n{}", joined(&self.logs()));
            sleep(POLL).await;
        }
    }

    /// Sends SIGTERM; the process must end with status 0. Then the log is checked.
    pub async fn stop(self) {
        self.signal(Signal::TERM);
        let status = self.wait_exit().await;
        assert!(status.success(), "after SIGTERM: {status}\n{}", joined(&self.logs()));
    }

    fn try_exit(&self) -> Option<ExitStatus> {
        if let Some(successor) = &*lock(&self.successor) {
            // Not being a child, it leaves no status; what it has logged tells whether it was cut.
            let there = start_time(successor.pid) == Some(successor.start_time) && !is_zombie(successor.pid);
            return (!there).then(|| ExitStatus::from_raw(0));
        }
        lock(&self.process).try_wait().expect("waiting for a child")
    }

    /// Ends the process if it has not ended; says what is wrong with how it ended or what it wrote, if anything.
    fn complaint(&self) -> Option<String> {
        let ended = self.try_exit();
        // The watchdog of a successor kills it.
        drop(lock(&self.successor).take());
        if self.try_exit().is_none() {
            let mut process = lock(&self.process);
            process.kill().expect("killing a child");
            process.wait().expect("waiting for a child");
        }
        let unforeseen = ended.filter(|_| !*lock(&self.exit_seen));
        let lines = lock(&self.log).finish();
        judge(unforeseen, &lines, &lock(&self.allowed))
    }
}

/// A process whose parent does not wait for it.
fn is_zombie(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
}

/// `unforeseen` is how the process ended if the test did not wait for that.
fn judge(unforeseen: Option<ExitStatus>, lines: &[LogLine], allowed: &[String]) -> Option<String> {
    if let Some(status) = unforeseen.filter(|status| !status.success()) {
        return Some(format!("causeway ended by itself: {status}\n{}", joined(lines)));
    }
    let is_allowed = |line: &LogLine| allowed.iter().any(|part| line.text.contains(part));
    let bad: Vec<LogLine> = lines.iter().filter(|line| line.is_bad() && !is_allowed(line)).cloned().collect();
    (!bad.is_empty()).then(|| format!("causeway complained:\n{}", joined(&bad)))
}

impl Drop for Causeway {
    fn drop(&mut self) {
        let complaint = self.complaint();
        if std::thread::panicking() {
            // The test has failed already; what the process said may tell why.
            eprintln!("log of causeway:\n{}", joined(&self.logs()));
        } else if let Some(complaint) = complaint {
            panic!("{complaint}");
        }
    }
}

/// The configuration with the keys that differ from test to test, unless it has them.
fn complete(yaml: &str, port: u16, http_port: u16, directory: &Path) -> String {
    let state = directory.join("state");
    let ours = [
        ("listen", format!("[\"127.0.0.1:{port}\"]")),
        ("http", format!("\"127.0.0.1:{http_port}\"")),
        ("state_dir", format!("\"{}\"", state.display())),
    ];
    let has =
        |key: &str| yaml.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')));
    let missing = ours.iter().filter(|(key, _)| !has(key));
    let lines: Vec<String> = missing.map(|(key, value)| format!("{key}: {value}\n")).collect();
    lines.concat() + yaml
}

fn joined(lines: &[LogLine]) -> String {
    lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_and_complaints_fail_a_test_unless_expected() {
        use std::os::unix::process::ExitStatusExt;
        let lines = |text: &'static str| Log::collect(text.as_bytes()).finish();
        let fine = lines("{\"level\":\"info\",\"msg\":\"ready\"}\n");
        let bad = lines("{\"level\":\"info\"}\n{\"level\":\"warn\",\"msg\":\"node lost\"}\n");
        let killed = ExitStatus::from_raw(9);
        assert_eq!(judge(None, &fine, &[]), None);
        assert_eq!(judge(Some(ExitStatus::from_raw(0)), &fine, &[]), None);
        assert!(judge(Some(killed), &fine, &[]).unwrap().contains("signal: 9"));
        assert!(judge(None, &bad, &["other".to_owned()]).unwrap().ends_with("node lost\"}"));
        assert_eq!(judge(None, &bad, &["node lost".to_owned()]), None);
        assert!(judge(Some(killed), &bad, &["node lost".to_owned()]).is_some());
    }

    #[test]
    fn only_missing_keys_are_added() {
        let text = complete("pool: { listen: 1 }\nhttp: \"127.0.0.1:1\"\n", 2, 3, Path::new("/x"));
        assert_eq!(
            text,
            "listen: [\"127.0.0.1:2\"]\nstate_dir: \"/x/state\"\npool: { listen: 1 }\nhttp: \"127.0.0.1:1\"\n"
        );
    }
}

//! `causeway run` as a process: start, health, metrics, reload, shutdown.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use causeway_sandbox::{Binaries, Sandbox, SandboxConfig};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running process, killed when dropped.
struct Process {
    child: Child,
    log: Receiver<Value>,
    directory: TempDir,
    clients: SocketAddr,
    http: SocketAddr,
}

/// A configuration with one node, at `node`, and any free port for clients and HTTP.
fn yaml(node: &str, more: &str) -> String {
    format!(
        "listen: [\"127.0.0.1:0\"]\nhttp: \"127.0.0.1:0\"\nstate_dir: .\nclusters:\n  main:\n    nodes:\n      - {{ \
         name: pg-0, address: \"{node}\" }}\n    monitor: {{ user: postgres }}\nauth: {{ rules: [{{ address: \
         \"127.0.0.0/8\", method: trust }}, {{ address: unix, method: trust }}] }}\n{more}"
    )
}

/// Where nobody listens.
const NOBODY: &str = "127.0.0.1:1";

impl Process {
    fn start(yaml: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("causeway.yaml");
        std::fs::write(&file, yaml).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_causeway"))
            .args(["--log-format", "json", "-c"])
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, log) = sync_channel(10_000);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if lines.send(event).is_err() {
                    return;
                }
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, log, directory, clients: nowhere, http: nowhere };
        // Two threads: HTTP may be served before or after clients are.
        let mut started = false;
        while !started || process.http == nowhere || process.clients == nowhere {
            let event = process.next_event();
            let address = || event["address"].as_str().unwrap().parse().unwrap();
            match event["event"].as_str() {
                Some("http_listening") => process.http = address(),
                Some("listening") => process.clients = address(),
                Some("started") => started = true,
                _ => {}
            }
        }
        process
    }

    fn next_event(&self) -> Value {
        let event = self.log.recv_timeout(PATIENCE).unwrap();
        assert!(event.is_object(), "not JSON: {event}");
        event
    }

    /// The next event of this name in the log.
    fn event(&self, name: &str) -> Value {
        loop {
            let event = self.next_event();
            if event["event"] == name {
                return event;
            }
        }
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("causeway.yaml")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn wait(&mut self) -> i32 {
        let deadline = std::time::SystemTime::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(std::time::SystemTime::now() < deadline, "the process does not end");
            pause(Duration::from_millis(10));
        }
    }

    /// Status and body of a GET.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(Binaries::find().unwrap().program("psql"));
        psql.args(["-X", "-At", "-h", "127.0.0.1", "-U", "postgres", "-d", database, "-c", sql]);
        psql.arg("-p").arg(self.clients.port().to_string());
        psql
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended in most tests.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime here to stall")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

#[test]
fn a_node_that_is_down_does_not_prevent_starting() {
    let mut process = Process::start(&yaml(NOBODY, ""));
    assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()));
    let not_ready = "cluster main: no primary and no serving replica is known\n";
    assert_eq!(process.get("/readyz"), (503, not_ready.to_owned()));
    assert_eq!(process.get("/").0, 200);
    assert_eq!(process.get("/nothing").0, 404);
    let (status, metrics) = process.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("causeway_backend_up{cluster=\"main\",backend=\"pg-0\"} 0\n"), "{metrics}");
    process.signal("-TERM");
    assert_eq!(process.wait(), 0);
}

#[test]
fn an_address_in_use_is_unavailable() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (key, other) in [
        ("listen: [\"127.0.0.1:0\"]", format!("listen: [\"{address}\"]")),
        ("http: \"127.0.0.1:0\"", format!("http: \"{address}\"")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("causeway.yaml");
        std::fs::write(&file, yaml(NOBODY, "").replace(key, &other)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_causeway")).arg("-c").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(69));
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(log.contains(&format!("cannot listen on {address}")), "{log}");
    }
}

#[test]
fn readiness_goes_before_the_listener() {
    let mut process = Process::start(&yaml(NOBODY, "timeouts: { drain_delay: 1h }\n"));
    process.signal("-INT");
    process.event("draining");
    assert_eq!(process.get("/readyz"), (503, "draining: the process is shutting down\n".to_owned()));
    assert_eq!(process.get("/livez").0, 200);
    assert!(TcpStream::connect(process.clients).is_ok(), "clients are still accepted");
    // The same signal again at once is the same wish; a second one later is the end.
    process.signal("-INT");
    pause(Duration::from_millis(400));
    assert_eq!(process.get("/livez").0, 200);
    process.signal("-TERM");
    assert_eq!(process.wait(), 124);
}

#[test]
fn quit_is_immediate() {
    let mut process = Process::start(&yaml(NOBODY, ""));
    process.signal("-QUIT");
    process.event("quit");
    assert_eq!(process.wait(), 0);
}

fn reloads(process: &Process) -> (bool, bool, bool) {
    let (_, metrics) = process.get("/metrics");
    let has = |line: &str| metrics.contains(line);
    (
        has("causeway_config_reloads_total{result=\"success\"} 1\n"),
        has("causeway_config_reloads_total{result=\"failure\"} 1\n"),
        has("causeway_config_last_reload_success 1\n"),
    )
}

#[test]
fn a_reload_is_applied_whole_or_not_at_all() {
    let mut process = Process::start(&yaml(NOBODY, ""));
    let unix = process.directory.path().join("sockets");
    std::fs::create_dir(&unix).unwrap();
    let listen = |places: &str| yaml(NOBODY, "").replace("\"127.0.0.1:0\"]", places);

    // A second address is taken, so neither it nor the third is used.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let places = format!("\"127.0.0.1:0\", \"unix:{}\", \"{taken}\"]", unix.display());
    std::fs::write(process.config(), listen(&places)).unwrap();
    process.signal("-HUP");
    let failed = process.event("reload_failed");
    assert!(failed["error"].as_str().unwrap().contains(&format!("cannot listen on {taken}")), "{failed}");
    assert_eq!(reloads(&process), (false, true, false));
    assert!(std::fs::read_dir(&unix).unwrap().next().is_none(), "a socket was left");
    assert!(TcpStream::connect(process.clients).is_ok(), "the old address still serves");

    // The same without the taken address; the old one is kept and a node is added.
    let places = format!("\"127.0.0.1:0\", \"unix:{}\"]", unix.display());
    let node = "\"127.0.0.1:1\" }\n      - { name: pg-1, address: \"127.0.0.1:2\" }";
    std::fs::write(process.config(), listen(&places).replace("\"127.0.0.1:1\" }", node)).unwrap();
    process.signal("-HUP");
    process.event("reloaded");
    assert_eq!(reloads(&process), (true, true, true));
    assert!(TcpStream::connect(process.clients).is_ok());
    let socket = unix.join(".s.PGSQL.0");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    assert!(process.get("/metrics").1.contains("causeway_backend_up{cluster=\"main\",backend=\"pg-1\"}"));

    // Without the first address and the second node.
    let places = format!("\"unix:{}\"]", unix.display());
    std::fs::write(process.config(), listen(&places).replace("listen:", "# as it was\nlisten:")).unwrap();
    process.signal("-HUP");
    process.event("reloaded");
    // The socket is closed by the task that accepted there, a moment later.
    let is_closed = (0..100).any(|_| {
        pause(Duration::from_millis(50));
        TcpStream::connect(process.clients).is_err()
    });
    assert!(is_closed, "nobody listens there any more");
    assert!(!process.get("/metrics").1.contains("pg-1"));
    process.signal("-TERM");
    assert_eq!(process.wait(), 0);
    assert!(!socket.exists(), "the socket's file is removed");
}

#[test]
fn transactions_end_before_the_process_or_are_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox = runtime.block_on(Sandbox::start(SandboxConfig::default())).unwrap();
    let node = sandbox.primary().address().clone();
    let sleeping = |process: &Process, seconds: &str| {
        let sql = format!("SELECT pg_sleep({seconds}), 'done'");
        let mut psql = process.psql("postgres", &sql);
        let child = psql.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A server connection is active during the login already.
        let runs = |line: &str| line.starts_with("causeway_backend_in_flight{") && line.ends_with(" 1");
        while !process.get("/metrics").1.lines().any(runs) {
            pause(Duration::from_millis(10));
        }
        child
    };

    let mut process = Process::start(&yaml(&node, "admin: { users: [postgres] }\n"));
    assert_eq!(process.get("/readyz"), (200, "ok\n".to_owned()));
    let version = process.psql("causeway", "SHOW VERSION").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("Causeway "));
    let psql = sleeping(&process, "1");
    process.signal("-TERM");
    let output = psql.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "|done\n");
    assert_eq!(process.wait(), 0);
    let kept = std::fs::read_to_string(process.directory.path().join("main.epoch")).unwrap();
    assert!(kept.contains("\"timeline\":1"), "{kept}");

    let mut process = Process::start(&yaml(&node, "timeouts: { shutdown_timeout: 100ms }\n"));
    let psql = sleeping(&process, "60");
    process.signal("-TERM");
    assert_eq!(process.wait(), 124);
    assert!(!psql.wait_with_output().unwrap().status.success());
    runtime.block_on(sandbox.stop()).unwrap();
}

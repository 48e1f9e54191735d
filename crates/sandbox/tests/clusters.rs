//! Sandboxes on the installed PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking; the lint exempts test functions alone")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use causeway_sandbox::{
    Authentication, Binaries, Node, Role, Sandbox, SandboxConfig, SandboxError, Signal, StopMode, children,
    signal, start_time,
};
use tokio::time::{sleep, timeout};

/// psql over TCP, as a client would connect.
fn over_tcp(node: &Node, password: &str) -> Result<String, String> {
    let output = Command::new(Binaries::find().unwrap().program("psql"))
        .args(["-XAtq", "-U", "postgres", "-h", "127.0.0.1", "-d", "postgres", "-c", "SELECT 'in'"])
        .args(["-p", &node.port().to_string()])
        .env("PGPASSWORD", password)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

async fn gone(what: impl Fn() -> bool) {
    timeout(Duration::from_secs(20), async {
        while !what() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("still there after 20 s");
}

/// A directory the servers' account may use, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("causeway-sandbox-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn replicas_show_what_the_primary_wrote() {
    let config = SandboxConfig::with_replicas(2).setting("work_mem", "7MB");
    let sandbox = Sandbox::start(config).await.unwrap();
    let (primary, directory) = (sandbox.primary(), sandbox.directory().to_owned());
    assert_eq!(primary.role(), Role::Primary);
    primary.sql("postgres", "CREATE TABLE t AS SELECT 42 AS a").await.unwrap();
    sandbox.replicas_caught_up().await.unwrap();
    for replica in sandbox.replicas() {
        assert_eq!(replica.role(), Role::Replica);
        assert_eq!(replica.sql("postgres", "SELECT a, pg_is_in_recovery() FROM t").await.unwrap(), "42|t\n");
        assert_eq!(replica.sql("postgres", "SHOW work_mem").await.unwrap(), "7MB\n");
        assert_eq!(over_tcp(replica, ""), Ok("in".to_owned()));
    }
    let failed = sandbox.node("pg-1").unwrap().sql("postgres", "CREATE TABLE u (a int)").await;
    assert!(
        matches!(&failed, Err(SandboxError::Failed { output, .. }) if output.contains("read-only")),
        "{failed:?}"
    );

    let pids: Vec<u32> = sandbox.nodes().iter().filter_map(Node::pid).collect();
    assert_eq!(pids.len(), 3);
    sandbox.stop().await.unwrap();
    assert!(pids.iter().all(|pid| start_time(*pid).is_none()), "a server is left");
    assert!(!directory.exists());
}

#[tokio::test]
async fn dropping_leaves_nothing() {
    let sandbox = Sandbox::start(SandboxConfig::default()).await.unwrap();
    let (pid, directory) = (sandbox.primary().pid().unwrap(), sandbox.directory().to_owned());
    let backends = children(pid);
    assert!(!backends.is_empty());
    sandbox.primary().pause().unwrap();
    drop(sandbox);
    assert!(!directory.exists());
    gone(|| children(pid).is_empty() && backends.iter().all(|pid| start_time(*pid).is_none())).await;
}

#[tokio::test]
async fn a_killed_server_loses_no_acknowledged_write() {
    let sandbox = Sandbox::start(SandboxConfig::default()).await.unwrap();
    let node = sandbox.primary();
    node.sql("postgres", "CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
    let backends = children(node.pid().unwrap());
    node.kill_postmaster().await.unwrap();
    assert_eq!(node.pid(), None);
    assert!(backends.iter().all(|pid| children(*pid).is_empty()));
    assert!(matches!(node.kill_postmaster().await, Err(SandboxError::NotRunning(_))));
    assert!(matches!(node.stop(StopMode::Fast).await, Err(SandboxError::NotRunning(_))));
    node.start().await.unwrap();
    assert!(matches!(node.start().await, Err(SandboxError::Running(_))));
    assert_eq!(node.sql("postgres", "SELECT a FROM t").await.unwrap(), "1\n");
    assert!(node.log().unwrap().contains("was not properly shut down"));
    node.restart().await.unwrap();
    assert_eq!(over_tcp(node, ""), Ok("in".to_owned()));
}

#[tokio::test]
async fn failover_and_the_return_of_the_old_primary() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.unwrap();
    let [old, new, other] = sandbox.nodes() else { panic!("three nodes") };
    old.sql("postgres", "CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
    sandbox.replicas_caught_up().await.unwrap();
    old.kill_postmaster().await.unwrap();
    new.promote().await.unwrap();
    assert_eq!(new.role(), Role::Primary);
    other.follow(new).await.unwrap();
    new.sql("postgres", "INSERT INTO t VALUES (2)").await.unwrap();
    old.rebuild(new).await.unwrap();
    assert_eq!(old.role(), Role::Replica);
    sandbox.caught_up_with(new).await.unwrap();
    assert!(new.wal_position().await.unwrap() >= other.wal_position().await.unwrap());
    for replica in [old, other] {
        assert_eq!(replica.sql("postgres", "SELECT count(*) FROM t").await.unwrap(), "2\n");
    }
}

#[tokio::test]
async fn a_paused_server_hangs_and_goes_on() {
    let sandbox = Sandbox::start(SandboxConfig::default()).await.unwrap();
    let node = sandbox.primary();
    node.pause().unwrap();
    let asked = timeout(Duration::from_millis(300), node.sql("postgres", "SELECT 1")).await;
    assert!(asked.is_err(), "a paused server answered: {asked:?}");
    node.resume().unwrap();
    assert_eq!(node.sql("postgres", "SELECT 1").await.unwrap(), "1\n");
    node.pause().unwrap();
    node.stop(StopMode::Fast).await.unwrap();
}

#[tokio::test]
async fn settings_of_one_node_change_while_it_runs() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(1)).await.unwrap();
    let replica = &sandbox.replicas()[0];
    replica.configure("max_standby_streaming_delay", "0").await.unwrap();
    replica.configure("log_line_prefix", "it's <%p> ").await.unwrap();
    assert_eq!(replica.sql("postgres", "SHOW max_standby_streaming_delay").await.unwrap(), "0\n");
    assert_eq!(replica.sql("postgres", "SHOW log_line_prefix").await.unwrap(), "it's <%p> \n");
    let primary = sandbox.primary();
    assert_eq!(primary.sql("postgres", "SHOW max_standby_streaming_delay").await.unwrap(), "30s\n");
}

#[tokio::test]
async fn passwords_are_asked_for_over_tcp() {
    let authentication = Authentication::Scram { password: "it's a secret".to_owned() };
    let config = SandboxConfig { authentication, ..SandboxConfig::with_replicas(1) };
    let sandbox = Sandbox::start(config).await.unwrap();
    for node in sandbox.nodes() {
        assert_eq!(over_tcp(node, "it's a secret"), Ok("in".to_owned()));
        let refused = over_tcp(node, "guess").unwrap_err();
        assert!(refused.contains("password authentication failed"), "{refused}");
    }
    assert_eq!(sandbox.primary().sql("postgres", "SELECT 1").await.unwrap(), "1\n");
    assert!(!sandbox.directory().join("password").exists());
}

#[tokio::test]
async fn a_kept_directory_starts_again_with_its_roles() {
    let scratch = Scratch::new("kept");
    let config = SandboxConfig {
        directory: Some(scratch.0.join("here")),
        keep: true,
        ..SandboxConfig::with_replicas(1)
    };
    let sandbox = Sandbox::start(config.clone()).await.unwrap();
    sandbox.primary().sql("postgres", "CREATE TABLE t AS SELECT 5 AS a").await.unwrap();
    sandbox.replicas_caught_up().await.unwrap();
    sandbox.primary().stop(StopMode::Fast).await.unwrap();
    sandbox.replicas()[0].promote().await.unwrap();
    sandbox.primary().rebuild(&sandbox.replicas()[0]).await.unwrap();
    sandbox.stop().await.unwrap();

    let again = Sandbox::start(config).await.unwrap();
    let roles: Vec<Role> = again.nodes().iter().map(Node::role).collect();
    assert_eq!(roles, [Role::Replica, Role::Primary]);
    assert_eq!(again.node("pg-1").unwrap().sql("postgres", "SELECT a FROM t").await.unwrap(), "5\n");
}

#[tokio::test]
async fn a_wrong_number_of_ports_is_refused() {
    let config = SandboxConfig { ports: Some(vec![1]), ..SandboxConfig::with_replicas(1) };
    assert!(matches!(Sandbox::start(config).await, Err(SandboxError::Configuration(_))));
}

#[tokio::test]
async fn a_taken_port_is_told_by_the_server_s_log() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = Some(vec![listener.local_addr().unwrap().port()]);
    let refused = Sandbox::start(SandboxConfig { ports, ..SandboxConfig::default() }).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("Address already in use"), "{text}");
}

const VICTIM: &str = "CAUSEWAY_SANDBOX_VICTIM";

/// Runs itself once more as a process that starts a sandbox and is then killed in a way that runs no destructor.
#[tokio::test]
async fn servers_end_when_their_owner_is_killed() {
    if let Some(directory) = std::env::var_os(VICTIM) {
        let config = SandboxConfig { directory: Some(directory.into()), ..SandboxConfig::with_replicas(1) };
        let _sandbox = Sandbox::start(config).await.unwrap();
        std::fs::write(std::env::var("CAUSEWAY_SANDBOX_READY").unwrap(), "").unwrap();
        sleep(Duration::from_mins(10)).await;
        return;
    }
    let scratch = Scratch::new("victim");
    let (directory, ready) = (scratch.0.join("sandbox"), scratch.0.join("ready"));
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers_end_when_their_owner_is_killed"])
        .env(VICTIM, &directory)
        .env("CAUSEWAY_SANDBOX_READY", &ready)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    gone(|| ready.exists()).await;
    let servers: Vec<u32> = ["pg-0", "pg-1"].iter().map(|node| postmaster(&directory.join(node))).collect();
    assert!(servers.iter().all(|pid| start_time(*pid).is_some()));
    signal(victim.id(), Signal::KILL).unwrap();
    victim.wait().unwrap();
    gone(|| servers.iter().all(|pid| children(*pid).is_empty())).await;
    gone(|| std::fs::read_dir(&directory).unwrap().next().is_none()).await;
}

fn postmaster(data: &Path) -> u32 {
    let file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    file.lines().next().unwrap().parse().unwrap()
}

//! Sockets from a service manager, and what it is told.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use causeway_sandbox::{Signal, signal};
use command_fds::{CommandFdExt as _, FdMapping};

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().unwrap();
    }
}

/// The next thing that the service manager is told.
fn heard(manager: &UnixDatagram) -> String {
    let mut word = [0; 64];
    let length = manager.recv(&mut word).unwrap();
    String::from_utf8(word[..length].to_vec()).unwrap()
}

#[test]
fn a_socket_of_the_service_manager_is_used_and_handed_on() {
    let directory = tempfile::tempdir().unwrap();
    let notify = directory.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let file = directory.path().join("causeway.yaml");
    // Nobody listens at the node: what is tested needs none.
    let yaml = format!(
        "listen: [\"{address}\"]\nhttp: \"127.0.0.1:0\"\nstate_dir: .\nclusters:\n  main:\n    nodes:\n      - {{ name: \
         pg-0, address: \"127.0.0.1:1\" }}\n    monitor: {{ user: postgres }}\n"
    );
    std::fs::write(&file, yaml).unwrap();
    // It waits in the queue from before the process is there.
    let early = TcpStream::connect(address).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command
        .arg("-c")
        .arg(&file)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", "causeway.socket")
        .env("NOTIFY_SOCKET", &notify)
        .stderr(Stdio::null())
        .fd_mappings(vec![FdMapping { parent_fd: OwnedFd::from(socket), child_fd: 3 }])
        .unwrap();
    let mut first = Process(command.spawn().unwrap());
    // Holds the socket, too, as the service manager would.
    drop(command);
    assert_eq!(heard(&manager), "READY=1");
    drop(early);
    signal(first.0.id(), Signal::USR2).unwrap();
    let pid = heard(&manager).strip_prefix("MAINPID=").unwrap().parse().unwrap();
    let deadline = SystemTime::now() + PATIENCE;
    while first.0.try_wait().unwrap().is_none() {
        assert!(SystemTime::now() < deadline, "without clients it ends at once");
        std::thread::yield_now();
    }
    assert!(first.0.wait().unwrap().success());
    let watchdog = causeway_sandbox::Watchdog::over_process(pid).unwrap();
    TcpStream::connect(address).unwrap();
    signal(pid, Signal::TERM).unwrap();
    assert_eq!(heard(&manager), "STOPPING=1");
    drop(watchdog);
}

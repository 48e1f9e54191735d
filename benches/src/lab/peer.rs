//! The proxies that are measured, as processes.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_sandbox::{Node, Signal, Watchdog, free_ports, signal};
use tokio::time::Instant;

use super::configuration::{self, Certificate};
use super::process::{Usage, tree};
use super::stage::Stage;
use super::{Failure, pause};

/// How long a proxy may take to start or to end; under valgrind that is many seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(20);

/// A proxy as it can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No proxy: the primary itself.
    Direct,
    /// Causeway, reads split over the replicas.
    Causeway,
    /// The same, with TLS towards its clients.
    CausewayTls,
    /// `PgBouncer`, transaction pooling.
    Pgbouncer,
    /// `PgBouncer`, session pooling: 1.18 has no prepared statements in transactions.
    PgbouncerSession,
    /// `PgBouncer`, transaction pooling, with TLS towards its clients.
    PgbouncerTls,
    /// `HAProxy` as a plain copy of TCP.
    Haproxy,
    /// `Pgpool-II`, reads split over the replicas, with 40 children.
    Pgpool,
    /// The same with 220 children, for 200 clients.
    PgpoolWide,
}

impl Kind {
    /// The program's name, and what Debian's package of it is called.
    pub fn program(self) -> &'static str {
        match self {
            Self::Direct => "postgres",
            Self::Causeway | Self::CausewayTls => "causeway",
            Self::Pgbouncer | Self::PgbouncerSession | Self::PgbouncerTls => "pgbouncer",
            Self::Haproxy => "haproxy",
            Self::Pgpool | Self::PgpoolWide => "pgpool",
        }
    }

    /// Whether clients come by TLS.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Self::CausewayTls | Self::PgbouncerTls)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Causeway => "causeway",
            Self::CausewayTls => "causeway-tls",
            Self::Pgbouncer => "pgbouncer",
            Self::PgbouncerSession => "pgbouncer-session",
            Self::PgbouncerTls => "pgbouncer-tls",
            Self::Haproxy => "haproxy",
            Self::Pgpool => "pgpool",
            Self::PgpoolWide => "pgpool-wide",
        })
    }
}

/// A server before which a proxy stands, on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub port: u16,
}

/// How a proxy is started.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The servers before which it stands, the primary first.
    pub servers: Vec<Server>,
    /// A directory of the servers' account, below which it gets one of its own.
    pub directory: &'a Path,
    /// The built Causeway.
    pub causeway: &'a Path,
    /// More top-level YAML for Causeway.
    pub extra: &'a str,
    /// A program with arguments that runs it, such as valgrind; empty for none.
    pub wrapper: Vec<String>,
}

impl<'a> Launch<'a> {
    /// Before the stage's servers, by itself.
    pub fn on(stage: &'a Stage, causeway: &'a Path) -> Self {
        let server = |node: &Node| Server { name: node.name().to_owned(), port: node.port() };
        let servers = stage.nodes().iter().map(server).collect();
        Self { servers, directory: stage.directory(), causeway, extra: "", wrapper: Vec::new() }
    }
}

/// A running proxy, or none. Dropping it ends the process.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    port: u16,
    second: u16,
    process: Option<Child>,
    directory: PathBuf,
    /// End the process even if this one is killed.
    _watchdog: Option<Watchdog>,
    guard: Option<Guard>,
}

/// Tells a process to end, by the signal that takes its children with it, when this one has ended in whatever way:
/// those of `Pgpool-II` outlive it when it is killed.
#[derive(Debug)]
struct Guard {
    shell: Child,
}

impl Peer {
    /// Starts it and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// When it is not installed, ends again (with what it wrote), or accepts nothing within a minute.
    pub fn start(kind: Kind, launch: &Launch<'_>) -> Result<Self, Failure> {
        let primary = launch.servers.first().ok_or("there are no servers")?;
        if kind == Kind::Direct {
            let directory = PathBuf::new();
            return Ok(Self {
                kind,
                port: primary.port,
                second: 0,
                process: None,
                directory,
                _watchdog: None,
                guard: None,
            });
        }
        let ports = free_ports(2)?;
        let [port, second] = ports[..] else { return Err("two free ports".into()) };
        let directory = launch.directory.join(format!("{kind}-{port}"));
        let account = account(launch.directory)?;
        fs::create_dir(&directory)?;
        chown(&directory, Some(account.0), Some(account.1))?;
        let mut command = command(kind, launch, (port, second), &directory)?;
        if !runs_as_this_account(kind) {
            command.uid(account.0).gid(account.1);
        }
        let log = fs::File::create(directory.join("log"))?;
        command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let process = command.spawn().map_err(|error| format!("running {}: {error}", kind.program()))?;
        let (watchdog, guard) = match kind.program() {
            "pgpool" => (None, Some(Guard::over(process.id())?)),
            _ => (Some(Watchdog::over_process(process.id())?), None),
        };
        let mut peer =
            Self { kind, port, second, process: Some(process), directory, _watchdog: watchdog, guard };
        peer.until_ready()?;
        Ok(peer)
    }

    fn until_ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("{} is not ready:\n{}", self.kind, self.log()).into());
            }
            pause(POLL);
        }
        Ok(())
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where its clients connect on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where Causeway serves its metrics.
    pub fn http_port(&self) -> u16 {
        self.second
    }

    /// Its first process; `None` for no proxy.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// All its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.pid().map(tree).unwrap_or_default()
    }

    /// What it has used up to now.
    pub fn usage(&self) -> Usage {
        self.pid().map(Usage::of_tree).unwrap_or_default()
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Ends it in order and waits for that.
    ///
    /// # Errors
    ///
    /// When it does not end within a minute.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.end(PATIENCE)
    }

    fn end(&mut self, patience: Duration) -> Result<(), Failure> {
        let Some(process) = self.process.as_mut() else { return Ok(()) };
        // Pgpool-II waits for its clients after SIGTERM; the others end at once.
        let how =
            if matches!(self.kind, Kind::Pgpool | Kind::PgpoolWide) { Signal::INT } else { Signal::TERM };
        let deadline = Instant::now() + patience;
        if process.try_wait()?.is_none() {
            signal(process.id(), how)?;
        }
        while process.try_wait()?.is_none() {
            if Instant::now() > deadline {
                process.kill()?;
                process.wait()?;
                return Err(format!("{} did not end", self.kind).into());
            }
            pause(POLL);
        }
        self.guard.take().map_or(Ok(()), |guard| Ok(guard.dismiss()?))
    }
}

impl Guard {
    fn over(pid: u32) -> io::Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", "read -r done || kill -s INT \"$1\"", "guard", &pid.to_string()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }

    /// The process has ended; its id may be another's soon.
    fn dismiss(mut self) -> io::Result<()> {
        if let Some(mut pipe) = self.shell.stdin.take() {
            pipe.write_all(b"done\n")?;
        }
        self.shell.wait().map(drop)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Err(error) = self.end(Duration::from_secs(5)) {
            eprintln!("ending {}: {error}", self.kind);
        }
    }
}

/// `PgBouncer` and `Pgpool-II` refuse root, so that the servers' account runs them. Causeway does not, and its program may
/// lie where only root reads.
fn runs_as_this_account(kind: Kind) -> bool {
    kind.program() == "causeway" || !rustix::process::geteuid().is_root()
}

/// Whether the program can be found.
pub fn is_installed(kind: Kind) -> bool {
    matches!(kind.program(), "postgres" | "causeway") || find(kind.program()).is_ok()
}

/// Debian has some programs where the search path of a plain user does not lead.
fn find(program: &str) -> Result<PathBuf, Failure> {
    let places = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
    let found = places.into_iter().map(|place| Path::new(place).join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{program} is not installed: see benches/install").into())
}

fn command(kind: Kind, launch: &Launch<'_>, ports: (u16, u16), directory: &Path) -> Result<Command, Failure> {
    let primary = launch.servers.first().ok_or("there are no servers")?;
    let certificate = kind.is_encrypted().then(|| certificate(kind, directory)).transpose()?;
    let (certificate, place) = (certificate.as_ref(), directory.display().to_string());
    let (file, text) = match kind {
        Kind::Direct => return Err("no proxy has no program".into()),
        Kind::Causeway | Kind::CausewayTls => {
            let extra = (launch.extra, !launch.wrapper.is_empty());
            ("causeway.yaml", configuration::causeway(&launch.servers, ports, certificate, extra))
        }
        Kind::Pgbouncer | Kind::PgbouncerTls => {
            ("pgbouncer.ini", configuration::pgbouncer(primary, ports.0, "transaction", certificate))
        }
        Kind::PgbouncerSession => {
            ("pgbouncer.ini", configuration::pgbouncer(primary, ports.0, "session", None))
        }
        Kind::Haproxy => ("haproxy.cfg", configuration::haproxy(primary, ports.0)),
        Kind::Pgpool => ("pgpool.conf", configuration::pgpool(&launch.servers, ports, &place, 40)),
        Kind::PgpoolWide => ("pgpool.conf", configuration::pgpool(&launch.servers, ports, &place, 220)),
    };
    let file = directory.join(file);
    fs::write(&file, text)?;
    let program = match kind.program() {
        "causeway" => launch.causeway.canonicalize().map_err(|error| missing(launch.causeway, &error))?,
        program => find(program)?,
    };
    let mut words = launch.wrapper.iter();
    let mut command = match words.next() {
        Some(wrapper) => Command::new(wrapper),
        None => Command::new(&program),
    };
    command.args(words);
    if !launch.wrapper.is_empty() {
        command.arg(&program);
    }
    match kind.program() {
        "causeway" => command.args(["run", "-c"]).arg(&file),
        "haproxy" => command.args(["-db", "-f"]).arg(&file),
        // -n: in the foreground. -D: forget which servers an earlier run took for dead.
        "pgpool" => command.args(["-n", "-D", "-f"]).arg(&file),
        _ => command.arg(&file),
    };
    Ok(command)
}

fn missing(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error} (cargo build --release -p causeway)", path.display()).into()
}

/// A fresh certificate of an ECDSA key on P-256, the key owned by the account that the proxy runs under.
fn certificate(kind: Kind, directory: &Path) -> Result<Certificate, Failure> {
    let path = |name: &str| directory.join(name).display().to_string();
    let made = Certificate { certificate: path("tls.crt"), key: path("tls.key") };
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", &made.key, "-out", &made.certificate])
        .output()?;
    if !output.status.success() {
        return Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    if !runs_as_this_account(kind) {
        let (user, group) = account(directory)?;
        chown(&made.key, Some(user), Some(group))?;
    }
    Ok(made)
}

/// Who owns the directory: user and group.
fn account(directory: &Path) -> io::Result<(u32, u32)> {
    let owner = fs::metadata(directory)?;
    Ok((owner.uid(), owner.gid()))
}

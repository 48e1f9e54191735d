//! A PostgreSQL server of our own, thrown away at the end.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_pool::{Address, Config};

pub(crate) struct Server {
    process: Child,
    directory: tempfile::TempDir,
    binaries: PathBuf,
    port: u16,
}

const HBA: &str = "
local all      all                  trust
host  all      trusty  127.0.0.1/32 trust
host  all      digest  127.0.0.1/32 md5
host  all      open    127.0.0.1/32 password
host  all      all     127.0.0.1/32 scram-sha-256
";

const ROLES: &str = "
CREATE ROLE trusty LOGIN;
CREATE ROLE app LOGIN PASSWORD 'correct horse';
CREATE ROLE open LOGIN PASSWORD 'correct horse';
CREATE ROLE expired LOGIN PASSWORD 'correct horse' VALID UNTIL 'yesterday';
CREATE ROLE nologin PASSWORD 'correct horse';
SET password_encryption = md5;
CREATE ROLE digest LOGIN PASSWORD 'correct horse';
";

// === impl Server ===

impl Server {
    pub(crate) fn start() -> Self {
        let binaries = binaries();
        let directory = tempfile::Builder::new().prefix("pool").tempdir_in("/tmp").unwrap();
        let data = directory.path().join("data");
        if let Some((user, group)) = account() {
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let mut initdb = as_postgres(&binaries.join("initdb"), directory.path());
        run(initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "-D"]).arg(&data));
        fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = as_postgres(&binaries.join("postgres"), directory.path())
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=20", "-k"])
            .arg(directory.path())
            .args(["-p", &port.to_string(), "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let server = Self { process, directory, binaries, port };
        server.await_start();
        server.psql(ROLES);
        server
    }

    pub(crate) fn tcp(&self, user: &str, password: Option<&str>) -> Config {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: self.port };
        Config { password: password.map(Into::into), ..Config::new(address, "postgres", user) }
    }

    pub(crate) fn unix(&self, user: &str) -> Config {
        Config::new(
            Address::Unix { directory: self.directory.path().into(), port: self.port },
            "postgres",
            user,
        )
    }

    /// Runs SQL as the superuser.
    pub(crate) fn psql(&self, sql: &str) {
        run(self.client("psql").args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", sql]));
    }

    fn client(&self, program: &str) -> Command {
        let mut command = as_postgres(&self.binaries.join(program), self.directory.path());
        command.arg("-h").arg(self.directory.path()).args(["-p", &self.port.to_string(), "-U", "postgres"]);
        command
    }

    fn await_start(&self) {
        for _ in 0..600 {
            let mut ready = self.client("pg_isready");
            if ready.stdout(Stdio::null()).status().unwrap().success() {
                return;
            }
            #[allow(clippy::disallowed_methods, reason = "no runtime is there to be stalled")]
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{}", fs::read_to_string(self.directory.path().join("log")).unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An immediate shutdown: nothing here is worth a checkpoint.
        run(Command::new("kill").args(["-QUIT", &self.process.id().to_string()]));
        self.process.wait().unwrap();
    }
}

fn binaries() -> PathBuf {
    let versions =
        fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed in /usr/lib/postgresql");
    let found = versions.map(|version| version.unwrap().path().join("bin"));
    found.filter(|bin| bin.join("initdb").exists()).max().expect("a version with its server")
}

/// Whom to become: PostgreSQL refuses to run as root.
fn account() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| -> u32 {
        let output = Command::new("id").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}

fn as_postgres(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    if let Some((user, group)) = account() {
        command.uid(user).gid(group);
    }
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

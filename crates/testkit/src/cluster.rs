//! One real cluster for all tests of a binary, and a database for each test.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;

use causeway_sandbox::{Node, Sandbox, SandboxConfig};
use tokio::sync::OnceCell;

/// The cluster that the tests of this binary share: starting one for each would take longer than the tests. A static
/// is never dropped; the sandbox's watchdog ends the servers when the process is gone.
static SHARED: OnceCell<Sandbox> = OnceCell::const_new();

/// A primary with two replicas that trust loopback clients, started by the first caller. Tests that stop servers or
/// change their settings start a sandbox of their own.
pub async fn shared_cluster() -> &'static Sandbox {
    let start = || async {
        let started = Sandbox::start(SandboxConfig::with_replicas(2)).await;
        started.unwrap_or_else(|error| panic!("starting the shared cluster: {error}"))
    };
    SHARED.get_or_init(start).await
}

/// Makes an empty database of a name of its own and waits until every replica has it.
pub async fn fresh_database(sandbox: &Sandbox) -> String {
    let name = format!("test_{:016x}", RandomState::new().hash_one(std::process::id()));
    // The other template may have sessions, which CREATE DATABASE does not bear.
    let sql = format!("CREATE DATABASE {name} TEMPLATE template0");
    let made = sandbox.primary().sql("postgres", &sql).await;
    made.unwrap_or_else(|error| panic!("making {name}: {error}"));
    caught_up(sandbox).await;
    name
}

/// Makes the objects of `tests/cases/setup.sql` in this database and waits until every replica has them.
pub async fn load_shop(sandbox: &Sandbox, database: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/setup.sql");
    let loaded = sandbox.primary().sql_file(database, &path).await;
    loaded.unwrap_or_else(|error| panic!("running {}: {error}", path.display()));
    caught_up(sandbox).await;
}

async fn caught_up(sandbox: &Sandbox) {
    let done = sandbox.replicas_caught_up().await;
    done.unwrap_or_else(|error| panic!("waiting for the replicas: {error}"));
}

/// The smallest configuration that serves this cluster: every database, every user, clients from loopback trusted.
/// `listen`, `http` and `state_dir` are added by [`Causeway::start`](crate::Causeway::start). If the servers ask for a
/// password, it is written to a file in the sandbox's directory for the monitor and the superuser.
pub fn yaml_for(sandbox: &Sandbox) -> String {
    let addresses: Vec<String> = sandbox.nodes().iter().map(Node::address).collect();
    yaml_through(sandbox, &addresses)
}

/// As [`yaml_for`], with other addresses for the nodes: those of relays in front of them.
pub fn yaml_through(sandbox: &Sandbox, addresses: &[String]) -> String {
    let names = sandbox.nodes().iter().map(Node::name);
    let nodes: Vec<String> = names
        .zip(addresses)
        .map(|(name, address)| format!("      - {{ name: {name}, address: \"{address}\" }}\n"))
        .collect();
    let nodes = nodes.concat();
    let user = sandbox.superuser();
    let (password, users) = match sandbox.password() {
        None => (String::new(), String::new()),
        Some(password) => {
            let file = password_file(sandbox.directory(), password);
            (
                format!("password_file: \"{file}\", "),
                format!("users:\n  {user}: {{ password_file: \"{file}\" }}\n"),
            )
        }
    };
    format!(
        "clusters:\n  main:\n    nodes:\n{nodes}    \
         monitor: {{ user: {user}, {password}database: postgres }}\n\
         auth:\n  rules:\n    - {{ address: \"127.0.0.0/8\", method: trust }}\n\
         databases:\n  \"*\": {{ cluster: main }}\n{users}"
    )
}

/// Raises this process's limit of open files to what it may be at most, and returns that: for tests with a thousand
/// clients, since shells and `runuser` set it to 1,024. Processes started later have it too.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("raising a limit to what is allowed");
    limit.maximum.unwrap_or(u64::MAX)
}

fn password_file(directory: &Path, password: &str) -> String {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = directory.join("client-password");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(password.as_bytes()));
    written.unwrap_or_else(|error| panic!("writing {}: {error}", path.display()));
    path.to_str().expect("a temporary path is UTF-8").to_owned()
}

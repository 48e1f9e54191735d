//! `causeway dev`: a throw-away primary with streaming replicas, and Causeway before them.

use std::io;
use std::path::PathBuf;

use causeway_sandbox::{Node, Sandbox, SandboxConfig};

use crate::cli::{complain, say};
use crate::exit::Exit;
use crate::serve::{self, Options};

/// What the command line says about `causeway dev`.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Where the servers' data live and stay; `None`: a temporary directory.
    pub directory: Option<PathBuf>,
    /// How many replicas.
    pub replicas: usize,
    /// The port for clients.
    pub port: u16,
    /// The port for metrics and health.
    pub http_port: u16,
}

/// Serves until a signal ends it, then takes the servers down.
pub fn run(options: &Options, wishes: &Wishes) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return unavailable(&error),
    };
    let nodes = wishes.replicas + 1;
    say(format_args!("Starting PostgreSQL: a primary and {} streaming replicas ...\n", wishes.replicas));
    let started = runtime.block_on(async {
        let config = SandboxConfig {
            directory: wishes.directory.clone(),
            replicas: wishes.replicas,
            keep: wishes.directory.is_some(),
            ..SandboxConfig::default()
        };
        tokio::select! {
            started = Sandbox::start(config) => Some(started),
            // What has been started goes down with the future.
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    let sandbox = match started {
        Some(Ok(sandbox)) => sandbox,
        Some(Err(error)) => return unavailable(&error),
        None => return Exit::Done,
    };
    let exit = match write_config(&sandbox, wishes) {
        Ok(file) => {
            introduce(&sandbox, wishes, nodes);
            serve::run(&Options { file, successor: None, ..options.clone() })
        }
        Err(error) => unavailable(&error),
    };
    if let Err(error) = runtime.block_on(sandbox.stop()) {
        complain(&error);
    }
    exit
}

fn unavailable(error: &dyn std::fmt::Display) -> Exit {
    complain(error);
    Exit::Unavailable
}

fn write_config(sandbox: &Sandbox, wishes: &Wishes) -> io::Result<PathBuf> {
    // A kept directory may hold servers made anew, whose lineage is another one.
    match std::fs::remove_file(sandbox.directory().join("main.epoch")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = sandbox.directory().join("causeway.yaml");
    std::fs::write(&file, yaml(sandbox, wishes))?;
    Ok(file)
}

fn yaml(sandbox: &Sandbox, wishes: &Wishes) -> String {
    let Wishes { port, http_port, .. } = wishes;
    let user = sandbox.superuser();
    let node =
        |node: &Node| format!("      - {{ name: {}, address: \"{}\" }}\n", node.name(), node.address());
    let nodes = sandbox.nodes().iter().map(node).collect::<Vec<_>>().concat();
    format!(
        "# Written by `causeway dev`, anew at each start.\n\
         listen: [\"127.0.0.1:{port}\"]\n\
         http: \"127.0.0.1:{http_port}\"\n\
         state_dir: .\n\
         clusters:\n  main:\n    nodes:\n{nodes}    monitor: {{ user: {user} }}\n\
         auth: {{ rules: [{{ address: \"127.0.0.0/8\", method: trust }}] }}\n\
         databases: {{ \"*\": {{ cluster: main }} }}\n\
         admin: {{ users: [{user}] }}\n"
    )
}

fn introduce(sandbox: &Sandbox, wishes: &Wishes, nodes: usize) {
    let Wishes { port, http_port, .. } = wishes;
    let user = sandbox.superuser();
    let line = |node: &Node| format!("  {}  {}\n", node.name(), node.address());
    let list: Vec<String> = sandbox.nodes().iter().map(line).collect();
    let list = list.concat();
    say(format_args!(
        "{nodes} servers run in {}:\n{list}\nConnect   psql -h 127.0.0.1 -p {port} -U {user} postgres\n\
         Console   psql -h 127.0.0.1 -p {port} -U {user} causeway -c 'SHOW NODES'\n\
         Status    http://127.0.0.1:{http_port}/   (metrics: /metrics)\n\
         Ctrl-C takes all of it down.\n\n",
        sandbox.directory().display()
    ));
}

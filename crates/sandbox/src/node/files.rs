//! The files of a node: its data directory and its configuration.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{Node, PATIENCE};
use crate::error::on_file;
use crate::{Authentication, SandboxError, command};

impl Node {
    /// Makes the data directory of a new cluster.
    pub(crate) async fn initialise(&self) -> Result<(), SandboxError> {
        let config = &self.common.config;
        let mut command = self.common.account.command(&self.common.binaries.program("initdb"));
        command.current_dir(&self.common.place.root).arg("-D").arg(&self.data);
        command.args(["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8", "-U"]);
        command.arg(&config.superuser);
        let password_file = self.common.place.root.join("password");
        match &config.authentication {
            Authentication::Trust => command.arg("--auth=trust"),
            Authentication::Scram { password } => {
                self.write_private(&password_file, password)?;
                command.arg("--auth=scram-sha-256").arg("--pwfile").arg(&password_file)
            }
        };
        let made = command::run("initdb", command, PATIENCE).await;
        if password_file.exists() {
            on_file("removing", &password_file, fs::remove_file(&password_file))?;
        }
        made.map(drop)
    }

    /// Makes the data directory a copy of a running node's, as a replica of it.
    pub(crate) async fn copy_from(&self, source: &Node) -> Result<(), SandboxError> {
        let mut command = self.common.account.command(&self.common.binaries.program("pg_basebackup"));
        command.current_dir(&self.common.place.root).arg("-D").arg(&self.data);
        command.args(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "-U"]);
        command.arg(&self.common.config.superuser).arg("-h").arg(&self.common.place.sockets);
        command.args(["-p", &source.port.to_string()]);
        command::run("pg_basebackup", command, PATIENCE).await?;
        self.write_private(&self.data.join("standby.signal"), "")?;
        self.state().source = Some(source.port);
        Ok(())
    }

    pub(super) fn write_configuration(&self) -> Result<(), SandboxError> {
        let (own, source) = {
            let state = self.state();
            (state.settings.clone(), state.source)
        };
        let sockets = self.common.place.sockets.to_string_lossy().into_owned();
        let conninfo = source.map(|port| {
            format!(
                "host='{sockets}' port={port} user='{}' application_name={}",
                self.common.config.superuser, self.name
            )
        });
        let port = self.port.to_string();
        let fixed = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &sockets),
            ("primary_conninfo", conninfo.as_deref().unwrap_or_default()),
        ];
        let wished = self.common.config.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut text = String::new();
        // The last line of a name counts.
        for (name, value) in DEFAULTS.iter().copied().chain(wished).chain(own).chain(fixed) {
            text += &[name, " = '", &value.replace('\'', "''"), "'\n"].concat();
        }
        self.write_private(&self.data.join("postgresql.conf"), &text)?;
        let method = match self.common.config.authentication {
            Authentication::Trust => "trust",
            Authentication::Scram { .. } => "scram-sha-256",
        };
        let rules = format!(
            "local all all trust\nlocal replication all trust\n\
             host all all 127.0.0.1/32 {method}\nhost replication all 127.0.0.1/32 {method}\n"
        );
        self.write_private(&self.data.join("pg_hba.conf"), &rules)
    }

    fn write_private(&self, path: &Path, text: &str) -> Result<(), SandboxError> {
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())
        };
        on_file("writing", path, write())?;
        self.common.account.own(path)
    }
}

/// Fast rather than durable, and ready for replicas and tests. `fsync` off still survives the death of the server's
/// processes, since the kernel has what they wrote; `synchronous_commit` stays on, as it decides what an
/// acknowledgement means.
const DEFAULTS: [(&str, &str); 18] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "64MB"),
    ("max_connections", "200"),
    ("wal_level", "logical"),
    ("wal_log_hints", "on"),
    ("max_wal_senders", "10"),
    // No replica falls off, however long it is paused.
    ("wal_keep_size", "1GB"),
    ("hot_standby", "on"),
    ("wal_receiver_status_interval", "1s"),
    ("wal_retrieve_retry_interval", "200ms"),
    ("max_prepared_transactions", "10"),
    ("autovacuum_naptime", "1min"),
    ("log_line_prefix", "%m [%p] %a %u@%d "),
    ("log_timezone", "UTC"),
    ("timezone", "UTC"),
    ("jit", "off"),
];

//! What a sandbox shall be like.

use std::path::PathBuf;

/// How the servers authenticate TCP clients. The Unix socket, which only the servers' account and root can reach,
/// always trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Everyone who reaches the loopback address is let in.
    Trust,
    /// SCRAM-SHA-256; the superuser has this password.
    Scram {
        /// The superuser's password.
        password: String,
    },
}

/// What a sandbox shall be like; the default is a trusting primary alone in a fresh temporary directory.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Where data, logs and sockets live; `None` makes a temporary directory. A cluster that is there already, kept
    /// by an earlier sandbox, is started again.
    pub directory: Option<PathBuf>,
    /// How many streaming replicas beside the primary.
    pub replicas: usize,
    /// One port for each node, the primary first; `None` takes free ones.
    pub ports: Option<Vec<u16>>,
    /// Server settings for `postgresql.conf` of every node, stronger than the sandbox's own.
    pub settings: Vec<(String, String)>,
    /// The name of the superuser.
    pub superuser: String,
    /// How TCP clients are authenticated.
    pub authentication: Authentication,
    /// Whether the data stay when the sandbox ends. Meaningful with `directory`; a temporary one is always deleted.
    pub keep: bool,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            directory: None,
            replicas: 0,
            ports: None,
            settings: Vec::new(),
            superuser: "postgres".to_owned(),
            authentication: Authentication::Trust,
            keep: false,
        }
    }
}

impl SandboxConfig {
    /// The default with so many replicas.
    pub fn with_replicas(replicas: usize) -> Self {
        Self { replicas, ..Self::default() }
    }

    /// Adds a server setting for every node.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

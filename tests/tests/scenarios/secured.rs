//! A server that asks for TLS and for proofs of every kind, for the tests that prove themselves to it.

use std::fmt::Write as _;
use std::path::PathBuf;

use causeway_testkit::sandbox::{Authentication, Sandbox, SandboxConfig};
use causeway_testkit::tls::Authority;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The superuser's password.
pub(crate) const PASSWORD: &str = "correct horse";

/// Whoever comes without TLS is refused, but for `lax` and `plain`; `plain` is refused with it.
const RULES: &str = "\
local all all trust
hostssl all by_cert 127.0.0.1/32 cert
hostssl all plain 127.0.0.1/32 reject
hostssl all in_clear 127.0.0.1/32 password
hostssl all in_md5 127.0.0.1/32 md5
hostssl all all 127.0.0.1/32 scram-sha-256
hostnossl all lax,plain 127.0.0.1/32 scram-sha-256
hostnossl all in_clear_plain 127.0.0.1/32 password";

/// A primary alone with TLS, and the files that go with it.
pub(crate) struct Secured {
    pub(crate) sandbox: Sandbox,
    pub(crate) authority: Authority,
    directory: TempDir,
}

impl Secured {
    /// The one that all tests share.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Secured> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let authentication = Authentication::Scram { password: PASSWORD.to_owned() };
        let config = SandboxConfig { authentication, ..SandboxConfig::default() };
        let sandbox = Sandbox::start(config).await.expect("a server");
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new();
        authority.write_files(directory.path());
        let other = directory.path().join("other");
        std::fs::create_dir(&other).expect("a directory");
        Authority::new().write_files(&other);
        let started = Self { sandbox, authority, directory };
        let (certificate, key) = started.authority.issue_for(&["localhost"]);
        started.put("server.pem", &certificate).await;
        started.put("server.key", &key).await;
        started.put("root.pem", &started.authority.pem()).await;
        started.put("pg_hba.conf", RULES).await;
        for setting in ["ssl = on", "ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'"] {
            started.sql(&format!("ALTER SYSTEM SET {setting}")).await;
        }
        started.sql("ALTER SYSTEM SET ssl_ca_file = 'root.pem'").await;
        for role in ["lax", "plain", "in_clear", "in_clear_plain", "by_cert", "scram"] {
            started.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'of {role}'")).await;
        }
        started.sql("SET password_encryption = md5; CREATE ROLE in_md5 LOGIN PASSWORD 'of in_md5'").await;
        started.sql("GRANT pg_monitor TO lax, scram").await;
        started.sql("SELECT pg_reload_conf()").await;
        started
    }

    /// Runs SQL as the superuser, on the socket.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        self.sandbox.primary().sql("postgres", sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Writes a file into the server's directory, for its own account and nobody else.
    async fn put(&self, name: &str, text: &str) {
        let write = format!("umask 077; rm -f {name}; cat > {name}");
        let text = text.replace('\'', "''");
        self.sql(&format!("COPY (SELECT unnest(string_to_array('{text}', E'\\n'))) TO PROGRAM '{write}'"))
            .await;
    }

    /// A file of the authority's: `ca.pem`, `server.pem`, `server.key`; under `other/` those of one that nobody trusts.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The YAML for this server, with `node` in its only node's map, and these users with their passwords. Clients from
    /// loopback are trusted.
    pub(crate) fn yaml(&self, node: &str, monitor: &str, users: &[&str]) -> String {
        let port = self.sandbox.primary().port();
        let mut yaml = format!(
            "clusters:\n  main:\n    nodes:\n      - {{ name: pg-0, address: \"localhost:{port}\"{node} }}\n    \
             monitor: {{ user: {monitor}, password: \"{}\", database: postgres }}\n    primary_wait: 200ms\n\
             auth:\n  rules:\n    - {{ address: \"127.0.0.0/8\", method: trust }}\n\
             databases:\n  \"*\": {{ cluster: main }}\nusers:\n",
            self.password(monitor)
        );
        for user in users {
            writeln!(yaml, "  {user}: {{ password: \"{}\" }}", self.password(user))
                .expect("a String takes it");
        }
        yaml
    }

    fn password(&self, user: &str) -> String {
        if user == self.sandbox.superuser() { PASSWORD.to_owned() } else { format!("of {user}") }
    }
}

//! TLS towards clients: on the wire, and by libpq.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use causeway_testkit::relay::{Direction, FaultRelay, Faults};
use causeway_testkit::sandbox::Binaries;
use causeway_testkit::tls::{Authority, Tls};
use causeway_testkit::wire::request::{
    cancel_packet, copy_data, copy_done, gss_request, query, ssl_request, startup_packet,
};
use causeway_testkit::wire::{Client, Message, cancel, summary};
use causeway_testkit::{Causeway, Signal, raise_open_files, shared_cluster, yaml_for};
use causeway_tests::{Place, code, count, rows, shop_database, start, tags, through, value};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

const KIBIBYTE: u64 = 1024;
const HANDSHAKES: &str = "causeway_tls_handshakes_total";

/// An authority, and the files of a server that it vouches for.
pub(crate) struct Files {
    pub(crate) authority: Authority,
    directory: TempDir,
    /// The section of the YAML that names them.
    pub(crate) yaml: String,
}

impl Files {
    pub(crate) fn new() -> Self {
        let (authority, directory) = (Authority::new(), tempfile::tempdir().expect("a directory"));
        let yaml = authority.write_files(directory.path());
        Self { authority, directory, yaml }
    }

    fn required(&self) -> String {
        format!("{}  mode: require\n", self.yaml)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

async fn logged_in(mut client: Client, database: &str) -> Client {
    let greeting = client.startup(&[("user", "postgres"), ("database", database)]).await;
    assert_eq!(greeting.last().map(|message| message.tag), Some(b'Z'), "{greeting:?}");
    client
}

async fn tls_client(place: &Place, tls: &Tls) -> Client {
    logged_in(Client::connect(place.port()).await.tls(tls).await, place.database()).await
}

/// psql with these words in its connection string; it runs `command`.
pub(crate) async fn psql(port: u16, database: &str, words: &str, command: &str) -> Output {
    let program = Binaries::find().expect("PostgreSQL is installed").program("psql");
    let target = format!("hostaddr=127.0.0.1 port={port} user=postgres dbname={database} {words}");
    let mut psql = Command::new(program);
    psql.args(["-XAt", "-c", command, &target]).env_remove("PGOPTIONS").env_remove("PGSSLMODE");
    // Certificates that the person who runs the tests has are not what is tested.
    psql.env("HOME", "/nonexistent").env("PGCONNECT_TIMEOUT", "20");
    psql.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let running = psql.spawn().expect("psql starts").wait_with_output();
    timeout(Duration::from_mins(1), running).await.expect("psql ends").expect("it can be waited for")
}

pub(crate) async fn psql_succeeds(port: u16, database: &str, words: &str, command: &str) -> String {
    let output = psql(port, database, words, command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

pub(crate) async fn psql_fails(port: u16, database: &str, words: &str) -> String {
    let output = psql(port, database, words, "SELECT 1").await;
    assert!(!output.status.success(), "{words}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn handshakes(causeway: &Causeway) -> [u64; 3] {
    let mut counted = [0; 3];
    for (result, counter) in ["full", "resumed", "failed"].into_iter().zip(&mut counted) {
        *counter = count(causeway, HANDSHAKES, &[("result", result)]).await;
    }
    counted
}

fn bodies(messages: &[Message]) -> Vec<(u8, &[u8])> {
    messages.iter().map(|message| (message.tag, &*message.body)).collect()
}

#[tokio::test]
async fn who_asks_for_tls_has_it() {
    let files = Files::new();
    through(&format!("{}admin: {{ users: [postgres] }}\n", files.yaml), async |place: &Place| {
        let mut plain = place.client().await;
        let mut new = tls_client(place, &files.authority.client()).await;
        let mut old = tls_client(place, &files.authority.old_client()).await;
        for client in [&mut plain, &mut new, &mut old] {
            assert_eq!(client.one("SELECT 'in'").await, "in");
            let answer = client.execute("SELECT $1::text", &[Some("a")]).await;
            assert_eq!(summary(&answer), "1 2 T D C Z(I)");
            assert_eq!(code(&client.query("SELECT 1/0").await), "22012");
        }
        assert_eq!(handshakes(place.causeway()).await, [2, 0, 0]);

        // The console, by TLS too.
        let console = Client::connect(place.port()).await.tls(&files.authority.client()).await;
        let mut console = logged_in(console, "pgbouncer").await;
        let clients = console.query("SHOW CLIENTS").await;
        let names = clients[0].names();
        let column = names.iter().position(|name| name == "tls").expect("a column tls");
        let mut shown: Vec<_> = rows(&clients).into_iter().filter_map(|row| row[column].clone()).collect();
        shown.sort();
        assert_eq!(shown.len(), 4, "{shown:?}");
        assert_eq!(shown[0], "");
        assert!(shown[1].starts_with("TLSv1.2/TLS_ECDHE_ECDSA_WITH_AES_"), "{shown:?}");
        assert!(shown[2..].iter().all(|tls| tls.starts_with("TLSv1.3/TLS_AES_")), "{shown:?}");
        assert!(shown[1..].iter().all(|tls| tls.contains("/ECDH=")), "{shown:?}");
        // Each is told by TLS that this is the end.
        for client in [console, new, old, plain] {
            client.terminate().await;
        }
    })
    .await;
}

#[tokio::test]
async fn libpq() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let (port, database) = (place.port(), place.database());
        let ca = format!("sslrootcert={}", files.path("ca.pem").display());
        for words in [
            "sslmode=require".to_owned(),
            "sslmode=prefer".to_owned(),
            format!("sslmode=verify-ca {ca}"),
            format!("host=localhost sslmode=verify-full {ca}"),
            format!("host=127.0.0.1 sslmode=verify-full {ca}"),
            format!("sslmode=require {ca} ssl_max_protocol_version=TLSv1.2"),
        ] {
            let said = psql_succeeds(port, database, &words, "\\conninfo").await;
            assert!(said.contains("SSL connection (protocol: TLSv1."), "{words}: {said}");
        }
        for words in ["sslmode=disable", "sslmode=allow"] {
            let said = psql_succeeds(port, database, words, "\\conninfo").await;
            assert!(!said.contains("SSL connection"), "{words}: {said}");
        }
        assert_eq!(psql_succeeds(port, database, "sslmode=require", "SELECT 7").await, "7");
        let words = format!("host=example.org sslmode=verify-full {ca}");
        assert!(psql_fails(port, database, &words).await.contains("does not match host name"));
        let other = tempfile::tempdir().expect("a directory");
        Authority::new().write_files(other.path());
        let words = format!("sslmode=verify-ca sslrootcert={}", other.path().join("ca.pem").display());
        assert!(psql_fails(port, database, &words).await.contains("certificate verify failed"));
        // The first found the name wrong when the handshake was over.
        let [full, resumed, failed] = handshakes(place.causeway()).await;
        assert_eq!((full + resumed, failed), (8, 1));
    })
    .await;
    through("", async |place: &Place| {
        let (port, database) = (place.port(), place.database());
        let said = psql_succeeds(port, database, "sslmode=prefer", "\\conninfo").await;
        assert!(!said.contains("SSL connection"), "{said}");
        let refused = psql_fails(port, database, "sslmode=require").await;
        assert!(refused.contains("server does not support SSL, but SSL was required"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn mode_require() {
    let files = Files::new();
    let sandbox = shared_cluster().await;
    let database = shop_database(sandbox).await;
    let sockets = tempfile::tempdir().expect("a directory");
    let port = causeway_testkit::sandbox::free_ports(1).expect("a free port")[0];
    let listen = format!("listen: [\"127.0.0.1:{port}\", \"unix:{}\"]\n", sockets.path().display());
    let yaml = format!("{}{listen}", files.required())
        .replace("mode: require\n", "mode: require\nadmin: { users: [postgres] }\n");
    let trust_unix =
        yaml_for(sandbox).replace("  rules:\n", "  rules:\n    - { address: unix, method: trust }\n");
    let causeway = causeway_tests::start_yaml(sandbox, &(trust_unix + &yaml), 3).await;

    for database in [&*database, "pgbouncer"] {
        let mut client = Client::connect(port).await;
        let refused = client.startup(&[("user", "postgres"), ("database", database)]).await;
        assert_eq!(summary(&refused), "E(28000)");
        let message = refused[0].field(b'M').expect("a message");
        let words = format!("host \"127.0.0.1\", user \"postgres\", database \"{database}\", no encryption");
        assert!(message.ends_with(&words), "{message}");
        client.expect_eof().await;
    }
    let refused = psql_fails(port, &database, "sslmode=disable").await;
    assert!(refused.contains("no encryption") && refused.contains("HINT:  tls.mode"), "{refused}");
    for words in ["sslmode=allow", "sslmode=prefer", "sslmode=require"] {
        let said = psql_succeeds(port, &database, words, "\\conninfo").await;
        assert!(said.contains("SSL connection"), "{words}: {said}");
    }

    // A Unix socket shows nothing to others: no TLS is to be had there, nor wanted.
    let socket = format!("hostaddr='' host={} sslmode=prefer", sockets.path().display());
    assert_eq!(psql_succeeds(port, &database, &socket, "SELECT 8").await, "8");
    let path = sockets.path().join(format!(".s.PGSQL.{port}"));
    assert_eq!(first_byte_by_unix(&path, &ssl_request()).await, Some(b'N'));
    assert_eq!(first_byte_by_unix(&path, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]).await, None);

    // Clients older than PostgreSQL 17 ask for a cancel without TLS.
    let client = Client::connect(port).await.tls(&files.authority.client()).await;
    let mut client = logged_in(client, &database).await;
    client.query("BEGIN").await;
    client.send(&[query("SELECT pg_sleep(30)")]).await;
    sleep(Duration::from_millis(200)).await;
    assert!(cancel(port, &client.key()).await.is_empty());
    let answer = client.until_ready().await;
    assert_eq!(code(&answer), "57014");
    client.terminate().await;
    causeway.stop().await;
}

/// What comes first in answer to `bytes`, if anything does.
async fn first_byte_by_unix(path: &Path, bytes: &[u8]) -> Option<u8> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::UnixStream::connect(path).await.expect("a Unix socket");
    stream.write_all(bytes).await.expect("writing");
    let mut answer = [0];
    let read = timeout(Duration::from_secs(10), stream.read(&mut answer)).await.expect("an answer or an end");
    (read.expect("reading") > 0).then_some(answer[0])
}

#[tokio::test]
async fn tls_at_once() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let tls = files.authority.client();
        let named = tls.alpn(&["postgresql"]);
        let connect = || Client::connect(place.port());
        let mut client = logged_in(connect().await.direct_tls(&named).await, place.database()).await;
        assert_eq!(client.one("SELECT 'in'").await, "in");
        client.terminate().await;
        // One protocol among others, and in answer to an SSLRequest too.
        let several = tls.alpn(&["http/1.1", "postgresql"]);
        for client in [connect().await.direct_tls(&several).await, connect().await.tls(&named).await] {
            logged_in(client, place.database()).await.terminate().await;
        }
        // An HTTP client that was led here must not be answered.
        let mut client = connect().await.direct_tls(&tls).await;
        client.send_bytes(&startup_packet(0x0003_0000, &[("user", "postgres")])).await;
        client.expect_eof().await;
        let other = tls.alpn(&["http/1.1"]);
        let refused = connect().await.try_direct_tls(&other).await.expect_err("no common protocol");
        assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
        let [full, resumed, failed] = handshakes(place.causeway()).await;
        assert_eq!((full + resumed, failed), (3, 2));
        for more in [ssl_request(), gss_request()] {
            let mut client = connect().await.direct_tls(&named).await;
            client.send_bytes(&more).await;
            assert_eq!(code(&client.until_eof().await), "0A000");
        }
    })
    .await;
    // Without a certificate it is just not the protocol.
    through("", async |place: &Place| {
        let named = files.authority.client().alpn(&["postgresql"]);
        assert!(Client::connect(place.port()).await.try_direct_tls(&named).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn requests_for_encryption() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let tls = files.authority.client();
        let mut client = Client::connect(place.port()).await;
        client.send_bytes(&gss_request()).await;
        assert_eq!(client.recv_byte().await, b'N');
        let client = logged_in(client.tls(&tls).await, place.database()).await;
        client.terminate().await;
        // Inside there is nothing more to ask for.
        for more in [ssl_request(), gss_request()] {
            let mut client = Client::connect(place.port()).await.tls(&tls).await;
            client.send_bytes(&more).await;
            let refused = client.until_eof().await;
            assert_eq!((summary(&refused).as_str(), refused[0].field(b'V')), ("E(0A000)", Some("FATAL")));
        }
        // What comes behind the request without waiting for its answer may be another's.
        let startup = startup_packet(0x0003_0000, &[("user", "postgres"), ("database", place.database())]);
        let hello = [0x16, 3, 1, 0, 4, 1, 0, 0, 0].to_vec();
        for behind in [startup, hello, vec![0], ssl_request()] {
            let mut client = Client::connect(place.port()).await;
            client.send_bytes(&[ssl_request(), behind].concat()).await;
            let refused = client.until_eof().await;
            assert_eq!(summary(&refused), "E(08P01)");
            assert_eq!(refused[0].field(b'M'), Some("received unencrypted data after SSL request"));
        }
        // Not TLS at all, after it was promised.
        let mut client = Client::connect(place.port()).await;
        client.send_bytes(&ssl_request()).await;
        assert_eq!(client.recv_byte().await, b'S');
        client.send_bytes(&startup_packet(0x0003_0000, &[("user", "postgres")])).await;
        let failed = || async { handshakes(place.causeway()).await[2] };
        let deadline = Instant::now() + Duration::from_secs(10);
        while failed().await == 0 {
            assert!(Instant::now() < deadline, "the handshake did not fail");
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn large_results_are_those_of_the_server() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let mut direct = Client::login(place.sandbox().primary().port(), "postgres", place.database()).await;
        for tls in [files.authority.client(), files.authority.old_client()] {
            let mut client = tls_client(place, &tls).await;
            for sql in [
                "SELECT i, i::text FROM generate_series(1, 100000) i",
                "SELECT i, repeat(chr(65 + i % 26), 1000) FROM generate_series(1, 10000) i",
                "SELECT repeat(chr(65 + i % 26), 8000 + i) FROM generate_series(1, 500) i",
                "SELECT repeat('y', 3000000), 1 UNION ALL SELECT repeat('z', 70000), 2",
                "COPY (SELECT i, repeat('c', i % 300) FROM generate_series(1, 50000) i) TO STDOUT",
                "SELECT 1; SELECT repeat('a', 16384); SELECT repeat('b', 65536); SELECT 1/0",
            ] {
                let (through, at_once) = (client.query(sql).await, direct.query(sql).await);
                assert!(bodies(&through) == bodies(&at_once), "{sql}: {} messages", through.len());
            }
            client.terminate().await;
        }
        direct.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn copy_in() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        place.admin_everywhere("CREATE TABLE loads (id int, filler text)").await;
        for tls in [files.authority.client(), files.authority.old_client()] {
            let mut client = tls_client(place, &tls).await;
            client.query("TRUNCATE loads").await;
            client.send(&[query("COPY loads FROM STDIN")]).await;
            client.until(b'G').await;
            for part in 0..200 {
                let lines = (0..100).map(|i| {
                    let id = part * 100 + i;
                    copy_data(format!("{id}\t{}\n", "f".repeat(id % 2000)).as_bytes())
                });
                client.send(&lines.collect::<Vec<_>>()).await;
            }
            assert_eq!(tags(&client.run(&[copy_done()]).await), ["COPY 20000"]);
            let sums = "SELECT (count(*), sum(id), sum(length(filler)), bool_and(length(filler) = id % 2000)) FROM loads";
            assert_eq!(value(&client.query(sums).await), "(20000,199990000,19990000,t)");
            // A single message of many records.
            let wide = format!("SELECT length('{}')", "w".repeat(5_000_000));
            assert_eq!(client.one(&wide).await, "5000000");
            client.terminate().await;
        }
    })
    .await;
}

#[tokio::test]
async fn records_in_pieces() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let relay = FaultRelay::start(&format!("127.0.0.1:{}", place.port())).await;
        for chunk in [1, 3, 700] {
            let pieces = Faults { chunk: Some(chunk), ..Faults::default() };
            relay.faults(Direction::ToServer, pieces);
            relay.faults(Direction::ToClient, pieces);
            for tls in [files.authority.client(), files.authority.old_client()] {
                let client = Client::connect(relay.port()).await.tls(&tls).await;
                let mut client = logged_in(client, place.database()).await;
                let answer = client.query("SELECT i, 'x' FROM generate_series(1, 200) i").await;
                assert_eq!(summary(&answer), "T D*200 C Z(I)");
                let long = "q".repeat(2_000);
                assert_eq!(client.one(&format!("SELECT '{long}'")).await, long);
                client.terminate().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_read() {
    let files = Files::new();
    through(&format!("{}pool: {{ size: 2 }}\n", files.yaml), async |place: &Place| {
        let tls = files.authority.client();
        let mut other = tls_client(place, &tls).await;
        other.one("SELECT 1").await;
        let before = place.causeway().rss_bytes();
        let slow = Client::connect_slow(place.port(), 65536).await.tls(&tls).await;
        let mut slow = logged_in(slow, place.database()).await;
        slow.send(&[query("SELECT i, repeat('x', 1000) FROM generate_series(1, 100000) i")]).await;
        for _ in 0..50 {
            assert_eq!(other.one("SELECT 1").await, "1");
            sleep(Duration::from_millis(10)).await;
        }
        let grown = place.causeway().rss_bytes().saturating_sub(before);
        assert!(grown < 8 * 1024 * KIBIBYTE, "memory grew by {grown} bytes for a client that does not read");
        // Once it reads, everything is there.
        let answer = slow.until_ready().await;
        assert_eq!(summary(&answer), "T D*100000 C Z(I)");
        let last = rows(&answer[answer.len() - 3..answer.len() - 2]);
        assert_eq!(last[0][0].as_deref(), Some("100000"));
        slow.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn cancels_by_tls() {
    let files = Files::new();
    through(&files.yaml, async |place: &Place| {
        let tls = files.authority.client();
        let mut client = tls_client(place, &tls).await;
        client.query("BEGIN").await;
        for direct in [false, true] {
            client.query("SAVEPOINT s").await;
            client.send(&[query("SELECT pg_sleep(30)")]).await;
            sleep(Duration::from_millis(200)).await;
            let other = Client::connect(place.port()).await;
            let other = if direct {
                other.direct_tls(&tls.alpn(&["postgresql"])).await
            } else {
                other.tls(&tls).await
            };
            assert!(other.cancel(&client.key()).await.is_empty());
            assert_eq!(code(&client.until_ready().await), "57014");
            client.query("ROLLBACK TO s").await;
        }
        // Behind a request for TLS that is not waited for, it cancels nothing.
        client.send(&[query("SELECT pg_sleep(0.5)")]).await;
        sleep(Duration::from_millis(100)).await;
        let mut other = Client::connect(place.port()).await;
        other.send_bytes(&[ssl_request(), cancel_packet(&client.key())].concat()).await;
        assert_eq!(code(&other.until_eof().await), "08P01");
        assert_eq!(summary(&client.until_ready().await), "T D C Z(T)");
    })
    .await;
}

#[tokio::test]
async fn reload() {
    let files = Files::new();
    let sandbox = shared_cluster().await;
    let database = shop_database(sandbox).await;
    let causeway = start(sandbox, &files.yaml).await;
    let yaml = yaml_for(sandbox);
    let connect = async |tls: &Tls| {
        let client = Client::connect(causeway.port()).await.tls(tls).await;
        logged_in(client, &database).await
    };
    let tls = files.authority.client();
    let mut first = connect(&tls).await;
    first.query("BEGIN").await;

    // What a client remembers is good until the certificate changes.
    connect(&tls).await.terminate().await;
    causeway.reload(&(yaml.clone() + &files.yaml)).await;
    connect(&tls).await.terminate().await;
    assert_eq!(handshakes(&causeway).await, [1, 2, 0]);

    let other = Authority::new();
    other.write_files(files.directory.path());
    causeway.reload(&(yaml.clone() + &files.yaml)).await;
    let mut second = connect(&other.client()).await;
    assert_eq!(second.one("SELECT 2").await, "2");
    assert_eq!(first.one("SELECT 1").await, "1");
    // A new certificate is a new start, for those who trust its authority.
    assert_eq!(handshakes(&causeway).await, [2, 2, 0]);
    let asked = Client::connect(causeway.port()).await;
    let unknown = files.authority.client();
    assert!(timeout(Duration::from_secs(20), try_tls(asked, &unknown)).await.expect("an end").is_err());

    // A bad one is refused, and the former goes on.
    causeway.allow_log("the configuration was not reloaded");
    let (_, stranger) = Authority::new().issue();
    for (name, text, mode, problem) in [
        ("server.key", stranger.as_str(), 0o600, "does not belong to the first certificate"),
        ("server.key", "", 0o600, "there is no private key in it"),
        ("server.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", 0o600, "is encrypted"),
        ("server.key", stranger.as_str(), 0o644, "has mode 0644"),
        ("server.pem", "no certificate", 0o600, "there is no certificate in it"),
    ] {
        use std::os::unix::fs::PermissionsExt as _;
        other.write_files(files.directory.path());
        let path = files.path(name);
        std::fs::write(&path, text).expect("writing a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("setting its mode");
        causeway.reload(&(yaml.clone() + &files.yaml)).await;
        causeway.wait_for_log(problem).await;
        let mut third = connect(&other.client()).await;
        assert_eq!(third.one("SELECT 3").await, "3");
        third.terminate().await;
    }
    assert_eq!(count(&causeway, "causeway_config_reloads_total", &[("result", "failure")]).await, 5);

    // Without the section there is no TLS for those that come now.
    causeway.reload(&yaml).await;
    let mut plain = Client::connect(causeway.port()).await;
    plain.send_bytes(&ssl_request()).await;
    assert_eq!(plain.recv_byte().await, b'N');
    assert_eq!((first.one("SELECT 1").await, second.one("SELECT 2").await), ("1".to_owned(), "2".to_owned()));

    // Those that are left are told, and TLS itself ends too.
    first.query("COMMIT").await;
    causeway.signal(Signal::TERM);
    for mut client in [first, second] {
        assert_eq!(code(&client.until_eof().await), "57P01");
    }
    drop(plain);
    assert!(causeway.wait_exit().await.success());
}

async fn try_tls(mut client: Client, tls: &Tls) -> std::io::Result<Client> {
    client.send_bytes(&ssl_request()).await;
    assert_eq!(client.recv_byte().await, b'S');
    client.try_direct_tls(tls).await
}

#[tokio::test]
async fn one_deadline_for_all_of_a_login() {
    let files = Files::new();
    through(&format!("{}timeouts: {{ login_timeout: 1s }}\n", files.yaml), async |place: &Place| {
        // In the middle of the handshake, and behind it.
        let mut stuck = Client::connect(place.port()).await;
        stuck.send_bytes(&ssl_request()).await;
        assert_eq!(stuck.recv_byte().await, b'S');
        stuck.send_bytes(&[0x16, 3, 1, 2]).await;
        let mut silent = Client::connect(place.port()).await.tls(&files.authority.client()).await;
        let began = Instant::now();
        assert!(stuck.until_eof().await.is_empty(), "nothing that is not TLS");
        assert_eq!(code(&silent.until_eof().await), "57014");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(handshakes(place.causeway()).await, [1, 0, 1]);
    })
    .await;
}

#[tokio::test]
async fn idle_clients_are_small() {
    const CLIENTS: u64 = 400;
    let files = Files::new();
    raise_open_files();
    through(&files.yaml, async |place: &Place| {
        let tls = files.authority.client();
        // Whatever is kept for all of them is there before they are counted.
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(tls_client(place, &tls).await);
        }
        let before = place.causeway().rss_bytes();
        for _ in 0..CLIENTS {
            let mut client = tls_client(place, &tls).await;
            // A client that has never asked for anything may be smaller than one that has.
            client.query("SELECT repeat('x', 20000)").await;
            clients.push(client);
        }
        let each = place.causeway().rss_bytes().saturating_sub(before) / CLIENTS;
        assert!(each < 24 * KIBIBYTE, "{each} bytes for each client");
    })
    .await;
}

#[tokio::test]
async fn a_start_with_a_bad_certificate_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let files = Files::new();
    let yaml = yaml_for(shared_cluster().await) + &files.yaml;
    let key = files.path("server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640 | 0o004)).expect("setting a mode");
    let refusal = Causeway::try_start(&yaml).await.expect_err("others can read the key");
    assert_eq!(refusal.status.code(), Some(78), "{refusal}");
    assert!(refusal.log.contains("tls.key_file: ") && refusal.log.contains("has mode 0644"), "{refusal}");
    std::fs::remove_file(&key).expect("removing the key");
    let refusal = Causeway::try_start(&yaml).await.expect_err("there is no key");
    assert!(refusal.log.contains("No such file or directory"), "{refusal}");
}

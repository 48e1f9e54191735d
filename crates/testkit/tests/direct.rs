//! The scripted client, straight at PostgreSQL: what it sees here is what it must see through Causeway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking; the lint exempts test functions alone")]

use std::time::Duration;

use causeway_testkit::wire::{self, Client, request, summary};
use causeway_testkit::{Authentication, Sandbox, SandboxConfig, fresh_database, load_shop, shared_cluster};
use tokio::time::{Instant, sleep};

async fn client() -> Client {
    let sandbox = shared_cluster().await;
    Client::login(sandbox.primary().port(), "postgres", "postgres").await
}

#[tokio::test]
async fn the_greeting_is_taken_apart() {
    let sandbox = shared_cluster().await;
    let parameters = [("user", "postgres"), ("database", "postgres"), ("application_name", "kit")];
    let (client, greeting) = Client::login_with(sandbox.primary().port(), &parameters).await;
    assert_eq!(client.parameter("application_name"), Some("kit"));
    assert_eq!(client.parameter("in_hot_standby"), Some("off"));
    assert!(client.key().pid > 0 && client.key().secret.len() == 4);
    assert_eq!(client.status(), Some('I'));
    let line = summary(&greeting);
    assert!(line.starts_with("R S(") && line.ends_with(" K Z(I)"), "{line}");
    client.terminate().await;
}

#[tokio::test]
async fn simple_queries_errors_and_empty_ones() {
    let mut client = client().await;
    assert_eq!(summary(&client.query("SELECT 1").await), "T D C Z(I)");
    assert_eq!(summary(&client.query("SELECT 1; SELECT 1/0; SELECT 3").await), "T D C E(22012) Z(I)");
    assert_eq!(summary(&client.query("").await), "I Z(I)");
    assert_eq!(summary(&client.query("SET TimeZone = 'Asia/Tokyo'").await), "C S(TimeZone) Z(I)");
    assert_eq!(client.parameter("TimeZone"), Some("Asia/Tokyo"));
    assert_eq!(summary(&client.query("BEGIN").await), "C Z(T)");
    assert_eq!(summary(&client.query("BEGIN").await), "N(25001) C Z(T)");
    assert_eq!(summary(&client.query("nonsense").await), "E(42601) Z(E)");
    assert_eq!(summary(&client.query("ROLLBACK").await), "C Z(I)");
    assert_eq!(client.one("SELECT NULL").await, "null");
    let rows = client.rows("VALUES (1, 'a'), (2, NULL)").await;
    assert_eq!(rows, [[Some("1".to_owned()), Some("a".to_owned())], [Some("2".to_owned()), None]]);
    assert_eq!(summary(&client.query("SELECT generate_series(1, 200)").await), "T D*200 C Z(I)");
}

#[tokio::test]
async fn extended_queries_pipelines_and_portals() {
    let mut client = client().await;
    assert_eq!(summary(&client.execute("SELECT $1::int + 1", &[Some("41")]).await), "1 2 T D C Z(I)");
    let segment = [
        request::parse("s1", "SELECT 1/$1::int"),
        request::describe_statement("s1"),
        request::bind("", "s1", &[Some("1")]),
        request::execute("", 0),
        request::bind("", "s1", &[Some("0")]),
        request::execute("", 0),
        request::bind("", "s1", &[Some("1")]),
        request::execute("", 0),
        request::sync(),
    ];
    assert_eq!(summary(&client.run(&segment).await), "1 t T 2 D C E(22012) Z(I)");
    let again = [request::close_statement("s1"), request::bind("", "s1", &[None]), request::sync()];
    assert_eq!(summary(&client.run(&again).await), "3 E(26000) Z(I)");

    client.query("BEGIN").await;
    let portal = [
        request::parse("", "SELECT generate_series(1, 5)"),
        request::bind("p", "", &[]),
        request::execute("p", 2),
        request::execute("p", 2),
        request::execute("p", 2),
        request::close_portal("p"),
        request::sync(),
    ];
    assert_eq!(summary(&client.run(&portal).await), "1 2 D D s D D s D C 3 Z(T)");

    client.send(&[request::parse("f", "SELECT 3"), request::describe_statement("f"), request::flush()]).await;
    assert_eq!(summary(&client.until(b'T').await), "1 t T");
    client.expect_silence(Duration::from_millis(100)).await;
    assert_eq!(summary(&client.run(&[request::sync()]).await), "Z(T)");
}

#[tokio::test]
async fn binary_values_and_functions_by_oid() {
    let mut client = client().await;
    let messages = client
        .run(&[
            request::parse_typed("", "SELECT $1 + 1", &[23]),
            request::bind_formats("", "", &[1], &[Some(&[0, 0, 0, 41])], &[1]),
            request::execute("", 0),
            request::sync(),
        ])
        .await;
    assert_eq!(messages[2].values(), [Some(vec![0, 0, 0, 42])]);
    // 1397 is abs(integer).
    assert_eq!(summary(&client.run(&[request::function_call(1397, &[Some("-4")])]).await), "V Z(I)");
}

#[tokio::test]
async fn copy_in_both_directions() {
    let database = fresh_database(shared_cluster().await).await;
    let mut client = Client::login(shared_cluster().await.primary().port(), "postgres", &database).await;
    client.query("CREATE TABLE t (a int PRIMARY KEY)").await;
    client.send(&[request::query("COPY t FROM STDIN")]).await;
    assert_eq!(summary(&client.until(b'G').await), "G");
    let done =
        client.run(&[request::copy_data(b"1\n2\n"), request::copy_data(b"3\n"), request::copy_done()]).await;
    assert_eq!(format!("{done:?}"), "[C(COPY 3), Z(I)]");
    let failed = client.run(&[request::query("COPY t FROM STDIN"), request::copy_fail("gave up")]).await;
    assert_eq!(summary(&failed), "G E(57014) Z(I)");
    assert_eq!(summary(&client.query("COPY t TO STDOUT").await), "H d d d c C Z(I)");
}

#[tokio::test]
async fn a_cancel_stops_the_query_and_answers_nothing() {
    let port = shared_cluster().await.primary().port();
    let mut client = client().await;
    client.send(&[request::query("SELECT pg_sleep(30)")]).await;
    sleep(Duration::from_millis(100)).await;
    let mut wrong = client.key();
    wrong.secret[0] ^= 1;
    assert_eq!(wire::cancel(port, &wrong).await, b"");
    client.expect_silence(Duration::from_millis(100)).await;
    assert_eq!(wire::cancel(port, &client.key()).await, b"");
    assert_eq!(summary(&client.until_ready().await), "T E(57014) Z(I)");
}

#[tokio::test]
async fn bytes_in_any_pieces() {
    let mut client = client().await;
    let bytes = Client::encode(&[request::query("SELECT 1"), request::query("SELECT 2")]);
    client.send_split(&bytes, &[1, 4, 3]).await;
    assert_eq!(summary(&client.until_ready().await), "T D C Z(I)");
    assert_eq!(summary(&client.until_ready().await), "T D C Z(I)");
}

#[tokio::test]
async fn the_first_packets_of_a_connection() {
    let port = shared_cluster().await.primary().port();
    let mut client = Client::connect(port).await;
    client.send_bytes(&request::ssl_request()).await;
    assert_eq!(client.recv_byte().await, b'N');
    let greeting = client.startup(&[("user", "postgres"), ("no_such_setting", "1")]).await;
    assert_eq!(greeting.last().unwrap().code(), "42704");
    client.expect_eof().await;

    let mut kerberos = Client::connect(port).await;
    kerberos.send_bytes(&request::gss_request()).await;
    assert!(matches!(kerberos.recv_byte().await, b'G' | b'N'));

    let mut newer = Client::connect(port).await;
    let greeting = newer.startup_version(0x0003_0002, &[("user", "postgres"), ("_pq_.x", "1")]).await;
    assert_eq!(format!("{:?}", greeting[0]), "v(0x30000)");
    assert_eq!(newer.status(), Some('I'));
}

#[tokio::test]
async fn ends_of_all_kinds() {
    let mut watcher = client().await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ends'";
    let port = shared_cluster().await.primary().port();
    let parameters = [("user", "postgres"), ("database", "postgres"), ("application_name", "ends")];
    let (mut half, _) = Client::login_with(port, &parameters).await;
    let (killed, _) = Client::login_with(port, &parameters).await;
    let (reset, _) = Client::login_with(port, &parameters).await;
    assert_eq!(watcher.one(count).await, "3");
    half.finish_writing().await;
    half.expect_eof().await;
    reset.reset();
    let mut killed = killed;
    watcher.one(&format!("SELECT pg_terminate_backend({})", killed.key().pid)).await;
    assert_eq!(summary(&killed.until_eof().await), "E(57P01)");
    let started = Instant::now();
    while watcher.one(count).await != "0" {
        assert!(started.elapsed() < Duration::from_secs(10), "a backend outlived its client");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_slow_reader_holds_the_server_up() {
    let port = shared_cluster().await.primary().port();
    let mut slow = Client::connect_slow(port, 4096).await;
    slow.startup(&[("user", "postgres"), ("application_name", "slow")]).await;
    slow.send(&[request::query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)")]).await;
    slow.skip_bytes(64 << 10).await;
    let mut watcher = client().await;
    let state = "SELECT wait_event FROM pg_stat_activity WHERE application_name = 'slow'";
    let started = Instant::now();
    while watcher.one(state).await != "ClientWrite" {
        assert!(started.elapsed() < Duration::from_secs(10), "the server is not held up");
        sleep(Duration::from_millis(10)).await;
    }
    slow.reset();
}

#[tokio::test]
async fn notifications_arrive() {
    let mut client = client().await;
    client.query("LISTEN ev").await;
    let messages = client.query("NOTIFY ev, 'one'").await;
    assert_eq!(summary(&messages), "C A(ev) Z(I)");
    assert_eq!(messages[1].notification(), (client.key().pid, "ev".to_owned(), "one".to_owned()));
}

#[tokio::test]
async fn passwords_by_scram() {
    let authentication = Authentication::Scram { password: "pä$$".to_owned() };
    let config = SandboxConfig { authentication, ..SandboxConfig::default() };
    let sandbox = Sandbox::start(config).await.unwrap();
    let mut good = Client::connect(sandbox.primary().port()).await.password("pä$$");
    let greeting = good.startup(&[("user", "postgres")]).await;
    assert!(summary(&greeting).starts_with("R R R R S("), "{greeting:?}");
    assert_eq!(good.one("SELECT 1").await, "1");
    let mut bad = Client::connect(sandbox.primary().port()).await.password("guess");
    let refused = bad.startup(&[("user", "postgres")]).await;
    assert_eq!(summary(&refused), "R R E(28P01)");
    bad.expect_eof().await;

    let yaml = causeway_testkit::yaml_for(&sandbox);
    let file = yaml.split("password_file: \"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "pä$$");
}

#[tokio::test]
async fn the_shop_is_on_every_node() {
    let sandbox = shared_cluster().await;
    let database = fresh_database(sandbox).await;
    load_shop(sandbox, &database).await;
    for node in sandbox.nodes() {
        let mut client = Client::login(node.port(), "postgres", &database).await;
        assert_eq!(client.one("SELECT count(*) FROM shop.item").await, "4");
    }
    let other = fresh_database(sandbox).await;
    assert_ne!(database, other);
    let mut client = Client::login(sandbox.primary().port(), "postgres", &other).await;
    assert_eq!(summary(&client.query("SELECT * FROM shop.item").await), "E(42P01) Z(I)");
}

#[tokio::test]
async fn a_thousand_clients_have_descriptors() {
    assert!(
        causeway_testkit::raise_open_files() >= 4096,
        "tests need more open files than this machine allows"
    );
}

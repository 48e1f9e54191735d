//! The relay in front of a real server, and the fake server before the scripted client.

use std::time::Duration;

use causeway_testkit::fake::{Server, Step};
use causeway_testkit::relay::{Direction, FaultRelay, Faults};
use causeway_testkit::wire::{self, Client, reply, request, summary};
use causeway_testkit::{Sandbox, SandboxConfig, shared_cluster};
use tokio::time::{Instant, sleep};

async fn relay() -> FaultRelay {
    FaultRelay::start(&shared_cluster().await.primary().address()).await
}

async fn login(relay: &FaultRelay) -> Client {
    Client::login(relay.port(), "postgres", "postgres").await
}

#[tokio::test]
async fn bytes_pass_whole_or_one_by_one() {
    let relay = relay().await;
    let mut client = login(&relay).await;
    let sql = "SELECT repeat('x', 3000) FROM generate_series(1, 100)";
    let whole = client.query(sql).await;
    relay.byte_wise();
    assert_eq!(client.query("SELECT 1").await.len(), 4);
    relay.faults(Direction::ToClient, Faults { chunk: Some(7), ..Faults::default() });
    assert_eq!(client.query(sql).await, whole);
    assert!(relay.bytes(Direction::ToClient) > 600_000);
    assert_eq!((relay.accepted(), relay.open()), (1, 1));
}

#[tokio::test]
async fn a_delay_is_felt_in_both_directions() {
    let relay = relay().await;
    let mut client = login(&relay).await;
    relay.delay(Duration::from_millis(60));
    let started = Instant::now();
    client.query("SELECT 1").await;
    assert!(started.elapsed() >= Duration::from_millis(120), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_black_hole_gives_everything_back_when_healed() {
    let relay = relay().await;
    let mut client = login(&relay).await;
    relay.black_hole();
    client.send(&[request::query("SELECT 1")]).await;
    client.expect_silence(Duration::from_millis(150)).await;
    let mut newcomer = Client::connect(relay.port()).await;
    newcomer.send_bytes(&request::ssl_request()).await;
    newcomer.expect_silence(Duration::from_millis(100)).await;
    relay.heal();
    assert_eq!(summary(&client.until_ready().await), "T D C Z(I)");
    assert_eq!(newcomer.recv_byte().await, b'N');
}

#[tokio::test]
async fn connections_end_as_they_are_told() {
    let relay = relay().await;
    let (mut closed, mut half, mut cut) = (login(&relay).await, login(&relay).await, login(&relay).await);
    relay.half_close(Direction::ToClient);
    for client in [&mut closed, &mut half, &mut cut] {
        client.expect_eof().await;
    }
    let mut later = login(&relay).await;
    assert_eq!(summary(&later.query("SELECT 1").await), "T D C Z(I)");
    relay.close_all();
    later.expect_eof().await;
    let mut reset = login(&relay).await;
    reset.send(&[request::query("SELECT pg_sleep(30)")]).await;
    relay.reset_all();
    reset.expect_eof().await;
    let mut last = login(&relay).await;
    relay.faults(
        Direction::ToClient,
        Faults { cut_after: Some(relay.bytes(Direction::ToClient) + 3), ..Faults::default() },
    );
    last.send(&[request::query("SELECT repeat('x', 1000000)")]).await;
    let mut after = Client::connect(relay.port()).await;
    drop(last);
    relay.heal();
    after.startup(&[("user", "postgres")]).await;
    assert_eq!(after.status(), Some('I'));
}

#[tokio::test]
async fn refusals_and_changing_targets() {
    let sandbox = shared_cluster().await;
    let mut relay = relay().await;
    let address = relay.address().parse().unwrap();
    let mut old = login(&relay).await;
    relay.refuse().await;
    let refused = Client::try_connect(address).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(summary(&old.query("SELECT 1").await), "T D C Z(I)");
    relay.accept_again().await;
    relay.set_target(&sandbox.replicas()[0].address());
    assert_eq!(login(&relay).await.one("SELECT pg_is_in_recovery()").await, "t");
    relay.alternate(&[&sandbox.primary().address(), &sandbox.replicas()[1].address()]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(login(&relay).await.one("SELECT pg_is_in_recovery()").await);
    }
    seen.sort();
    assert_eq!(seen, ["f", "f", "t", "t"]);
}

#[tokio::test]
async fn a_dead_server_is_a_reset() {
    let sandbox = Sandbox::start(SandboxConfig::default()).await.unwrap();
    let relay = FaultRelay::start(&sandbox.primary().address()).await;
    let mut client = login(&relay).await;
    sandbox.primary().kill_postmaster().await.unwrap();
    client.expect_eof().await;
    let mut late = Client::connect(relay.port()).await;
    late.expect_eof().await;
}

#[tokio::test]
async fn a_script_is_followed() {
    let answer =
        [reply::row_description(&["a"]), reply::data_row(&[Some("7")]), reply::command_complete("SELECT 1")];
    let server = Server::builder()
        .parameter("server_version", "13.1")
        .script(vec![
            Step::expect(&["Q(SELECT 7)"]),
            Step::send(&answer),
            Step::Delay(Duration::from_millis(20)),
            Step::send(&[reply::ready(b'I')]),
            Step::expect(&["P", "B", "E", "S"]),
            Step::send(&[reply::parse_complete(), reply::error("42601", "no"), reply::ready(b'I')]),
        ])
        .start()
        .await;
    let mut client = Client::connect(server.port()).await;
    client.send_bytes(&request::ssl_request()).await;
    assert_eq!(client.recv_byte().await, b'N');
    client.startup(&[("user", "u"), ("database", "d")]).await;
    assert_eq!(client.parameter("server_version"), Some("13.1"));
    assert_eq!(summary(&client.query("SELECT 7").await), "T D C Z(I)");
    let requests =
        [request::parse("", "x"), request::bind("", "", &[]), request::execute("", 0), request::sync()];
    assert_eq!(summary(&client.run(&requests).await), "1 E(42601) Z(I)");
    assert_eq!(wire::cancel(server.port(), &client.key()).await, b"");
    assert_eq!(server.cancels(), [(1000, vec![0, 0, 0, 0])]);
    assert_eq!(server.logins()[0]["database"], "d");
    client.terminate().await;
    assert_eq!(server.requests(), ["Q(SELECT 7)", "P(: x)", "B( <- )", "E( 0)", "S", "X"]);
    server.finish().await;
}

#[tokio::test]
#[should_panic(expected = "Q(SELECT 1) was expected, Q(SELECT 2) came")]
async fn a_departure_from_the_script_fails_the_test() {
    let server = Server::start(vec![Step::expect(&["Q(SELECT 1)"])]).await;
    let mut client = Client::login(server.port(), "u", "d").await;
    client.send(&[request::query("SELECT 2")]).await;
    client.expect_eof().await;
    server.finish().await;
}

#[tokio::test]
#[should_panic(expected = "there are 1 scripts only")]
async fn a_connection_too_many_fails_the_test() {
    let server = Server::scripts(vec![vec![Step::Close]]).await;
    Client::login(server.port(), "u", "d").await.expect_eof().await;
    Client::login(server.port(), "u", "d").await.expect_eof().await;
    server.finish().await;
}

#[tokio::test]
async fn answers_made_up_on_the_way_and_a_reset() {
    let server = Server::respond(|request| match request.tag {
        b'Q' => [reply::empty_query(), reply::ready(b'I')].concat(),
        _ => Vec::new(),
    })
    .await;
    let mut client = Client::login(server.port(), "u", "d").await;
    for _ in 0..3 {
        assert_eq!(summary(&client.query("x").await), "I Z(I)");
    }
    drop(client);
    server.finish().await;

    let server = Server::scripts(vec![vec![Step::expect(&["Q"]), Step::Reset]]).await;
    let mut client = Client::login(server.port(), "u", "d").await;
    client.send(&[request::query("x")]).await;
    client.expect_eof().await;
    sleep(Duration::from_millis(1)).await;
    server.finish().await;
}

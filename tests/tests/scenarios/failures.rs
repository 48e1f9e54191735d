//! S-SF: servers that fail.

use std::time::Duration;

use causeway_testkit::wire::request::query;
use causeway_testkit::wire::{Client, Message, summary};
use causeway_testkit::{Causeway, Sandbox, SandboxConfig, Signal, StopMode};
use causeway_tests::{ONE_CONNECTION, Place, code, count, everywhere, start, start_with, tags, through};
use tokio::time::{Instant, sleep};

/// Servers of this test's own, which it may break.
async fn own_cluster(replicas: usize) -> Sandbox {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(replicas)).await.expect("the servers start");
    let tables = "CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one')";
    sandbox.primary().sql("postgres", tables).await.expect("the table is made");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    sandbox
}

async fn ends(sandbox: Sandbox, causeway: Causeway) {
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn s_sf_01_idle_server_connections_are_closed_by_the_administrator() {
    through("pool: { size: 3 }\n", async |place: &Place| {
        let mut clients = [place.client().await, place.client().await, place.client().await];
        for round in 0..5 {
            for client in &mut clients {
                client.query("BEGIN; SELECT count(*) FROM shop.item").await;
            }
            for client in &mut clients {
                assert_eq!(tags(&client.query("COMMIT").await), ["COMMIT"]);
            }
            assert!(place.terminate_on_primary().await >= 3, "three idle connections in round {round}");
            if round % 2 == 0 {
                // The pool hears of it in time; in the other rounds it may not have.
                sleep(Duration::from_millis(100)).await;
            }
            for _ in 0..10 {
                assert_eq!(clients[0].one("SELECT 1 + 1").await, "2");
                assert_eq!(clients[1].one("SELECT count(*) FROM shop.item").await, "4");
            }
            if round % 2 == 0 {
                let write = clients[0].query("UPDATE shop.item SET qty = qty WHERE id = 1").await;
                assert_eq!(summary(&write), "C Z(I)");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn s_sf_02_fatal_in_the_middle_of_a_statement() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.send(&[query("UPDATE shop.item SET qty = qty FROM pg_sleep(30) WHERE id = 1")]).await;
        let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UPDATE%pg_sleep%' \
                       AND state = 'active' AND datname = current_database()";
        place.admin_until(running, "1").await;
        place.terminate_on_primary().await;
        let answer = a.until_eof().await;
        assert_eq!(summary(&answer), "E(57P01)");
        assert_eq!(answer[0].field(b'V'), Some("FATAL"));
        let text = "terminating connection due to administrator command";
        assert_eq!(answer[0].field(b'M'), Some(text));
    })
    .await;
}

#[tokio::test]
async fn s_sf_02_a_crash_of_the_server() {
    let sandbox = own_cluster(0).await;
    let causeway = start(&sandbox, "").await;
    for part in ["unreachable", "lost", "refused", "connect", "primary", "closed", "recovery", "down"] {
        causeway.allow_log(part);
    }
    for port in [sandbox.primary().port(), causeway.port()] {
        let mut a = Client::login(port, "postgres", "postgres").await;
        let mut idle = Client::login(port, "postgres", "postgres").await;
        idle.query("BEGIN; UPDATE t SET note = 'lost' WHERE id = 1").await;
        a.send(&[query("INSERT INTO t SELECT 2, 'two' FROM pg_sleep(30)")]).await;
        sleep(Duration::from_millis(300)).await;
        let victim = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'BEGIN; UPDATE%'";
        let pid = sandbox.primary().sql("postgres", victim).await.expect("the transaction is there");
        let pid = pid.trim().parse().expect("a process id");
        causeway_testkit::sandbox::signal(pid, Signal::KILL).expect("the server process can be killed");
        let answer = a.until_eof().await;
        // PostgreSQL says it in a notice and closes; a pooler may add an error of its own.
        assert_eq!(answer.first().map(Message::code), Some("57P02"), "{answer:?}");
        assert!(answer.len() <= 2 && answer.iter().all(|message| b"NE".contains(&message.tag)), "{answer:?}");
        // The transaction is lost: the session must not quietly go on outside of it.
        idle.send(&[query("UPDATE t SET note = 'half' WHERE id = 1; COMMIT")]).await;
        let answer = idle.until_eof().await;
        assert!(!answer.iter().any(|message| message.tag == b'C'), "{answer:?}");
        let deadline = Instant::now() + Duration::from_secs(15);
        while sandbox.primary().sql("postgres", "SELECT 1").await.is_err() {
            assert!(Instant::now() < deadline, "the server recovers");
            sleep(Duration::from_millis(100)).await;
        }
    }
    let mut b = Client::login(causeway.port(), "postgres", "postgres").await;
    assert_eq!(b.one("SELECT note FROM t WHERE id = 1").await, "one");
    ends(sandbox, causeway).await;
}

#[tokio::test]
async fn s_sf_03_idle_in_transaction_session_timeout() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.query("SET idle_in_transaction_session_timeout = '200ms'").await;
        a.query("BEGIN").await;
        a.query("INSERT INTO shop.audit(note) VALUES ('half')").await;
        sleep(Duration::from_millis(600)).await;
        a.try_send_bytes(&Client::encode(&[
            query("INSERT INTO shop.audit(note) VALUES ('half')"),
            query("COMMIT"),
        ]))
        .await
        .ok();
        let answer = a.until_eof().await;
        assert_eq!(summary(&answer), "E(25P03)");
        let mut b = place.client().await;
        assert_eq!(b.one("SELECT count(*) FROM shop.audit WHERE note = 'half'").await, "0");
        assert_eq!(b.one("SHOW idle_in_transaction_session_timeout").await, "0");
    })
    .await;
}

/// Reads without a pause until told to stop, connecting again when cut; returns how many reads, and the errors.
async fn read_until(port: u16, stop: tokio::sync::watch::Receiver<bool>) -> (usize, Vec<String>) {
    let source = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (mut reads, mut errors) = (0, Vec::new());
    while !*stop.borrow() {
        let (client, connection) =
            tokio_postgres::connect(&source, tokio_postgres::NoTls).await.expect("Causeway takes clients");
        let connection = tokio::spawn(connection);
        while !*stop.borrow() && !client.is_closed() {
            match client.simple_query("SELECT note FROM t WHERE id = 1").await {
                Ok(_) => reads += 1,
                Err(error) => errors.push(format!("{error:?}")),
            }
            sleep(Duration::from_millis(1)).await;
        }
        drop(client);
        connection.await.expect("the connection's task ends").ok();
    }
    (reads, errors)
}

async fn replica_queries(causeway: &Causeway, node: &str) -> u64 {
    count(causeway, "causeway_queries_total", &[("backend", node), ("role", "replica")]).await
}

#[tokio::test]
async fn s_sf_04_a_replica_restarts() {
    let sandbox = own_cluster(2).await;
    let replica = sandbox.node("pg-1").expect("the first replica");
    // Causeway itself starts while the replica is down.
    replica.stop(StopMode::Fast).await.expect("the replica stops");
    let causeway = start_with(&sandbox, "pool: { size: 4 }\n", 2).await;
    for part in ["unreachable", "lost", "refused", "connect", "node", "replica", "down", "57P0"] {
        causeway.allow_log(part);
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let readers: Vec<_> =
        (0..4).map(|_| tokio::spawn(read_until(causeway.port(), stopped.clone()))).collect();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(replica_queries(&causeway, "pg-1").await, 0, "nothing is sent to a node that is down");
    assert!(replica_queries(&causeway, "pg-2").await > 0);

    replica.start().await.expect("the replica starts");
    let deadline = Instant::now() + Duration::from_secs(15);
    while replica_queries(&causeway, "pg-1").await < 10 {
        assert!(Instant::now() < deadline, "the replica is used again");
        sleep(Duration::from_millis(50)).await;
    }
    replica.stop(StopMode::Fast).await.expect("the replica stops");
    sleep(Duration::from_secs(1)).await;
    replica.start().await.expect("the replica starts again");
    sleep(Duration::from_secs(1)).await;
    stop.send(true).expect("the readers listen");
    let mut total = 0;
    for reader in readers {
        let (reads, errors) = reader.await.expect("a reader ends well");
        total += reads;
        // A fast stop ends the statement that runs there at that moment, and nothing else.
        assert!(errors.len() <= 1, "{errors:?}");
    }
    assert!(total > 1000, "only {total} reads in all that time");
    ends(sandbox, causeway).await;
}

#[tokio::test]
async fn s_sf_08_a_database_that_does_not_exist() {
    everywhere("", async |place: &Place| {
        let name = format!("late_{}_{}", place.database(), place.is_direct());
        let started = Instant::now();
        let mut a = Client::connect(place.port()).await;
        let answer = a.startup(&[("user", "postgres"), ("database", &name)]).await;
        assert_eq!(
            (code(&answer), answer.last().and_then(|error| error.field(b'V'))),
            ("3D000", Some("FATAL"))
        );
        a.expect_eof().await;
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        // Not remembered: it may be made a moment later, and the replicas may not have it yet.
        place.admin(&format!("CREATE DATABASE {name}")).await;
        let mut b = Client::login(place.port(), "postgres", &name).await;
        for _ in 0..6 {
            assert_eq!(b.one("SELECT current_database()").await, name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_dropped_and_made_again() {
    everywhere("", async |place: &Place| {
        let name = format!("again_{}_{}", place.database(), place.is_direct());
        let mut admin = place.client().await;
        for round in 0..3 {
            assert_eq!(tags(&admin.query(&format!("CREATE DATABASE {name}")).await), ["CREATE DATABASE"]);
            let mut a = Client::login(place.port(), "postgres", &name).await;
            a.query(&format!("CREATE TABLE t AS SELECT {round} AS n")).await;
            assert_eq!(a.one("SELECT n FROM t").await, round.to_string());
            a.terminate().await;
            // What is left of the sessions may take a moment to end, as it does without a pooler.
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                let answer = admin.query(&format!("DROP DATABASE {name}")).await;
                if summary(&answer) == "C Z(I)" {
                    break;
                }
                assert_eq!(code(&answer), "55006", "{answer:?}");
                assert!(Instant::now() < deadline, "nobody uses the database, yet it can't be dropped");
                sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
}

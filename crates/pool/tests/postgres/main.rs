//! The pool against a real PostgreSQL server.

#![allow(clippy::unwrap_used, reason = "these are tests, the functions they share too")]

mod server;

use std::time::Duration;

use causeway_pool::{
    CancelOutcome, CheckoutError, CloseReason, Config, ConnectError, Lease, Pool, ServerConn, Verification,
};
use causeway_protocol::handshake::client::LoginError;
use causeway_protocol::{backend, encode, frame};
use tokio::time::{Instant, sleep};

use crate::server::Server;

const PASSWORD: Option<&str> = Some("correct horse");

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Sends a simple query.
async fn send(conn: &mut ServerConn, sql: &str) {
    let mut out = Vec::new();
    encode::query(&mut out, sql.as_bytes());
    conn.stream.send_all(&out).await.unwrap();
}

/// Reads an answer: its first value, or its error's SQLSTATE.
async fn receive(conn: &mut ServerConn) -> Result<String, String> {
    let mut answer = Ok(String::new());
    loop {
        while let Some((frame, len)) = frame::split(conn.inbound.filled(), 1 << 20).unwrap() {
            match frame.tag {
                b'D' => {
                    let row = backend::data_row(frame.body).unwrap();
                    answer = Ok(String::from_utf8_lossy(row.iter().next().unwrap().unwrap()).into());
                }
                b'E' => answer = Err(backend::error_fields(frame.body).unwrap().code().to_string()),
                _ => {}
            }
            let ready = frame.tag == b'Z';
            conn.inbound.consume(len);
            if ready {
                return answer;
            }
        }
        let read = conn.stream.fill(&mut conn.inbound).await.unwrap();
        assert!(read > 0, "the server closed the connection");
    }
}

async fn ask(conn: &mut ServerConn, sql: &str) -> Result<String, String> {
    send(conn, sql).await;
    receive(conn).await
}

async fn refusal(config: Config) -> String {
    match Pool::new(config).checkout(soon()).await {
        Err(CheckoutError::Connect(refusal @ ConnectError::Refused(_))) => {
            String::from_utf8(refusal.sqlstate().unwrap().into()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn logins() {
    let server = Server::start();
    let accepted = [
        server.unix("postgres"),
        server.tcp("trusty", None),
        server.tcp("digest", PASSWORD),
        server.tcp("app", PASSWORD),
        Config { allow_cleartext: true, ..server.tcp("open", PASSWORD) },
    ];
    for config in accepted {
        let user = config.user.clone();
        let pool = Pool::new(Config { parameters: vec![("TimeZone".into(), "Asia/Tokyo".into())], ..config });
        let mut lease = pool.checkout(soon()).await.unwrap();
        assert_eq!(ask(&mut lease, "SELECT current_user").await.unwrap(), *user);
        assert_eq!(ask(&mut lease, "SELECT pg_backend_pid()").await.unwrap(), lease.process_id().to_string());
        assert_eq!(lease.parameter("TimeZone"), Some(&b"Asia/Tokyo"[..]));
        assert_eq!(lease.secret_key().len(), 4);
        lease.checkin();
        assert_eq!(pool.status().idle, 1);
    }
    assert_eq!(refusal(server.tcp("app", Some("wrong"))).await, "28P01");
    assert_eq!(refusal(server.tcp("digest", Some("wrong"))).await, "28P01");
    assert_eq!(refusal(server.tcp("nobody", PASSWORD)).await, "28P01");
    assert_eq!(refusal(server.tcp("expired", PASSWORD)).await, "28P01");
    assert_eq!(refusal(server.tcp("nologin", PASSWORD)).await, "28000");
    assert_eq!(refusal(Config { database: "nodb".into(), ..server.tcp("app", PASSWORD) }).await, "3D000");
    let parameters = vec![("work_mem".into(), "zzz".into())];
    assert_eq!(refusal(Config { parameters, ..server.tcp("app", PASSWORD) }).await, "22023");
    for (config, expected) in [
        (server.tcp("app", None), LoginError::PasswordRequired),
        (server.tcp("open", PASSWORD), LoginError::CleartextNotAllowed),
    ] {
        match Pool::new(config).checkout(soon()).await {
            Err(CheckoutError::Connect(ConnectError::Handshake(error))) => {
                assert_eq!(error.to_string(), expected.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_cancel_request_hits_its_own_lease_and_no_later_one() {
    let server = Server::start();
    let pool = Pool::new(Config { size: 1, ..server.tcp("app", PASSWORD) });
    for round in 0..20 {
        let mut lease = pool.checkout(soon()).await.unwrap();
        let handle = lease.cancel_handle();
        send(&mut lease, "SELECT pg_sleep(0.02)").await;
        // Early, about at its end, and late.
        let cancelling = tokio::spawn(async move {
            sleep(Duration::from_millis(round * 2)).await;
            handle.cancel(soon()).await.unwrap()
        });
        let answer = receive(&mut lease).await;
        assert!(answer.as_ref().map_or_else(|code| code == "57014", |_| true), "{answer:?}");
        lease.checkin();
        let mut next = pool.checkout(soon()).await.unwrap();
        assert_eq!(ask(&mut next, "SELECT pg_sleep(0.03)").await, Ok(String::new()), "round {round}");
        next.checkin();
        let outcome = cancelling.await.unwrap();
        assert!(round > 0 || outcome == CancelOutcome::Delivered);
    }
    assert_eq!(pool.totals().opened, 1);
}

#[tokio::test]
async fn connections_terminated_while_idle_are_replaced() {
    let server = Server::start();
    let pool = Pool::new(Config { size: 3, ..server.tcp("app", PASSWORD) });
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(pool.checkout(soon()).await.unwrap());
    }
    leases.into_iter().for_each(Lease::checkin);
    server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    sleep(Duration::from_millis(100)).await;
    for _ in 0..10 {
        let mut lease = pool.checkout(soon()).await.unwrap();
        assert_eq!(ask(&mut lease, "SELECT 1").await.unwrap(), "1");
        lease.checkin();
    }
    let closed = pool.totals().closed().find(|(reason, _)| *reason == CloseReason::ServerFatal).unwrap();
    assert!(closed.1 > 0 && pool.totals().opened == 4, "{:?}", pool.totals());
}

#[tokio::test]
async fn connections_the_server_ends_by_its_own_timeout_are_replaced() {
    let server = Server::start();
    let parameters = vec![("idle_session_timeout".into(), "100ms".into())];
    let pool = Pool::new(Config { parameters, ..server.tcp("app", PASSWORD) });
    for round in 1..=3 {
        let mut lease = pool.checkout(soon()).await.unwrap();
        assert_eq!(ask(&mut lease, "SELECT 1").await.unwrap(), "1");
        lease.checkin();
        sleep(Duration::from_millis(300)).await;
        assert_eq!(pool.totals().opened, round);
    }
}

#[tokio::test]
async fn a_changed_password_spares_open_connections() {
    let server = Server::start();
    let pool = Pool::new(server.tcp("app", PASSWORD));
    let mut lease = pool.checkout(soon()).await.unwrap();
    server.psql("ALTER ROLE app PASSWORD 'new'");
    assert_eq!(ask(&mut lease, "SELECT 1").await.unwrap(), "1");
    match pool.checkout(soon()).await {
        Err(CheckoutError::Connect(refusal)) => assert_eq!(refusal.sqlstate(), Some(&b"28P01"[..])),
        other => panic!("{other:?}"),
    }
    pool.reconfigure(server.tcp("app", Some("new")));
    pool.checkout(soon()).await.unwrap().checkin();
    lease.checkin();
    assert_eq!((pool.status().idle, pool.status().active), (1, 0));
}

#[tokio::test]
async fn a_verification_tells_which_server_it_is() {
    let server = Server::start();
    let verification = Verification {
        query: "SELECT system_identifier, pg_postmaster_start_time() FROM pg_control_system()".into(),
        accept: std::sync::Arc::new(|row| if row.len() == 2 { Ok(()) } else { Err("two columns".into()) }),
    };
    let config = Config { verification: Some(verification), ..server.tcp("app", PASSWORD) };
    let pool = Pool::new(config.clone());
    let mut lease = pool.checkout(soon()).await.unwrap();
    let started = ask(&mut lease, "SELECT pg_postmaster_start_time()").await.unwrap();
    assert_eq!(lease.facts().get(1), Some(&Some(started.into())));
    let verification = Verification { query: "SELECT 1/0".into(), ..config.verification.clone().unwrap() };
    let pool = Pool::new(Config { verification: Some(verification), ..config });
    match pool.checkout(soon()).await {
        Err(CheckoutError::Connect(ConnectError::Verification(text))) => {
            assert_eq!(&*text, "division by zero");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_server_makes_the_queue_wait() {
    let server = Server::start();
    // 20 connections, 3 of them for superusers.
    let pool = Pool::new(Config { size: 30, ..server.tcp("app", PASSWORD) });
    let mut tasks = Vec::new();
    for _ in 0..60 {
        let pool = pool.clone();
        tasks.push(tokio::spawn(async move {
            let mut lease = pool.checkout(soon()).await.unwrap();
            assert_eq!(ask(&mut lease, "SELECT pg_sleep(0.05)").await.unwrap(), "");
            lease.checkin();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(pool.totals().failed > 0, "the server was never full: {:?}", pool.totals());
}

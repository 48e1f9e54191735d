//! Limits and timeouts: what a client is told at each, and that nothing is left of it on the server connections.

use std::time::Duration;

use causeway_testkit::wire::request::query;
use causeway_testkit::wire::{Client, Message, summary};
use causeway_tests::{Place, code, through, value};
use tokio::time::{Instant, timeout};

/// The last error: its SQLSTATE, severity and message, with a detail and a hint.
fn error(messages: &[Message]) -> (String, String, String) {
    let error = messages.iter().rev().find(|message| message.tag == b'E').expect("an error");
    for field in [b'D', b'H'] {
        assert!(error.field(field).is_some_and(|text| !text.is_empty()), "no {field} in {error:?}");
    }
    let text = |field| error.field(field).unwrap_or_default().to_owned();
    (text(b'C'), text(b'S'), text(b'M'))
}

/// What a client is told whose session ends while it does nothing.
async fn ended(mut client: Client) -> (String, String, String) {
    let rest = timeout(Duration::from_secs(20), client.until_eof()).await.expect("the session ends");
    error(&rest)
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_cancelled_and_its_connection_serves_on() {
    let settings = "pool: { size: 1 }\ntimeouts: { query_timeout: 1s }\n";
    through(settings, async |place: &Place| {
        let mut a = place.client().await;
        let pid = "INSERT INTO shop.audit(note) VALUES ('x') RETURNING pg_catalog.inet_server_port()::text || ' ' || (SELECT pid::text FROM pg_stat_activity WHERE pid = pg_backend_pid())";
        let asked = Instant::now();
        let write = "INSERT INTO shop.audit(note) SELECT pg_sleep(60)::text";
        let answer = a.query(write).await;
        assert_eq!(summary(&answer), "E(57014) Z(I)");
        let message = "canceling statement due to query timeout".to_owned();
        assert_eq!(error(&answer), ("57014".to_owned(), "ERROR".to_owned(), message));
        let took = asked.elapsed();
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(30), "{took:?}");
        // By the extended protocol and on a replica alike; in a transaction it fails as after any error.
        assert_eq!(summary(&a.execute("SELECT pg_sleep(60)", &[]).await), "1 2 T E(57014) Z(I)");
        a.query("BEGIN").await;
        assert_eq!(summary(&a.query(write).await), "E(57014) Z(E)");
        a.query("ROLLBACK").await;
        // Short ones that add up are none of its business.
        let before = value(&a.query(pid).await);
        for _ in 0..4 {
            assert_eq!(a.one("SELECT 'x' FROM pg_sleep(0.4)").await, "x");
        }
        assert_eq!(value(&a.query(pid).await), before, "the connection was replaced");
        assert_eq!(a.one("SELECT count(*) FROM shop.audit").await, "2");
    })
    .await;
}

#[tokio::test]
async fn transactions_and_idle_clients_have_their_own_deadlines() {
    let settings = "databases: { \"*\": { cluster: main, timeouts: { idle_in_transaction_timeout: 1s } } }\n\
                    users: { postgres: { timeouts: { client_idle_timeout: 2s, transaction_timeout: 3s } } }\n";
    through(settings, async |place: &Place| {
        let mut idle_in_transaction = place.client().await;
        idle_in_transaction.query("BEGIN; UPDATE shop.item SET qty = 77 WHERE id = 1").await;
        let idle = place.client().await;
        let mut busy = place.client().await;
        busy.query("BEGIN; UPDATE shop.item SET qty = 77 WHERE id = 2").await;
        let mut single = place.client().await;
        single.send(&[query("INSERT INTO shop.audit(note) SELECT pg_sleep(60)::text")]).await;
        let keep_busy = async {
            loop {
                busy.send(&[query("UPDATE shop.item SET qty = 77 WHERE id = 3 RETURNING pg_sleep(0.3)")])
                    .await;
                loop {
                    match busy.recv().await {
                        message if message.tag == b'E' => return error(&[message]),
                        message if message.tag == b'Z' => break,
                        _ => {}
                    }
                }
            }
        };
        let keep_busy = timeout(Duration::from_secs(20), keep_busy);
        let (in_transaction, at_rest, at_work, alone) =
            tokio::join!(ended(idle_in_transaction), ended(idle), keep_busy, ended(single));
        let fatal = |code: &str, what: &str| {
            (code.to_owned(), "FATAL".to_owned(), format!("terminating connection due to {what} timeout"))
        };
        assert_eq!(in_transaction, fatal("25P03", "idle-in-transaction"));
        assert_eq!(at_rest, fatal("57P05", "idle-session"));
        assert_eq!(at_work.expect("the transaction ends"), fatal("25P04", "transaction"));
        assert_eq!(alone, fatal("25P04", "transaction"));
        // All of it is undone, and nothing of it goes on.
        place.admin_until("SELECT count(*) FROM shop.item WHERE qty = 77", "0").await;
        let running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND pid <> pg_backend_pid() AND (state <> 'idle' AND application_name <> 'causeway')";
        place.admin_until(running, "0").await;
    })
    .await;
}

#[tokio::test]
async fn a_database_and_a_user_have_so_many_clients() {
    let settings = "databases: { \"*\": { cluster: main, limits: { max_clients: 3 } } }\n\
                    users: { reporting: { limits: { max_clients: 1 } } }\n";
    through(settings, async |place: &Place| {
        place
            .admin("DO $$ BEGIN CREATE ROLE reporting LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
            .await;
        let refused = async |user: &str| {
            let mut client = Client::connect(place.port()).await;
            let answer = client.startup(&[("user", user), ("database", place.database())]).await;
            assert_eq!(code(&answer), "53300");
            error(&answer).2
        };
        let first = Client::login(place.port(), "reporting", place.database()).await;
        assert_eq!(refused("reporting").await, "too many connections for role \"reporting\"");
        let (_b, _c) = (place.client().await, place.client().await);
        let full = format!("too many connections for database \"{}\"", place.database());
        assert_eq!(refused("postgres").await, full);
        // Another database has its own.
        Client::login(place.port(), "postgres", "postgres").await.terminate().await;
        first.terminate().await;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let mut client = Client::connect(place.port()).await;
            let user = [("user", "reporting"), ("database", place.database())];
            if client.startup(&user).await.iter().any(|message| message.tag == b'Z') {
                break;
            }
            assert!(Instant::now() < deadline, "the place of a client that has left stays taken");
        }
    })
    .await;
}

#[tokio::test]
async fn a_node_has_so_many_server_connections_over_all_pools() {
    let settings = "pool: { size: 5, checkout_timeout: 2s }\n\
                    databases: { \"*\": { cluster: main, limits: { max_server_connections: 2 } } }\n";
    through(settings, async |place: &Place| {
        place.admin("DO $$ BEGIN CREATE ROLE limited LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$").await;
        let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND pid <> pg_backend_pid() AND application_name <> 'causeway'";
        let mut other = Client::login(place.port(), "limited", place.database()).await;
        let mut holders = Vec::new();
        for _ in 0..2 {
            let mut client = place.client().await;
            client.query("BEGIN; INSERT INTO shop.audit(note) VALUES ('held')").await;
            holders.push(client);
        }
        let insert = "INSERT INTO shop.audit(note) VALUES ('other')";
        let answer = other.query(insert).await;
        assert_eq!(summary(&answer), "E(53300) Z(I)");
        let detail = answer.iter().find_map(|message| message.field(b'D')).unwrap_or_default().to_owned();
        assert!(detail.contains("limits.max_server_connections is 2"), "{detail}");
        assert_eq!(place.admin(count).await, "2");
        // What the one user leaves idle makes room for the other.
        holders[0].query("COMMIT").await;
        assert_eq!(summary(&other.query(insert).await), "C Z(I)");
        assert_eq!(summary(&holders[0].query("INSERT INTO shop.audit(note) VALUES ('again')").await), "C Z(I)");
        assert_eq!(place.admin(count).await, "2");
    })
    .await;
}

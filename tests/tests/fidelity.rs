//! What a client gets is what a server of its own would give: requests sent before leaving, COPY's own rules, read-only
//! transactions under a fence, and a load figure that comes back to zero.

use std::time::Duration;

use causeway_testkit::wire::request::{bind, copy_data, execute, parse, query, sync, terminate};
use causeway_testkit::wire::{Message, Request, summary};
use causeway_testkit::{Causeway, Sandbox, SandboxConfig, fresh_database, shared_cluster, yaml_for};
use causeway_tests::{count, reads_use_replicas, rows, start, value};
use tokio::time::{Instant, sleep};

async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// One extended unit that runs these statements.
fn unit(statements: &[&str]) -> Vec<Request> {
    let calls = statements.iter().flat_map(|sql| [parse("", sql), bind("", "", &[]), execute("", 0)]);
    calls.chain([sync()]).collect()
}

#[tokio::test]
async fn what_a_client_sent_before_it_left_is_carried_out() {
    let sandbox = shared_cluster().await;
    let database = fresh_database(sandbox).await;
    let causeway = Causeway::start(&yaml_for(sandbox)).await;
    let mut owner = causeway.client("postgres", &database).await;
    owner.query("CREATE TABLE w (i int)").await;

    let insert = |n: u8| format!("INSERT INTO w VALUES ({n})");
    let programs = [
        vec![query(&insert(1)), terminate()],
        unit(&[&insert(2)]).into_iter().chain([terminate()]).collect(),
        vec![query(&insert(3))],
        vec![query("SELECT pg_sleep(0.2)"), query(&insert(4)), terminate()],
        vec![query(&insert(5)), query(&insert(6)), terminate()],
    ];
    for program in programs {
        let mut client = causeway.client("postgres", &database).await;
        client.send(&program).await;
        drop(client);
    }
    let mut reader = causeway.client("postgres", &database).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // In a transaction that may write: on the primary.
        reader.query("BEGIN").await;
        let inserted = reader.one("SELECT string_agg(i::text, ',' ORDER BY i) FROM w").await;
        reader.query("COMMIT").await;
        if inserted == "1,2,3,4,5,6" {
            break;
        }
        assert!(Instant::now() < deadline, "only {inserted}");
        sleep(Duration::from_millis(50)).await;
    }
    causeway.stop().await;
}

#[tokio::test]
async fn the_answer_precedes_the_end() {
    let sandbox = shared_cluster().await;
    let causeway = Causeway::start(&yaml_for(sandbox)).await;
    let mut client = causeway.client("postgres", "postgres").await;
    client.send(&[query("SELECT 1"), terminate()]).await;
    assert_eq!(summary(&client.until_eof().await), "T D C Z(I)");

    let mut client = causeway.client("postgres", "postgres").await;
    client.send(&[query("SELECT 1")]).await;
    client.finish_writing().await;
    assert_eq!(summary(&client.until_eof().await), "T D C Z(I)");
    causeway.stop().await;
}

#[tokio::test]
async fn another_message_during_copy_is_the_servers_to_refuse() {
    let sandbox = shared_cluster().await;
    let database = fresh_database(sandbox).await;
    let causeway = Causeway::start(&yaml_for(sandbox)).await;
    let mut client = causeway.client("postgres", &database).await;
    client.query("CREATE TABLE w (i int)").await;
    client.send(&[query("COPY w FROM STDIN")]).await;
    client.until(b'G').await;
    client.send(&[copy_data(b"1\n"), query("SELECT 1")]).await;
    assert_eq!(summary(&client.until_eof().await), "E(08P01) E(08P01)");
    let mut other = causeway.client("postgres", &database).await;
    assert_eq!(other.one("SELECT count(*) FROM w").await, "0");
    causeway.stop().await;
}

#[tokio::test]
async fn load_comes_back_to_zero_when_clients_vanish() {
    let sandbox = shared_cluster().await;
    let database = fresh_database(sandbox).await;
    let causeway = Causeway::start(&yaml_for(sandbox)).await;
    let mut owner = causeway.client("postgres", &database).await;
    owner.query("CREATE TABLE w (i int)").await;
    let in_flight = async || causeway.metric("causeway_backend_in_flight", &[]).await;

    for sql in ["SELECT pg_sleep(30)", "COPY w FROM STDIN", "INSERT INTO w SELECT 1 FROM pg_sleep(1)"] {
        let mut client = causeway.client("postgres", &database).await;
        client.send(&[query(sql)]).await;
        sleep(Duration::from_millis(100)).await;
        client.reset();
    }
    let mut open = causeway.client("postgres", &database).await;
    open.send(&unit(&["SELECT pg_sleep(1)"])[..3]).await;
    open.reset();
    eventually("nothing is in flight", async || in_flight().await == 0.0).await;

    // The read was cancelled and not merely forgotten.
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND state = 'active'";
    for node in sandbox.nodes() {
        eventually("the abandoned read has ended", async || {
            let others = format!("{running} AND pid <> pg_backend_pid()");
            node.sql(&database, &others).await.is_ok_and(|count| count.trim() == "0")
        })
        .await;
    }
    causeway.stop().await;
}

#[tokio::test]
async fn a_read_only_transaction_shows_the_sessions_own_writes() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.expect("the servers start");
    sandbox
        .primary()
        .sql("postgres", "CREATE TABLE r (v int); INSERT INTO r VALUES (0)")
        .await
        .expect("a table");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let causeway = Causeway::start(&yaml_for(&sandbox)).await;
    let mut client = causeway.client("postgres", "postgres").await;
    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("replay pauses");
    }
    let read = "SELECT v FROM r";
    let shapes: [&[&[&str]]; 5] = [
        &[&["BEGIN READ ONLY", read, "COMMIT"]],
        &[&["BEGIN READ ONLY"], &[read], &["COMMIT"]],
        &[&["BEGIN READ ONLY", read], &["COMMIT"]],
        &[&["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", read, "COMMIT"]],
        &[&["BEGIN", "SET TRANSACTION READ ONLY", read, "COMMIT"]],
    ];
    for (n, shape) in (1..).zip(shapes) {
        for round in 0..3 {
            let value = n * 100 + round;
            client.query(&format!("UPDATE r SET v = {value}")).await;
            let mut rows = Vec::new();
            for statements in shape {
                let answer = client.run(&unit(statements)).await;
                rows.extend(answer.into_iter().filter(|message| message.tag == b'D'));
            }
            let seen: Vec<_> = rows.iter().flat_map(Message::columns).flatten().collect();
            assert_eq!(seen, [value.to_string()], "{shape:?}");
        }
    }
    for begin in ["BEGIN READ ONLY", "START TRANSACTION READ ONLY"] {
        client.query("UPDATE r SET v = v + 1").await;
        let expected = sandbox.primary().sql("postgres", read).await.expect("the value");
        client.query(begin).await;
        assert_eq!(client.one(read).await, expected.trim());
        client.query("COMMIT").await;
    }
    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("replay resumes");
    }
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// A function that lies about itself: the catalogue calls it STABLE, and it writes.
#[tokio::test]
async fn a_write_that_a_replica_refused_is_seen_afterwards() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.expect("the servers start");
    let objects = "CREATE TABLE r (v int); INSERT INTO r VALUES (0);
        CREATE FUNCTION put(n int) RETURNS int LANGUAGE plpgsql AS
            $$ BEGIN UPDATE r SET v = n; RETURN n; END $$;
        CREATE FUNCTION sly(n int) RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN put(n); END $$";
    sandbox.primary().sql("postgres", objects).await.expect("the objects");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let causeway = Causeway::start(&yaml_for(&sandbox)).await;
    let mut client = causeway.client("postgres", "postgres").await;
    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("replay pauses");
    }
    for n in 1..10 {
        assert_eq!(client.one(&format!("SELECT sly({n})")).await, n.to_string());
        assert_eq!(client.one("SELECT v FROM r").await, n.to_string());
    }
    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("replay resumes");
    }
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// Such a function is tried on a replica once, and not again.
#[tokio::test]
async fn what_a_replica_has_refused_is_remembered() {
    let sandbox = shared_cluster().await;
    let database = fresh_database(sandbox).await;
    let objects = "CREATE TABLE t (); CREATE SEQUENCE s; CREATE FUNCTION sly(n int) RETURNS bigint LANGUAGE plpgsql STABLE AS
        $$ BEGIN RETURN n + 0 * nextval('s'); END $$";
    sandbox.primary().sql(&database, objects).await.expect("the objects");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let causeway = start(sandbox, "consistency: { default: eventual }\nadmin: { users: [postgres] }\n").await;
    reads_use_replicas(&causeway, &database, "SELECT count(*) FROM t").await;
    let retries = async || count(&causeway, "causeway_retries_total", &[]).await;
    let before = retries().await;
    let mut client = causeway.client("postgres", &database).await;
    for n in 1..10 {
        assert_eq!(client.one(&format!("SELECT sly({n})")).await, n.to_string());
    }
    // The first replica's word was enough, for all texts that differ in their constants and for all sessions.
    assert_eq!(retries().await, before + 1);
    let mut another = causeway.client("postgres", &database).await;
    assert_eq!(value(&another.execute("SELECT sly(10)", &[]).await), "10");
    assert_eq!(retries().await, before + 1);
    let refused = [("target", "primary"), ("reason", "refused")];
    assert_eq!(count(&causeway, "causeway_routing_decisions_total", &refused).await, 10);
    let mut console = causeway.client("postgres", "causeway").await;
    let routes = rows(&console.query("SHOW ROUTES").await);
    let shown: Vec<_> = routes.iter().flatten().take(5).map(|value| value.as_deref().unwrap_or("")).collect();
    assert_eq!(shown, [&*database, "SELECT sly(?)", "primary", "refused", "25006"], "{routes:?}");
    // A definition may have changed that.
    another
        .query(
            "CREATE OR REPLACE FUNCTION sly(n int) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT n::bigint'",
        )
        .await;
    assert_eq!(rows(&console.query("SHOW ROUTES").await), Vec::<Vec<_>>::new());
    drop(console);
    causeway.stop().await;
}

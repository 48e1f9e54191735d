//! S-RW: where reads and writes go.

use causeway_testkit::wire::request::{bind, execute, parse, sync};
use causeway_testkit::wire::summary;
use causeway_testkit::{Sandbox, SandboxConfig, wire::Client};
use causeway_tests::{
    ONE_CONNECTION, Place, call, code, count, everywhere, reads_use_replicas, shop_database, start,
    start_yaml, tags, through, value,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn s_rw_01_read_after_own_write() {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(2)).await.expect("the servers start");
    sandbox
        .primary()
        .sql("postgres", "CREATE TABLE t (id int PRIMARY KEY, note text)")
        .await
        .expect("a table");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let causeway = start(&sandbox, "consistency: { default: session }\n").await;
    let reads = async || count(&causeway, "causeway_queries_total", &[("role", "replica")]).await;
    let mut a = Client::login(causeway.port(), "postgres", "postgres").await;
    let mut b = Client::login(causeway.port(), "postgres", "postgres").await;
    reads_use_replicas(&causeway, "postgres", "SELECT count(*) FROM t").await;

    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("replay pauses");
    }
    for id in 0..50 {
        let insert = format!("INSERT INTO t VALUES ({id}, 'mine') RETURNING id");
        assert_eq!(value(&a.query(&insert).await), id.to_string());
        let simple = a.query(&format!("SELECT note FROM t WHERE id = {id}")).await;
        assert_eq!(value(&simple), "mine", "{simple:?}");
        let extended = a.execute("SELECT note FROM t WHERE id = $1", &[Some(&id.to_string())]).await;
        assert_eq!(value(&extended), "mine", "{extended:?}");
    }
    // By a prepared statement that was prepared before the write.
    a.run(&[parse("latest", "SELECT max(id) FROM t"), sync()]).await;
    a.query("INSERT INTO t VALUES (100, 'mine')").await;
    assert_eq!(value(&a.run(&call("latest", &[])).await), "100");
    // Others may still use a replica.
    let before = reads().await;
    b.one("SELECT count(*) FROM t").await;
    assert!(reads().await > before, "another session reads from a replica");

    for replica in sandbox.replicas() {
        replica.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("replay resumes");
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let before = reads().await;
    while reads().await == before {
        assert_eq!(a.one("SELECT count(*) FROM t").await, "51");
        assert!(Instant::now() < deadline, "the session's reads return to the replicas");
        sleep(Duration::from_millis(20)).await;
    }
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn s_rw_02_a_transaction_that_reads_first_and_writes_later() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        for begin in ["BEGIN", "START TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN READ WRITE"] {
            a.query(begin).await;
            assert_eq!(summary(&a.query("SELECT qty FROM shop.item WHERE id=1").await), "T D C Z(T)");
            assert_eq!(tags(&a.query("UPDATE shop.item SET qty=qty WHERE id=1").await), ["UPDATE 1"]);
            assert_eq!(tags(&a.query("COMMIT").await), ["COMMIT"]);

            let mut statements = vec![begin, "SELECT qty FROM shop.item WHERE id=1"];
            statements.extend(["UPDATE shop.item SET qty=qty WHERE id=1", "COMMIT"]);
            let mut batch = Vec::new();
            for sql in &statements {
                let answer = a.execute(sql, &[]).await;
                assert_ne!(answer[0].tag, b'E', "{sql}: {answer:?}");
                batch.extend([parse("", sql), bind("", "", &[]), execute("", 0)]);
            }
            batch.push(sync());
            assert_eq!(summary(&a.run(&batch).await), "1 2 C 1 2 D C 1 2 C 1 2 C Z(I)");
        }
        // The first statement comes in one message with BEGIN.
        assert_eq!(summary(&a.query("BEGIN; SELECT qty FROM shop.item WHERE id=1").await), "C T D C Z(T)");
        assert_eq!(
            tags(&a.query("UPDATE shop.item SET qty=qty WHERE id=1; COMMIT").await),
            ["UPDATE 1", "COMMIT"]
        );
    })
    .await;
}

#[tokio::test]
async fn s_rw_03_read_of_something_created_in_the_same_transaction() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.query("BEGIN").await;
        a.query("CREATE TABLE shop.fresh(a int)").await;
        assert_eq!(summary(&a.query("SELECT * FROM shop.fresh").await), "T C Z(T)");
        a.query("INSERT INTO shop.fresh VALUES (1)").await;
        a.query("COMMIT").await;
        for _ in 0..10 {
            assert_eq!(summary(&a.query("SELECT * FROM shop.fresh").await), "T D C Z(I)");
        }
    })
    .await;
}

#[tokio::test]
async fn s_rw_04_a_write_in_a_read_only_transaction() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        for begin in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY", "START TRANSACTION READ ONLY"] {
            assert_eq!(a.query(begin).await.last().map(causeway_testkit::wire::Message::status), Some('T'));
            assert_eq!(summary(&a.query("SELECT 1").await), "T D C Z(T)");
            let refused = a.query("INSERT INTO shop.audit(note) VALUES ('no')").await;
            assert_eq!(summary(&refused), "E(25006) Z(E)");
            let text = "cannot execute INSERT in a read-only transaction";
            assert_eq!(refused[0].field(b'M'), Some(text));
            assert_eq!(summary(&a.query("SELECT 1").await), "E(25P02) Z(E)");
            assert_eq!(tags(&a.query("COMMIT").await), ["ROLLBACK"]);
        }
        // Legal on a primary, not on a standby.
        a.query("BEGIN READ ONLY").await;
        let switched = a.query("SET TRANSACTION READ WRITE").await;
        assert_eq!(summary(&switched), "C Z(T)");
        assert_eq!(tags(&a.query("INSERT INTO shop.audit(note) VALUES ('yes')").await), ["INSERT 0 1"]);
        assert_eq!(tags(&a.query("COMMIT").await), ["COMMIT"]);
        // The default of the session.
        a.query("SET default_transaction_read_only = on").await;
        assert_eq!(code(&a.query("INSERT INTO shop.audit(note) VALUES ('no')").await), "25006");
        assert_eq!(summary(&a.query("SELECT 1").await), "T D C Z(I)");
        a.query("RESET default_transaction_read_only").await;
        assert_eq!(tags(&a.query("INSERT INTO shop.audit(note) VALUES ('yes')").await), ["INSERT 0 1"]);
        assert_eq!(place.admin("SELECT string_agg(note, ',') FROM shop.audit").await, "yes,yes");
    })
    .await;
}

#[tokio::test]
async fn s_rw_05_serializable_as_the_session_default() {
    everywhere("", async |place: &Place| {
        let options = [("options", "-c default_transaction_isolation=serializable")];
        let (by_option, _) = place.client_with(&options).await;
        let mut by_set = place.client().await;
        by_set.query("SET default_transaction_isolation = 'serializable'").await;
        let mut by_characteristics = place.client().await;
        let sql = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE";
        by_characteristics.query(sql).await;
        for mut client in [by_option, by_set, by_characteristics] {
            for _ in 0..6 {
                assert_eq!(client.one("SELECT count(*) FROM shop.item").await, "4");
            }
            assert_eq!(client.one("SHOW transaction_isolation").await, "serializable");
            assert_eq!(summary(&client.query("BEGIN READ ONLY").await), "C Z(T)");
            assert_eq!(client.one("SELECT 1").await, "1");
            assert_eq!(client.one("SHOW transaction_isolation").await, "serializable");
            assert_eq!(tags(&client.query("COMMIT").await), ["COMMIT"]);
        }
    })
    .await;
}

async fn queries_by_node(place: &Place) -> [u64; 3] {
    [place.queries_on("pg-0").await, place.queries_on("pg-1").await, place.queries_on("pg-2").await]
}

#[tokio::test]
async fn reads_use_both_replicas_and_writes_none() {
    through("pool: { size: 2 }\nconsistency: { default: eventual }\n", async |place: &Place| {
        let mut a = place.client().await;
        let before = queries_by_node(place).await;
        for i in 0..400 {
            if i % 2 == 0 {
                assert_eq!(a.one("SELECT count(*) FROM shop.item").await, "4");
            } else {
                let answer = a.execute("SELECT sku FROM shop.item WHERE id = $1", &[Some("2")]).await;
                assert_eq!(value(&answer), "nut");
            }
        }
        let after = queries_by_node(place).await;
        let shares = [0, 1, 2].map(|node| after[node] - before[node]);
        assert!(shares[0] == 0 && shares[1] + shares[2] == 400, "{shares:?}");
        // Equal weights: within 5 points of one half each, and three standard deviations of chance.
        assert!(shares[1].abs_diff(200) <= 20 + 30, "{shares:?}");
        let mut b = place.client().await;
        for _ in 0..50 {
            assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
        }
        assert_eq!(queries_by_node(place).await, [after[0] + 50, after[1], after[2]]);
    })
    .await;
}

#[tokio::test]
async fn reads_follow_the_weights() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = shop_database(sandbox).await;
    // Other tests write a lot at the same time: at a level that has to wait, some reads would fall back.
    let yaml = causeway_testkit::yaml_for(sandbox) + "consistency: { default: eventual }\n";
    for (weights, at_least) in [([3, 1], 250), ([1, 0], 400)] {
        let weighed = |yaml: String, name: &str, weight: u32| {
            let marked = yaml.replace(&format!("name: {name},"), &format!("name: {name}, weight: {weight},"));
            assert_ne!(marked, yaml, "the node is in the YAML");
            marked
        };
        let yaml = weighed(weighed(yaml.clone(), "pg-1", weights[0]), "pg-2", weights[1]);
        let causeway = start_yaml(sandbox, &yaml, 3).await;
        reads_use_replicas(&causeway, &database, "SELECT count(*) FROM shop.item").await;
        let on = async |node: &str| count(&causeway, "causeway_queries_total", &[("backend", node)]).await;
        let before = [on("pg-0").await, on("pg-1").await, on("pg-2").await];
        let mut client = causeway.client("postgres", &database).await;
        for _ in 0..400 {
            assert_eq!(client.one("SELECT count(*) FROM shop.item").await, "4");
        }
        let after = [on("pg-0").await, on("pg-1").await, on("pg-2").await];
        let shares = [0, 1, 2].map(|node| after[node] - before[node]);
        assert!(shares[0] == 0 && shares[1] >= at_least, "{weights:?}: {shares:?}");
        assert!(weights[1] == 0 || shares[2] >= 50, "{weights:?}: {shares:?}");
        causeway.stop().await;
    }
}

#[tokio::test]
async fn a_read_only_transaction_moves_to_the_primary_while_it_has_only_read() {
    everywhere("", async |place: &Place| {
        let mut a = place.client().await;
        let read = "SELECT count(*) FROM shop.item";
        // By a simple query and by the extended protocol, with a prepared statement that has run on the replica.
        for extended in [false, true] {
            assert_eq!(summary(&a.query("BEGIN READ ONLY").await), "C Z(T)");
            for _ in 0..2 {
                let answer = if extended { a.execute(read, &[]).await } else { a.query(read).await };
                assert_eq!(value(&answer), "4");
            }
            assert_eq!(summary(&a.query("SELECT pg_advisory_lock(7)").await), "T D C Z(T)");
            assert_eq!(a.one("SHOW transaction_read_only").await, "on");
            assert_eq!(code(&a.query("INSERT INTO shop.audit(note) VALUES ('x')").await), "25006");
            assert_eq!(summary(&a.query("ROLLBACK").await), "C Z(I)");
            assert_eq!(a.one("SELECT pg_advisory_unlock(7)").await, "t");
        }
        assert_eq!(summary(&a.query("BEGIN READ ONLY").await), "C Z(T)");
        a.query(read).await;
        assert_eq!(summary(&a.query("LISTEN moved").await), "C Z(T)");
        assert_eq!(summary(&a.query("COMMIT").await), "C Z(I)");
        place.admin("NOTIFY moved").await;
        assert_eq!(summary(&a.until(b'A').await), "A(moved)");
        a.query("UNLISTEN *").await;
        // What begins in the same text is another transaction, which may write.
        for text in ["COMMIT; BEGIN", "ROLLBACK; BEGIN READ WRITE"] {
            a.query("BEGIN READ ONLY").await;
            a.query(read).await;
            assert_eq!(summary(&a.query(text).await), "C C Z(T)");
            assert_eq!(tags(&a.query("INSERT INTO shop.audit(note) VALUES ('x')").await), ["INSERT 0 1"]);
            assert_eq!(summary(&a.query("COMMIT").await), "C Z(I)");
        }
    })
    .await;
}

//! S-PS: prepared statements.

use causeway_testkit::wire::request::{bind, close_statement, describe_statement, execute, parse, sync};
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{ONE_CONNECTION, Place, call, code, everywhere, tags, through, value};

/// Prepares `sql` as `name`.
async fn prepare(client: &mut Client, name: &str, sql: &str) {
    assert_eq!(summary(&client.run(&[parse(name, sql), sync()]).await), "1 Z(I)", "{name}: {sql}");
}

/// Executes `name`, which answers one value.
async fn executed(client: &mut Client, name: &str, values: &[Option<&str>]) -> String {
    let answer = client.run(&call(name, values)).await;
    assert_eq!(
        summary(&answer),
        format!("2 D C Z({})", client.status().unwrap_or('?')),
        "{name}: {answer:?}"
    );
    value(&answer)
}

/// Executes `name`, which fails outside a transaction; returns the SQLSTATE.
async fn refused(client: &mut Client, name: &str) -> String {
    let answer = client.run(&call(name, &[])).await;
    assert_eq!(summary(&answer), format!("E({}) Z(I)", code(&answer)), "{name}: {answer:?}");
    code(&answer).to_owned()
}

#[tokio::test]
async fn s_ps_01_one_name_two_clients_two_texts() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        prepare(&mut a, "s1", "SELECT 1").await;
        prepare(&mut b, "s1", "SELECT 'b'").await;
        for _ in 0..5 {
            assert_eq!(executed(&mut a, "s1", &[]).await, "1");
            assert_eq!(executed(&mut b, "s1", &[]).await, "b");
        }
        let again = a.run(&[parse("s1", "SELECT 3"), sync()]).await;
        assert_eq!(summary(&again), "E(42P05) Z(I)");
        assert_eq!(executed(&mut a, "s1", &[]).await, "1");
        assert_eq!(
            summary(&a.run(&[close_statement("s1"), parse("s1", "SELECT 3"), sync()]).await),
            "3 1 Z(I)"
        );
        assert_eq!(executed(&mut a, "s1", &[]).await, "3");
    })
    .await;
}

#[tokio::test]
async fn s_ps_02_a_statement_outlives_a_change_of_server_connection() {
    through("pool: { size: 2 }\n", async |place: &Place| {
        let mut a = place.client().await;
        let described = a.run(&[parse("p1", "SELECT $1::int+1"), describe_statement("p1"), sync()]).await;
        assert_eq!(summary(&described), "1 t T Z(I)");
        let insert = "INSERT INTO shop.audit(note) VALUES ('p2') RETURNING $1::int+1";
        prepare(&mut a, "p2", insert).await;

        // Two holders take turns: whoever begins takes the connection that A used last.
        let mut holders = [place.client().await, place.client().await];
        let begin = "BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1";
        holders[0].query(begin).await;
        for _ in 0..25 {
            assert_eq!(executed(&mut a, "p1", &[Some("41")]).await, "42");
            assert_eq!(executed(&mut a, "p2", &[Some("41")]).await, "42");
            let [first, second] = &mut holders;
            second.query("BEGIN; SELECT count(*) FROM shop.item").await;
            assert_eq!(summary(&first.query("COMMIT").await), "C Z(I)");
            holders.swap(0, 1);
        }
        assert_eq!(place.admin("SELECT count(*) FROM shop.audit WHERE note = 'p2'").await, "25");
    })
    .await;
}

#[tokio::test]
async fn s_ps_03_prepared_for_a_replica_then_bound_in_a_write_transaction() {
    through("", async |place: &Place| {
        let mut a = place.client().await;
        prepare(&mut a, "q", "SELECT sku FROM shop.item WHERE id=$1").await;
        for _ in 0..3 {
            for _ in 0..4 {
                assert_eq!(executed(&mut a, "q", &[Some("1")]).await, "bolt");
            }
            assert_eq!(summary(&a.query("BEGIN").await), "C Z(T)");
            assert_eq!(executed(&mut a, "q", &[Some("2")]).await, "nut");
            assert_eq!(summary(&a.query("UPDATE shop.item SET qty=qty WHERE id=1").await), "C Z(T)");
            assert_eq!(executed(&mut a, "q", &[Some("3")]).await, "rope");
            assert_eq!(tags(&a.query("COMMIT").await), ["COMMIT"]);
            place.terminate_on_primary().await;
        }
        assert!(place.count("causeway_queries_total", "replica").await > 0, "the reads used a replica");
    })
    .await;
}

#[tokio::test]
async fn s_ps_04_deallocate_all_as_sql() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        prepare(&mut a, "a1", "SELECT 'a'").await;
        prepare(&mut b, "b1", "SELECT 'b'").await;
        assert_eq!(tags(&a.query("DEALLOCATE ALL").await), ["DEALLOCATE ALL"]);
        assert_eq!(executed(&mut b, "b1", &[]).await, "b");
        assert_eq!(refused(&mut a, "a1").await, "26000");
        prepare(&mut a, "a1", "SELECT 'other'").await;
        assert_eq!(executed(&mut a, "a1", &[]).await, "other");
        assert_eq!(tags(&a.query("DISCARD ALL").await), ["DISCARD ALL"]);
        assert_eq!(refused(&mut a, "a1").await, "26000");
        assert_eq!(executed(&mut b, "b1", &[]).await, "b");
    })
    .await;
}

#[tokio::test]
async fn s_ps_05_sql_deallocate_of_a_protocol_level_statement() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        prepare(&mut a, "pdo_stmt_00000001", "SELECT 5").await;
        assert_eq!(executed(&mut a, "pdo_stmt_00000001", &[]).await, "5");
        let answer = a.query("DEALLOCATE pdo_stmt_00000001").await;
        assert_eq!(summary(&answer), "C Z(I)");
        assert_eq!(tags(&answer), ["DEALLOCATE"]);
        assert_eq!(refused(&mut a, "pdo_stmt_00000001").await, "26000");

        prepare(&mut a, "Mixed Case", "SELECT 6").await;
        assert_eq!(code(&a.query("DEALLOCATE mixed").await), "26000");
        assert_eq!(executed(&mut a, "Mixed Case", &[]).await, "6");
        assert_eq!(tags(&a.query("deallocate prepare \"Mixed Case\"").await), ["DEALLOCATE"]);
        assert_eq!(refused(&mut a, "Mixed Case").await, "26000");
    })
    .await;
}

#[tokio::test]
async fn statements_prepared_by_sql_are_found_by_the_protocol() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        assert_eq!(tags(&a.query("PREPARE twice(int) AS SELECT $1 * 2").await), ["PREPARE"]);
        assert_eq!(value(&a.query("EXECUTE twice(21)").await), "42");
        assert_eq!(executed(&mut a, "twice", &[Some("4")]).await, "8");
        assert_eq!(code(&b.query("EXECUTE twice(1)").await), "26000");
        assert_eq!(tags(&a.query("DEALLOCATE twice").await), ["DEALLOCATE"]);
        assert_eq!(code(&a.query("EXECUTE twice(1)").await), "26000");
    })
    .await;
}

#[tokio::test]
async fn s_ps_06_the_result_type_changes_under_a_cached_plan() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        // On one connection, the primary's: where a statement has to be prepared again, its new columns are no surprise.
        let sql = "SELECT * FROM shop.ev FOR UPDATE";
        let first = [parse("w", sql), describe_statement("w"), bind("", "w", &[]), execute("", 0), sync()];
        assert_eq!(summary(&a.run(&first).await), "1 t T 2 D C Z(I)");
        place.admin_everywhere("ALTER TABLE shop.ev ADD note text").await;
        assert_eq!(refused(&mut a, "w").await, "0A000");

        let fresh = [parse("x", sql), describe_statement("x"), bind("", "x", &[]), execute("", 0), sync()];
        let answer = b.run(&fresh).await;
        assert_eq!(summary(&answer), "1 t T 2 D C Z(I)");
        assert_eq!(answer[2].names(), ["id", "day", "note"]);

        let again = a.run(&[close_statement("w"), parse("w", sql), describe_statement("w"), sync()]).await;
        assert_eq!(summary(&again), "3 1 t T Z(I)");
        assert_eq!(again[3].names(), ["id", "day", "note"]);
        for _ in 0..5 {
            assert_eq!(executed(&mut a, "w", &[]).await, "1");
            assert_eq!(executed(&mut b, "x", &[]).await, "1");
        }
    })
    .await;
}

#[tokio::test]
async fn s_ps_07_close_after_a_failed_parse() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        let failed = [parse("S_4", "SELECT no_such_col FROM shop.item"), describe_statement("S_4"), sync()];
        assert_eq!(summary(&a.run(&failed).await), "E(42703) Z(I)");
        assert_eq!(summary(&a.run(&[close_statement("S_4"), sync()]).await), "3 Z(I)");
        prepare(&mut a, "S_4", "SELECT 4").await;
        assert_eq!(executed(&mut a, "S_4", &[]).await, "4");
        // The name of a Parse that was skipped after an error is free too.
        let skipped = [parse("", "SELEC"), parse("S_5", "SELECT 5"), sync()];
        assert_eq!(summary(&a.run(&skipped).await), "E(42601) Z(I)");
        assert_eq!(refused(&mut a, "S_5").await, "26000");
        prepare(&mut a, "S_5", "SELECT 5").await;
    })
    .await;
}

#[tokio::test]
async fn s_ps_08_the_unnamed_statement_across_two_syncs() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        for round in 0..10 {
            let prepared = a.run(&[parse("", "SELECT $1::text"), describe_statement(""), sync()]).await;
            assert_eq!(summary(&prepared), "1 t T Z(I)");
            let other = [parse("", "SELECT 'other', $1::text"), describe_statement(""), sync()];
            assert_eq!(summary(&b.run(&other).await), "1 t T Z(I)");
            let text = format!("x{round}");
            assert_eq!(executed(&mut a, "", &[Some(&text)]).await, text);
            assert_eq!(executed(&mut b, "", &[Some("y")]).await, "other");
        }
    })
    .await;
}

#[tokio::test]
async fn s_ps_09_a_simple_query_ends_the_unnamed_statement() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        prepare(&mut a, "", "SELECT 7").await;
        assert_eq!(executed(&mut a, "", &[]).await, "7");
        assert_eq!(value(&a.query("SELECT 1").await), "1");
        assert_eq!(refused(&mut a, "").await, "26000");
    })
    .await;
}

#[tokio::test]
async fn sql_and_protocol_share_the_names_of_statements() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut a = place.client().await;
        let mut b = place.client().await;
        a.run(&[
            parse("Mixed", "SELECT $1::int + 1"),
            parse("low", "INSERT INTO shop.audit(note) VALUES ($1) RETURNING note"),
            sync(),
        ])
        .await;
        for _ in 0..2 {
            assert_eq!(a.one("EXECUTE \"Mixed\"(41)").await, "42");
            assert_eq!(a.one("execute LOW('x') -- what comes behind stays").await, "x");
            // The other's statements of these names are others.
            assert_eq!(summary(&b.query("EXECUTE low('x')").await), "E(26000) Z(I)");
            b.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
            assert_eq!(a.one("EXECUTE \"Mixed\"(1)").await, "2");
            b.query("COMMIT").await;
        }
        let taken = a.query("PREPARE low AS SELECT 1").await;
        assert_eq!(summary(&taken), "E(42P05) Z(I)");
        assert_eq!(taken[0].field(b'M'), Some("prepared statement \"low\" already exists"));
        let wrong = a.query("EXECUTE low(1, 2)").await;
        assert_eq!(summary(&wrong), "E(42601) Z(I)");
        assert_eq!(wrong[0].field(b'M'), Some("wrong number of parameters for prepared statement \"low\""));
        a.query("BEGIN").await;
        assert_eq!(a.one("EXECUTE low('y')").await, "y");
        a.query("SELECT 1/0").await;
        assert_eq!(summary(&a.query("EXECUTE low('z')").await), "E(25P02) Z(E)");
        a.query("ROLLBACK").await;

        assert_eq!(summary(&a.query("PREPARE sql(int) AS SELECT $1 * 2").await), "C Z(I)");
        assert_eq!(summary(&a.run(&[parse("sql", "SELECT 1"), sync()]).await), "E(42P05) Z(I)");
        let bound =
            a.run(&[bind("", "sql", &[Some("21")]), describe_statement("sql"), execute("", 0), sync()]).await;
        assert_eq!((summary(&bound).as_str(), value(&bound)), ("2 t T D C Z(I)", "42".to_owned()));
        assert_eq!(summary(&a.run(&[close_statement("sql"), sync()]).await), "3 Z(I)");
        assert_eq!(
            summary(&a.run(&[parse("sql", "SELECT 7"), bind("", "sql", &[]), execute("", 0), sync()]).await),
            "1 2 D C Z(I)"
        );
        assert_eq!(a.one("EXECUTE sql").await, "7");
        assert_eq!(summary(&a.query("DEALLOCATE ALL").await), "C Z(I)");
        for name in ["sql", "low"] {
            assert_eq!(summary(&a.query(&format!("EXECUTE {name}")).await), "E(26000) Z(I)");
        }
        assert_eq!(summary(&a.run(&[parse("sql", "SELECT 8"), sync()]).await), "1 Z(I)");
        assert_eq!(a.one("EXECUTE sql").await, "8");
    })
    .await;
}

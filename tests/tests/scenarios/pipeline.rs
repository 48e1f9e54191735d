//! S-PL: pipelines of the extended protocol.

use std::time::Duration;

use causeway_testkit::wire::request::{
    bind, copy_data, copy_done, describe_portal, describe_statement, execute, flush, parse, query, sync,
};
use causeway_testkit::wire::{Request, summary};
use causeway_tests::{ONE_CONNECTION, Place, code, everywhere, rows, tags, through, value};
use tokio::time::sleep;

/// Parse, Bind and Execute through the unnamed statement and portal.
fn unnamed(sql: &str) -> [Request; 3] {
    [parse("", sql), bind("", "", &[]), execute("", 0)]
}

#[tokio::test]
async fn s_pl_01_an_error_in_the_middle() {
    everywhere("", async |place: &Place| {
        let mut a = place.client().await;
        let insert = "INSERT INTO shop.audit(note) VALUES ('pl01')";
        let mut batch = Vec::new();
        for sql in [insert, "SELECT 1/0", insert] {
            batch.extend(unnamed(sql));
        }
        batch.push(sync());
        assert_eq!(summary(&a.run(&batch).await), "1 2 C 1 E(22012) Z(I)");
        assert_eq!(a.one("SELECT count(*) FROM shop.audit WHERE note = 'pl01'").await, "0");
    })
    .await;
}

#[tokio::test]
async fn s_pl_02_a_describe_left_over_after_the_last_execute() {
    let body = async |place: &Place| {
        let mut a = place.client().await;
        for sql in ["SELECT 2", "INSERT INTO shop.audit(note) VALUES ('pl02') RETURNING 2"] {
            let mut batch: Vec<_> = unnamed("SELECT 1").into();
            batch.extend(unnamed(sql));
            batch.extend([bind("p2", "", &[]), describe_portal("p2"), sync()]);
            assert_eq!(summary(&a.run(&batch).await), "1 2 D C 1 2 D C 2 T Z(I)");
        }
        a.terminate().await;
        let mut b = place.client().await;
        assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
    };
    everywhere(ONE_CONNECTION, body).await;
    through("pool: { mode: session, size: 1 }\n", body).await;
}

#[tokio::test]
async fn s_pl_03_flush_without_sync() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        for sql in ["SELECT 3", "INSERT INTO shop.audit(note) VALUES ('pl03') RETURNING 3"] {
            a.send(&[parse("f1", sql), describe_statement("f1"), flush()]).await;
            assert_eq!(summary(&a.until(b'T').await), "1 t T");
            a.expect_silence(Duration::from_millis(100)).await;
            a.send(&[bind("", "f1", &[]), execute("", 0), flush()]).await;
            assert_eq!(summary(&a.until(b'C').await), "2 D C");
            a.expect_silence(Duration::from_millis(100)).await;
            assert_eq!(summary(&a.run(&[sync()]).await), "Z(I)");
            let close = causeway_testkit::wire::request::close_statement("f1");
            assert_eq!(summary(&a.run(&[close, sync()]).await), "3 Z(I)");
        }
    })
    .await;
}

#[tokio::test]
async fn s_pl_04_a_second_batch_before_the_first_ready_for_query() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut tasks = Vec::new();
        for number in 0..6 {
            let mut client = place.client().await;
            tasks.push(tokio::spawn(async move {
                for round in 0..40 {
                    let (first, second) = (format!("{number}-{round}"), format!("{number}+{round}"));
                    client.send(&[parse("", "SELECT $1::text"), bind("", "", &[Some(&first)])]).await;
                    client.send(&[execute("", 0), sync()]).await;
                    let write = "INSERT INTO shop.audit(note) VALUES ($1) RETURNING note";
                    let batch = [parse("", write), bind("", "", &[Some(&second)]), execute("", 0), sync()];
                    client.send(&batch).await;
                    for want in [first, second] {
                        let answer = client.until_ready().await;
                        assert_eq!(summary(&answer), "1 2 D C Z(I)");
                        assert_eq!(value(&answer), want);
                    }
                }
                client.expect_silence(Duration::from_millis(20)).await;
            }));
        }
        for task in tasks {
            task.await.expect("every answer belongs to its question");
        }
    })
    .await;
}

#[tokio::test]
async fn s_pl_05_no_server_connection_for_an_extended_batch() {
    through("pool: { size: 1, checkout_timeout: 300ms }\n", async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        b.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
        let insert = "INSERT INTO shop.audit(note) VALUES ('pl05')";
        let [first, second, third] = unnamed(insert);
        for request in [first, second, describe_portal(""), third, sync()] {
            a.send(&[request]).await;
            sleep(Duration::from_millis(50)).await;
        }
        let answer = a.until_ready().await;
        assert_eq!(summary(&answer), format!("E({}) Z(I)", code(&answer)), "{answer:?}");
        assert!(["53", "57", "58"].contains(&&code(&answer)[..2]), "{answer:?}");
        a.expect_silence(Duration::from_millis(300)).await;
        assert_eq!(tags(&b.query("COMMIT").await), ["COMMIT"]);
        assert_eq!(a.one("SELECT count(*) FROM shop.audit WHERE note = 'pl05'").await, "0");
        assert_eq!(tags(&a.query(insert).await), ["INSERT 0 1"]);
    })
    .await;
}

#[tokio::test]
async fn s_pl_06_the_server_connection_dies_under_a_pipeline() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        let insert = "INSERT INTO shop.audit(note) SELECT 'pl06' FROM pg_sleep(30)";
        a.run(&[parse("s", insert), sync()]).await;
        a.send(&[bind("", "s", &[]), describe_portal(""), execute("", 0), sync()]).await;
        let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT%pl06%' AND state = 'active' \
                       AND datname = current_database()";
        place.admin_until(running, "1").await;
        place.terminate_on_primary().await;
        let answer = a.until_eof().await;
        assert!(["2 n E(57P01)", "E(57P01)"].contains(&&*summary(&answer)), "{answer:?}");
        assert_eq!(answer.last().and_then(|error| error.field(b'V')), Some("FATAL"));
        let mut b = place.client().await;
        assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
        assert_eq!(b.one("SELECT count(*) FROM shop.audit WHERE note = 'pl06'").await, "0");
    })
    .await;
}

#[tokio::test]
async fn s_pl_07_read_and_write_in_one_sync_segment() {
    everywhere("", async |place: &Place| {
        let mut a = place.client().await;
        let mut batch: Vec<_> = unnamed("SELECT count(*) FROM shop.item").into();
        batch.extend(unnamed("INSERT INTO shop.audit(note) VALUES ('p')"));
        batch.push(sync());
        assert_eq!(summary(&a.run(&batch).await), "1 2 D C 1 2 C Z(I)");
        // The write comes late: the read may be on its way to a replica already.
        a.send(&unnamed("SELECT count(*) FROM shop.item")).await;
        sleep(Duration::from_millis(100)).await;
        let mut rest: Vec<_> = unnamed("INSERT INTO shop.audit(note) VALUES ('p')").into();
        rest.push(sync());
        assert_eq!(summary(&a.run(&rest).await), "1 2 D C 1 2 C Z(I)");
        // The read has been answered when the write comes: one implicit transaction all the same.
        a.send(&unnamed("SELECT count(*) FROM shop.item")).await;
        a.send(&[flush()]).await;
        assert_eq!(summary(&a.until(b'C').await), "1 2 D C");
        assert_eq!(summary(&a.run(&rest).await), "1 2 C Z(I)");
    })
    .await;
}

#[tokio::test]
async fn s_pl_08_a_portal_with_a_row_limit() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        for begin in ["BEGIN", "BEGIN READ ONLY"] {
            assert_eq!(summary(&a.query(begin).await), "C Z(T)");
            let first =
                [parse("", "SELECT generate_series(1,5)"), bind("p", "", &[]), execute("p", 2), sync()];
            assert_eq!(summary(&a.run(&first).await), "1 2 D D s Z(T)");
            assert_eq!(rows(&a.run(&[execute("p", 2), sync()]).await).len(), 2);
            let last = a.run(&[execute("p", 2), sync()]).await;
            assert_eq!(summary(&last), "D C Z(T)");
            assert_eq!(value(&last), "5");
            assert_eq!(tags(&a.query("COMMIT").await), ["COMMIT"]);
        }
        let outside = [parse("", "SELECT generate_series(1,5)"), bind("p", "", &[]), execute("p", 2), sync()];
        assert_eq!(summary(&a.run(&outside).await), "1 2 D D s Z(I)");
        assert_eq!(summary(&a.run(&[execute("p", 2), sync()]).await), "E(34000) Z(I)");
    })
    .await;
}

#[tokio::test]
async fn a_simple_query_may_follow_a_batch_in_one_write() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        let mut requests: Vec<_> = unnamed("SELECT 1").into();
        requests.extend([sync(), query("SELECT 2"), query("INSERT INTO shop.audit(note) VALUES ('q')")]);
        requests.extend(unnamed("SELECT 3"));
        requests.push(sync());
        a.send(&requests).await;
        for want in ["1 2 D C Z(I)", "T D C Z(I)", "C Z(I)", "1 2 D C Z(I)"] {
            assert_eq!(summary(&a.until_ready().await), want);
        }
    })
    .await;
}

#[tokio::test]
async fn errors_and_copy_do_not_wait_for_the_sync() {
    everywhere("", async |place: &Place| {
        let mut a = place.client().await;
        let copy = "COPY shop.audit(note) FROM STDIN";
        for transaction in [false, true] {
            let end = if transaction { "Z(T)" } else { "Z(I)" };
            if transaction {
                a.query("BEGIN").await;
            }
            a.send(&[parse("", copy), bind("", "", &[]), execute("", 0)]).await;
            assert_eq!(summary(&a.until(b'G').await), "1 2 G");
            a.send(&[copy_data(b"x\n"), copy_done(), sync()]).await;
            assert_eq!(summary(&a.until_ready().await), format!("C {end}"));
            // One that ends no COPY is ignored, and so is a Sync in the middle of one.
            a.send(&[parse("", copy), copy_done(), bind("", "", &[]), execute("", 0), sync()]).await;
            assert_eq!(summary(&a.until(b'G').await), "1 2 G");
            a.send(&[copy_data(b"y\n"), copy_done(), sync()]).await;
            assert_eq!(summary(&a.until_ready().await), format!("C {end}"));
        }
        a.query("COMMIT").await;
        assert_eq!(a.one("SELECT string_agg(note, '' ORDER BY id) FROM shop.audit").await, "xyxy");
        a.send(&[parse("", "SELECT FROM WHERE")]).await;
        assert_eq!(summary(&a.until(b'E').await), "E(42601)");
        a.send(&[bind("", "", &[]), execute("", 0), sync()]).await;
        assert_eq!(summary(&a.until_ready().await), "Z(I)");
        a.send(&[
            parse("", "SELECT 1/(count(*) - count(*)) FROM shop.item"),
            bind("", "", &[]),
            execute("", 0),
        ])
        .await;
        assert_eq!(summary(&a.until(b'E').await).split(' ').next_back(), Some("E(22012)"));
        a.send(&[sync()]).await;
        assert_eq!(summary(&a.until_ready().await), "Z(I)");
    })
    .await;
}

//! S-CP: COPY in both directions.

use std::time::Duration;

use causeway_testkit::wire::request::{
    bind, copy_data, copy_done, copy_fail, execute, flush, parse, query, sync,
};
use causeway_testkit::wire::{Client, Request, summary};
use causeway_tests::{ONE_CONNECTION, Place, everywhere, rows, tags, through, value};
use tokio::time::{Instant, sleep};

const COPY_NOTES: &str = "COPY shop.audit(note) FROM STDIN";
const COPIES_RUNNING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                              AND query LIKE 'COPY%' AND state <> 'idle'";

fn lines(from: u32, to: u32) -> Vec<Request> {
    (from..to).map(|i| copy_data(format!("cp {i}\n").as_bytes())).collect()
}

async fn notes(client: &mut Client) -> String {
    client.one("SELECT count(*) FROM shop.audit WHERE note LIKE 'cp %'").await
}

#[tokio::test]
async fn s_cp_01_copy_in_under_contention() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        a.send(&[query(COPY_NOTES)]).await;
        assert_eq!(summary(&a.until(b'G').await), "G");
        b.send(&[query("UPDATE shop.item SET qty = 11 WHERE id = 1")]).await;
        if !place.is_direct() {
            b.expect_silence(Duration::from_millis(700)).await;
        }
        a.send(&lines(0, 1000)).await;
        let answer = a.run(&[copy_done()]).await;
        assert_eq!((summary(&answer).as_str(), tags(&answer)), ("C Z(I)", vec!["COPY 1000".to_owned()]));
        assert_eq!(tags(&b.until_ready().await), ["UPDATE 1"]);
        assert_eq!(notes(&mut a).await, "1000");
    })
    .await;
}

#[tokio::test]
async fn s_cp_02_copy_rejected_while_the_client_is_still_sending() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        place.admin_everywhere("CREATE TABLE keyed (id int PRIMARY KEY, filler text)").await;
        let mut a = place.client().await;
        let chunk = copy_data(format!("1\t{}\n", "x".repeat(8000)).as_bytes()).encode();
        for (begin, status) in [(None, 'I'), (Some("BEGIN"), 'E')] {
            if let Some(begin) = begin {
                a.query(begin).await;
            }
            a.send(&[query("COPY keyed FROM STDIN")]).await;
            for _ in 0..1000 {
                a.send_bytes(&chunk).await;
            }
            a.send(&[copy_done()]).await;
            let answer = a.until_ready().await;
            assert_eq!(summary(&answer), format!("G E(23505) Z({status})"));
            if begin.is_some() {
                assert_eq!(tags(&a.query("COMMIT").await), ["ROLLBACK"]);
            }
            assert_eq!(summary(&a.query("SELECT 1").await), "T D C Z(I)");
            assert_eq!(value(&a.query("SELECT count(*) FROM keyed").await), "0");
        }
        let mut b = place.client().await;
        assert_eq!(tags(&b.query("INSERT INTO keyed VALUES (1)").await), ["INSERT 0 1"]);
        place.admin_until(COPIES_RUNNING, "0").await;
    })
    .await;
}

#[tokio::test]
async fn s_cp_03_sync_sent_before_the_copy_data() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.send(&[parse("", COPY_NOTES), bind("", "", &[]), execute("", 0), sync()]).await;
        assert_eq!(summary(&a.until(b'G').await), "1 2 G");
        a.expect_silence(Duration::from_millis(200)).await;
        a.send(&lines(0, 10)).await;
        a.send(&[copy_done(), sync()]).await;
        let answer = a.until_ready().await;
        assert_eq!((summary(&answer).as_str(), tags(&answer)), ("C Z(I)", vec!["COPY 10".to_owned()]));
        a.expect_silence(Duration::from_millis(200)).await;

        // All of it in one write.
        let mut all = vec![parse("", COPY_NOTES), bind("", "", &[]), execute("", 0)];
        all.extend(lines(10, 20));
        all.extend([copy_done(), sync()]);
        assert_eq!(summary(&a.run(&all).await), "1 2 G C Z(I)");
        assert_eq!(notes(&mut a).await, "20");
        let mut b = place.client().await;
        assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
    })
    .await;
}

#[tokio::test]
async fn s_cp_04_the_client_vanishes_in_the_middle_of_copy_in() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        for clean in [true, false] {
            let mut a = place.client().await;
            a.send(&[query(COPY_NOTES)]).await;
            a.until(b'G').await;
            a.send(&lines(0, 100)).await;
            sleep(Duration::from_millis(100)).await;
            if clean {
                drop(a);
            } else {
                a.reset();
            }
            let gone = Instant::now();
            place.admin_until(COPIES_RUNNING, "0").await;
            let mut b = place.client().await;
            assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
            assert_eq!(notes(&mut b).await, "0");
            assert!(gone.elapsed() < Duration::from_secs(2), "the pool came back after {:?}", gone.elapsed());
        }
    })
    .await;
}

#[tokio::test]
async fn s_cp_05_copy_fail_by_the_client() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.send(&[query(COPY_NOTES)]).await;
        a.until(b'G').await;
        a.send(&lines(0, 5)).await;
        let answer = a.run(&[copy_fail("gave up")]).await;
        assert_eq!(summary(&answer), "E(57014) Z(I)");
        assert_eq!(answer[0].field(b'M'), Some("COPY from stdin failed: gave up"));

        a.send(&[parse("", COPY_NOTES), bind("", "", &[]), execute("", 0), flush()]).await;
        assert_eq!(summary(&a.until(b'G').await), "1 2 G");
        a.send(&lines(0, 5)).await;
        assert_eq!(summary(&a.run(&[copy_fail("gave up"), sync()]).await), "E(57014) Z(I)");
        a.expect_silence(Duration::from_millis(100)).await;
        assert_eq!(notes(&mut a).await, "0");
        let mut b = place.client().await;
        assert_eq!(tags(&b.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
    })
    .await;
}

#[tokio::test]
async fn copy_out_arrives_whole() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        let copy = "COPY (SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i) TO STDOUT";
        for _ in 0..3 {
            let simple = a.query(copy).await;
            assert_eq!(summary(&simple), "H d*20000 c C Z(I)");
            assert!(simple[20000].body.starts_with(b"20000\tx"), "the last row is the last");
            let extended = [parse("", copy), bind("", "", &[]), execute("", 0), sync()];
            assert_eq!(summary(&a.run(&extended).await), "1 2 H d*20000 c C Z(I)");
        }
        // The failure comes after data.
        let failing = a.query("COPY (SELECT 1/(1000 - i) FROM generate_series(1, 2000) i) TO STDOUT").await;
        assert_eq!(summary(&failing), "H d*999 E(22012) Z(I)");
        assert_eq!(value(&a.query("SELECT 1").await), "1");
    })
    .await;
}

#[tokio::test]
async fn copy_and_other_statements_in_one_query() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.send(&[query(&format!("SELECT 1; {COPY_NOTES}; SELECT 2"))]).await;
        assert_eq!(summary(&a.until(b'G').await), "T D C G");
        a.send(&lines(0, 3)).await;
        assert_eq!(summary(&a.run(&[copy_done()]).await), "C T D C Z(I)");
        assert_eq!(notes(&mut a).await, "3");
    })
    .await;
}

#[tokio::test]
async fn copies_of_many_clients_keep_apart() {
    through("pool: { size: 2 }\n", async |place: &Place| {
        place.admin_everywhere("CREATE TABLE loads (client int, n int)").await;
        let mut tasks = Vec::new();
        for number in 0..8 {
            let mut client = place.client().await;
            tasks.push(tokio::spawn(async move {
                for round in 0..5 {
                    client.send(&[query("COPY loads FROM STDIN")]).await;
                    client.until(b'G').await;
                    let data = (0..50).map(|n| copy_data(format!("{number}\t{n}\n").as_bytes()));
                    client.send(&data.collect::<Vec<_>>()).await;
                    assert_eq!(tags(&client.run(&[copy_done()]).await), ["COPY 50"]);
                    let own = format!("SELECT count(*) FROM loads WHERE client = {number}");
                    assert_eq!(client.one(&own).await, (50 * (round + 1)).to_string());
                }
            }));
        }
        for task in tasks {
            task.await.expect("every copy is its client's");
        }
        let counts =
            place.client().await.query("SELECT client, count(*) FROM loads GROUP BY 1 ORDER BY 1").await;
        assert!(rows(&counts).iter().all(|row| row[1].as_deref() == Some("250")), "{counts:?}");
    })
    .await;
}

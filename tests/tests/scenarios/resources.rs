//! S-RE: limits and large things.

use std::fmt::Write as _;
use std::time::Duration;

use causeway_testkit::wire::request::{bind, execute, parse, query, sync};
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{ONE_CONNECTION, Place, code, everywhere, tags, through, value};
use tokio::time::{Instant, sleep};

const MEBIBYTE: u64 = 1024 * 1024;

#[tokio::test]
async fn s_re_01_the_pool_is_exhausted() {
    through("pool: { size: 1, checkout_timeout: 400ms }\n", async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        b.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
        let insert = "INSERT INTO shop.audit(note) VALUES ('re01')";
        let mut codes = Vec::new();
        for extended in [false, true] {
            let asked = Instant::now();
            let answer = if extended { a.execute(insert, &[]).await } else { a.query(insert).await };
            assert_eq!(summary(&answer), format!("E({}) Z(I)", code(&answer)));
            assert!(["53", "57", "58"].contains(&&code(&answer)[..2]), "{answer:?}");
            let waited = asked.elapsed();
            assert!(waited >= Duration::from_millis(390) && waited < Duration::from_secs(2), "{waited:?}");
            codes.push(code(&answer).to_owned());
        }
        assert_eq!(codes[0], codes[1]);
        let timeouts = place.count("causeway_checkout_timeouts_total", "primary").await;
        assert_eq!(timeouts, 2);

        // In the order of arrival.
        let mut waiting = Vec::new();
        for number in 0..5 {
            let mut client = place.client().await;
            client.send(&[query(&format!("INSERT INTO shop.audit(note) VALUES ('{number}')"))]).await;
            sleep(Duration::from_millis(20)).await;
            waiting.push(client);
        }
        b.query("COMMIT").await;
        for mut client in waiting {
            assert_eq!(tags(&client.until_ready().await), ["INSERT 0 1"]);
        }
        assert_eq!(a.one("SELECT string_agg(note, '' ORDER BY id) FROM shop.audit").await, "01234");
    })
    .await;
}

#[tokio::test]
async fn s_re_02_a_slow_reader_of_a_large_result() {
    through("pool: { size: 2 }\n", async |place: &Place| {
        let mut b = place.client().await;
        b.one("SELECT 1").await;
        let before = place.causeway().rss_bytes();
        let mut slow = Client::connect_slow(place.port(), 65536).await;
        slow.startup(&[("user", "postgres"), ("database", place.database())]).await;
        slow.send(&[query("SELECT repeat('x',1000) FROM generate_series(1,1000000)")]).await;
        let mut worst = Duration::ZERO;
        for _ in 0..100 {
            let asked = Instant::now();
            assert_eq!(b.one("SELECT 1").await, "1");
            worst = worst.max(asked.elapsed());
            sleep(Duration::from_millis(10)).await;
        }
        assert!(worst < Duration::from_millis(500), "B waited {worst:?}");
        let grown = place.causeway().rss_bytes().saturating_sub(before);
        assert!(grown < 8 * MEBIBYTE, "memory grew by {grown} bytes for a client that does not read");
        slow.reset();
        // One row larger than any buffer, and the whole of a large result, in bounded memory.
        let wide = b.one("SELECT repeat('y', 3000000)").await;
        assert_eq!(wide.len(), 3_000_000);
        let all = b.query("SELECT repeat('x',1000) FROM generate_series(1,100000)").await;
        assert_eq!(summary(&all), "T D*100000 C Z(I)");
        let grown = place.causeway().rss_bytes().saturating_sub(before);
        assert!(grown < 24 * MEBIBYTE, "memory grew by {grown} bytes");
    })
    .await;
}

#[tokio::test]
async fn s_re_04_very_long_statements() {
    everywhere("", async |place: &Place| {
        place.admin_everywhere("CREATE TABLE long (id int, filler text)").await;
        let mut a = place.client().await;
        let mut insert = "INSERT INTO long VALUES (0, 'x')".to_owned();
        for id in 1..20_000 {
            write!(insert, ",({id}, '{}')", "x".repeat(1000)).expect("a String takes it");
        }
        assert_eq!(tags(&a.query(&insert).await), ["INSERT 0 20000"]);

        let items: Vec<String> = (0..200_000).map(|id| id.to_string()).collect();
        let select = format!("SELECT count(*) FROM long WHERE id IN ({})", items.join(","));
        assert_eq!(a.one(&select).await, "20000");
        let prepared = a.execute(&select, &[]).await;
        assert_eq!((summary(&prepared).as_str(), value(&prepared)), ("1 2 T D C Z(I)", "20000".to_owned()));

        for (depth, want) in [(1000, "T D C Z(I)"), (100_000, "E(42601) Z(I)")] {
            let nested = format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
            let answer = a.query(&nested).await;
            assert_eq!(summary(&answer), want, "{depth} parentheses");
        }
        let chain = format!("SELECT 1{}", "+1".repeat(1000));
        assert_eq!(a.one(&chain).await, "1001");
    })
    .await;
}

#[tokio::test]
async fn s_re_06_large_bind() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut tasks = Vec::new();
        for number in 0..4 {
            let mut client = place.client().await;
            tasks.push(tokio::spawn(async move {
                for size in [4096, 65_536, 1_048_576, 8_388_608] {
                    let text = "0123456789abcdef".repeat(size / 16 + number);
                    let answer = client.execute("SELECT length($1), md5($1)", &[Some(&text)]).await;
                    assert_eq!(summary(&answer), "1 2 T D C Z(I)");
                    assert_eq!(value(&answer), text.len().to_string());
                }
            }));
        }
        for task in tasks {
            task.await.expect("large values arrive whole");
        }
        let mut a = place.client().await;
        let numbers: Vec<String> = (1..=65_535).map(|n| format!("${n}::int")).collect();
        let most = format!("SELECT array_length(ARRAY[{}], 1)", numbers.join(","));
        let values = vec![Some("1"); 65_535];
        let answer = a.run(&[parse("", &most), bind("", "", &values), execute("", 0), sync()]).await;
        assert_eq!((summary(&answer).as_str(), value(&answer)), ("1 2 D C Z(I)", "65535".to_owned()));
        assert_eq!(a.one("SELECT 1").await, "1");
    })
    .await;
}

#[tokio::test]
async fn a_pool_never_has_more_connections_than_it_may() {
    through("pool: { size: 3 }\n", async |place: &Place| {
        // Reading the catalogue takes a connection of its own.
        let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND pid <> pg_backend_pid() AND application_name <> 'causeway'";
        let mut tasks = Vec::new();
        for _ in 0..24 {
            let mut client = place.client().await;
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    client.query("BEGIN").await;
                    client.query("UPDATE shop.item SET qty = qty WHERE id = (random() * 3)::int").await;
                    client.query("COMMIT").await;
                }
            }));
        }
        let mut most = 0;
        while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            most = most.max(place.admin(count).await.parse::<u32>().expect("a number"));
        }
        for task in tasks {
            task.await.expect("every client is served");
        }
        assert!((1..=3).contains(&most), "{most} server connections on the primary");
    })
    .await;
}

#[tokio::test]
async fn one_client_after_another_shares_one_server_connection() {
    through(ONE_CONNECTION, async |place: &Place| {
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let mut client = place.client().await;
            let answer =
                client.query("UPDATE shop.item SET qty = qty WHERE id = 1 RETURNING pg_backend_pid()").await;
            pids.insert(value(&answer));
            client.terminate().await;
        }
        assert_eq!(pids.len(), 1, "{pids:?}");
    })
    .await;
}

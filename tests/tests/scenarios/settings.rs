//! S-SE: session state in a shared pool.

use causeway_testkit::wire::request::query;
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{ONE_CONNECTION, Place, code, count, everywhere, tags, through};

/// A statement that shows `name` and that only the primary answers.
fn show_on_primary(name: &str) -> String {
    format!("SELECT current_setting('{name}') FROM shop.item WHERE id = 1 FOR UPDATE")
}

/// A read that shows `name`; where it is answered is up to Causeway.
fn show_anywhere(name: &str) -> String {
    format!("SELECT current_setting('{name}') FROM shop.item WHERE id = 1")
}

async fn shows(client: &mut Client, name: &str, want: &str) {
    for sql in [format!("SHOW {name}"), show_anywhere(name), show_on_primary(name)] {
        assert_eq!(client.one(&sql).await, want, "{sql}");
    }
}

#[tokio::test]
async fn s_se_01_set_of_one_client_does_not_reach_another() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        for sql in ["SET statement_timeout='1s'", "SET search_path=shop"] {
            assert_eq!(tags(&a.query(sql).await), ["SET"], "{sql}");
        }
        for round in 0..30 {
            shows(&mut a, "statement_timeout", "1s").await;
            shows(&mut b, "statement_timeout", "0").await;
            assert_eq!(a.one("SELECT count(*) FROM item").await, "4");
            assert_eq!(code(&b.query("SELECT count(*) FROM item").await), "42P01");
            if round % 10 == 5 && !place.is_direct() {
                place.terminate_on_primary().await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        a.query("RESET ALL").await;
        shows(&mut a, "statement_timeout", "0").await;
        assert_eq!(code(&a.query("SELECT count(*) FROM item").await), "42P01");
    })
    .await;
}

#[tokio::test]
async fn s_se_01_roles_stay_with_their_session() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        place.admin_everywhere("GRANT UPDATE ON shop.item TO shop_reader").await;
        let user = "SELECT current_user || ' ' || session_user FROM shop.item WHERE id = 1";
        let locked = format!("{user} FOR UPDATE");
        let mut b = place.client().await;
        for (set, reset) in [
            ("SET ROLE shop_reader", "RESET ROLE"),
            ("SET SESSION AUTHORIZATION shop_reader", "RESET SESSION AUTHORIZATION"),
            ("SET ROLE shop_reader", "DISCARD ALL"),
        ] {
            let mut a = place.client().await;
            assert_eq!(tags(&a.query(set).await), ["SET"]);
            let want = if set.contains("AUTHORIZATION") {
                "shop_reader shop_reader"
            } else {
                "shop_reader postgres"
            };
            for _ in 0..4 {
                for sql in [user, &locked] {
                    assert_eq!(a.one(sql).await, want);
                    assert_eq!(b.one(sql).await, "postgres postgres");
                }
            }
            a.query(reset).await;
            assert_eq!(a.one(&locked).await, "postgres postgres");
            a.query(set).await;
            a.terminate().await;
            let mut c = place.client().await;
            for sql in [user, &locked, user, &locked] {
                assert_eq!(c.one(sql).await, "postgres postgres");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn s_se_02_set_in_a_transaction_that_is_rolled_back() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut a = place.client().await;
        let mut other = place.client().await;
        let start = a.one("SHOW work_mem").await;
        for statements in [
            "BEGIN; SET work_mem='9MB'; ROLLBACK",
            "BEGIN; SAVEPOINT s; SET work_mem='8MB'; ROLLBACK TO s; COMMIT",
            "BEGIN; SET LOCAL work_mem='7MB'; COMMIT",
            "BEGIN; SET work_mem='6MB'; SELECT 1/0; COMMIT",
            "SET LOCAL work_mem='5MB'",
            "BEGIN; SELECT set_config('work_mem', '4MB', false); ROLLBACK",
            "BEGIN; SELECT set_config('work_mem', '4MB', true); COMMIT",
        ] {
            // Each in a message of its own, then all in one.
            for sql in statements.split("; ") {
                a.query(sql).await;
            }
            other.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 2").await;
            shows(&mut a, "work_mem", &start).await;
            other.query("COMMIT").await;
            a.query(statements).await;
            a.query("ROLLBACK").await;
            shows(&mut a, "work_mem", &start).await;
        }
        // Inside the transaction it holds; what is committed stays.
        a.query("BEGIN; SET work_mem='9MB'").await;
        assert_eq!(a.one("SHOW work_mem").await, "9MB");
        a.query("SAVEPOINT s; SET work_mem='10MB'; RELEASE s; COMMIT").await;
        shows(&mut a, "work_mem", "10MB").await;
        a.query("SELECT set_config('work_mem', '11MB', false)").await;
        shows(&mut a, "work_mem", "11MB").await;
        shows(&mut other, "work_mem", &start).await;
        a.query("RESET work_mem").await;
        shows(&mut a, "work_mem", &start).await;
    })
    .await;
}

#[tokio::test]
async fn s_se_03_the_same_application_name_twice_on_one_server_connection() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b, mut c) = (place.client().await, place.client().await, place.client().await);
        a.query("SET application_name='App'").await;
        b.query("SET application_name='App'").await;
        for _ in 0..5 {
            for (client, want) in [(&mut c, ""), (&mut b, "App"), (&mut a, "App")] {
                shows(client, "application_name", want).await;
            }
        }
        assert_eq!(
            (a.parameter("application_name"), b.parameter("application_name")),
            (Some("App"), Some("App"))
        );
        assert_eq!(c.parameter("application_name"), Some(""));
    })
    .await;
}

#[tokio::test]
async fn s_se_04_an_empty_search_path_stays_with_its_session() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let (mut dump, mut app) = (place.client().await, place.client().await);
        app.query("SET search_path = shop").await;
        assert_eq!(dump.one("SELECT pg_catalog.set_config('search_path', '', false)").await, "");
        for _ in 0..5 {
            assert_eq!(app.one("SELECT count(*) FROM item").await, "4");
            assert_eq!(code(&dump.query("SELECT count(*) FROM item").await), "42P01");
            assert_eq!(dump.one("SHOW search_path").await, "");
            assert_eq!(dump.one(&show_on_primary("search_path")).await, "");
            dump.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await;
            assert_eq!(code(&dump.query("SELECT count(*) FROM item").await), "42P01");
            dump.query("ROLLBACK").await;
        }
        dump.terminate().await;
        let mut later = place.client().await;
        assert_eq!(later.one("SHOW search_path").await, "\"$user\", public");
        for path in ["\"a b\", shop", "shop, \"Mixed\"", "'x y', public"] {
            later.query(&format!("SET search_path = {path}")).await;
            let shown = later.one("SHOW search_path").await;
            app.one("SELECT 1").await;
            assert_eq!(later.one("SHOW search_path").await, shown);
            assert_eq!(later.one(&show_on_primary("search_path")).await, shown);
        }
    })
    .await;
}

#[tokio::test]
async fn s_se_05_startup_parameters() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let options = "-c search_path=shop -c statement_timeout=5s --work_mem=6MB -c application_name=a\\ b";
        let parameters = [
            ("options", options),
            ("extra_float_digits", "3"),
            ("client_encoding", "LATIN1"),
            ("DateStyle", "German, DMY"),
            ("TimeZone", "Asia/Tokyo"),
        ];
        let (mut a, _) = place.client_with(&parameters).await;
        for (name, want) in
            [("client_encoding", "LATIN1"), ("TimeZone", "Asia/Tokyo"), ("application_name", "a b")]
        {
            assert_eq!(a.parameter(name), Some(want), "{name} in the greeting");
        }
        assert_eq!(a.parameter("DateStyle"), Some("German, DMY"));
        let (mut named, _) = place.client_with(&[("options", "-c work_mem=6MB"), ("work_mem", "7MB")]).await;
        let mut plain = place.client().await;
        for _ in 0..3 {
            for (name, want) in [
                ("search_path", "shop"),
                ("statement_timeout", "5s"),
                ("work_mem", "6MB"),
                ("application_name", "a b"),
                ("extra_float_digits", "3"),
                ("client_encoding", "LATIN1"),
                ("DateStyle", "German, DMY"),
                ("TimeZone", "Asia/Tokyo"),
            ] {
                shows(&mut a, name, want).await;
            }
            shows(&mut named, "work_mem", "7MB").await;
            let zone = plain.parameter("TimeZone").expect("the greeting names a zone").to_owned();
            shows(&mut plain, "TimeZone", &zone).await;
            assert_eq!(plain.one("SHOW client_encoding").await, "UTF8");
        }
    })
    .await;
}

#[tokio::test]
async fn s_se_07_reset_goes_back_to_the_startup_value() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let parameters = [("application_name", "startval"), ("options", "-c work_mem=6MB")];
        let (mut a, _) = place.client_with(&parameters).await;
        let mut b = place.client().await;
        for reset in ["RESET ALL", "DISCARD ALL", "RESET application_name; RESET work_mem"] {
            a.query("SET application_name='z'; SET work_mem='9MB'").await;
            shows(&mut a, "work_mem", "9MB").await;
            b.one("SELECT 1").await;
            a.query(reset).await;
            shows(&mut a, "application_name", "startval").await;
            shows(&mut a, "work_mem", "6MB").await;
        }
        a.query("SET work_mem TO DEFAULT").await;
        shows(&mut a, "work_mem", "6MB").await;
    })
    .await;
}

#[tokio::test]
async fn session_state_that_cannot_be_replayed_pins_the_session() {
    through(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        a.query("CREATE TEMP TABLE mine AS SELECT 7 AS n").await;
        let mut b = place.client().await;
        b.send(&[query("UPDATE shop.item SET qty = qty WHERE id = 1")]).await;
        for _ in 0..3 {
            assert_eq!(a.one("SELECT n FROM mine").await, "7");
        }
        b.expect_silence(std::time::Duration::from_millis(100)).await;
        let pins = count(place.causeway(), "causeway_pins_total", &[("database", place.database())]).await;
        assert!(pins > 0, "the pin is counted");
        a.terminate().await;
        assert_eq!(tags(&b.until_ready().await), ["UPDATE 1"]);
        assert_eq!(code(&b.query("SELECT n FROM mine").await), "42P01");
    })
    .await;
}

#[tokio::test]
async fn a_part_of_datestyle_is_set_and_the_other_stays() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, _) = place.client_with(&[("DateStyle", "Postgres, MDY")]).await;
        let (mut b, _) = place.client_with(&[("DateStyle", "German")]).await;
        let (mut c, _) = place.client_with(&[("DateStyle", "SQL")]).await;
        a.query("SET datestyle TO iso").await;
        a.query("SET datestyle = dmy").await;
        for _ in 0..2 {
            shows(&mut b, "DateStyle", "German, DMY").await;
            shows(&mut a, "DateStyle", "ISO, DMY").await;
            shows(&mut c, "DateStyle", "SQL, MDY").await;
            assert_eq!(a.one("SELECT date '1999-01-08'").await, "1999-01-08");
            assert_eq!(a.one("SELECT date '1/8/1999'").await, "1999-08-01");
        }
        a.query("BEGIN; SET datestyle TO sql; ROLLBACK").await;
        a.query("BEGIN").await;
        a.query("SET datestyle TO ymd").await;
        a.query("ROLLBACK").await;
        b.one("SELECT 1").await;
        shows(&mut a, "DateStyle", "ISO, DMY").await;
        a.query("RESET datestyle").await;
        b.one("SELECT 1").await;
        shows(&mut a, "DateStyle", "Postgres, MDY").await;
    })
    .await;
}

#[tokio::test]
async fn defaults_that_pass_reach_the_next_login() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut a = place.client().await;
        assert_eq!(a.one("SELECT current_setting('work_mem')").await, "4MB");
        for (zone, mem) in [("Asia/Tokyo", "7MB"), ("Europe/Paris", "8MB")] {
            let database = place.database();
            a.query(&format!("ALTER DATABASE {database} SET TimeZone = '{zone}'")).await;
            let both =
                format!("BEGIN; ALTER ROLE postgres IN DATABASE {database} SET work_mem = '{mem}'; COMMIT");
            assert_eq!(summary(&a.query(&both).await), "C C C Z(I)");
            let mut b = place.client().await;
            assert_eq!(b.parameter("TimeZone"), Some(zone));
            assert_eq!(
                b.one("SELECT current_setting('work_mem') || current_setting('TimeZone')").await,
                mem.to_owned() + zone
            );
            b.terminate().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_reset_in_a_transaction_goes_back_to_what_was_asked_for_at_startup() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let zone = ("TimeZone", "Asia/Tokyo");
        let (mut a, _) = place.client_with(&[zone, ("options", "-c work_mem=5MB")]).await;
        let show = "SELECT current_setting('TimeZone') || current_setting('work_mem') FROM shop.item WHERE id = 1 FOR UPDATE";
        for (reset, end) in [("RESET TimeZone", "COMMIT"), ("RESET ALL", "ROLLBACK"), ("RESET ALL", "COMMIT")] {
            a.query("BEGIN").await;
            a.query("SET TimeZone = 'UTC'").await;
            assert_eq!(a.one(show).await, "UTC5MB");
            a.query(reset).await;
            assert_eq!(a.one(show).await, "Asia/Tokyo5MB", "{reset}");
            a.query(end).await;
            assert_eq!(a.one(show).await, "Asia/Tokyo5MB", "{reset}; {end}");
            assert_eq!(a.parameter("TimeZone"), Some("Asia/Tokyo"));
        }
    })
    .await;
}

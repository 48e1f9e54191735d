//! State of a server session that another client must not see, and that its own must not lose.

use causeway_testkit::wire::request::query;
use causeway_testkit::wire::summary;
use causeway_tests::{ONE_CONNECTION, Place, code, everywhere, tags};

const TWO_CONNECTIONS: &str = "pool: { size: 2 }\n";

#[tokio::test]
async fn sequences_advanced_by_others_do_not_show() {
    everywhere(TWO_CONNECTIONS, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        for round in 0..4 {
            let next = a.one("SELECT nextval('shop.ticket_seq')").await;
            assert_eq!(a.one("SELECT currval('shop.ticket_seq')").await, next, "round {round}");
            for sql in ["SELECT currval('shop.ticket_seq')", "SELECT lastval()"] {
                assert_eq!(code(&b.query(sql).await), "55000", "round {round}: {sql}");
            }
        }
        a.query("INSERT INTO shop.audit(note) VALUES ('identity')").await;
        let id = place.admin("SELECT max(id) FROM shop.audit").await;
        assert_eq!(a.one("SELECT lastval()").await, id);
    })
    .await;
}

#[tokio::test]
async fn a_reported_setting_changed_inside_a_function_reaches_nobody_else() {
    everywhere(TWO_CONNECTIONS, async |place: &Place| {
        place
            .admin_everywhere(
                "CREATE FUNCTION quiet(value text) RETURNS void LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM set_config('DateStyle', value, false); END $$",
            )
            .await;
        let (mut a, mut b) = (place.client().await, place.client().await);
        let start = b.one("SHOW DateStyle").await;
        let on_primary = "SELECT current_setting('DateStyle') FROM shop.item WHERE id = 1 FOR UPDATE";
        assert_eq!(summary(&a.query("SELECT quiet('German')").await), "T D C S(DateStyle) Z(I)");
        for _ in 0..5 {
            assert_eq!(b.one(on_primary).await, start);
            assert_eq!(b.one("SHOW DateStyle").await, start);
        }
        a.terminate().await;
        let mut c = place.client().await;
        for _ in 0..3 {
            assert_eq!((c.one(on_primary).await, b.one(on_primary).await), (start.clone(), start.clone()));
        }
    })
    .await;
}

const LOCK_HELD: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 \
                         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test]
async fn s_rt_04_an_advisory_lock_is_held_until_it_is_given_back() {
    everywhere(TWO_CONNECTIONS, async |place: &Place| {
        let mut b = place.client().await;
        for unlocks in [true, false] {
            let mut a = place.client().await;
            assert_eq!(a.one("SELECT 1").await, "1");
            assert_eq!(tags(&a.query("SELECT pg_advisory_lock(7)").await), ["SELECT 1"]);
            for _ in 0..10 {
                assert_eq!(a.one("SELECT count(*) FROM shop.item").await, "4");
                assert_eq!(tags(&a.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
            }
            assert_eq!(place.admin(LOCK_HELD).await, "1", "the lock is on the primary");
            assert_eq!(b.one("SELECT pg_try_advisory_lock(7)").await, "f");
            if unlocks {
                assert_eq!(a.one("SELECT pg_advisory_unlock(7)").await, "t");
                assert_eq!(b.one("SELECT pg_try_advisory_lock(7)").await, "t");
                assert_eq!(b.one("SELECT pg_advisory_unlock(7)").await, "t");
            } else {
                a.terminate().await;
            }
            place.admin_until(LOCK_HELD, "0").await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_advisory_lock_in_a_read_only_transaction_is_not_lost_silently() {
    everywhere(TWO_CONNECTIONS, async |place: &Place| {
        // The lock first, so that all of it is the primary's.
        let mut a = place.client().await;
        a.query("BEGIN READ ONLY").await;
        assert_eq!(tags(&a.query("SELECT pg_advisory_lock(7)").await), ["SELECT 1"]);
        a.query("COMMIT").await;
        assert_eq!(tags(&a.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
        assert_eq!(place.admin(LOCK_HELD).await, "1");
        a.terminate().await;
        place.admin_until(LOCK_HELD, "0").await;

        // A read first, and the transaction may be a replica's: held on the primary, or refused with an error.
        let mut a = place.client().await;
        a.query("BEGIN READ ONLY").await;
        assert_eq!(a.one("SELECT count(*) FROM shop.item").await, "4");
        a.send(&[query("SELECT pg_advisory_lock(7)")]).await;
        let first = a.recv().await;
        assert!(first.tag == b'T' || !place.is_direct() && first.code() == "0A000", "{first:?}");
        let held = if first.tag == b'T' { "1" } else { "0" };
        assert_eq!(place.admin(LOCK_HELD).await, held);
        drop(a);
        place.admin_until(LOCK_HELD, "0").await;
    })
    .await;
}

#[tokio::test]
async fn temporary_tables_and_cursors_stay_with_their_session() {
    everywhere(TWO_CONNECTIONS, async |place: &Place| {
        let mut a = place.client().await;
        a.query("CREATE TEMP TABLE item AS SELECT 1 AS own").await;
        a.query("SET search_path = pg_temp, shop").await;
        a.query("DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 3)").await;
        let mut b = place.client().await;
        for n in 1..=3 {
            assert_eq!(a.one("SELECT own FROM item").await, "1");
            assert_eq!(a.one("FETCH c").await, n.to_string());
            assert_eq!(code(&b.query("FETCH c").await), "34000");
            assert_eq!(b.one("SELECT count(*) FROM shop.item").await, "4");
            assert_eq!(code(&b.query("SELECT own FROM item").await), "42P01");
        }
        assert_eq!(tags(&a.query("DISCARD ALL").await), ["DISCARD ALL"]);
        assert_eq!(code(&a.query("FETCH c").await), "34000");
        assert_eq!(code(&a.query("SELECT own FROM item").await), "42P01");
    })
    .await;
}

#[tokio::test]
async fn who_had_temporary_tables_leaves_no_trace_in_the_next_session() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let mut a = place.client().await;
        assert_eq!(a.one("SELECT pg_my_temp_schema()").await, "0");
        a.query("CREATE TEMP TABLE mine (n int)").await;
        a.query("DROP TABLE mine").await;
        a.terminate().await;
        let mut b = place.client().await;
        assert_eq!(b.one("SELECT pg_my_temp_schema()").await, "0");
        b.query("SET search_path TO pg_temp").await;
        b.query("BEGIN").await;
        b.one("SELECT current_schema() LIKE 'pg_temp%'").await;
        assert_eq!(code(&b.query("PREPARE TRANSACTION 'temporary'").await), "0A000");
        b.terminate().await;
    })
    .await;
}

//! What a session leaves on its server connection: nobody else finds it, its own session does, and it does not keep the
//! connection for longer than it is there.

use causeway_testkit::wire::Client;
use causeway_testkit::wire::request::{parse, raw, sync};
use causeway_tests::{Place, call, code, everywhere, rows, tags, through};

const ONE_CONNECTION: &str = "pool: { size: 1 }\nadmin: { users: [postgres] }\n";
const TWO_CONNECTIONS: &str = "pool: { size: 2 }\nadmin: { users: [postgres] }\n";

/// What a read on the primary sees.
const ON_PRIMARY: &str = " FROM shop.item WHERE id = 1 FOR UPDATE";

const FUNCTIONS: &str = "
    CREATE FUNCTION tenant(value text) RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN PERFORM set_config('app.tenant', value, false); END $$;
    CREATE FUNCTION outer_tenant(value text) RETURNS void LANGUAGE sql AS 'SELECT tenant(value)';
    CREATE FUNCTION memory(value text) RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN EXECUTE 'SET work_mem TO ' || quote_literal(value); END $$;
    CREATE FUNCTION any_setting(name text, value text) RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN PERFORM set_config(name, value, false); END $$;
    CREATE FUNCTION stable_tenant(value text) RETURNS text STABLE LANGUAGE plpgsql AS
      $$ BEGIN RETURN set_config('app.tenant', value, false); END $$;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM tenant('trigger'); PERFORM pg_advisory_lock(77); RETURN NEW; END $$;
    CREATE TABLE noted (a int);
    CREATE TRIGGER noted BEFORE INSERT ON noted FOR EACH ROW EXECUTE FUNCTION note();
    CREATE FUNCTION scratch() RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN CREATE TEMP TABLE scratch_item AS SELECT 1 AS own; END $$;
    CREATE FUNCTION lock_and_work() RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_advisory_lock(7); PERFORM pg_advisory_unlock(7); END $$;
    CREATE FUNCTION listens() RETURNS void LANGUAGE plpgsql AS $$ BEGIN LISTEN ev; END $$;
    CREATE PROCEDURE called() LANGUAGE plpgsql AS $$ BEGIN UPDATE shop.item SET qty = qty WHERE id = 1; END $$;
    CREATE FUNCTION runs(statement text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; END $$;";

/// The pins that the console shows of clients of this database.
async fn pins(place: &Place) -> Vec<String> {
    let mut console = Client::login(place.port(), "postgres", "causeway").await;
    let shown = rows(&console.query("SHOW PINS").await);
    console.terminate().await;
    let of_database = shown.into_iter().filter(|row| row[1].as_deref() == Some(place.database()));
    of_database.map(|row| row[4].clone().expect("reasons")).collect()
}

/// Waits until the console shows these pins: they end after the answer.
async fn pinned_by(place: &Place, want: &[&str]) {
    if place.is_direct() {
        return;
    }
    for _ in 0..100 {
        if pins(place).await == want {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("pinned by {:?}, not by {want:?}", pins(place).await);
}

async fn tenant(client: &mut Client) -> String {
    client.one(&format!("SELECT coalesce(current_setting('app.tenant', true), ''){ON_PRIMARY}")).await
}

/// Whether it takes effect: settings made by functions are the session's own.
#[tokio::test]
async fn settings_changed_inside_functions_follow_their_session_and_nobody_else() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        place.admin_everywhere(FUNCTIONS).await;
        knows_functions(place).await;
        let (mut a, mut b) = (place.client().await, place.client().await);
        let start = b.one("SHOW work_mem").await;
        for (sql, want) in [
            ("SELECT tenant('one')", "one"),
            ("SELECT outer_tenant('two')", "two"),
            ("SELECT stable_tenant('three')", "three"),
            ("DO $$ BEGIN PERFORM tenant('four'); END $$", "four"),
            ("DO $$ BEGIN SET app.tenant = 'five'; END $$", "five"),
            ("SELECT set_config('app.tenant', 'six', false)", "six"),
            ("SELECT set_config('app.tenant', 'nobody', true)", "six"),
        ] {
            let answer = a.query(sql).await;
            assert_eq!(tags(&answer).len(), 1, "{sql}: {answer:?}");
            assert_eq!(
                (tenant(&mut a).await, tenant(&mut b).await),
                (want.to_owned(), String::new()),
                "{sql}"
            );
            pinned_by(place, &[]).await;
        }
        let sql = "SELECT set_config('app.tenant', $1, false)";
        a.run(&[parse("s", sql), sync()]).await;
        a.run(&call("s", &[Some("seven")])).await;
        assert_eq!((tenant(&mut a).await, tenant(&mut b).await), ("seven".to_owned(), String::new()));
        a.query("BEGIN").await;
        a.query("SELECT tenant('undone')").await;
        a.query("ROLLBACK").await;
        assert_eq!(tenant(&mut a).await, "seven");
        a.query("SELECT memory('9MB')").await;
        for _ in 0..3 {
            assert_eq!(a.one(&format!("SELECT current_setting('work_mem'){ON_PRIMARY}")).await, "9MB");
            assert_eq!(b.one(&format!("SELECT current_setting('work_mem'){ON_PRIMARY}")).await, start);
            assert_eq!(a.one("SHOW work_mem").await, "9MB");
        }
        a.query("RESET ALL").await;
        assert_eq!(tenant(&mut a).await, "");
        a.query("BEGIN; SAVEPOINT s; SET app.tenant = 'lost'; ROLLBACK TO s; SET work_mem = '8MB'; COMMIT")
            .await;
        assert_eq!(a.one("SHOW work_mem").await, "8MB");
        assert_eq!((tenant(&mut a).await, tenant(&mut b).await), (String::new(), String::new()));
        pinned_by(place, &[]).await;
    })
    .await;
}

/// A statement that runs code which the catalogue does not know yet leaves nothing to others either.
#[tokio::test]
async fn code_that_is_not_known_yet_leaks_nothing() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        assert_eq!(tenant(&mut b).await, "");
        a.query(FUNCTIONS).await;
        a.query("SELECT tenant('a')").await;
        // For whom it was set, it is there.
        assert_eq!(tenant(&mut a).await, "a");
        assert_eq!(tenant(&mut b).await, "");
        assert_eq!(tenant(&mut a).await, "a");
        a.query("INSERT INTO noted VALUES (1)").await;
        if !place.is_direct() {
            pinned_by(place, &["advisory_lock"]).await;
            assert_eq!(tenant(&mut a).await, "trigger");
            a.query("SELECT pg_advisory_unlock_all()").await;
        }
        assert_eq!(tenant(&mut b).await, "");
    })
    .await;
}

/// Waits until Causeway knows the code of this run's database.
pub(crate) async fn knows_functions(place: &Place) {
    if place.is_direct() {
        return;
    }
    // The catalogue is read again when a definition passes.
    let mut client = place.client().await;
    client.query("CREATE TABLE seen_passing ()").await;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    client.terminate().await;
}

#[tokio::test]
async fn pins_end_when_what_they_were_for_is_gone() {
    through(TWO_CONNECTIONS, async |place: &Place| {
        place.admin_everywhere(FUNCTIONS).await;
        knows_functions(place).await;
        let mut a = place.client().await;
        for (makes, reason, ends) in [
            ("CREATE TEMP TABLE own (a int)", "temporary_table", "DROP TABLE own"),
            ("SELECT scratch()", "temporary_table", "DROP TABLE scratch_item"),
            ("CREATE TEMP TABLE own (a int)", "temporary_table", "DISCARD TEMP"),
            ("SELECT pg_advisory_lock(1)", "advisory_lock", "SELECT pg_advisory_unlock(1)"),
            ("SELECT pg_try_advisory_lock(1)", "advisory_lock", "SELECT pg_advisory_unlock_all()"),
            ("INSERT INTO noted VALUES (1)", "advisory_lock", "SELECT pg_advisory_unlock(77)"),
            ("LISTEN ev", "listen", "UNLISTEN *"),
            ("SELECT listens()", "listen", "UNLISTEN ev"),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "cursor", "CLOSE c"),
            ("PREPARE p AS SELECT 1", "sql_prepare", "DEALLOCATE p"),
            ("PREPARE p AS SELECT 1", "sql_prepare", "DEALLOCATE ALL"),
            ("SELECT any_setting('app.tenant', 'x')", "setting", "RESET ALL"),
            ("SELECT setseed(0.5)", "seed", "DISCARD ALL"),
            ("SELECT runs('SELECT 1')", "procedure", "DISCARD ALL"),
            ("SET SESSION AUTHORIZATION shop_reader", "authorization", "RESET SESSION AUTHORIZATION"),
        ] {
            a.query(makes).await;
            pinned_by(place, &[reason]).await;
            assert_eq!(a.one("SELECT count(*) FROM shop.item").await, "4");
            pinned_by(place, &[reason]).await;
            let answer = a.query(ends).await;
            assert_eq!(tags(&answer).len(), 1, "{ends}: {answer:?}");
            pinned_by(place, &[]).await;
        }
        // Locks count, and so do channels.
        a.query("SELECT pg_advisory_lock(1), pg_advisory_lock(1)").await;
        a.query("SELECT pg_advisory_unlock(1)").await;
        pinned_by(place, &["advisory_lock"]).await;
        a.query("SELECT pg_advisory_unlock(1)").await;
        pinned_by(place, &[]).await;
        a.query("LISTEN one; LISTEN two").await;
        a.query("UNLISTEN one").await;
        pinned_by(place, &["listen"]).await;
        a.query("CREATE TEMP TABLE own (a int)").await;
        a.query("UNLISTEN two").await;
        pinned_by(place, &["temporary_table"]).await;
        a.query("DROP TABLE own").await;
        pinned_by(place, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn what_leaves_nothing_does_not_pin() {
    through(TWO_CONNECTIONS, async |place: &Place| {
        place.admin_everywhere(FUNCTIONS).await;
        knows_functions(place).await;
        let mut a = place.client().await;
        let before = place_pins(place).await;
        for sql in [
            "SELECT lock_and_work()",
            "CALL called()",
            "DO $$ BEGIN UPDATE shop.item SET qty = qty WHERE id = 1; END $$",
            "BEGIN; CREATE TEMP TABLE own (a int) ON COMMIT DROP; INSERT INTO own VALUES (1); COMMIT",
            "SELECT lo_creat(-1)",
            "SELECT set_config('app.x', 'y', false)",
            "SET ROLE shop_reader",
            "RESET ROLE",
            "UNLISTEN *",
            "EXECUTE nothing",
            "SELECT pg_try_advisory_xact_lock(1)",
        ] {
            a.query(sql).await;
            pinned_by(place, &[]).await;
        }
        let temporary = ["BEGIN", "CREATE TEMP TABLE own (a int)", "ROLLBACK"];
        for sql in temporary {
            a.query(sql).await;
        }
        pinned_by(place, &[]).await;
        assert!(place_pins(place).await - before <= 3, "only what was there at some time counts");
    })
    .await;
}

async fn place_pins(place: &Place) -> u64 {
    causeway_tests::count(place.causeway(), "causeway_pins_total", &[("database", place.database())]).await
}

/// What one session leaves is gone for the next one, whichever way it ends.
#[tokio::test]
async fn nothing_is_left_to_the_next_session() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        place.admin_everywhere(FUNCTIONS).await;
        knows_functions(place).await;
        for sql in [
            "SELECT scratch()",
            "SELECT pg_advisory_lock(7)",
            "SELECT listens()",
            "INSERT INTO noted VALUES (1)",
            "SELECT any_setting('app.tenant', 'x')",
            "UPDATE pg_settings SET setting = '9MB' WHERE name = 'work_mem'",
            "SELECT runs('SET app.tenant = 5')",
            "PREPARE p AS SELECT 1",
            "SET ROLE shop_reader",
        ] {
            let mut a = place.client().await;
            a.query(sql).await;
            a.terminate().await;
            let mut b = place.client().await;
            let left = "SELECT coalesce(current_setting('app.tenant', true), '') || current_user || \
                        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) || \
                        (SELECT count(*) FROM pg_listening_channels()) || \
                        (SELECT count(*) FROM pg_prepared_statements WHERE from_sql) || \
                        (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()) || \
                        current_setting('work_mem')";
            assert_eq!(b.one(left).await, "postgres00004MB", "{sql}");
            b.terminate().await;
        }
    })
    .await;
}

#[tokio::test]
async fn roles_follow_their_session_without_a_pin() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, mut b) = (place.client().await, place.client().await);
        let user = format!("SELECT current_user{ON_PRIMARY}");
        place.admin_everywhere("GRANT UPDATE ON shop.item TO shop_reader").await;
        a.query("SET work_mem = '7MB'").await;
        a.query("SET log_min_duration_statement = 100000").await;
        a.query("SET ROLE shop_reader").await;
        for _ in 0..3 {
            assert_eq!((a.one(&user).await, b.one(&user).await), ("shop_reader".into(), "postgres".into()));
            assert_eq!(a.one("SELECT current_user FROM shop.item WHERE id = 1").await, "shop_reader");
        }
        // RESET ALL leaves the role.
        a.query("RESET ALL").await;
        assert_eq!((b.one(&user).await, a.one(&user).await), ("postgres".into(), "shop_reader".into()));
        a.query("BEGIN").await;
        a.query("RESET ROLE").await;
        a.query("ROLLBACK").await;
        assert_eq!((b.one(&user).await, a.one(&user).await), ("postgres".into(), "shop_reader".into()));
        a.query("DISCARD ALL").await;
        assert_eq!((b.one(&user).await, a.one(&user).await), ("postgres".into(), "postgres".into()));
        assert_eq!(code(&a.query("SET ROLE nobody_at_all").await), "22023");
        pinned_by(place, &[]).await;
    })
    .await;
}

/// A client in another encoding shares connections like any other.
#[tokio::test]
async fn another_encoding_does_not_pin() {
    everywhere(ONE_CONNECTION, async |place: &Place| {
        let (mut a, _) = place.client_with(&[("client_encoding", "LATIN1")]).await;
        let mut b = place.client().await;
        for _ in 0..2 {
            let answer = a.run(&[raw(b'Q', b"SELECT 'caf\xe9' FROM shop.item WHERE id = 1\0")]).await;
            let row = answer.iter().find(|message| message.tag == b'D').expect("a row");
            assert_eq!(row.values(), [Some(b"caf\xe9".to_vec())]);
            let written = a.run(&[raw(b'Q', b"INSERT INTO shop.audit(note) VALUES ('\xe9t\xe9')\0")]).await;
            assert_eq!(tags(&written), ["INSERT 0 1"]);
            pinned_by(place, &[]).await;
            let note = b.one("SELECT note FROM shop.audit ORDER BY id DESC LIMIT 1").await;
            assert_eq!(note, "\u{e9}t\u{e9}");
        }
        a.run(&[raw(b'Q', b"CREATE TEMP TABLE \xe9 (a int)\0")]).await;
        pinned_by(place, &["temporary_table"]).await;
        a.run(&[raw(b'Q', b"DROP TABLE \xe9\0")]).await;
        pinned_by(place, &[]).await;
    })
    .await;
}

use super::*;
use crate::class::{Isolation, Modes, SettingValue};
use crate::resolve::resolve;

fn class(sql: &str) -> Class {
    classify(sql.as_bytes(), &Limits::default())
}

fn kind(sql: &str) -> Kind {
    class(sql).kind
}

fn command(sql: &str) -> Command {
    let class = class(sql);
    assert_eq!(class.commands.len(), 1, "{sql}");
    class.commands[0].clone()
}

/// Reads as far as syntax goes.
const READS: &[&str] = &[
    "SELECT a FROM t WHERE b = ANY ($1)",
    "SELECT a FROM t WHERE b = ANY (ARRAY[1, 2]) AND c <> ALL (SELECT d FROM u)",
    "SELECT a FROM t WHERE b LIKE ANY (ARRAY['x%', 'y%'])",
    "SELECT count(*), max(a) FILTER (WHERE b) OVER (PARTITION BY c ORDER BY d) FROM t GROUP BY e HAVING count(*) > 1",
    "SELECT DISTINCT a, b FROM s.t AS x (a, b) LEFT JOIN u USING (a) WHERE (a, b) IN ((1, 2), (3, 4))",
    "WITH a AS (SELECT 1), b (x, y) AS (SELECT 1, 2) SELECT * FROM a, b",
    "SELECT * FROM json_to_recordset('[]') AS x (a int, b text)",
    "SELECT * FROM unnest(ARRAY[1], ARRAY[2]) WITH ORDINALITY AS u (a, b, n)",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END, COALESCE(b, c), NULLIF(a, b), GREATEST(1, 2) FROM t",
    "SELECT a::numeric(10, 2), b::varchar(3)[], c::timestamptz(3), d::double precision, e::\"char\" FROM t",
    "SELECT * FROM a NATURAL JOIN b CROSS JOIN c FULL JOIN d ON true",
    "SELECT (a).b, (a).c.d, a[1:2], a[1][2], (f(x)).* FROM t",
    "SELECT rank() OVER w, lag(a, 1) OVER (w ROWS 1 PRECEDING) FROM t WINDOW w AS (PARTITION BY b), v AS (w)",
    "SELECT array_agg(a ORDER BY b DESC NULLS LAST), string_agg(DISTINCT a, ',') FROM t",
    "SELECT left(a, 1), right(b, 2), replace(c, 'x', 'y') FROM t",
    "SELECT * FROM t ORDER BY a USING <, b LIMIT ALL OFFSET 5",
    "SELECT EXISTS (SELECT 1), ARRAY(SELECT 1), (SELECT 1), ROW(1, 2), (1, 2)",
    "SELECT current_timestamp, current_user, localtime(0), current_date",
    "SELECT now() AT TIME ZONE 'UTC', interval '1 day' * 2, date '2024-01-01' + 1",
    "SELECT a FROM t WHERE a ~~ 'x' AND b !~* 'y' AND c @> '{}' AND d ? 'k'",
    "TABLE s.t",
    "VALUES (1, 2), (3, 4) LIMIT 1",
    "SELECT 1; SELECT 2;",
    "BEGIN; SELECT 1; COMMIT",
    "BEGIN READ ONLY; SELECT 1; ROLLBACK; SELECT 2",
    "EXPLAIN (ANALYZE false, FORMAT json) SELECT 1",
    "EXPLAIN VERBOSE UPDATE t SET a = 1",
    "EXPLAIN (SELECT 1)",
    "COPY t (a, b) TO STDOUT",
    "COPY (SELECT 1) TO STDOUT WITH CSV",
    "SHOW server_version",
    "SELECT * FROM generate_series(1, 10) AS g (n), LATERAL (SELECT n) AS x",
    "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class",
    "SELECT x.a FROM (VALUES (1)) AS x (a) WHERE x.a IS NOT DISTINCT FROM 1 OR x.a IS TRUE",
    "SELECT \"weird \"\"name\" FROM \"Table\"",
    "SELECT 1 AS \"for\", 2 AS update",
    "SELECT ARRAY[[1, 2], [3, 4]] || ARRAY[[a[1], b[1:2]]], array_length(ARRAY[[[1]]]::int[], 1) FROM t",
    "SELECT a FROM t WHERE b ISNULL AND (c + 1) NOTNULL AND d[1] isnull",
    "SELECT a IS NULL AS isnull, b AS notnull FROM t",
    "SELECT collation for (a || 'x'), collation FOR ((SELECT b)) FROM t",
    "SELECT interval '1 2:03' DAY TO SECOND(2), interval '1' second (0)",
    "SELECT a FROM t WHERE b @@ ANY ('{x}') AND c @> ALL (ARRAY[d]) AND e && some (f)",
    "SELECT * FROM json_populate_record(null::record, '{}') AS (x int, y text), t",
    "SELECT sum(a) OVER (ORDER BY b RANGE BETWEEN '1 year'::interval PRECEDING AND '1 day'::interval FOLLOWING) FROM t",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY b RANGE '10 min'::interval PRECEDING EXCLUDE TIES)",
];

#[test]
fn reads() {
    for sql in READS {
        let class = class(sql);
        assert_eq!(class.kind, Kind::Read, "{sql}: {class:?}");
    }
}

/// Whatever the catalogue says, these never leave the primary.
const WRITES: &[&str] = &[
    "SELECT ('shop.ticket_seq'::regclass).nextval",
    "SELECT x.nextval FROM (SELECT 'q'::regclass AS x) q",
    "SELECT * FROM nextval('s')",
    "SELECT 1 FROM t, LATERAL nextval('s')",
    "SELECT 1 FROM t JOIN u ON nextval('s') = 1",
    "SELECT 1 LIMIT nextval('s')",
    "SELECT 1 OFFSET nextval('s')",
    "SELECT 1 FETCH FIRST (nextval('s')) ROWS ONLY",
    "SELECT sum(a) OVER (ORDER BY nextval('s')) FROM t",
    "SELECT sum(a) OVER (ORDER BY a ROWS nextval('s') PRECEDING) FROM t",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY nextval('s'))",
    "SELECT sum(a ORDER BY nextval('s')) FROM t",
    "SELECT sum(a) FILTER (WHERE nextval('s') > 0) FROM t",
    "SELECT 1 GROUP BY ROLLUP (nextval('s'))",
    "SELECT DISTINCT ON (nextval('s')) 1",
    "SELECT a[nextval('s')] FROM t",
    "SELECT a[1:nextval('s')] FROM t",
    "SELECT ARRAY[nextval('s')]",
    "SELECT ARRAY(SELECT nextval('s'))",
    "SELECT CASE WHEN nextval('s') > 0 THEN 1 END",
    "SELECT CASE nextval('s') WHEN 1 THEN 1 END",
    "SELECT CASE WHEN true THEN 1 ELSE nextval('s') END",
    "SELECT 1 WHERE 1 IN (2, nextval('s'))",
    "SELECT 1 WHERE 1 BETWEEN 0 AND nextval('s')",
    "SELECT 1 WHERE 'a' LIKE nextval('s')::text",
    "SELECT 1 WHERE 1 = ANY (SELECT nextval('s'))",
    "SELECT make_interval(days => nextval('s')::int)",
    "SELECT concat(VARIADIC ARRAY[nextval('s')])",
    "SELECT coalesce(1, nextval('s'))",
    "SELECT extract(epoch FROM to_timestamp(nextval('s')))",
    "SELECT substring('abc' FROM nextval('s')::int)",
    "SELECT trim(both nextval('s')::text FROM 'x')",
    "SELECT overlay('a' PLACING 'b' FROM nextval('s')::int)",
    "SELECT xmlelement(name a, nextval('s'))",
    "SELECT xmlforest(nextval('s') AS b)",
    "SELECT NOT (- nextval('s') > 0)",
    "SELECT (SELECT nextval('s'))",
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT nextval('s') FROM a) SELECT 1",
    "SELECT 1 UNION SELECT nextval('s')",
    "SELECT 1 UNION (SELECT 2 ORDER BY nextval('s'))",
    "VALUES (1, nextval('s'))",
    "SELECT * FROM ROWS FROM (nextval('s'), generate_series(1, 2)) AS x",
    "SELECT * FROM t TABLESAMPLE BERNOULLI (nextval('s'))",
    "SELECT * FROM XMLTABLE('/r' PASSING nextval('s')::text::xml COLUMNS a int) x",
    "SELECT U&\"next\\0076al\"('s')",
    "SELECT U&\"next!0076al\" UESCAPE '!' ('s')",
    "SELECT pg_catalog.\"nextval\" ('s')",
    "SELECT 1 FOR NO KEY UPDATE",
    "SELECT a FROM t FOR KEY SHARE",
    "SELECT a INTO b FROM t",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT 1",
    "WITH x AS (UPDATE t SET a = 1 RETURNING 1) SELECT 1",
    "WITH x AS (WITH y AS (DELETE FROM t RETURNING 1) SELECT 1) SELECT 1",
    "WITH x AS (MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING RETURNING 1) SELECT 1",
    "EXPLAIN ANALYZE UPDATE t SET a = 1",
    "EXPLAIN (ANALYZE off, ANALYZE on) UPDATE t SET a = 1",
    "EXPLAIN (ANALYZE bogus) UPDATE t SET a = 1",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
    "EXPLAIN ANALYZE (SELECT nextval('s'))",
    "COPY t FROM STDIN",
    "COPY t TO '/tmp/x'",
    "COPY (SELECT 1) TO PROGRAM 'x'",
    "COPY (SELECT pg_notify('a', 'b')) TO STDOUT",
    "COPY pg_stat_activity TO STDOUT",
    "SELECT 1; DELETE FROM t",
    "BEGIN READ WRITE; SELECT 1; COMMIT",
    "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1; COMMIT",
    "BEGIN READ ONLY; INSERT INTO t VALUES (1); COMMIT",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END",
    "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)",
    "SELECT query_to_xml('x', true, true, '')",
    "SELECT * FROM pg_stat_activity",
    "SELECT * FROM pg_catalog.pg_locks",
    "SELECT current_setting('transaction_read_only')",
    "SELECT pg_catalog.current_setting('in_hot_standby', true)",
    "SHOW in_hot_standby",
    "SELECT a.b.c.f(1)",
    "SELECT pg_catalog.no_such_function()",
    "SELECT 'x'::pg_catalog.no_such_type",
    "SELECT 1 OPERATOR(pg_catalog.<+>) 2",
    "SELECT 1 \\ 2",
    "SELECT 'unterminated",
    "PREPARE TRANSACTION 'x'",
    "COMMIT PREPARED 'x'",
    "REPACK t",
    "SELECT ARRAY[[nextval('s')]]",
    "SELECT collation for (nextval('s')::text)",
    "SELECT 1 WHERE 2 @> ANY (ARRAY[nextval('s')])",
    "SELECT 1 WHERE nextval('s') ISNULL",
    "SELECT * FROM nextval('s') AS (a int)",
    "SELECT sum(a) OVER (ORDER BY b RANGE '1 day'::interval PRECEDING), nextval('s') FROM t",
    "WITH a (b) AS (insert into t values (1) returning 1) SELECT 1",
];

#[test]
fn writes() {
    for sql in WRITES {
        let class = class(sql);
        assert!(!matches!(class.kind, Kind::Read | Kind::BeginReadOnly | Kind::Either), "{sql}: {class:?}");
    }
}

#[test]
fn symbols_are_those_of_the_text() {
    let class = class(
        "WITH c AS (SELECT shop.f(1, 2)) SELECT i.Bump, x::Shop.\"Dims\", a <-> b, a OPERATOR(shop.<+>) b, f(VARIADIC y) \
         FROM c, shop.Item i, \"Other\" JOIN c AS d ON g() WHERE c.id = 1",
    );
    assert_eq!(class.kind, Kind::Read);
    let names = |names: &[Name]| -> Vec<String> {
        let text = |name: &Name| match &name.schema {
            Some(schema) => format!("{schema}.{}", name.name),
            None => name.name.to_string(),
        };
        names.iter().map(text).collect()
    };
    assert_eq!(names(&class.symbols.relations), ["Other", "shop.item"]);
    assert_eq!(names(&class.symbols.operators), ["<->", "=", "shop.<+>"]);
    assert_eq!(names(&class.symbols.types), ["shop.Dims"]);
    let functions: Vec<_> =
        class.symbols.functions.iter().map(|call| (&*call.name.name, call.arguments)).collect();
    assert_eq!(functions, [("f", None), ("g", None), ("f", None)], "VARIADIC hides how many there are");
    assert_eq!(class.symbols.attributes.iter().map(|name| &**name).collect::<Vec<_>>(), ["bump", "id"]);
}

#[test]
fn common_table_expressions_hide_relations_where_they_are_visible() {
    let relations = |sql: &str| -> Vec<String> {
        class(sql).symbols.relations.iter().map(|name| name.name.to_string()).collect()
    };
    assert_eq!(relations("WITH t AS (SELECT * FROM t) SELECT * FROM t"), ["t"]);
    assert!(relations("WITH RECURSIVE t AS (SELECT 1 UNION SELECT 2 FROM t) SELECT * FROM t").is_empty());
    assert_eq!(relations("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) x, t"), ["t"]);
    assert_eq!(relations("WITH t AS (SELECT 1) SELECT * FROM public.t"), ["t"]);
    assert_eq!(relations("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a"), ["b"]);
}

#[test]
fn without_a_catalogue_only_what_is_built_in_is_read() {
    let kind = |sql: &str| resolve(&class(sql), None).kind;
    assert_eq!(kind("SELECT lower('x'), 1 + 2, '1'::int4, now()"), Kind::Read);
    assert_eq!(kind("SELECT relname FROM pg_class WHERE relname ~ 'x'"), Kind::Read);
    assert_eq!(kind("SELECT * FROM t"), Kind::Write);
    assert_eq!(kind("SELECT f()"), Kind::Write);
    assert_eq!(kind("SELECT 1 <+> 2"), Kind::Write);
    assert_eq!(kind("SELECT 'x'::hstore"), Kind::Write);
    assert_eq!(kind("BEGIN READ ONLY; SELECT f()"), Kind::BeginReadWrite);
}

#[test]
fn transactions() {
    let modes = Modes::default();
    let read_only = Modes { read_only: Some(true), ..modes };
    for (sql, kind, command) in [
        ("BEGIN", Kind::BeginReadWrite, Command::Begin(modes)),
        ("begin work", Kind::BeginReadWrite, Command::Begin(modes)),
        ("START TRANSACTION READ ONLY", Kind::BeginReadOnly, Command::Begin(read_only)),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE",
            Kind::BeginReadOnly,
            Command::Begin(Modes {
                read_only: Some(true),
                isolation: Some(Isolation::RepeatableRead),
                deferrable: Some(false),
            }),
        ),
        ("COMMIT", Kind::TransactionControl, Command::Commit { chain: false }),
        ("END TRANSACTION AND NO CHAIN", Kind::TransactionControl, Command::Commit { chain: false }),
        ("ROLLBACK AND CHAIN", Kind::TransactionControl, Command::Rollback { chain: true }),
        ("ABORT WORK", Kind::TransactionControl, Command::Rollback { chain: false }),
        ("ROLLBACK TO SAVEPOINT a", Kind::TransactionControl, Command::Savepoint),
        ("ROLLBACK WORK TO a", Kind::TransactionControl, Command::Savepoint),
        ("RELEASE a", Kind::TransactionControl, Command::Savepoint),
        ("RELEASE savepoint", Kind::TransactionControl, Command::Savepoint),
        ("SET TRANSACTION READ ONLY", Kind::TransactionControl, Command::SetTransaction(read_only)),
        (
            "SET LOCAL transaction_read_only = on",
            Kind::TransactionControl,
            Command::SetTransaction(read_only),
        ),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            Kind::Session,
            Command::SessionCharacteristics(read_only),
        ),
        ("PREPARE TRANSACTION 'x'", Kind::Write, Command::PrepareTransaction),
        ("ROLLBACK PREPARED 'x'", Kind::Write, Command::Plain),
        ("BEGIN READ", Kind::Write, Command::Plain),
        ("START", Kind::Write, Command::Plain),
    ] {
        let class = class(sql);
        assert_eq!((class.kind, &*class.commands), (kind, &[command][..]), "{sql}");
    }
}

#[test]
fn several_statements_are_judged_together() {
    for (sql, expected) in [
        ("BEGIN; SELECT 1", Kind::BeginReadWrite),
        ("BEGIN READ ONLY; SELECT 1", Kind::BeginReadOnly),
        ("BEGIN READ ONLY; SELECT 1; COMMIT", Kind::Read),
        ("BEGIN READ ONLY; SELECT 1; COMMIT AND CHAIN", Kind::BeginReadOnly),
        ("BEGIN READ ONLY; SELECT 1; COMMIT; BEGIN", Kind::BeginReadWrite),
        ("BEGIN; SET TRANSACTION READ ONLY; SELECT 1", Kind::BeginReadOnly),
        ("BEGIN READ ONLY; SET TRANSACTION READ WRITE; SELECT 1", Kind::BeginReadWrite),
        ("BEGIN READ ONLY; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", Kind::BeginReadOnlyPrimary),
        ("BEGIN READ ONLY; BEGIN READ WRITE", Kind::BeginReadWrite),
        ("BEGIN READ ONLY; SELECT nextval('s')", Kind::BeginReadWrite),
        ("BEGIN READ ONLY; SET x = 1", Kind::BeginReadWrite),
        ("COMMIT; SELECT 1", Kind::Read),
        ("ROLLBACK; SELECT 1", Kind::Read),
        ("COMMIT; COMMIT", Kind::TransactionControl),
        ("SELECT 1; COMMIT AND CHAIN", Kind::TransactionControl),
        ("SELECT 1; SAVEPOINT a", Kind::TransactionControl),
        ("SET LOCAL x = 1; SELECT 1", Kind::TransactionControl),
        ("SET x = 1; SELECT 1", Kind::Session),
        ("SET x = 1; INSERT INTO t VALUES (1)", Kind::WriteSession),
        ("SELECT 1; SELECT pg_advisory_lock(1)", Kind::WriteSession),
        (";;", Kind::Either),
        (" -- x", Kind::Either),
    ] {
        assert_eq!(kind(sql), expected, "{sql}");
    }
    assert_eq!(class("SET a = 1; SELECT 1; DEALLOCATE ALL").commands.len(), 3);
}

#[test]
fn settings() {
    let set = |name: &str, text: &str| Command::Set {
        name: name.into(),
        value: SettingValue::Text(text.into()),
        local: false,
    };
    for (sql, expected) in [
        ("SET statement_timeout = '5s'", set("statement_timeout", "'5s'")),
        ("SET SESSION Search_Path TO a, \"B\" , pg_catalog;", set("search_path", "a, \"B\" , pg_catalog")),
        ("SET my.Var = 'x'", set("my.var", "'x'")),
        ("SET TIME ZONE 'UTC'", set("timezone", "'UTC'")),
        ("SET TIME ZONE -7", set("timezone", "-7")),
        ("SET NAMES 'UTF8'", set("client_encoding", "'UTF8'")),
        ("SET SCHEMA 'a'", set("search_path", "'a'")),
        ("SET XML OPTION DOCUMENT", set("xmloption", "DOCUMENT")),
        ("SET local = 1", set("local", "1")),
        ("SET session TO x", set("session", "x")),
        ("SET names = 'x'", set("names", "'x'")),
        ("SET x TO DEFAULT", Command::Set { name: "x".into(), value: SettingValue::Default, local: false }),
        (
            "SET TIME ZONE LOCAL",
            Command::Set { name: "timezone".into(), value: SettingValue::Default, local: false },
        ),
        ("SET ROLE a", set("role", "a")),
        ("SET role = a", set("role", "a")),
        ("SET SESSION AUTHORIZATION DEFAULT", Command::Pin(PinReason::Authorization)),
        ("SET SESSION ROLE a", set("role", "a")),
        ("SET default_tablespace = x", Command::Pin(PinReason::Setting)),
        ("SET TIME ZONE INTERVAL '1' HOUR TO MINUTE", Command::Pin(PinReason::Setting)),
        ("SET search_path = pg_temp", Command::Pin(PinReason::TemporaryTable)),
        ("RESET ALL", Command::Reset(None)),
        ("RESET x.Y", Command::Reset(Some("x.y".into()))),
        ("RESET TIME ZONE", Command::Reset(Some("timezone".into()))),
        ("RESET SESSION AUTHORIZATION", Command::Reset(Some("session_authorization".into()))),
        ("SHOW Search_Path", Command::Show("search_path".into())),
        ("SHOW TRANSACTION ISOLATION LEVEL", Command::Show("transaction_isolation".into())),
        ("SHOW ALL", Command::Show("all".into())),
        ("DISCARD ALL", Command::DiscardAll),
        ("DISCARD PLANS", Command::Plain),
        ("DEALLOCATE ALL", Command::Deallocate(None)),
        ("DEALLOCATE PREPARE \"A\"", Command::Deallocate(Some("A".into()))),
        ("DEALLOCATE prepare", Command::Deallocate(Some("prepare".into()))),
        ("SET ???", Command::Pin(PinReason::Setting)),
    ] {
        assert_eq!(command(sql), expected, "{sql}");
        assert!(matches!(kind(sql), Kind::Session | Kind::WriteSession), "{sql}");
    }
    let local = Command::Set { name: "x".into(), value: SettingValue::Text("1".into()), local: true };
    assert_eq!((kind("SET LOCAL x = 1"), command("SET LOCAL x = 1")), (Kind::TransactionControl, local));
}

#[test]
fn what_leaves_something_in_the_session_pins() {
    for (sql, expected, pin) in [
        ("SELECT pg_advisory_lock(1)", Kind::WriteSession, PinReason::AdvisoryLock),
        (
            "SELECT 1 FROM t WHERE pg_catalog.pg_try_advisory_lock(id)",
            Kind::WriteSession,
            PinReason::AdvisoryLock,
        ),
        ("INSERT INTO t SELECT pg_advisory_lock(1)", Kind::Write, PinReason::AdvisoryLock),
        ("SELECT set_config(a, 'b', false)", Kind::Session, PinReason::Setting),
        ("SELECT set_config(a, 'b', $1)", Kind::Session, PinReason::Setting),
        ("SELECT * FROM set_config(a, 'b', false)", Kind::Session, PinReason::Setting),
        ("UPDATE t SET a = set_config(a, 'b', false)", Kind::Write, PinReason::Setting),
        (
            "SELECT set_config(a, 'b', false) FROM t MATCH_RECOGNIZE ()",
            Kind::WriteSession,
            PinReason::Setting,
        ),
        ("SELECT U&\"set!005fconfig\" UESCAPE '!' ('a', 'b', false)", Kind::Session, PinReason::Other),
        ("SELECT setseed(0.5)", Kind::Session, PinReason::Seed),
        ("SELECT currval('s')", Kind::WriteSession, PinReason::Sequence),
        ("SELECT pg_export_snapshot()", Kind::WriteSession, PinReason::Snapshot),
        ("SELECT lo_open(1, 2)", Kind::WriteSession, PinReason::LargeObject),
        ("SELECT pg_backend_pid()", Kind::Session, PinReason::BackendPid),
        ("CREATE TEMP TABLE x (a int)", Kind::WriteSession, PinReason::TemporaryTable),
        ("CREATE OR REPLACE TEMPORARY VIEW x AS SELECT 1", Kind::WriteSession, PinReason::TemporaryTable),
        ("CREATE TABLE pg_temp.x (a int)", Kind::WriteSession, PinReason::TemporaryTable),
        ("SELECT 1 INTO TEMP x", Kind::WriteSession, PinReason::TemporaryTable),
        ("EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1", Kind::WriteSession, PinReason::TemporaryTable),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Kind::Session, PinReason::Cursor),
        ("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT 1 FOR UPDATE", Kind::WriteSession, PinReason::Cursor),
        ("LISTEN x", Kind::WriteSession, PinReason::Listen),
        ("PREPARE p AS SELECT 1", Kind::Session, PinReason::SqlPrepare),
        ("EXECUTE p(1)", Kind::WriteSession, PinReason::SqlPrepare),
        ("LOAD 'x'", Kind::Session, PinReason::Load),
    ] {
        assert_eq!((kind(sql), command(sql)), (expected, Command::Pin(pin)), "{sql}");
    }
    for (sql, expected) in [
        ("SELECT set_config('a', 'b', true)", Command::Plain),
        ("SELECT set_config('a', 'b', false)", Command::Plain),
        ("SELECT set_config('a', 'b', $1)", Command::Plain),
        ("DO $$ BEGIN END $$", Command::Plain),
        ("CALL p()", Command::Plain),
        ("SELECT shop.set_config('a', 'b', false)", Command::Plain),
        ("SELECT pg_advisory_xact_lock(1)", Command::Plain),
        ("DECLARE c CURSOR FOR SELECT 1", Command::Plain),
        ("SELECT 1 INTO x", Command::Definition),
        ("CREATE TABLE temp (a int)", Command::Definition),
        ("DROP TABLE x", Command::Definition),
        ("INSERT INTO t VALUES (1)", Command::Plain),
    ] {
        assert_eq!(command(sql), expected, "{sql}");
    }
}

#[test]
fn limits_are_kept_and_what_is_beyond_them_is_still_followed() {
    let deep = |n: usize| format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n));
    assert_eq!(kind(&deep(60)), Kind::Read);
    for sql in [deep(100_000), deep(1000), format!("SELECT {}", vec!["1"; 100_000].join("+"))] {
        assert_eq!(class(&sql).reason, Reason::TooComplex);
    }
    assert_eq!(kind(&format!("SELECT {}", vec!["1"; 400].join("+"))), Kind::Read);
    let long = "x".repeat(100_000);
    assert_eq!(class(&format!("SELECT '{long}'")).reason, Reason::TooComplex);
    assert_eq!(command(&format!("SELECT set_config(a, '{long}', false)")), Command::Pin(PinReason::Setting));
    assert_eq!(
        command(&format!("CREATE TEMP TABLE t AS SELECT '{long}'")),
        Command::Pin(PinReason::TemporaryTable)
    );
    assert!(matches!(command(&format!("SET x = '{long}'")), Command::Set { .. }));
    let bulk = format!("INSERT INTO t VALUES {}(1)", "(1),".repeat(50_000));
    assert_eq!((kind(&bulk), command(&bulk)), (Kind::Write, Command::Plain));
    let bulk = format!("{bulk}, (pg_advisory_lock(1))");
    assert_eq!(command(&bulk), Command::Pin(PinReason::AdvisoryLock));
    let several = class(&format!("{bulk}; SET x = 1"));
    assert!(matches!(&*several.commands, [Command::Pin(_), Command::Set { .. }]));
}

#[test]
fn a_text_is_not_looked_at_for_ever() {
    let unknown = Class::unknown(Reason::TooComplex);
    assert_eq!(unknown.kind, Kind::WriteSession);
    assert_eq!(class(&"select 1;".repeat(500_000)), unknown);
    assert_eq!(class(&format!("SELECT '{}'", "a".repeat(2 << 20))), unknown);
    assert_eq!(class(&"SET a = 1;".repeat(1001)), unknown);
    assert_eq!(class(&"SET a = 1;".repeat(1000)).commands.len(), 1000);
    assert_eq!(kind(&"SELECT 1;".repeat(1000)), Kind::Read);
    // What comes after the tokens have run out is not parsed.
    let list = |n: usize| format!("SELECT a FROM t WHERE a IN (1{})", ", 2".repeat(n));
    assert_eq!(kind(&list(2000)), Kind::Read);
    assert_eq!(class(&list(2100)).reason, Reason::TooComplex);
    let several = class(&format!(
        "{0}; {0}; SET a = 1; INSERT INTO t VALUES (1); CREATE TEMP TABLE x (a int)",
        list(2000)
    ));
    assert_eq!((several.kind, several.reason), (Kind::WriteSession, Reason::TooComplex));
    assert!(matches!(
        &*several.commands,
        [
            Command::Plain,
            Command::Plain,
            Command::Set { .. },
            Command::Plain,
            Command::Pin(PinReason::TemporaryTable)
        ]
    ));
}

/// Each shape is tried at every size up to where it is refused, on a stack as small as that of a thread of the runtime.
#[test]
fn no_shape_overflows_the_stack() {
    let shapes: &[(&str, &str, &str, &str)] = &[
        ("SELECT ", "(", "1", ")"),
        ("SELECT 1 FROM t WHERE ", "(", "a = 1", ")"),
        ("SELECT ", "abs(", "1", ")"),
        ("SELECT ", "CASE WHEN a THEN ", "1", " END"),
        ("SELECT ", "CASE ", "1", " WHEN 1 THEN 1 END"),
        ("SELECT ", "(SELECT ", "1", ")"),
        ("SELECT 1 FROM ", "(SELECT 1 FROM ", "t", ") x"),
        ("SELECT 1 FROM ", "a, LATERAL (SELECT 1 FROM ", "t", ") x"),
        ("SELECT 1 WHERE ", "EXISTS (SELECT 1 WHERE ", "true", ")"),
        ("", "WITH a AS (", "SELECT 1", ") SELECT 1"),
        ("SELECT 1 WHERE ", "a IN (", "1", ")"),
        ("SELECT ", "ARRAY[", "1", "]"),
        ("SELECT ", "a[", "1", "]"),
        ("SELECT ", "CAST(", "1", " AS int)"),
        ("SELECT 1 FROM ", "(", "a", " JOIN b ON true)"),
        ("", "(", "SELECT 1", ")"),
        ("SELECT ", "NOT ", "a", ""),
        ("SELECT ", "- ", "a", ""),
        ("SELECT ", "ROW(1, ", "1", ")"),
        ("SELECT ", "sum(a) OVER (PARTITION BY ", "a", ")"),
        ("SELECT ", "interval ", "a", ""),
        ("SELECT a", "", "", " IS NULL"),
        ("SELECT a", "", "", " BETWEEN 1 AND b"),
        ("SELECT a", "", "", "::int"),
        ("SELECT a::int", "", "", "[]"),
        ("SELECT a", "", "", " + a"),
        ("SELECT a", "", "", " OR a AND b"),
        ("SELECT a", "", "", " COLLATE c"),
        ("SELECT a, b", "", "", " UNION SELECT c, d"),
        ("SELECT 1 FROM a", " JOIN b", "", " ON true"),
        ("SELECT (a)", "", "", ".b"),
        ("SELECT a", "", "", "[1]"),
        ("", "EXPLAIN ", "SELECT 1", ""),
        ("", "DECLARE c CURSOR FOR ", "SELECT 1", ""),
        ("COPY ", "(", "SELECT 1", ") TO STDOUT"),
    ];
    let deepest = |&(head, open, middle, close): &(&str, &str, &str, &str)| {
        let text = |n: usize| format!("{head}{}{middle}{}", open.repeat(n), close.repeat(n));
        let refused = |n: usize| class(&text(n)).reason == Reason::TooComplex;
        (3..18).map(|power| 1_usize << power).find(|n| refused(*n)).map_or(0, |mut above| {
            let mut below = 1;
            while above - below > 1 + below / 50 {
                let n = below.midpoint(above);
                if refused(n) { above = n } else { below = n }
            }
            below
        })
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let found = thread.spawn(move || shapes.iter().map(deepest).collect::<Vec<_>>()).unwrap().join().unwrap();
    assert!(found.iter().all(|n| *n > 20 || *n == 0), "{found:?}");
}

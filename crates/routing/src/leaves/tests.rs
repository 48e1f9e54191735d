use super::*;
use crate::catalogue::{CatalogueBuilder, CodeRow, ReachRow};
use crate::classify::{Limits, classify};

fn class(sql: &str) -> Class {
    classify(sql.as_bytes(), &Limits::default())
}

fn pins(reasons: &[PinReason]) -> PinSet {
    reasons.iter().copied().collect()
}

fn function(name: &str, language: &str, source: &str) -> CodeRow {
    CodeRow {
        name: name.to_owned(),
        language: language.to_owned(),
        source: Some(source.to_owned()),
        volatility: 'v',
        extension: None,
    }
}

fn of_body(language: &str, source: &str) -> Leaves {
    let row = function("f", language, source);
    code(&Code {
        language: &row.language,
        source: row.source.as_deref(),
        volatility: row.volatility,
        extension: None,
        name: &row.name,
    })
    .0
}

#[test]
fn bodies_that_leave_nothing() {
    for body in [
        "BEGIN RETURN 1; END",
        "BEGIN PERFORM set_config('a.b', 'x', true); RETURN NEW; END",
        "BEGIN SET LOCAL work_mem = '9MB'; UPDATE t SET a = 1, load = 2; RETURN; END",
        "DECLARE x int := 1; BEGIN INSERT INTO log(at) VALUES (now()); NOTIFY a; END",
        "BEGIN CREATE TEMP TABLE x (a int) ON COMMIT DROP; END",
        "BEGIN EXECUTE 'INSERT INTO ' || quote_ident(t) || ' VALUES ($1.*)' USING NEW; END",
        "BEGIN EXECUTE format('CREATE TABLE %I PARTITION OF log FOR VALUES FROM (%L)', a, b); END",
        "DECLARE sql text; BEGIN sql := format('SELECT count(*) FROM %I', t); EXECUTE sql INTO n; END",
        "BEGIN FOR r IN EXECUTE 'SELECT a FROM t' LOOP n := n + 1; END LOOP; END",
        "BEGIN PERFORM pg_advisory_xact_lock(1); END",
        "BEGIN CASE WHEN a THEN set := 1; ELSE reset.x := 2; END CASE; END",
        "SELECT currval('s'), pg_backend_pid()",
    ] {
        assert!(of_body("plpgsql", body).is_empty(), "{body}: {:?}", of_body("plpgsql", body));
    }
}

#[test]
fn bodies_that_leave_something() {
    use PinReason::{
        AdvisoryLock, Cursor, Listen, Load, Procedure, Seed, Setting, SqlPrepare, TemporaryTable,
    };
    for (body, reason) in [
        ("BEGIN PERFORM pg_advisory_lock(7); END", AdvisoryLock),
        ("BEGIN PERFORM set_config(name, 'x', false); END", Setting),
        ("BEGIN PERFORM set_config(name, 'x', local); END", Setting),
        ("BEGIN UPDATE pg_settings SET setting = 'x' WHERE name = 'work_mem'; END", Setting),
        ("BEGIN UPDATE pg_catalog.pg_settings SET setting = 'x'; END", Setting),
        ("BEGIN RESET ALL; END", Setting),
        ("BEGIN CREATE TEMP TABLE x (a int); END", TemporaryTable),
        ("BEGIN CREATE TABLE pg_temp.x (a int); END", TemporaryTable),
        ("BEGIN IF a THEN LISTEN x; END IF; END", Listen),
        ("BEGIN LOAD 'x'; END", Load),
        ("BEGIN PERFORM setseed(0.1); END", Seed),
        ("BEGIN EXECUTE 'LISTEN ' || channel; END", Listen),
        ("BEGIN EXECUTE 'PREPARE x AS SELECT 1'; END", SqlPrepare),
        ("BEGIN EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1'; END", Cursor),
        ("BEGIN EXECUTE 'SET ' || name || ' = 1'; END", Setting),
        ("BEGIN EXECUTE statement; END", Procedure),
        ("BEGIN EXECUTE $1; END", Procedure),
        ("BEGIN 'open", Procedure),
    ] {
        assert!(of_body("plpgsql", body).pins.contains(reason), "{body}: {:?}", of_body("plpgsql", body));
    }
    for (body, name) in [
        ("BEGIN SET work_mem = '9MB'; END", "work_mem"),
        ("BEGIN PERFORM pg_catalog.set_config('App.User', $1, false); END", "app.user"),
        ("BEGIN IF a THEN SET ROLE x; END IF; END", "role"),
        ("BEGIN EXECUTE 'SET search_path TO ' || quote_ident(s); END", "search_path"),
        ("DECLARE q text; BEGIN q = 'SET statement_timeout TO 5'; EXECUTE q; END", "statement_timeout"),
        ("BEGIN EXECUTE format('RESET work_mem; SELECT %L', x); END", "work_mem"),
    ] {
        assert_eq!(*of_body("plpgsql", body).settings, [name.into()], "{body}");
    }
    assert_eq!(of_body("plpython3u", "plpy.execute('x')").pins, pins(&[Procedure]));
    assert!(of_body("plpython3u", "return 1").is_empty());
    assert_eq!(of_body("internal", "pg_advisory_lock").pins, pins(&[AdvisoryLock]));
    assert_eq!(of_body("c", "x").pins, pins(&[Procedure]));
    assert_eq!(of_body("brainfuck", "+").pins, pins(&[Procedure]));
}

#[test]
fn statements_leave_what_they_call() {
    assert_eq!(*class("SELECT set_config('A.b', $1, false)").leaves.settings, ["a.b".into()]);
    assert_eq!(
        *class("SELECT set_config('b', '1', false), set_config('a', '1', $1)").leaves.settings,
        ["a".into(), "b".into()]
    );
    assert!(class("SELECT set_config('a', '1', true)").leaves.is_empty());
    assert_eq!(class("SELECT set_config($1, '1', false)").leaves.pins, pins(&[PinReason::Setting]));
    assert_eq!(
        class("UPDATE pg_settings SET setting = '1' WHERE name = 'work_mem'").leaves.pins,
        pins(&[PinReason::Setting])
    );
    assert!(class("SELECT * FROM pg_settings").leaves.is_empty());
    assert!(class("DO $$ BEGIN RAISE NOTICE 'x'; END $$").leaves.is_empty());
    let locks = class("DO LANGUAGE plpgsql $$ BEGIN PERFORM pg_advisory_lock(1); END $$");
    assert_eq!(locks.leaves.pins, pins(&[PinReason::AdvisoryLock]));
    assert_eq!(class("DO $$ x $$ LANGUAGE plperl").leaves.pins, pins(&[PinReason::Procedure]));
    assert!(class("UNLISTEN x").releases && class("SELECT pg_advisory_unlock(1)").releases);
    assert!(!class("SELECT 1").releases);
}

#[test]
fn what_a_catalogue_knows() {
    let mut builder = CatalogueBuilder::new();
    builder.code(function("harmless", "plpgsql", "BEGIN RETURN; END"));
    builder.code(function("tenant", "plpgsql", "BEGIN PERFORM set_config('app.tenant', 'x', false); END"));
    builder.code(function("outer_tenant", "sql", "SELECT tenant()"));
    builder.code(function("locks", "plpgsql", "BEGIN PERFORM pg_advisory_lock(1); RETURN NEW; END"));
    builder.code(function("writes", "plpgsql", "BEGIN DELETE FROM parent; END"));
    builder.reach(ReachRow {
        relation: "audited".to_owned(),
        function: Some("locks".to_owned()),
        other: None,
    });
    builder.reach(ReachRow {
        relation: "parent".to_owned(),
        function: None,
        other: Some("audited".to_owned()),
    });
    let catalogue = builder.build().with_identity(1 << 64);
    let left = |sql: &str| left(&class(sql), Some(&catalogue));
    let lock =
        || Left::Something(Leaves { pins: pins(&[PinReason::AdvisoryLock]), settings: Box::default() });
    let tenant =
        || Left::Something(Leaves { pins: PinSet::default(), settings: Box::new(["app.tenant".into()]) });
    for sql in
        ["SELECT 1", "SELECT harmless()", "INSERT INTO t VALUES (1)", "SELECT tenant FROM t", "SELECT locks"]
    {
        assert_eq!(left(sql), Left::Nothing, "{sql}");
    }
    for sql in ["SELECT tenant()", "SELECT x.TENANT ()", "SELECT outer_tenant()", "CALL outer_tenant()"] {
        assert_eq!(left(sql), tenant(), "{sql}");
    }
    for sql in ["INSERT INTO audited VALUES (1)", "DELETE FROM parent", "SELECT writes()", "SELECT locks()"] {
        assert_eq!(left(sql), lock(), "{sql}");
    }
    for sql in ["SELECT created_since(1)", "INSERT INTO t(a) SELECT new_f(1)", "CALL other()"] {
        assert_eq!(left(sql), Left::Unknown, "{sql}");
    }
    for sql in [
        "INSERT INTO t(a, b) VALUES (1, cast(2 AS numeric(10, 2))) ON CONFLICT (a) DO NOTHING",
        "WITH x(a) AS (SELECT 1) SELECT * FROM x AS y(b) WHERE b IN (SELECT 1) AND EXISTS (SELECT 1)",
        "SELECT count(*) FILTER (WHERE a), sum(a) OVER (PARTITION BY b) FROM t JOIN s USING (a) GROUP BY ROLLUP (a)",
    ] {
        assert_eq!(left(sql), Left::Nothing, "{sql}");
    }
    // What is called takes an escape character to know.
    assert_eq!(left("SELECT U&\"d!0061\" UESCAPE '!' ()"), Left::Unknown);
    let none = CatalogueBuilder::new().build();
    assert_eq!(super::left(&class("SELECT tenant FROM t"), Some(&none)), Left::Nothing);
    assert_eq!(super::left(&class("SELECT f()"), None), Left::Unknown);
    assert_eq!(super::left(&class("INSERT INTO t VALUES (1)"), None), Left::Unknown);
    assert_eq!(super::left(&class("SELECT lower(a) FROM t WHERE a IN (1)"), None), Left::Nothing);
}

use super::*;
use crate::resolve::{Verdict, resolve};

fn owned(schema: &str, name: &str) -> (String, String) {
    (schema.to_owned(), name.to_owned())
}

fn relation(schema: &str, name: &str, kind: char) -> RelationRow {
    RelationRow {
        schema: schema.into(),
        name: name.into(),
        kind,
        persistence: 'p',
        row_security: false,
        definition: None,
        foreign_safe: false,
    }
}

fn view(schema: &str, name: &str, definition: &str) -> RelationRow {
    RelationRow { definition: Some(definition.into()), ..relation(schema, name, 'v') }
}

fn function(schema: &str, name: &str, arguments: u16, volatility: char) -> FunctionRow {
    FunctionRow {
        schema: schema.into(),
        name: name.into(),
        arguments,
        defaults: 0,
        variadic: false,
        volatility,
    }
}

fn kind(schema: &str, name: &str, checks: &[&str], parts: &[(&str, &str)]) -> TypeRow {
    TypeRow {
        schema: schema.into(),
        name: name.into(),
        checks: checks.iter().map(|check| (*check).to_owned()).collect(),
        parts: parts.iter().map(|(schema, name)| owned(schema, name)).collect(),
    }
}

fn build(fill: impl FnOnce(&mut CatalogueBuilder)) -> Catalogue {
    let mut builder = CatalogueBuilder::new();
    fill(&mut builder);
    builder.build()
}

fn reason(catalogue: &Catalogue, sql: &str) -> Reason {
    let Verdict { kind, reason } = resolve(&classify(sql.as_bytes(), &Limits::default()), Some(catalogue));
    assert_eq!(kind == Kind::Read, reason == Reason::Read, "{sql}");
    reason
}

#[test]
fn relations_are_what_their_rows_say() {
    let catalogue = build(|builder| {
        for kind in ['r', 'p', 'm', 'f', 'S', 'v', '?'] {
            builder.relation(relation("s", &format!("kind_{kind}").to_lowercase(), kind));
        }
        builder.relation(RelationRow { persistence: 'u', ..relation("s", "unlogged", 'r') });
        builder.relation(RelationRow { persistence: 't', ..relation("pg_temp_3", "temporary", 'r') });
        builder.relation(RelationRow { row_security: true, ..relation("s", "secured", 'r') });
        builder.relation(RelationRow { foreign_safe: true, ..relation("s", "foreign", 'f') });
    });
    for (name, expected) in [
        ("kind_r", Reason::Read),
        ("kind_p", Reason::Read),
        ("kind_m", Reason::Read),
        ("kind_f", Reason::NodeLocal),
        ("kind_s", Reason::NodeLocal),
        ("kind_v", Reason::UnprovenView),
        ("\"kind_?\"", Reason::UnknownRelation),
        ("unlogged", Reason::TempOrUnlogged),
        ("temporary", Reason::TempOrUnlogged),
        ("secured", Reason::RowSecurity),
        ("foreign", Reason::Read),
        ("no_such_relation", Reason::UnknownRelation),
        ("pg_class", Reason::Read),
    ] {
        assert_eq!(reason(&catalogue, &format!("SELECT * FROM {name}")), expected, "{name}");
    }
    assert_eq!(reason(&catalogue, "TABLE s.kind_r"), Reason::Read);
    assert_eq!(reason(&catalogue, "TABLE other.kind_r"), Reason::UnknownRelation);
}

#[test]
fn a_name_without_a_schema_is_harmless_only_in_all_of_them() {
    let catalogue = build(|builder| {
        builder.relation(relation("a", "t", 'r'));
        builder.relation(RelationRow { persistence: 'u', ..relation("b", "t", 'r') });
        builder.relation(RelationRow { persistence: 'u', ..relation("b", "pg_class", 'r') });
        builder.function(function("a", "f", 1, 'i'));
        builder.function(function("b", "f", 1, 'v'));
        builder.function(function("b", "lower", 1, 'v'));
        builder.operator(OperatorRow { schema: "b".into(), name: "->".into(), volatility: 'v' });
    });
    assert_eq!(reason(&catalogue, "SELECT * FROM t"), Reason::TempOrUnlogged);
    assert_eq!(reason(&catalogue, "SELECT * FROM a.t"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT * FROM pg_class"), Reason::TempOrUnlogged);
    assert_eq!(reason(&catalogue, "SELECT * FROM pg_catalog.pg_class"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT f(1)"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT a.f(1)"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT lower('x')"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT pg_catalog.lower('x')"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT a -> b FROM a.t"), Reason::UnknownOperatorOrType);
    assert_eq!(reason(&catalogue, "SELECT a OPERATOR(pg_catalog.->) b FROM a.t"), Reason::Read);
}

#[test]
fn views_are_judged_through_what_they_read() {
    let catalogue = build(|builder| {
        // Before what they read, on purpose.
        builder.relation(view("s", "deep", "SELECT * FROM s.middle WHERE (middle.a = 1);"));
        builder.relation(view("s", "middle", "SELECT t.a FROM s.t;"));
        builder.relation(view("s", "writes", "SELECT nextval('s.q'::regclass) AS a;"));
        builder.relation(view("s", "over_writes", "SELECT * FROM s.writes;"));
        builder.relation(view("s", "locks", "SELECT t.a FROM s.t FOR UPDATE OF t;"));
        builder.relation(view("s", "one", "SELECT * FROM s.two;"));
        builder.relation(view("s", "two", "SELECT * FROM s.one;"));
        builder.relation(view("s", "unknown", "SELECT * FROM s.no_such_table;"));
        builder.relation(view("s", "odd", "SELECT FROM FROM;"));
        builder.relation(view("s", "local", "SELECT * FROM pg_stat_activity;"));
        builder.relation(relation("s", "t", 'r'));
    });
    assert_eq!(reason(&catalogue, "SELECT * FROM s.deep"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT * FROM s.middle"), Reason::Read);
    for name in ["writes", "over_writes", "locks", "one", "two", "unknown", "odd", "local"] {
        assert_eq!(reason(&catalogue, &format!("SELECT * FROM s.{name}")), Reason::UnprovenView, "{name}");
    }
}

#[test]
fn a_parent_is_no_better_than_its_children() {
    let catalogue = build(|builder| {
        for name in ["root", "middle", "other"] {
            builder.relation(relation("s", name, 'p'));
        }
        builder.relation(RelationRow { persistence: 'u', ..relation("s", "leaf", 'r') });
        for (parent, child) in [("root", "middle"), ("middle", "leaf")] {
            builder.inheritance(InheritanceRow { parent: owned("s", parent), child: owned("s", child) });
        }
    });
    assert_eq!(reason(&catalogue, "SELECT * FROM s.root"), Reason::TempOrUnlogged);
    assert_eq!(reason(&catalogue, "SELECT * FROM s.middle"), Reason::TempOrUnlogged);
    assert_eq!(reason(&catalogue, "SELECT * FROM s.other"), Reason::Read);
}

#[test]
fn overloads_are_told_apart_by_how_many_arguments_they_take() {
    let catalogue = build(|builder| {
        builder.function(function("s", "f", 1, 'i'));
        builder.function(function("s", "f", 2, 'v'));
        builder.function(FunctionRow { defaults: 2, ..function("s", "g", 3, 'v') });
        builder.function(FunctionRow { variadic: true, ..function("s", "h", 1, 'v') });
        builder.function(function("s", "uuid_generate_v4", 0, 'v'));
        builder.function(function("s", "crosstab", 1, 's'));
    });
    assert_eq!(reason(&catalogue, "SELECT s.f(1)"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT s.f(1, 2)"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT s.f(1, 2, 3)"), Reason::UnknownFunction);
    assert_eq!(reason(&catalogue, "SELECT s.f(VARIADIC a)"), Reason::VolatileFunction);
    for arguments in ["1", "1, 2", "1, 2, 3"] {
        assert_eq!(reason(&catalogue, &format!("SELECT s.g({arguments})")), Reason::VolatileFunction);
    }
    for arguments in ["", "1", "1, 2, 3, 4, 5"] {
        assert_eq!(reason(&catalogue, &format!("SELECT s.h({arguments})")), Reason::VolatileFunction);
    }
    assert_eq!(reason(&catalogue, "SELECT s.uuid_generate_v4()"), Reason::Read);
    assert_eq!(reason(&catalogue, "SELECT * FROM s.crosstab('x') AS c (a int)"), Reason::VolatileFunction);
}

#[test]
fn what_looks_like_a_column_may_be_a_call() {
    let catalogue = build(|builder| {
        builder.relation(relation("s", "t", 'r'));
        builder.function(function("s", "bump", 1, 'v'));
        builder.function(function("s", "label", 1, 's'));
        builder.function(function("s", "pair", 2, 'v'));
    });
    assert_eq!(reason(&catalogue, "SELECT x.bump FROM s.t x"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT (x).bump FROM s.t x"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT s.t.bump FROM s.t"), Reason::VolatileFunction);
    assert_eq!(reason(&catalogue, "SELECT x.label, x.pair, bump FROM s.t x"), Reason::Read);
}

#[test]
fn types_are_judged_by_their_constraints_and_parts() {
    let catalogue = build(|builder| {
        builder.function(function("s", "chk", 1, 'v'));
        builder.function(function("s", "ok", 1, 'i'));
        builder.type_(kind("s", "plain", &["CHECK ((VALUE > 0))"], &[]));
        builder.type_(kind("s", "own", &["CHECK (s.ok(VALUE))", "CHECK ((VALUE < 9)) NOT VALID"], &[]));
        builder.type_(kind("s", "logged", &["CHECK (s.chk(VALUE))"], &[]));
        builder.type_(kind("s", "row", &[], &[("s", "array"), ("s", "plain")]));
        builder.type_(kind("s", "array", &[], &[("s", "logged")]));
        builder.type_(kind("s", "fine", &[], &[("s", "plain"), ("pg_catalog", "int4"), ("s", "some_table")]));
        builder.type_(kind("s", "cast", &[], &[]));
        builder.cast(CastRow { target: owned("s", "cast"), implicit: false, volatility: 'v' });
        builder.relation(relation("s", "t", 'r'));
    });
    for (name, expected) in [
        ("plain", Reason::Read),
        ("own", Reason::Read),
        ("fine", Reason::Read),
        ("logged", Reason::UnknownOperatorOrType),
        ("array", Reason::UnknownOperatorOrType),
        ("row", Reason::UnknownOperatorOrType),
        ("cast", Reason::UnknownOperatorOrType),
        ("no_such_type", Reason::UnknownOperatorOrType),
        ("t", Reason::UnknownOperatorOrType),
    ] {
        assert_eq!(reason(&catalogue, &format!("SELECT CAST(NULL AS s.\"{name}\")")), expected, "{name}");
    }
    assert_eq!(reason(&catalogue, "SELECT logged(5)"), Reason::UnknownOperatorOrType);
    assert_eq!(reason(&catalogue, "SELECT '5'::int4, '6'::text"), Reason::Read);
}

#[test]
fn what_acts_without_being_named_poisons_everything() {
    for volatility in ['v', 'i'] {
        let expected = if volatility == 'v' { Reason::UnknownOperatorOrType } else { Reason::Read };
        let operator = build(|builder| {
            builder.operator(OperatorRow { schema: "s".into(), name: "=".into(), volatility });
        });
        assert_eq!(reason(&operator, "SELECT 1 IN (2, 3)"), expected);
        let cast = build(|builder| {
            builder.cast(CastRow { target: owned("s", "x"), implicit: true, volatility });
        });
        assert_eq!(reason(&cast, "SELECT lower('x')"), expected);
    }
}

#[test]
fn functions_and_tables_are_forced_either_way() {
    use crate::overrides::{Forced, Overrides, Pattern};
    let rules = |rules: &[(&str, Forced)]| {
        rules.iter().map(|(text, forced)| (Pattern::parse(text).unwrap(), *forced)).collect::<Vec<_>>()
    };
    let functions = rules(&[("s.read_*", Forced::Read), ("audit_*", Forced::Primary)]);
    let tables =
        rules(&[("s.f_*", Forced::Read), ("audit.*", Forced::Primary), ("s.heir_p", Forced::Primary)]);
    let catalogue = build(|builder| {
        builder.overrides(Overrides::new(functions, tables));
        for (name, volatility) in [("read_volatile", 'v'), ("other_volatile", 'v'), ("audit_stable", 's')] {
            builder.function(function("s", name, 1, volatility));
        }
        builder.relation(relation("audit", "log", 'r'));
        builder.relation(RelationRow { row_security: true, ..relation("s", "f_secured", 'r') });
        builder.relation(RelationRow { persistence: 'u', ..relation("s", "f_unlogged", 'r') });
        builder.relation(relation("s", "f_sequence", 'S'));
        builder.relation(view("s", "f_view", "SELECT s.other_volatile(1)"));
        builder.relation(view("s", "through", "SELECT s.read_volatile(v.a) FROM s.f_view v"));
        builder.relation(view("s", "through_log", "SELECT 1 FROM audit.log"));
        for (parent, child) in [("parent", "heir_p"), ("f_parent", "secured"), ("f_parent_u", "f_unlogged")] {
            builder.relation(relation("s", parent, 'p'));
            builder.inheritance(InheritanceRow { parent: owned("s", parent), child: owned("s", child) });
        }
        builder.relation(relation("s", "heir_p", 'r'));
        builder.relation(RelationRow { row_security: true, ..relation("s", "secured", 'r') });
    });
    for (sql, expected) in [
        ("SELECT s.read_volatile(1)", Reason::Read),
        ("SELECT read_volatile(1)", Reason::Read),
        ("SELECT s.read_volatile(1, 2)", Reason::UnknownFunction),
        ("SELECT s.read_unknown(1)", Reason::UnknownFunction),
        ("SELECT s.other_volatile(1)", Reason::VolatileFunction),
        ("SELECT s.audit_stable(1)", Reason::Configured),
        ("SELECT * FROM audit.log", Reason::Configured),
        ("SELECT * FROM log", Reason::Configured),
        ("SELECT * FROM s.f_secured", Reason::Read),
        ("SELECT * FROM s.f_unlogged", Reason::TempOrUnlogged),
        ("SELECT * FROM s.f_sequence", Reason::NodeLocal),
        ("SELECT * FROM s.f_view", Reason::Read),
        ("SELECT * FROM s.through", Reason::Read),
        ("SELECT * FROM s.through_log", Reason::UnprovenView),
        ("SELECT * FROM s.parent", Reason::Configured),
        ("SELECT * FROM s.f_parent", Reason::Read),
        ("SELECT * FROM s.f_parent_u", Reason::TempOrUnlogged),
        // Whatever is said of names, a statement that writes or locks does.
        ("SELECT * FROM s.f_secured FOR UPDATE", Reason::Locking),
        ("SELECT s.read_volatile(1), nextval('x')", Reason::VolatileFunction),
        ("WITH x AS (DELETE FROM s.f_secured RETURNING 1) SELECT s.read_volatile(1)", Reason::Write),
        ("SELECT s.read_volatile(1) INTO y", Reason::Write),
    ] {
        assert_eq!(reason(&catalogue, sql), expected, "{sql}");
    }
}

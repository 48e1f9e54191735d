//! Every statement of the corpus, judged with the catalogue of the database it was written for.

use std::path::Path;

use causeway_routing::catalogue::{
    CastRow, CatalogueBuilder, FunctionRow, InheritanceRow, OperatorRow, RelationRow, TypeRow,
};
use causeway_routing::{Catalogue, Class, Key, Kind, Limits, Verdict, classify, fingerprint, resolve};

/// Rows which say `read` and go to the primary all the same. The number may only fall.
const READS_LOST: usize = 0;
/// Rows whose kind is another than the corpus says, the lost reads apart: all of them safe. It may only fall.
const KINDS_MISSED: usize = 4;
/// Rows that only the server can refuse: a function that is labelled STABLE and calls one that writes.
const SERVER_REFUSES: [&str; 1] = ["S-func-33"];

pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) sql: String,
    pub(crate) expected: String,
}

/// Undoes the escapes that tests/cases/README.md lists.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next().expect("an escape is not the last character") {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'u' => {
                let code: String = chars.by_ref().take(4).collect();
                u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).expect("a character")
            }
            other => other,
        });
    }
    out
}

pub(crate) fn corpus() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/classify.tsv");
    let text = std::fs::read_to_string(path).expect("the fixtures are well formed");
    let rows: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            Row { id: fields[0].into(), sql: unescape(fields[1]), expected: fields[3].into() }
        })
        .collect();
    assert!(rows.len() > 240, "the corpus is whole");
    rows
}

pub(crate) fn catalogue() -> Catalogue {
    let mut builder = CatalogueBuilder::new();
    let list = |text: &str| -> Vec<String> {
        if text == "\\N" { Vec::new() } else { text.split('\u{1f}').map(String::from).collect() }
    };
    let flag = |text: &str| text == "t";
    let letter = |text: &str| text.chars().next().expect("the fixtures are well formed");
    for line in include_str!("fixtures/shop.tsv").lines() {
        let fields: Vec<_> = line.split('\t').collect();
        match *fields.as_slice() {
            ["relation", schema, name, kind, persistence, row_security, definition, foreign_safe] => {
                builder.relation(RelationRow {
                    schema: schema.into(),
                    name: name.into(),
                    kind: letter(kind),
                    persistence: letter(persistence),
                    row_security: flag(row_security),
                    definition: list(definition).pop(),
                    foreign_safe: flag(foreign_safe),
                });
            }
            ["inheritance", parent_schema, parent, child_schema, child] => {
                builder.inheritance(InheritanceRow {
                    parent: (parent_schema.into(), parent.into()),
                    child: (child_schema.into(), child.into()),
                });
            }
            ["function", schema, name, arguments, defaults, variadic, volatility] => {
                builder.function(FunctionRow {
                    schema: schema.into(),
                    name: name.into(),
                    arguments: arguments.parse().expect("the fixtures are well formed"),
                    defaults: defaults.parse().expect("the fixtures are well formed"),
                    variadic: flag(variadic),
                    volatility: letter(volatility),
                });
            }
            ["operator", schema, name, volatility] => builder.operator(OperatorRow {
                schema: schema.into(),
                name: name.into(),
                volatility: letter(volatility),
            }),
            ["type", schema, name, checks, parts] => {
                let split = |part: &String| {
                    let (schema, name) = part.split_once('.').expect("the fixtures are well formed");
                    (schema.to_owned(), name.to_owned())
                };
                builder.type_(TypeRow {
                    schema: schema.into(),
                    name: name.into(),
                    checks: list(checks),
                    parts: list(parts).iter().map(split).collect(),
                });
            }
            ["cast", schema, name, implicit, volatility] => builder.cast(CastRow {
                target: (schema.into(), name.into()),
                implicit: flag(implicit),
                volatility: letter(volatility),
            }),
            _ => panic!("{line:?}"),
        }
    }
    builder.build()
}

fn judge(row: &Row, catalogue: &Catalogue) -> (Class, Verdict) {
    let class = classify(row.sql.as_bytes(), &Limits::default());
    let verdict = resolve(&class, Some(catalogue));
    (class, verdict)
}

fn may_reach_a_replica(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::BeginReadOnly)
}

#[test]
fn nothing_but_reads_reaches_a_replica() {
    let catalogue = catalogue();
    for row in corpus() {
        if matches!(row.expected.as_str(), "read" | "txn-begin-ro" | "either")
            || SERVER_REFUSES.contains(&&*row.id)
        {
            continue;
        }
        for verdict in [judge(&row, &catalogue).1, resolve(&judge(&row, &catalogue).0, None)] {
            assert!(!may_reach_a_replica(verdict.kind), "{} {:?}: {verdict:?}", row.id, row.sql);
        }
    }
}

#[test]
fn reads_are_not_lost() {
    let catalogue = catalogue();
    let (mut lost, mut reads) = (0, 0);
    for row in corpus().iter().filter(|row| row.expected == "read") {
        reads += 1;
        let (class, verdict) = judge(row, &catalogue);
        if verdict.kind != Kind::Read {
            lost += 1;
            println!("{} {:?} as {}: {}", row.id, verdict.reason, verdict.kind, row.sql.escape_debug());
            println!("    {:?}", class.symbols);
        }
    }
    println!("{lost} of {reads} reads lost");
    assert_eq!(lost, READS_LOST, "lost reads; when there are fewer, lower the number");
}

#[test]
fn kinds_are_those_of_the_corpus() {
    let catalogue = catalogue();
    let mut missed = 0;
    for row in corpus().iter().filter(|row| !matches!(row.expected.as_str(), "read" | "either")) {
        let verdict = judge(row, &catalogue).1;
        if verdict.kind.as_str() != row.expected {
            missed += 1;
            println!("{} {} for {}: {}", row.id, verdict.kind, row.expected, row.sql.escape_debug());
        }
    }
    assert_eq!(missed, KINDS_MISSED, "missed kinds; when there are fewer, lower the number");
}

/// Statements that differ in more than literals have different fingerprints, and those that differ in literals alone
/// and share one have the same class.
#[test]
fn a_fingerprint_has_one_class() {
    let rows = corpus();
    let prints: Vec<_> = rows.iter().map(|row| fingerprint(row.sql.as_bytes(), &Key([3; 16]))).collect();
    for (i, one) in rows.iter().enumerate() {
        for (j, two) in rows.iter().enumerate().skip(i + 1) {
            if prints[i] == prints[j] {
                let classes = [one, two].map(|row| classify(row.sql.as_bytes(), &Limits::default()));
                assert_eq!(classes[0], classes[1], "{} {}", one.id, two.id);
            }
        }
    }
}

//! PostgreSQL's own parser as the judge of what is called a read.
//!
//! Not part of the library: it takes libpg_query, which takes a C compiler and libclang to build.

use std::collections::BTreeSet;

use causeway_routing::builtin::{self, Effect};
use causeway_routing::{Class, Kind, Limits};
use serde_json::Value;

/// Kinds of nodes that modify, lock or define, wherever they stand.
const MODIFIES: [&str; 6] =
    ["InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "LockingClause", "IntoClause"];

/// Statements that a read may be, or stand among.
const READS: [&str; 5] = ["SelectStmt", "ExplainStmt", "CopyStmt", "VariableShowStmt", "TransactionStmt"];

/// What a statement mentions.
#[derive(Debug, Default)]
struct Mentioned {
    functions: BTreeSet<Vec<String>>,
    relations: BTreeSet<(String, String)>,
    types: BTreeSet<Vec<String>>,
    operators: BTreeSet<Vec<String>>,
    named_here: BTreeSet<String>,
    modifies: Option<String>,
}

/// Nothing that the server's parser shows to write, to lock or to call what is not known to be harmless is called a read, and
/// every name that it shows is looked up.
pub fn check(sql: &[u8]) {
    let class = causeway_routing::classify(sql, &Limits::default());
    if !matches!(class.kind, Kind::Read | Kind::BeginReadOnly | Kind::Either) {
        return;
    }
    let Ok(text) = std::str::from_utf8(sql) else { panic!("not UTF-8, and {:?}", class.kind) };
    // What it refuses, the server refuses; a zero byte ends its text.
    let Ok(parsed) = pg_query::parse(text) else { return };
    if text.contains('\0') {
        return;
    }
    let tree = serde_json::to_value(&parsed.protobuf).expect("a tree of plain values");
    for statement in tree["stmts"].as_array().into_iter().flatten() {
        judge(&statement["stmt"]["node"], &class, text);
    }
}

fn judge(node: &Value, class: &Class, text: &str) {
    let wrong =
        |why: &str| -> ! { panic!("{why}: {} is called {:?}: {class:?}", text.escape_debug(), class.kind) };
    let Some((name, content)) = node.as_object().and_then(|object| object.iter().next()) else { return };
    if !READS.contains(&name.as_str()) {
        wrong(name);
    }
    let mut mentioned = Mentioned::default();
    match name.as_str() {
        "CopyStmt" if content["is_from"] == true || content["is_program"] == true => wrong("COPY"),
        "CopyStmt" if content["filename"].as_str().is_some_and(|file| !file.is_empty()) => {
            wrong("COPY to a file")
        }
        // Planned and not run: what it modifies is not modified, and what it calls is not called unless it is planned away.
        "ExplainStmt" if !analyzes(content) => return,
        _ => mentioned.gather(name, content),
    }
    if let Some(what) = &mentioned.modifies {
        wrong(what);
    }
    for function in &mentioned.functions {
        let [schema @ .., name] = &function[..] else { continue };
        let own = matches!(schema, [] | [_] if schema.first().is_none_or(|schema| schema == "pg_catalog"));
        let listed = class.symbols.functions.iter().any(|call| *call.name.name == **name);
        match builtin::function(name).filter(|_| own) {
            Some(Effect::Harmless) => {}
            Some(_) => wrong(&format!("{name}()")),
            None if listed || builtin_syntax(name) => {}
            None => wrong(&format!("{name}() is not looked up")),
        }
    }
    for (schema, name) in &mentioned.relations {
        let listed = class.symbols.relations.iter().any(|relation| *relation.name == **name);
        let named_here = schema.is_empty() && mentioned.named_here.contains(name);
        if !listed && !named_here {
            wrong(&format!("relation {schema}.{name} is not looked up"));
        }
    }
    for (what, names, listed) in [
        ("type", &mentioned.types, &class.symbols.types),
        ("operator", &mentioned.operators, &class.symbols.operators),
    ] {
        for name in names.iter().filter_map(|name| name.last().map(|last| (name.len(), last))) {
            let known = listed.iter().any(|listed| *listed.name == **name.1);
            // Words of the grammar come with a schema that nobody has written; LIKE is an operator, which the catalogue judges
            // for all statements.
            let hidden = ["~~", "!~~", "~~*", "!~~*"].contains(&name.1.as_str());
            if !known && !hidden && name.0 == 1 {
                wrong(&format!("{what} {} is not looked up", name.1));
            }
        }
    }
}

/// Whether an EXPLAIN runs what it explains.
fn analyzes(explain: &Value) -> bool {
    explain["options"].as_array().into_iter().flatten().map(|option| &option["node"]["DefElem"]).any(
        |option| {
            let value = &option["arg"]["node"];
            let word = value["String"]["sval"].as_str().unwrap_or_default().to_ascii_lowercase();
            let off = matches!(&*word, "off" | "false") || value["Integer"]["ival"] == 0;
            option["defname"] == "analyze" && !off
        },
    )
}

/// Calls that the parser makes of syntax.
fn builtin_syntax(name: &str) -> bool {
    matches!(name, "grouping" | "coalesce" | "greatest" | "least" | "nullif" | "xmlexists" | "merge_action")
}

// === impl Mentioned ===

impl Mentioned {
    fn gather(&mut self, name: &str, content: &Value) {
        match name {
            "FuncCall" => drop(self.functions.insert(strings(&content["funcname"]))),
            "RangeVar" => {
                let field = |name: &str| content[name].as_str().unwrap_or_default().to_owned();
                self.relations.insert((field("schemaname"), field("relname")));
            }
            "CommonTableExpr" => {
                self.named_here.insert(content["ctename"].as_str().unwrap_or_default().to_owned());
            }
            "TypeName" => drop(self.types.insert(strings(&content["names"]))),
            "AExpr" => {
                // LIKE, IN, BETWEEN and the like are operators that nobody has written: the catalogue judges those for all.
                let written = matches!(content["kind"].as_i64(), Some(1..=3));
                if written {
                    self.operators.insert(strings(&content["name"]));
                }
            }
            _ if MODIFIES.contains(&name) => self.modifies = self.modifies.take().or(Some(name.to_owned())),
            _ => {}
        }
        self.walk(content);
    }

    fn walk(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.walk(value)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let node = match name.as_str() {
                        "relation" if !value["relname"].is_null() => "RangeVar",
                        "type_name" => "TypeName",
                        "into_clause" if !value.is_null() => "IntoClause",
                        other => other,
                    };
                    self.gather(node, value);
                }
            }
            _ => {}
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    let string = |node: &Value| node["node"]["String"]["sval"].as_str().map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(string).collect()
}

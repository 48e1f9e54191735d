//! `causeway schema`: the JSON Schema of the YAML file.
//!
//! Made of the list of keys and of the table in the documentation, which a test holds equal to each other and to what is
//! read: an editor shows the same words as the page.

use serde_json::{Map, Value, json};

use crate::config::{KEYS, Key};

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// The words that a key takes, where they are all there is. A test holds them against the reader.
const WORDS: &[(&str, &[&str])] = &[
    ("metrics_compat", &["pgbouncer"]),
    ("tls.mode", &["allow", "require"]),
    ("clusters.<name>.fence_source", &["auto", "insert", "flush", "commit"]),
    ("pool.mode", &["transaction", "session", "statement"]),
    ("consistency.fallback", &["primary", "wait", "error"]),
    ("consistency.lost_writes", &["error", "adopt"]),
    ("log.level", &["error", "warn", "info", "debug", "trace"]),
    ("log.format", &["text", "json"]),
];

/// What the table says of a key.
struct Row<'a> {
    kind: &'a str,
    meaning: &'a str,
}

/// The schema, indented.
pub fn text() -> String {
    let text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text + "\n"
}

fn schema() -> Value {
    let mut root = object();
    for key in KEYS {
        insert(&mut root, key.path, leaf(key));
    }
    // `databases: { "*": }` and `users: { app: }` say that there is one, and nothing else of it.
    for names in ["databases", "users"] {
        if let Some(named) = root["properties"][names]["additionalProperties"].as_object_mut() {
            named.insert("type".to_owned(), json!(["object", "null"]));
        }
    }
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("Causeway's configuration"));
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    Value::Object(schema)
}

fn object() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// Puts a leaf where its path says, making what is on the way.
fn insert(at: &mut Value, path: &str, leaf: Value) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let inner = rest.map_or_else(|| leaf.clone(), |_| object());
    let (name, fresh) = match first.strip_suffix("[]") {
        Some(name) => (name, json!({"type": "array", "items": inner})),
        None => (first, inner),
    };
    let place = if name == "<name>" { &mut at["additionalProperties"] } else { &mut at["properties"][name] };
    if !place.is_object() {
        *place = fresh;
    }
    if let Some(rest) = rest {
        insert(if first.ends_with("[]") { &mut place["items"] } else { place }, rest, leaf);
    }
}

fn row(path: &str) -> Option<Row<'static>> {
    let line = PAGE.lines().find(|line| line.starts_with(&format!("| `{path}` |")))?;
    let mut cells = line.trim_matches('|').split(" | ").skip(1);
    Some(Row { kind: cells.next()?.trim(), meaning: cells.nth(2)?.trim() })
}

fn leaf(key: &Key) -> Value {
    let row = row(key.path).unwrap_or(Row { kind: "text", meaning: "" });
    let mut leaf = match row.kind {
        "number" | "count" => json!({"type": "integer", "minimum": 0}),
        "duration" => json!({"type": "string", "pattern": r"^[0-9]+(us|ms|s|m|h|d)$"}),
        "yes or no" => json!({"type": "boolean"}),
        _ => json!({"type": "string"}),
    };
    if let Some((_, words)) =
        WORDS.iter().find(|(path, _)| key.path == *path || key.path.ends_with(&format!(">.{path}")))
    {
        leaf["enum"] = json!(words);
    }
    leaf["description"] = json!(row.meaning.replace('`', ""));
    if let Some(default) = key.default.filter(|_| !key.path.ends_with("[]")) {
        leaf["default"] = default.parse::<u64>().map_or_else(|_| json!(default), |number| json!(number));
    }
    leaf
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn every_key_is_there_with_its_meaning() {
        let schema = schema();
        for key in KEYS {
            let mut at = &schema;
            for part in key.path.split('.') {
                let (name, list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
                at = if name == "<name>" { &at["additionalProperties"] } else { &at["properties"][name] };
                at = if list { &at["items"] } else { at };
            }
            assert!(at["description"].as_str().is_some_and(|text| !text.is_empty()), "{}: {at}", key.path);
            assert!(at["type"].is_string(), "{}", key.path);
        }
        assert_eq!(schema["properties"]["pool"]["properties"]["size"]["default"], 20);
        assert_eq!(schema["properties"]["pool"]["properties"]["size"]["type"], "integer");
        assert_eq!(schema["additionalProperties"], false);
    }

    /// The reader takes these words and says so of no others.
    #[test]
    fn words_are_those_that_are_read() {
        for (path, words) in WORDS.iter().filter(|(path, _)| !path.starts_with("tls") && !path.contains('<'))
        {
            let yaml = |word: &str| match path.split_once('.') {
                Some((section, name)) => format!("{}{section}: {{ {name}: {word} }}\n", testing::YAML),
                None => format!("{}{path}: {word}\n", testing::YAML),
            };
            for word in *words {
                testing::config(&yaml(word));
            }
            let parsed = crate::config::parse(std::path::Path::new("c.yaml"), &yaml("nonsense"), &|_| None);
            let message = parsed.unwrap_err().to_string();
            for word in *words {
                assert!(message.contains(word), "{path}: {message}");
            }
        }
    }
}

//! The YAML file: read, checked and turned into what each part runs on.
//!
//! Three steps, each with errors that know their place: the text becomes a tree (`document`), the tree becomes
//! the file's shape (`reader`, `raw`, `scalars`), the shape becomes a [`Config`] (`validate`).

mod document;
mod interpolate;
mod keys;
mod model;
mod problem;
mod raw;
mod reader;
mod routing;
mod scalars;
mod server_tls;
mod tls;
mod userlist;
mod validate;

use std::path::Path;

pub use interpolate::Environment;
pub use keys::{KEYS, Key};
pub use model::*;
pub(crate) use problem::nearest;
pub use problem::{ConfigError, Finding, KeyPath, Segment};
pub use validate::ADMIN_DATABASES;

use document::{MAX_BYTES, Node as Tree};

/// Reads and checks the file.
///
/// # Errors
///
/// Every mistake found, with its line and column; also when the file, or a file with a secret or certificate that it
/// names, cannot be read.
pub fn load(file: &Path, environment: &Environment<'_>) -> Result<Config, ConfigError> {
    let text = read_text(file).map_err(|message| ConfigError {
        file: file.to_owned(),
        findings: vec![Finding { line: None, column: None, path: KeyPath::default(), message }],
    })?;
    parse(file, &text, environment)
}

/// Checks `text` as if it stood in `file`.
///
/// # Errors
///
/// As [`load`].
pub fn parse(file: &Path, text: &str, environment: &Environment<'_>) -> Result<Config, ConfigError> {
    let refused = |findings| ConfigError { file: file.to_owned(), findings };
    let written = document::parse(text).map_err(|finding| refused(vec![finding]))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let read = interpolate::interpolate(&written, environment, &KeyPath::default())
        .and_then(|tree| reader::read(&tree))
        .map_err(|problem| vec![problem])
        .and_then(|shape| validate::validate(shape, directory));
    match read {
        Ok(config) => Ok(Config { file: file.to_owned(), written: flatten(&written), ..config }),
        Err(problems) => Err(refused(problems.iter().map(|p| document::locate(text, p)).collect())),
    }
}

fn read_text(file: &Path) -> Result<String, String> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| format!("cannot be read: {error}"))?;
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    opened.take(limit + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > MAX_BYTES {
        return Err(format!("the file is longer than {MAX_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())
}

/// Every value as it was written, without secrets and with `${NAME}` as it stands.
fn flatten(tree: &Tree) -> Vec<Written> {
    fn walk(node: &Tree, at: &Written, depth: usize, out: &mut Vec<Written>) {
        let text = match node {
            Tree::Null => return,
            Tree::Bool(value) => value.to_string(),
            Tree::Integer(value) => value.to_string(),
            Tree::Decimal(value) => value.to_string(),
            Tree::Text(text) => text.clone(),
            Tree::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    let path = format!("{}[{index}]", at.path);
                    let pattern = format!("{}[]", at.pattern);
                    walk(node, &Written { path, pattern, text: String::new() }, depth, out);
                }
                return;
            }
            Tree::Map(entries) => {
                for (key, node) in entries {
                    let dot = if depth == 0 { "" } else { "." };
                    let path = format!("{}{dot}{key}", at.path);
                    let named = depth == 1 && keys::NAMED.contains(&at.pattern.as_str())
                        || keys::PATTERNS.iter().any(|key| at.pattern.ends_with(key));
                    let pattern = format!("{}{dot}{}", at.pattern, if named { "<name>" } else { key });
                    walk(node, &Written { path, pattern, text: String::new() }, depth + 1, out);
                }
                return;
            }
        };
        let secret = keys::SECRETS.iter().any(|name| at.pattern.ends_with(name));
        out.push(Written { text: if secret { "<hidden>".to_owned() } else { text }, ..at.clone() });
    }
    let mut out = Vec::new();
    let top = Written { path: String::new(), pattern: String::new(), text: String::new() };
    walk(tree, &top, 0, &mut out);
    out
}

#[cfg(test)]
mod tests;

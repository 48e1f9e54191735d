//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

use serde::de;

/// One step from the top of the document to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a map.
    Key(String),
    /// A position in a list, from zero.
    Index(usize),
}

/// Where a value stands: `clusters.main.nodes[0].address`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(pub Vec<Segment>);

/// Whether a problem is with a key or with what stands behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    /// The key itself.
    Key,
    /// Its value.
    #[default]
    Value,
}

/// One mistake, by its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where. While an error rises through nested readers its steps are gathered innermost first;
    /// [`Problem::rising`] says so.
    pub(super) path: KeyPath,
    /// Key or value.
    pub(super) at: At,
    /// What was found and what was expected; never a secret.
    pub(super) message: String,
}

/// One mistake, by its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, from one; `None` when the problem is with the file as a whole.
    pub line: Option<usize>,
    /// The column, from one.
    pub column: Option<usize>,
    /// The place in the tree; empty for the whole document.
    pub path: KeyPath,
    /// What was found and what was expected; never a secret.
    pub message: String,
}

/// A configuration that was refused; `Display` prints one line for each mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub findings: Vec<Finding>,
}

// === impl KeyPath ===

impl KeyPath {
    /// This path, one key further.
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Key(key.into()));
        path
    }

    /// This path, one list entry further.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Index(index));
        path
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

// === impl Problem ===

impl Problem {
    /// A problem with the value at `path`.
    pub(super) fn value(path: KeyPath, message: impl Into<String>) -> Self {
        Self { path, at: At::Value, message: message.into() }
    }

    /// A problem with the key at `path`.
    pub(super) fn key(path: KeyPath, message: impl Into<String>) -> Self {
        Self { path, at: At::Key, message: message.into() }
    }

    /// Adds the step outside of those gathered so far.
    #[must_use]
    pub(super) fn rising(mut self, segment: Segment) -> Self {
        self.path.0.push(segment);
        self
    }

    /// The steps in reading order, once the error has risen to the top.
    #[must_use]
    pub(super) fn risen(mut self) -> Self {
        self.path.0.reverse();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::value(KeyPath::default(), message.to_string())
    }

    // The value found is not repeated: it may be a secret that stands in the wrong place.
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            de::Unexpected::Bool(_) => "true or false",
            de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) => "a number",
            de::Unexpected::Float(_) => "a decimal number",
            de::Unexpected::Unit | de::Unexpected::Option => "nothing",
            de::Unexpected::Seq => "a list",
            de::Unexpected::Map | de::Unexpected::StructVariant => "a map",
            _ => "text",
        };
        // serde's own word for it.
        let expected = expected.to_string().replace("a sequence", "a list");
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let message = match nearest(field, expected) {
            Some(name) => format!("unknown key; did you mean `{name}`?"),
            None => format!("unknown key; expected {}", one_of(expected)),
        };
        Self::key(KeyPath(vec![Segment::Key(field.to_owned())]), message)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let message = match nearest(variant, expected) {
            Some(name) => format!("unknown word {variant:?}; did you mean `{name}`?"),
            None => format!("unknown word {variant:?}; expected {}", one_of(expected)),
        };
        Self::custom(message)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("the key `{field}` is missing"))
    }
}

/// The candidate that `word` is most likely a misspelling of.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let similarity = |name: &str| strsim::jaro_winkler(&word.to_lowercase(), name);
    candidates
        .iter()
        .map(|name| (similarity(name), *name))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "nothing here".to_owned(),
        [only] => only.clone(),
        many => format!("one of {}", many.join(", ")),
    }
}

// === impl ConfigError ===

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, finding) in self.findings.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", self.file.display())?;
            if let (Some(line), Some(column)) = (finding.line, finding.column) {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
            if !finding.path.0.is_empty() {
                write!(f, "{}: ", finding.path)?;
            }
            f.write_str(&finding.message)?;
        }
        Ok(())
    }
}

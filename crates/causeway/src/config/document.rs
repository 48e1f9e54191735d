//! A YAML document as a tree: duplicate keys refused, size bounded, places findable again.
//!
//! The YAML library keeps no positions with its values, so a problem is found by its path and the path is
//! then looked up in the text by a second, failing read whose error carries the position.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::problem::{At, Finding, KeyPath, Problem, Segment};

/// The longest file read; a real one has a few kilobytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The most values a document may hold after its aliases are followed: small text can mean a very large tree.
const MAX_VALUES: usize = 100_000;

/// One value of the document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Decimal(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// What one read of the document shares: the budget, and the problem that ended it.
#[derive(Default)]
struct Reading {
    values: Cell<usize>,
    path: RefCell<KeyPath>,
    problem: RefCell<Option<Problem>>,
}

#[derive(Clone, Copy)]
struct NodeSeed<'r>(&'r Reading);

struct KeySeed<'r> {
    reading: &'r Reading,
    seen: &'r HashSet<String>,
}

struct Locate<'a> {
    path: &'a [Segment],
    at: At,
}

struct LocateKey<'a> {
    wanted: Option<&'a str>,
}

struct Here;

/// Reads `text`.
pub(super) fn parse(text: &str) -> Result<Node, Finding> {
    let reading = Reading::default();
    match NodeSeed(&reading).deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(node) => Ok(node),
        Err(error) => {
            let location = error.location();
            let (path, message) = match reading.problem.into_inner() {
                Some(problem) => (problem.path, problem.message),
                None => (KeyPath::default(), format!("not valid YAML: {error}")),
            };
            let line = location.as_ref().map(serde_yaml::Location::line);
            let column = location.as_ref().map(serde_yaml::Location::column);
            Err(Finding { line, column, path, message })
        }
    }
}

/// Finds in `text` the place of a problem.
///
/// A path that is not in the text (a key that is missing) is looked for one step up.
pub(super) fn locate(text: &str, problem: &Problem) -> Finding {
    let steps = &problem.path.0;
    let mut location = None;
    for length in (0..=steps.len()).rev() {
        let at = if length == steps.len() { problem.at } else { At::Value };
        let seed = Locate { path: steps.get(..length).unwrap_or_default(), at };
        let found = seed.deserialize(serde_yaml::Deserializer::from_str(text));
        location = found.err().and_then(|error| error.location());
        if location.is_some() {
            break;
        }
    }
    Finding {
        line: location.as_ref().map(serde_yaml::Location::line),
        column: location.as_ref().map(serde_yaml::Location::column),
        path: problem.path.clone(),
        message: problem.message.clone(),
    }
}

// === impl Reading ===

impl Reading {
    fn fail<E: de::Error>(&self, message: impl Into<String>) -> E {
        let message = message.into();
        let problem = Problem::value(self.path.borrow().clone(), message.clone());
        *self.problem.borrow_mut() = Some(problem);
        E::custom(message)
    }

    fn inside<T, E>(&self, segment: Segment, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.path.borrow_mut().0.push(segment);
        let result = read()?;
        self.path.borrow_mut().0.pop();
        Ok(result)
    }
}

// === impl NodeSeed ===

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let values = self.0.values.get() + 1;
        if values > MAX_VALUES {
            return Err(self.0.fail(format!("the document holds more than {MAX_VALUES} values")));
        }
        self.0.values.set(values);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        i64::try_from(value).map(Node::Integer).map_err(|_| self.0.fail("the number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Decimal(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        loop {
            let index = Segment::Index(nodes.len());
            match self.0.inside(index, || list.next_element_seed(self))? {
                Some(node) => nodes.push(node),
                None => return Ok(Node::List(nodes)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(KeySeed { reading: self.0, seen: &seen })? {
            let value = self.0.inside(Segment::Key(key.clone()), || map.next_value_seed(self))?;
            seen.insert(key.clone());
            entries.push((key, value));
        }
        Ok(Node::Map(entries))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        Err(self.0.fail("YAML tags (`!name`) have no meaning here"))
    }
}

// === impl KeySeed ===

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl KeySeed<'_> {
    fn not_text<E: de::Error>(&self, key: impl fmt::Display) -> E {
        self.reading.fail(format!("the key {key} is not text: put it in quotes"))
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.seen.contains(key) {
            self.reading.path.borrow_mut().0.push(Segment::Key(key.to_owned()));
            return Err(self.reading.fail("the key is there twice"));
        }
        Ok(key.to_owned())
    }

    fn visit_bool<E: de::Error>(self, key: bool) -> Result<String, E> {
        Err(self.not_text(key))
    }

    fn visit_i64<E: de::Error>(self, key: i64) -> Result<String, E> {
        Err(self.not_text(key))
    }

    fn visit_u64<E: de::Error>(self, key: u64) -> Result<String, E> {
        Err(self.not_text(key))
    }

    fn visit_f64<E: de::Error>(self, key: f64) -> Result<String, E> {
        Err(self.not_text(key))
    }

    fn visit_unit<E: de::Error>(self) -> Result<String, E> {
        Err(self.not_text("null"))
    }
}

// === impl Locate ===

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            deserializer.deserialize_any(Here)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((Segment::Index(wanted), rest)) = self.path.split_first() else { return Ok(()) };
        for _ in 0..*wanted {
            list.next_element::<IgnoredAny>()?;
        }
        list.next_element_seed(Locate { path: rest, at: self.at })?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Segment::Key(wanted), rest)) = self.path.split_first() else { return Ok(()) };
        let fail_at_key = rest.is_empty() && self.at == At::Key;
        let seed = || LocateKey { wanted: fail_at_key.then_some(wanted) };
        while let Some(key) = map.next_key_seed(seed())? {
            if key == *wanted {
                map.next_value_seed(Locate { path: rest, at: self.at })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for LocateKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for LocateKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.wanted == Some(key) { Err(E::custom("here")) } else { Ok(key.to_owned()) }
    }
}

// === impl Here ===

impl Visitor<'_> for Here {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing: any value is the place looked for")
    }
}

//! Reads the tree of a document into serde's structures, with errors that know their path.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::document::Node;
use super::problem::{At, Problem, Segment};

/// Reads `node` into a `T`.
pub(super) fn read<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, Problem> {
    T::deserialize(Reader(node)).map_err(Problem::risen)
}

struct Reader<'a>(&'a Node);

struct MapReader<'a> {
    entries: std::slice::Iter<'a, (String, Node)>,
    current: Option<&'a (String, Node)>,
}

struct ListReader<'a> {
    nodes: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

// === impl Reader ===

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Node::Null => visitor.visit_unit(),
            Node::Bool(value) => visitor.visit_bool(*value),
            Node::Integer(value) => visitor.visit_i64(*value),
            Node::Decimal(value) => visitor.visit_f64(*value),
            Node::Text(text) => visitor.visit_borrowed_str(text),
            Node::List(nodes) => visitor.visit_seq(ListReader { nodes: nodes.iter().enumerate() }),
            Node::Map(entries) => visitor.visit_map(MapReader { entries: entries.iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    // A derived structure would also take a list, its fields by position.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.0 {
            Node::List(_) => Err(serde::de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.0 {
            Node::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

// === impl MapReader ===

impl<'de> MapAccess<'de> for MapReader<'de> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        let reader: StringDeserializer<Problem> = key.clone().into_deserializer();
        seed.deserialize(reader).map(Some).map_err(|problem| {
            if !problem.path.0.is_empty() {
                return problem;
            }
            Problem { at: At::Key, ..problem.rising(Segment::Key(key.clone())) }
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        match self.current {
            Some((key, node)) => {
                seed.deserialize(Reader(node)).map_err(|problem| problem.rising(Segment::Key(key.clone())))
            }
            None => Err(serde::de::Error::custom("a value was asked for before its key")),
        }
    }
}

// === impl ListReader ===

impl<'de> SeqAccess<'de> for ListReader<'de> {
    type Error = Problem;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Problem> {
        let Some((index, node)) = self.nodes.next() else { return Ok(None) };
        let read = seed.deserialize(Reader(node));
        read.map(Some).map_err(|problem| problem.rising(Segment::Index(index)))
    }
}

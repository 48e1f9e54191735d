//! Walks over serde's structures without a document: what is asked for is what the file may hold.

use std::cell::RefCell;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::super::problem::Problem;

/// The paths of all leaves of `T`; `<name>` stands for any key of a map, `[]` for any entry of a list.
pub(super) fn fields<'de, T: Deserialize<'de>>() -> Vec<String> {
    let leaves = RefCell::new(Vec::new());
    T::deserialize(Walk { path: String::new(), leaves: &leaves }).map(drop).unwrap();
    leaves.into_inner()
}

struct Walk<'a> {
    path: String,
    leaves: &'a RefCell<Vec<String>>,
}

struct Fields<'a> {
    walk: Walk<'a>,
    names: std::slice::Iter<'static, &'static str>,
    current: &'static str,
}

struct Once<'a>(Option<Walk<'a>>);

impl Walk<'_> {
    fn leaf(&self) {
        self.leaves.borrow_mut().push(self.path.clone());
    }
}

impl<'de> Deserializer<'de> for Walk<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Problem> {
        panic!("{}: a type that the walk does not know", self.path)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_map(Fields { walk: self, names: names.iter(), current: "" })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_map(Once(Some(Walk { path: format!("{}.<name>", self.path), leaves: self.leaves })))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_seq(Once(Some(Walk { path: format!("{}[]", self.path), leaves: self.leaves })))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.leaf();
        visitor.visit_enum(variants[0].into_deserializer())
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        sample: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.leaf();
        visitor.visit_str(sample)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.current = name;
        seed.deserialize((*name).into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        let dot = if self.walk.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{}", self.walk.path, self.current);
        seed.deserialize(Walk { path, leaves: self.walk.leaves })
    }
}

impl<'de> MapAccess<'de> for Once<'_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let more = self.0.is_some().then(|| "name".into_deserializer());
        more.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        seed.deserialize(self.0.take().unwrap())
    }
}

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Problem;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Problem> {
        self.0.take().map(|walk| seed.deserialize(walk)).transpose()
    }
}

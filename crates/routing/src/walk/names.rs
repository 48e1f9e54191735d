//! Names of functions, relations and types, as the server folds and looks them up.

use sqlparser::ast::{
    ArrayElemTypeDef, DataType, Ident, ObjectName, ObjectNamePart, StructField, TimezoneInfo,
};

use super::{Outcome, UNLISTED, Walk};
use crate::builtin::{self, Effect};
use crate::reason::Reason;
use crate::symbols::{Call, Name};

/// A word as the server folds it.
pub(crate) fn fold(ident: &Ident) -> Result<Box<str>, Reason> {
    match ident.quote_style {
        None => Ok(ident.value.to_ascii_lowercase().into_boxed_str()),
        Some('"') => Ok(ident.value.as_str().into()),
        Some(_) => Err(UNLISTED),
    }
}

/// A name of one or two parts. A database's name in front of them is as good as none, but nobody writes it.
pub(crate) fn object(name: &ObjectName) -> Result<Name, Reason> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => fold(ident),
        ObjectNamePart::Function(_) => Err(UNLISTED),
    };
    match name.0.as_slice() {
        [name] => Ok(Name { schema: None, name: part(name)?, builtin: false }),
        [schema, name] => Ok(Name { schema: Some(part(schema)?), name: part(name)?, builtin: false }),
        _ => Err(UNLISTED),
    }
}

/// Whether a name may mean an object in `pg_catalog`, which is searched first unless a search path says otherwise.
fn reaches_catalogue(name: &Name) -> bool {
    matches!(name.schema.as_deref(), None | Some("pg_catalog"))
}

/// The name, marked if PostgreSQL itself has a harmless relation of it; and whether its contents belong to one node.
pub(crate) fn judge_relation(mut name: Name) -> Result<(Name, bool), Reason> {
    let mut node_local = false;
    let schema = name.schema.as_deref().unwrap_or("pg_catalog");
    match builtin::relation(schema, &name.name) {
        Some(Effect::Harmless) => name.builtin = true,
        Some(Effect::Session) => return Err(Reason::SessionState),
        Some(_) => {
            name.builtin = true;
            node_local = true;
        }
        None if schema == "pg_catalog" && name.schema.is_some() => return Err(Reason::UnknownRelation),
        None => {}
    }
    Ok((name, node_local))
}

impl Walk {
    /// A call of a function by name; `literal_true` tells whether its last argument is the constant TRUE.
    pub(super) fn call(&mut self, mut name: Name, arguments: Option<u16>) -> Outcome {
        if reaches_catalogue(&name) {
            match builtin::function(&name.name) {
                Some(Effect::Harmless) => name.builtin = true,
                Some(Effect::Writes) => return Err(Reason::VolatileFunction),
                Some(Effect::NodeEffect) => return Err(Reason::NodeLocal),
                Some(Effect::NodeLocal) => {
                    self.node_local = true;
                    name.builtin = true;
                }
                Some(Effect::WritesSession) => {
                    self.session = true;
                    return Err(Reason::VolatileFunction);
                }
                Some(Effect::Session) => {
                    self.session = true;
                    name.builtin = true;
                }
                None if name.schema.is_some() => return Err(Reason::UnknownFunction),
                None => {}
            }
        }
        self.functions.push(Call { name, arguments });
        Ok(())
    }

    /// The last part of `a.b` or `(a).b`: a column, or a call of `b` with one argument.
    pub(super) fn attribute(&mut self, name: Box<str>) -> Outcome {
        match builtin::function(&name) {
            None | Some(Effect::Harmless) => {}
            Some(Effect::NodeLocal | Effect::NodeEffect) => return Err(Reason::NodeLocal),
            Some(_) => return Err(Reason::VolatileFunction),
        }
        self.attributes.push(name);
        Ok(())
    }

    fn named_type(&mut self, mut name: Name, modifiers: bool) -> Outcome {
        if modifiers {
            self.listed.push(name.name.clone());
        }
        if reaches_catalogue(&name) {
            name.builtin = builtin::is_type(&name.name);
            if !name.builtin && name.schema.is_some() {
                return Err(Reason::UnknownOperatorOrType);
            }
        }
        self.types.push(name);
        Ok(())
    }

    pub(super) fn data_type(&mut self, data_type: &DataType) -> Outcome {
        let plain = |name: &str| Name { schema: None, name: name.into(), builtin: false };
        match data_type {
            // Words of the grammar: always PostgreSQL's own types.
            DataType::Boolean
            | DataType::SmallInt(None)
            | DataType::Int(None)
            | DataType::Integer(None)
            | DataType::BigInt(None)
            | DataType::Real
            | DataType::Float(_)
            | DataType::DoublePrecision
            | DataType::Numeric(_)
            | DataType::Decimal(_)
            | DataType::Dec(_)
            | DataType::Character(_)
            | DataType::Char(_)
            | DataType::CharacterVarying(_)
            | DataType::CharVarying(_)
            | DataType::Varchar(_)
            | DataType::Bit(_)
            | DataType::BitVarying(_)
            | DataType::Interval { .. }
            | DataType::Time(
                _,
                TimezoneInfo::None | TimezoneInfo::WithTimeZone | TimezoneInfo::WithoutTimeZone,
            )
            | DataType::Timestamp(
                _,
                TimezoneInfo::None | TimezoneInfo::WithTimeZone | TimezoneInfo::WithoutTimeZone,
            ) => Ok(()),
            DataType::Time(precision, TimezoneInfo::Tz) => {
                self.named_type(plain("timetz"), precision.is_some())
            }
            DataType::Timestamp(precision, TimezoneInfo::Tz) => {
                self.named_type(plain("timestamptz"), precision.is_some())
            }
            // Names like any other, which the parser happens to know.
            DataType::Bool => self.named_type(plain("bool"), false),
            DataType::Int2(None) => self.named_type(plain("int2"), false),
            DataType::Int4(None) => self.named_type(plain("int4"), false),
            DataType::Int8(None) => self.named_type(plain("int8"), false),
            DataType::Float4 => self.named_type(plain("float4"), false),
            DataType::Float8 => self.named_type(plain("float8"), false),
            DataType::Text => self.named_type(plain("text"), false),
            DataType::Uuid => self.named_type(plain("uuid"), false),
            DataType::Bytea => self.named_type(plain("bytea"), false),
            DataType::JSON => self.named_type(plain("json"), false),
            DataType::JSONB => self.named_type(plain("jsonb"), false),
            DataType::Date => self.named_type(plain("date"), false),
            DataType::Regclass => self.named_type(plain("regclass"), false),
            DataType::VarBit(length) => self.named_type(plain("varbit"), length.is_some()),
            DataType::TsVector => self.named_type(plain("tsvector"), false),
            DataType::TsQuery => self.named_type(plain("tsquery"), false),
            DataType::GeometricType(kind) => {
                self.named_type(plain(&kind.to_string().to_ascii_lowercase()), false)
            }
            DataType::Custom(name, modifiers) => self.named_type(object(name)?, !modifiers.is_empty()),
            DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => self.data_type(element),
            _ => Err(Reason::UnknownOperatorOrType),
        }
    }

    /// Fields of a ROW, of which PostgreSQL has none.
    pub(super) fn no_fields(fields: &[StructField]) -> Outcome {
        if fields.is_empty() { Ok(()) } else { Err(UNLISTED) }
    }
}

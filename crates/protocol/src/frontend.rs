//! What a client sends after its start-up packet.
//!
//! Every function takes the body of a frame, which follows the length. Texts are byte strings, since their encoding
//! is the client's. <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::iter;

use crate::message::Reader;

pub use crate::message::{Formats, MalformedMessage, Oids, Problem};

/// The types of messages a client sends.
pub mod tag {
    /// `Bind`
    pub const BIND: u8 = b'B';
    /// `Close`
    pub const CLOSE: u8 = b'C';
    /// `CopyData`
    pub const COPY_DATA: u8 = b'd';
    /// `CopyDone`
    pub const COPY_DONE: u8 = b'c';
    /// `CopyFail`
    pub const COPY_FAIL: u8 = b'f';
    /// `Describe`
    pub const DESCRIBE: u8 = b'D';
    /// `Execute`
    pub const EXECUTE: u8 = b'E';
    /// `Flush`
    pub const FLUSH: u8 = b'H';
    /// `FunctionCall`
    pub const FUNCTION_CALL: u8 = b'F';
    /// `Parse`
    pub const PARSE: u8 = b'P';
    /// `PasswordMessage`, `SASLInitialResponse`, `SASLResponse` and `GSSResponse`: which it is follows from the state.
    pub const PASSWORD: u8 = b'p';
    /// `Query`
    pub const QUERY: u8 = b'Q';
    /// `Sync`
    pub const SYNC: u8 = b'S';
    /// `Terminate`
    pub const TERMINATE: u8 = b'X';
}

/// How far [`bind_names`] looks for the end of the two names, in bytes. PostgreSQL has no bound, but tells names
/// apart by their first 63 bytes only; without one, a body of 200 MB without a NUL would have to be kept.
pub const MAX_BIND_NAMES_LEN: usize = 64 * 1024;

/// A Parse message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// The statement's name; empty for the unnamed one.
    pub name: &'a [u8],
    /// The query.
    pub sql: &'a [u8],
    /// The types of its parameters, as far as given.
    pub types: Oids<'a>,
}

/// The start of a Bind message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindNames<'a> {
    /// The portal's name; empty for the unnamed one.
    pub portal: &'a [u8],
    /// The statement's name; empty for the unnamed one.
    pub statement: &'a [u8],
    /// The offset in the body at which formats and values begin.
    pub rest_at: usize,
}

/// A complete Bind message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal's name; empty for the unnamed one.
    pub portal: &'a [u8],
    /// The statement's name; empty for the unnamed one.
    pub statement: &'a [u8],
    /// The formats of the values: none (all text), one (for all) or one each.
    pub formats: Formats<'a>,
    /// How many values there are.
    pub count: u16,
    /// The formats of the result columns: none (all text), one (for all) or one each.
    pub result_formats: Formats<'a>,
    values: &'a [u8],
}

/// What a Describe or Close message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// A Describe or Close message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// What it is about.
    pub target: Target,
    /// Its name; empty for the unnamed one.
    pub name: &'a [u8],
}

/// An Execute message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The portal's name; empty for the unnamed one.
    pub portal: &'a [u8],
    /// How many rows to return at most; 0 or less means all.
    pub max_rows: i32,
}

/// A `SASLInitialResponse` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslInitialResponse<'a> {
    /// The mechanism the client chose.
    pub mechanism: &'a [u8],
    /// The mechanism's first message, if the client sends one at once.
    pub response: Option<&'a [u8]>,
}

/// The text of a Query.
///
/// # Errors
///
/// When it is not one text.
#[inline]
pub fn query(body: &[u8]) -> Result<&[u8], MalformedMessage> {
    let mut reader = Reader::new("Query", body);
    let sql = reader.text()?;
    reader.end().map(|()| sql)
}

/// A Parse message.
///
/// # Errors
///
/// When it is not two texts and the types it announces.
#[inline]
pub fn parse(body: &[u8]) -> Result<Parse<'_>, MalformedMessage> {
    let mut reader = Reader::new("Parse", body);
    let parse = Parse { name: reader.text()?, sql: reader.text()?, types: reader.oids()? };
    reader.end().map(|()| parse)
}

/// The names at the start of a Bind message, whose body may not have arrived completely; `None` until they have.
///
/// # Errors
///
/// When the names are longer than [`MAX_BIND_NAMES_LEN`] together. A body that ends before them is found by
/// whoever knows its length.
#[inline]
pub fn bind_names(prefix: &[u8]) -> Result<Option<BindNames<'_>>, MalformedMessage> {
    let window = prefix.get(..MAX_BIND_NAMES_LEN).unwrap_or(prefix);
    let mut reader = Reader::new("Bind", window);
    match (reader.text(), reader.text()) {
        (Ok(portal), Ok(statement)) => {
            let rest_at = window.len().saturating_sub(reader.rest().len());
            Ok(Some(BindNames { portal, statement, rest_at }))
        }
        _ if window.len() < MAX_BIND_NAMES_LEN => Ok(None),
        _ => Err(reader.malformed(Problem::Unterminated)),
    }
}

/// A complete Bind message.
///
/// # Errors
///
/// When it does not hold the formats and values it announces, or its names are too long.
pub fn bind(body: &[u8]) -> Result<Bind<'_>, MalformedMessage> {
    let mut reader = Reader::new("Bind", body);
    let names = bind_names(body)?.ok_or(reader.malformed(Problem::Unterminated))?;
    reader.bytes(names.rest_at)?;
    let formats = reader.formats()?;
    let count = reader.u16()?;
    let values = reader.rest();
    for _ in 0..count {
        reader.value()?;
    }
    let result_formats = reader.formats()?;
    reader.end()?;
    Ok(Bind { portal: names.portal, statement: names.statement, formats, count, result_formats, values })
}

/// A Describe message.
///
/// # Errors
///
/// When it is not a known target and a text.
#[inline]
pub fn describe(body: &[u8]) -> Result<Named<'_>, MalformedMessage> {
    named(Reader::new("Describe", body))
}

/// A Close message.
///
/// # Errors
///
/// When it is not a known target and a text.
#[inline]
pub fn close(body: &[u8]) -> Result<Named<'_>, MalformedMessage> {
    named(Reader::new("Close", body))
}

/// An Execute message.
///
/// # Errors
///
/// When it is not a text and a number.
#[inline]
pub fn execute(body: &[u8]) -> Result<Execute<'_>, MalformedMessage> {
    let mut reader = Reader::new("Execute", body);
    let execute = Execute { portal: reader.text()?, max_rows: reader.i32()? };
    reader.end().map(|()| execute)
}

/// The password, or its hash, in a `PasswordMessage`.
///
/// # Errors
///
/// When it is not one text.
pub fn password(body: &[u8]) -> Result<&[u8], MalformedMessage> {
    let mut reader = Reader::new("Password", body);
    let password = reader.text()?;
    reader.end().map(|()| password)
}

/// A `SASLInitialResponse` message.
///
/// # Errors
///
/// When it is not a text and a value.
pub fn sasl_initial_response(body: &[u8]) -> Result<SaslInitialResponse<'_>, MalformedMessage> {
    let mut reader = Reader::new("SASLInitialResponse", body);
    let initial = SaslInitialResponse { mechanism: reader.text()?, response: reader.value()? };
    reader.end().map(|()| initial)
}

/// The mechanism's data in a `SASLResponse`: all of it.
pub const fn sasl_response(body: &[u8]) -> &[u8] {
    body
}

/// The OID of the function a `FunctionCall` calls.
///
/// # Errors
///
/// When there is none; the arguments are not looked at.
pub fn function_call(body: &[u8]) -> Result<u32, MalformedMessage> {
    Reader::new("FunctionCall", body).u32()
}

/// The reason in a `CopyFail`.
///
/// # Errors
///
/// When it is not one text.
pub fn copy_fail(body: &[u8]) -> Result<&[u8], MalformedMessage> {
    let mut reader = Reader::new("CopyFail", body);
    let reason = reader.text()?;
    reader.end().map(|()| reason)
}

#[inline]
fn named(mut reader: Reader<'_>) -> Result<Named<'_>, MalformedMessage> {
    let target = match reader.u8()? {
        b'S' => Target::Statement,
        b'P' => Target::Portal,
        _ => return Err(reader.malformed(Problem::Value("message subtype"))),
    };
    let name = reader.text()?;
    reader.end().map(|()| Named { target, name })
}

// === impl Bind ===

impl<'a> Bind<'a> {
    /// The values in order; `None` is NULL.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new("Bind", self.values);
        iter::repeat_with(move || reader.value().ok()).take(usize::from(self.count)).map_while(|value| value)
    }
}

// === impl Target ===

impl Target {
    /// The byte on the wire.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

#[cfg(test)]
mod tests;

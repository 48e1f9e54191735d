//! What a server sends.
//!
//! Every function takes the body of a frame, which follows the length. Texts are byte strings, since their encoding
//! is the client's. <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::iter;

use crate::message::Reader;
use crate::report::Severity;
use crate::sqlstate::SqlState;

pub use crate::message::{Formats, MalformedMessage, Oids, Problem};

/// The types of messages a server sends.
pub mod tag {
    /// `Authentication*`
    pub const AUTHENTICATION: u8 = b'R';
    /// `BackendKeyData`
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// `BindComplete`
    pub const BIND_COMPLETE: u8 = b'2';
    /// `CloseComplete`
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// `CommandComplete`
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// `CopyBothResponse`
    pub const COPY_BOTH_RESPONSE: u8 = b'W';
    /// `CopyData`
    pub const COPY_DATA: u8 = b'd';
    /// `CopyDone`
    pub const COPY_DONE: u8 = b'c';
    /// `CopyInResponse`
    pub const COPY_IN_RESPONSE: u8 = b'G';
    /// `CopyOutResponse`
    pub const COPY_OUT_RESPONSE: u8 = b'H';
    /// `DataRow`
    pub const DATA_ROW: u8 = b'D';
    /// `EmptyQueryResponse`
    pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
    /// `ErrorResponse`
    pub const ERROR_RESPONSE: u8 = b'E';
    /// `FunctionCallResponse`
    pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
    /// `NegotiateProtocolVersion`
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    /// `NoData`
    pub const NO_DATA: u8 = b'n';
    /// `NoticeResponse`
    pub const NOTICE_RESPONSE: u8 = b'N';
    /// `NotificationResponse`
    pub const NOTIFICATION_RESPONSE: u8 = b'A';
    /// `ParameterDescription`
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// `ParameterStatus`
    pub const PARAMETER_STATUS: u8 = b'S';
    /// `ParseComplete`
    pub const PARSE_COMPLETE: u8 = b'1';
    /// `PortalSuspended`
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// `ReadyForQuery`
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// `RowDescription`
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// Longest secret key of a cancel request in bytes (protocol 3.2); protocol 3.0 has four.
pub const MAX_CANCEL_KEY_LEN: usize = 256;

/// Where a session is with its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// In none.
    Idle,
    /// In one.
    InTransaction,
    /// In one that has failed.
    Failed,
}

/// What a server asks for, or says about, authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Accepted.
    Ok,
    /// The password itself.
    CleartextPassword,
    /// A hash of password, user name and salt.
    Md5 {
        /// Four random bytes.
        salt: [u8; 4],
    },
    /// One of these SASL mechanisms.
    Sasl(Mechanisms<'a>),
    /// The next challenge of the mechanism.
    SaslContinue(&'a [u8]),
    /// The mechanism's last word.
    SaslFinal(&'a [u8]),
    /// GSSAPI, SSPI or anything else, by its code.
    Unsupported(u32),
}

/// The names of SASL mechanisms, the server's favourite first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms<'a>(&'a [u8]);

/// The fields of an `ErrorResponse` or `NoticeResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFields<'a>(&'a [u8]);

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The table it comes from, or 0.
    pub table_oid: u32,
    /// Its number in that table, or 0.
    pub attribute: i16,
    /// Its type.
    pub type_oid: u32,
    /// `pg_type.typlen`: bytes, or negative for a variable length.
    pub type_len: i16,
    /// `pg_attribute.atttypmod`, or -1.
    pub type_modifier: i32,
    /// 0 is text (or not known yet), 1 is binary.
    pub format: i16,
}

/// The columns of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDescription<'a> {
    count: u16,
    columns: &'a [u8],
}

/// A row of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRow<'a> {
    count: u16,
    values: &'a [u8],
}

/// Something another session sent by NOTIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The server process of the sender.
    pub process_id: i32,
    /// The channel.
    pub channel: &'a [u8],
    /// The payload, empty if none was given.
    pub payload: &'a [u8],
}

/// The start of a COPY, in either direction or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyResponse<'a> {
    /// 0 is text, 1 is binary.
    pub format: u8,
    /// The formats of the columns.
    pub columns: Formats<'a>,
}

/// The server speaks an older protocol than was asked for, or does not know some options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiation<'a> {
    /// The newest version it speaks: the major number in the upper, the minor in the lower half.
    pub version: u32,
    /// How many options it does not know.
    pub count: u32,
    options: &'a [u8],
}

/// The status in a `ReadyForQuery`.
///
/// # Errors
///
/// When it is not one byte of the three known.
#[inline]
pub fn ready_for_query(body: &[u8]) -> Result<TransactionStatus, MalformedMessage> {
    let mut reader = Reader::new("ReadyForQuery", body);
    let status = TransactionStatus::from_byte(reader.u8()?)
        .ok_or(reader.malformed(Problem::Value("transaction status")))?;
    reader.end().map(|()| status)
}

/// What an authentication message says.
///
/// # Errors
///
/// When it is cut short or has trailing bytes.
pub fn authentication(body: &[u8]) -> Result<Authentication<'_>, MalformedMessage> {
    let mut reader = Reader::new("Authentication", body);
    let authentication = match reader.u32()? {
        0 => Authentication::Ok,
        3 => Authentication::CleartextPassword,
        5 => Authentication::Md5 { salt: reader.array()? },
        10 => return mechanisms(reader).map(Authentication::Sasl),
        11 => return Ok(Authentication::SaslContinue(reader.rest())),
        12 => return Ok(Authentication::SaslFinal(reader.rest())),
        code => return Ok(Authentication::Unsupported(code)),
    };
    reader.end().map(|()| authentication)
}

/// The name and value in a `ParameterStatus`.
///
/// # Errors
///
/// When these are not two texts.
pub fn parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), MalformedMessage> {
    let mut reader = Reader::new("ParameterStatus", body);
    let pair = (reader.text()?, reader.text()?);
    reader.end().map(|()| pair)
}

/// The process id and the secret key in a `BackendKeyData`.
///
/// # Errors
///
/// When the key is not 4 to [`MAX_CANCEL_KEY_LEN`] bytes long.
pub fn backend_key_data(body: &[u8]) -> Result<(i32, &[u8]), MalformedMessage> {
    let mut reader = Reader::new("BackendKeyData", body);
    let process_id = reader.i32()?;
    let key = reader.rest();
    if (4..=MAX_CANCEL_KEY_LEN).contains(&key.len()) {
        Ok((process_id, key))
    } else {
        Err(reader.malformed(Problem::Value("length of the secret key")))
    }
}

/// The tag in a `CommandComplete`, such as `INSERT 0 1`.
///
/// # Errors
///
/// When it is not one text.
#[inline]
pub fn command_complete(body: &[u8]) -> Result<&[u8], MalformedMessage> {
    let mut reader = Reader::new("CommandComplete", body);
    let tag = reader.text()?;
    reader.end().map(|()| tag)
}

/// The fields of an `ErrorResponse` or `NoticeResponse`.
///
/// # Errors
///
/// When a field or the list has no end.
pub fn error_fields(body: &[u8]) -> Result<ErrorFields<'_>, MalformedMessage> {
    let mut reader = Reader::new("ErrorResponse", body);
    while reader.u8()? != 0 {
        reader.text()?;
    }
    reader.end().map(|()| ErrorFields(body))
}

/// The columns of a `RowDescription`.
///
/// # Errors
///
/// When it does not hold the columns it announces.
pub fn row_description(body: &[u8]) -> Result<RowDescription<'_>, MalformedMessage> {
    let mut reader = Reader::new("RowDescription", body);
    let count = reader.u16()?;
    let columns = reader.rest();
    for _ in 0..count {
        Column::read(&mut reader)?;
    }
    reader.end().map(|()| RowDescription { count, columns })
}

/// The values of a `DataRow`.
///
/// # Errors
///
/// When it does not hold the values it announces.
pub fn data_row(body: &[u8]) -> Result<DataRow<'_>, MalformedMessage> {
    let mut reader = Reader::new("DataRow", body);
    let count = reader.u16()?;
    let values = reader.rest();
    for _ in 0..count {
        reader.value()?;
    }
    reader.end().map(|()| DataRow { count, values })
}

/// The types in a `ParameterDescription`.
///
/// # Errors
///
/// When it does not hold the types it announces.
pub fn parameter_description(body: &[u8]) -> Result<Oids<'_>, MalformedMessage> {
    let mut reader = Reader::new("ParameterDescription", body);
    let oids = reader.oids()?;
    reader.end().map(|()| oids)
}

/// A `NotificationResponse`.
///
/// # Errors
///
/// When it is not a number and two texts.
pub fn notification(body: &[u8]) -> Result<Notification<'_>, MalformedMessage> {
    let mut reader = Reader::new("NotificationResponse", body);
    let notification =
        Notification { process_id: reader.i32()?, channel: reader.text()?, payload: reader.text()? };
    reader.end().map(|()| notification)
}

/// A `CopyInResponse`, `CopyOutResponse` or `CopyBothResponse`.
///
/// # Errors
///
/// When it does not hold the formats it announces.
pub fn copy_response(body: &[u8]) -> Result<CopyResponse<'_>, MalformedMessage> {
    let mut reader = Reader::new("CopyResponse", body);
    let response = CopyResponse { format: reader.u8()?, columns: reader.formats()? };
    reader.end().map(|()| response)
}

/// A `NegotiateProtocolVersion`.
///
/// # Errors
///
/// When it does not hold the options it announces.
pub fn negotiation(body: &[u8]) -> Result<Negotiation<'_>, MalformedMessage> {
    let mut reader = Reader::new("NegotiateProtocolVersion", body);
    let (version, count) = (reader.u32()?, reader.u32()?);
    let options = reader.rest();
    for _ in 0..count {
        reader.text()?;
    }
    reader.end().map(|()| Negotiation { version, count, options })
}

fn mechanisms(mut reader: Reader<'_>) -> Result<Mechanisms<'_>, MalformedMessage> {
    let list = reader.rest();
    while !reader.text()?.is_empty() {}
    reader.end().map(|()| Mechanisms(list))
}

// === impl TransactionStatus ===

impl TransactionStatus {
    /// The status written as `byte`.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InTransaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// The byte on the wire.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

// === impl Mechanisms ===

impl<'a> Mechanisms<'a> {
    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new("Authentication", self.0);
        iter::from_fn(move || reader.text().ok().filter(|name| !name.is_empty()))
    }
}

// === impl ErrorFields ===

impl<'a> ErrorFields<'a> {
    /// The fields in a body that [`error_fields`] has accepted before.
    pub(crate) const fn checked(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// All fields in order: what each is, and its text.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut reader = Reader::new("ErrorResponse", self.0);
        iter::from_fn(move || {
            let field = reader.u8().ok().filter(|field| *field != 0)?;
            Some((field, reader.text().ok()?))
        })
    }

    /// The text of the first field of the kind `field`.
    pub fn get(&self, field: u8) -> Option<&'a [u8]> {
        self.iter().find_map(|(kind, text)| (kind == field).then_some(text))
    }

    /// The SQLSTATE; [`SqlState::INTERNAL_ERROR`] if the server gave none that could be one.
    pub fn code(&self) -> SqlState {
        self.get(b'C').and_then(SqlState::from_bytes).unwrap_or(SqlState::INTERNAL_ERROR)
    }

    /// The severity: field V, which is never localized, or else S, which servers before 9.6 have alone.
    pub fn severity(&self) -> Option<Severity> {
        self.get(b'V').or_else(|| self.get(b'S')).and_then(Severity::from_bytes)
    }

    /// The message, in the language and encoding of the session.
    pub fn message(&self) -> &'a [u8] {
        self.get(b'M').unwrap_or_default()
    }
}

// === impl Column ===

impl<'a> Column<'a> {
    /// A computed column of type `text`, in text format.
    pub const fn text(name: &'a [u8]) -> Self {
        Self { name, table_oid: 0, attribute: 0, type_oid: 25, type_len: -1, type_modifier: -1, format: 0 }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedMessage> {
        Ok(Self {
            name: reader.text()?,
            table_oid: reader.u32()?,
            attribute: reader.i16()?,
            type_oid: reader.u32()?,
            type_len: reader.i16()?,
            type_modifier: reader.i32()?,
            format: reader.i16()?,
        })
    }
}

// === impl RowDescription ===

impl<'a> RowDescription<'a> {
    /// How many columns there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether the result has no columns.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The columns in order.
    pub fn iter(&self) -> impl Iterator<Item = Column<'a>> + use<'a> {
        let mut reader = Reader::new("RowDescription", self.columns);
        iter::from_fn(move || Column::read(&mut reader).ok())
    }
}

// === impl DataRow ===

impl<'a> DataRow<'a> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether the row has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values in order; `None` is NULL.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new("DataRow", self.values);
        iter::from_fn(move || reader.value().ok())
    }
}

// === impl Negotiation ===

impl<'a> Negotiation<'a> {
    /// The names of the options the server does not know.
    pub fn options(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new("NegotiateProtocolVersion", self.options);
        iter::from_fn(move || reader.text().ok())
    }
}

#[cfg(test)]
mod tests;

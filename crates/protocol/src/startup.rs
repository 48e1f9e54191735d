//! The first packet of a connection, which has no type byte.
//!
//! Follows `ProcessStartupPacket` (`src/backend/tcop/backend_startup.c`, before version 17 `postmaster.c`).

use std::fmt;
use std::str;

use memchr::memchr;

use crate::backend::MAX_CANCEL_KEY_LEN;
use crate::report::ErrorReport;
use crate::sqlstate::SqlState;

mod options;

pub use options::OptionsError;

/// Protocol 3.0, the newest this side speaks.
pub const PROTOCOL_3_0: u32 = 0x0003_0000;
/// The code in a `CancelRequest`.
pub const CANCEL_REQUEST: u32 = 80_877_102;
/// The code in an `SSLRequest`.
pub const SSL_REQUEST: u32 = 80_877_103;
/// The code in a `GSSENCRequest`.
pub const GSSENC_REQUEST: u32 = 80_877_104;
/// The longest packet in bytes, its length word not counted (`MAX_STARTUP_PACKET_LENGTH` in `pqcomm.h`).
pub const MAX_PACKET_LEN: usize = 10_000;

const LENGTH_WORD: usize = 4;

/// The first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The client wants TLS; the answer is one byte, S or N.
    Ssl,
    /// The client wants GSSAPI encryption; the answer is one byte, G or N.
    GssEnc,
    /// The client wants another session's query cancelled; there is no answer.
    Cancel(CancelKey),
    /// The client wants a session.
    Startup(Box<Startup>),
}

/// What proves the right to cancel a session's query.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// The server process, or what stands for it.
    pub process_id: i32,
    /// 4 bytes in protocol 3.0, up to [`MAX_CANCEL_KEY_LEN`] in 3.2.
    pub secret: Box<[u8]>,
}

/// A start-up message.
///
/// All names and values are UTF-8: PostgreSQL takes any bytes here, because no encoding is agreed yet, but names are
/// compared with configured ones and shown in logs and metrics, and a value in another encoding would be stored as
/// broken text on the server. Other bytes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// The protocol version asked for.
    pub version: u32,
    /// The user name.
    pub user: Box<str>,
    /// The database; the user's name if none was given.
    pub database: Box<str>,
    /// The settings of the session in the order in which PostgreSQL applies them: those in `options` first. Of those
    /// with equal names (ASCII case does not count) only the last is there.
    pub settings: Vec<(Box<str>, Box<str>)>,
    /// Whether, and how, the connection is for replication.
    pub replication: Option<Replication>,
    /// The names of all protocol options, `_pq_.*`: none is known here.
    pub unknown_protocol_options: Vec<Box<str>>,
}

/// What a replication connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replication {
    /// Physical replication: no database.
    Physical,
    /// Logical replication from one database.
    Database,
}

/// The first packet is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// Its length is impossible: the peer speaks something else.
    #[error("invalid length of startup packet")]
    Length,
    /// A request for another protocol, or a second request for encryption.
    #[error("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0")]
    Version {
        /// Upper half.
        major: u16,
        /// Lower half.
        minor: u16,
    },
    /// The names and values do not fill the packet.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    Layout,
    /// There is no user name.
    #[error("no PostgreSQL user name specified in startup packet")]
    NoUser,
    /// A name or value is not UTF-8.
    #[error("invalid byte sequence for encoding \"UTF8\": 0x{0:02x}")]
    NotUtf8(u8),
    /// `replication` is neither a boolean nor `database`.
    #[error("invalid value for parameter \"replication\": \"{0}\"")]
    Replication(Box<str>),
    /// `options` can't be followed.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// Whether `first`, the first byte of a connection, begins a TLS handshake without `SSLRequest`
/// (`sslnegotiation=direct`): as the first byte of a length it would be far over [`MAX_PACKET_LEN`].
pub const fn is_direct_tls(first: u8) -> bool {
    first == 0x16
}

/// The packet at the start of `bytes` and its length in bytes, or `None` while it is incomplete.
///
/// # Errors
///
/// When it can't be accepted. Nothing after it can be read then.
pub fn parse(bytes: &[u8]) -> Result<Option<(Packet, usize)>, StartupError> {
    let Some(&word) = bytes.first_chunk::<LENGTH_WORD>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(word)).map_err(|_| StartupError::Length)?;
    let body_len = len.checked_sub(LENGTH_WORD).ok_or(StartupError::Length)?;
    if !(4..=MAX_PACKET_LEN).contains(&body_len) {
        return Err(StartupError::Length);
    }
    let Some((code, body)) = bytes.get(LENGTH_WORD..len).and_then(<[u8]>::split_first_chunk::<4>) else {
        return Ok(None);
    };
    let packet = match u32::from_be_bytes(*code) {
        SSL_REQUEST if body.is_empty() => Packet::Ssl,
        GSSENC_REQUEST if body.is_empty() => Packet::GssEnc,
        SSL_REQUEST | GSSENC_REQUEST => return Err(StartupError::Length),
        CANCEL_REQUEST => Packet::Cancel(cancel_key(body)?),
        version => Packet::Startup(Box::new(Startup::parse(version, body)?)),
    };
    Ok(Some((packet, len)))
}

fn cancel_key(body: &[u8]) -> Result<CancelKey, StartupError> {
    let (process_id, secret) = body.split_first_chunk::<4>().ok_or(StartupError::Length)?;
    if !(4..=MAX_CANCEL_KEY_LEN).contains(&secret.len()) {
        return Err(StartupError::Length);
    }
    Ok(CancelKey { process_id: i32::from_be_bytes(*process_id), secret: secret.into() })
}

// === impl Startup ===

impl Startup {
    /// Whether the client must be told, before authentication, that this is protocol 3.0 and which of its options
    /// are not known.
    pub fn needs_negotiation(&self) -> bool {
        self.version != PROTOCOL_3_0 || !self.unknown_protocol_options.is_empty()
    }

    /// The value of the setting `name`, in which ASCII case does not count.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    fn parse(version: u32, mut body: &[u8]) -> Result<Self, StartupError> {
        if version.to_be_bytes().first_chunk() != PROTOCOL_3_0.to_be_bytes().first_chunk::<2>() {
            return Err(StartupError::version(version));
        }
        let mut fields = Fields::default();
        loop {
            let name = take_text(&mut body)?;
            if name.is_empty() {
                break;
            }
            fields.take(name, take_text(&mut body)?)?;
        }
        if !body.is_empty() {
            return Err(StartupError::Layout);
        }
        fields.finish(version)
    }
}

/// What was found in a start-up message so far.
#[derive(Default)]
struct Fields<'a> {
    user: &'a str,
    database: &'a str,
    options: &'a str,
    replication: Option<Replication>,
    settings: Vec<(&'a str, &'a str)>,
    unknown_protocol_options: Vec<Box<str>>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, name: &'a str, value: &'a str) -> Result<(), StartupError> {
        match name {
            "user" => self.user = value,
            "database" => self.database = value,
            "options" => self.options = value,
            "replication" => self.replication = replication(value)?,
            _ if name.starts_with("_pq_.") => self.unknown_protocol_options.push(name.into()),
            _ => self.settings.push((name, value)),
        }
        Ok(())
    }

    fn finish(self, version: u32) -> Result<Startup, StartupError> {
        if self.user.is_empty() {
            return Err(StartupError::NoUser);
        }
        // process_startup_options in src/backend/utils/init/postinit.c: the switches first, so that a named
        // parameter beats them.
        let mut settings = Vec::new();
        for (name, value) in options::settings(self.options)? {
            set(&mut settings, name, value);
        }
        for (name, value) in self.settings {
            set(&mut settings, name.into(), value.into());
        }
        Ok(Startup {
            version,
            user: self.user.into(),
            database: if self.database.is_empty() { self.user.into() } else { self.database.into() },
            settings,
            replication: self.replication,
            unknown_protocol_options: self.unknown_protocol_options,
        })
    }
}

fn set(settings: &mut Vec<(Box<str>, Box<str>)>, name: Box<str>, value: Box<str>) {
    settings.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
    settings.push((name, value));
}

fn take_text<'a>(body: &mut &'a [u8]) -> Result<&'a str, StartupError> {
    let end = memchr(0, body).ok_or(StartupError::Layout)?;
    let (text, rest) = body.split_at_checked(end).ok_or(StartupError::Layout)?;
    *body = rest.get(1..).unwrap_or_default();
    str::from_utf8(text)
        .map_err(|error| StartupError::NotUtf8(text.get(error.valid_up_to()).copied().unwrap_or_default()))
}

/// As `parse_bool` (`src/backend/utils/adt/bool.c`), which takes unique prefixes, and `database`.
fn replication(value: &str) -> Result<Option<Replication>, StartupError> {
    if value == "database" {
        return Ok(Some(Replication::Database));
    }
    let lower = value.to_ascii_lowercase();
    let prefix_of = |word: &str, least: usize| lower.len() >= least && word.starts_with(&*lower);
    if prefix_of("true", 1) || prefix_of("yes", 1) || lower == "on" || lower == "1" {
        Ok(Some(Replication::Physical))
    } else if prefix_of("false", 1) || prefix_of("no", 1) || prefix_of("off", 2) || lower == "0" {
        Ok(None)
    } else {
        Err(StartupError::Replication(value.into()))
    }
}

// === impl CancelKey ===

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

// === impl StartupError ===

impl StartupError {
    /// No packet is known by the code `version`.
    pub(crate) const fn version(version: u32) -> Self {
        let [a, b, c, d] = version.to_be_bytes();
        Self::Version { major: u16::from_be_bytes([a, b]), minor: u16::from_be_bytes([c, d]) }
    }

    /// What to tell the client before closing; nothing if it does not seem to speak this protocol at all.
    pub fn report(&self) -> Option<ErrorReport> {
        let code = match self {
            Self::Length => return None,
            Self::Version { .. } => SqlState::FEATURE_NOT_SUPPORTED,
            Self::Layout => SqlState::PROTOCOL_VIOLATION,
            Self::NoUser => SqlState::INVALID_AUTHORIZATION,
            Self::NotUtf8(_) => SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            Self::Replication(_) => SqlState::INVALID_PARAMETER_VALUE,
            Self::Options(_) => SqlState::SYNTAX_ERROR,
        };
        let report = ErrorReport::fatal(code, self.to_string());
        Some(match self {
            Self::Replication(_) => {
                report.with_hint("Valid values are: \"false\", 0, \"true\", 1, \"database\".")
            }
            Self::Options(OptionsError::Unknown(_)) => {
                report.with_hint("Try \"postgres --help\" for more information.")
            }
            _ => report,
        })
    }
}

#[cfg(test)]
mod tests;

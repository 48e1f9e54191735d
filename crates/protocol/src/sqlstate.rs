//! SQLSTATE codes.
//!
//! <https://www.postgresql.org/docs/current/errcodes-appendix.html>

use std::fmt;
use std::str;

/// A five-character error code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SqlState([u8; 5]);

/// The codes this proxy issues or decides by.
macro_rules! known {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        impl SqlState {
            $(#[doc = $doc] pub const $name: Self = Self(*$code);)*
        }

        #[cfg(test)]
        const KNOWN: &[SqlState] = &[$(SqlState::$name),*];
    };
}

known! {
    SUCCESSFUL_COMPLETION = b"00000", "Success; also the code of plain notices.";
    WARNING = b"01000", "An ordinary warning.";
    CONNECTION_EXCEPTION = b"08000", "Some failure of a connection.";
    CANNOT_CONNECT = b"08001", "The connection could not be established.";
    CONNECTION_DOES_NOT_EXIST = b"08003", "There is no such connection any more.";
    CONNECTION_REJECTED = b"08004", "The server refused the connection.";
    CONNECTION_FAILURE = b"08006", "The connection broke.";
    PROTOCOL_VIOLATION = b"08P01", "The peer does not follow the protocol.";
    FEATURE_NOT_SUPPORTED = b"0A000", "Not supported; also stale plans and much of what a standby refuses.";
    CHARACTER_NOT_IN_REPERTOIRE = b"22021", "Bytes that are no text in the encoding.";
    INVALID_PARAMETER_VALUE = b"22023", "A parameter has a value it can't have.";
    INVALID_TEXT_REPRESENTATION = b"22P02", "A text that is no value of its type.";
    ACTIVE_TRANSACTION = b"25001", "Not inside a transaction.";
    READ_ONLY_TRANSACTION = b"25006", "A write in a read-only transaction, as every one on a standby is.";
    NO_ACTIVE_TRANSACTION = b"25P01", "Only inside a transaction.";
    IN_FAILED_TRANSACTION = b"25P02", "The transaction has failed; nothing but its end is accepted.";
    IDLE_IN_TRANSACTION_TIMEOUT = b"25P03", "A session idle in a transaction for too long.";
    TRANSACTION_TIMEOUT = b"25P04", "A transaction that takes too long.";
    INVALID_STATEMENT_NAME = b"26000", "No such prepared statement.";
    INVALID_AUTHORIZATION = b"28000", "The role may not log in.";
    INVALID_PASSWORD = b"28P01", "Wrong password or unknown role.";
    INVALID_CURSOR_NAME = b"34000", "No such cursor or portal.";
    INVALID_CATALOG_NAME = b"3D000", "No such database.";
    INVALID_SCHEMA_NAME = b"3F000", "No such schema.";
    SERIALIZATION_FAILURE = b"40001", "Serialization failure, or a conflict with recovery.";
    STATEMENT_COMPLETION_UNKNOWN = b"40003", "Whether earlier statements have taken effect is not known.";
    DEADLOCK_DETECTED = b"40P01", "A deadlock, possibly with recovery.";
    INSUFFICIENT_PRIVILEGE = b"42501", "Permission denied.";
    SYNTAX_ERROR = b"42601", "Syntax error.";
    UNDEFINED_COLUMN = b"42703", "No such column.";
    UNDEFINED_OBJECT = b"42704", "No such object, or no such setting.";
    UNDEFINED_FUNCTION = b"42883", "No such function.";
    UNDEFINED_TABLE = b"42P01", "No such table.";
    DUPLICATE_CURSOR = b"42P03", "The cursor or portal exists.";
    DUPLICATE_PREPARED_STATEMENT = b"42P05", "The prepared statement exists.";
    INSUFFICIENT_RESOURCES = b"53000", "Not enough of something.";
    OUT_OF_MEMORY = b"53200", "Out of memory.";
    TOO_MANY_CONNECTIONS = b"53300", "No connection is left.";
    CONFIGURATION_LIMIT_EXCEEDED = b"53400", "A configured limit is reached.";
    PROGRAM_LIMIT_EXCEEDED = b"54000", "Larger or deeper than this program handles.";
    OBJECT_NOT_IN_PREREQUISITE_STATE = b"55000", "Not in the state that is needed.";
    CANNOT_CHANGE_RUNTIME_PARAM = b"55P02", "The setting can't be changed now.";
    LOCK_NOT_AVAILABLE = b"55P03", "A lock was not available in time.";
    QUERY_CANCELED = b"57014", "Cancelled, on request or by a timeout.";
    ADMIN_SHUTDOWN = b"57P01", "Ended by an administrator, a shutdown or a conflict with recovery.";
    CRASH_SHUTDOWN = b"57P02", "Ended because another server process crashed.";
    CANNOT_CONNECT_NOW = b"57P03", "Starting up, shutting down or in recovery.";
    DATABASE_DROPPED = b"57P04", "The database was dropped, or the standby's replay dropped it.";
    IDLE_SESSION_TIMEOUT = b"57P05", "A session idle for too long.";
    SYSTEM_ERROR = b"58000", "An error outside PostgreSQL.";
    IO_ERROR = b"58030", "An error of input or output.";
    CONFIG_FILE_ERROR = b"F0000", "A broken configuration file.";
    INTERNAL_ERROR = b"XX000", "An internal error.";
}

// === impl SqlState ===

impl SqlState {
    /// The code in `bytes`, if these are five digits and upper-case letters.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let code = <[u8; 5]>::try_from(bytes).ok()?;
        code.iter().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()).then_some(Self(code))
    }

    /// The code's five bytes.
    pub const fn as_bytes(&self) -> &[u8; 5] {
        &self.0
    }

    /// The code's five characters.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The first two characters: the class of the condition.
    pub fn class(&self) -> &str {
        self.as_str().get(..2).unwrap_or_default()
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlState({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn known_codes_are_well_formed_and_differ() {
        for code in KNOWN {
            assert_eq!(SqlState::from_bytes(code.as_str().as_bytes()), Some(*code));
            assert_eq!(code.class().len(), 2);
        }
        assert_eq!(KNOWN.iter().collect::<HashSet<_>>().len(), KNOWN.len());
        assert_eq!(SqlState::ADMIN_SHUTDOWN.to_string(), "57P01");
        assert_eq!(SqlState::ADMIN_SHUTDOWN.class(), "57");
    }

    #[test]
    fn other_bytes_are_no_code() {
        for bad in [&b"57p01"[..], b"5701", b"57P012", b"", b"57P0\xff", b"57 01"] {
            assert_eq!(SqlState::from_bytes(bad), None, "{bad:?}");
        }
    }
}

//! Errors and notices this side writes itself.

use std::borrow::Cow;
use std::fmt;

use crate::sqlstate::SqlState;

/// How severe an error or notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For developers.
    Debug,
    /// For the server's log.
    Log,
    /// Asked for by the user.
    Info,
    /// Good to know.
    Notice,
    /// Likely a problem.
    Warning,
    /// The statement, and with it the transaction, has failed.
    Error,
    /// The session ends.
    Fatal,
    /// All sessions end.
    Panic,
}

/// An error or notice to send to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// How severe it is; [`Severity::Fatal`] and above promise that the connection is closed next.
    pub severity: Severity,
    /// The code programs decide by.
    pub code: SqlState,
    /// What happened, in one line.
    pub message: Cow<'static, str>,
    /// More about it.
    pub detail: Option<Cow<'static, str>>,
    /// What to do about it.
    pub hint: Option<Cow<'static, str>>,
    /// Where in the query, in characters from 1.
    pub position: Option<u32>,
}

// === impl Severity ===

impl Severity {
    /// The word on the wire, not localized.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Log => "LOG",
            Self::Info => "INFO",
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
        }
    }

    /// The severity written as `bytes`, or `None` if that is a localized or unknown word.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            b"DEBUG" => Self::Debug,
            b"LOG" => Self::Log,
            b"INFO" => Self::Info,
            b"NOTICE" => Self::Notice,
            b"WARNING" => Self::Warning,
            b"ERROR" => Self::Error,
            b"FATAL" => Self::Fatal,
            b"PANIC" => Self::Panic,
            _ => return None,
        })
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ErrorReport ===

impl ErrorReport {
    /// A report of any severity.
    pub fn new(severity: Severity, code: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Self { severity, code, message: message.into(), detail: None, hint: None, position: None }
    }

    /// An error which the session survives.
    pub fn error(code: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// An error after which the connection is closed.
    pub fn fatal(code: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Fatal, code, message)
    }

    /// A warning.
    pub fn warning(code: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// A notice.
    pub fn notice(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Notice, SqlState::SUCCESSFUL_COMPLETION, message)
    }

    /// Adds a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the position in the query, in characters from 1.
    #[must_use]
    pub fn with_position(mut self, position: u32) -> Self {
        self.position = Some(position);
        self
    }

    /// The same with another severity.
    #[must_use]
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity, self.message, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_read_back() {
        use Severity::{Debug, Error, Fatal, Info, Log, Notice, Panic, Warning};
        for severity in [Debug, Log, Info, Notice, Warning, Error, Fatal, Panic] {
            assert_eq!(Severity::from_bytes(severity.as_str().as_bytes()), Some(severity));
        }
        assert_eq!(Severity::from_bytes(b"FEHLER"), None);
        assert!(Fatal > Error && Error > Warning);
    }
}

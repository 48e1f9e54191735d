//! Consistency levels: whose writes a read must see.

use std::fmt;
use std::str::FromStr;

/// Whose acknowledged writes a read must see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Any replica inside the lag limit; no order between reads.
    Eventual,
    /// This session's own writes.
    #[default]
    Session,
    /// No replica at all.
    Primary,
}

/// The text names no level that this version offers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown consistency level {0:?}: expected session, eventual or primary")]
pub struct LevelError(String);

// === impl Level ===

impl Level {
    /// The name used in YAML, in SQL and in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eventual => "eventual",
            Self::Session => "session",
            Self::Primary => "primary",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text.to_ascii_lowercase().as_str() {
            "eventual" => Ok(Self::Eventual),
            "session" => Ok(Self::Session),
            "primary" => Ok(Self::Primary),
            _ => Err(LevelError(text.to_owned())),
        }
    }
}

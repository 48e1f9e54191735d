//! Where fences come from.

use std::fmt;
use std::str::FromStr;

/// What a probe of the primary reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FenceSource {
    /// [`FenceSource::Insert`]: the only one that is right whatever the writers do, at the cost of a query.
    #[default]
    Auto,
    /// The insert position: covers asynchronous commits too.
    Insert,
    /// The flush position: covers a commit only if its writer waited for the flush, which is the operator's to
    /// assert. Where asynchronous commit is seen, or what can be seen was not looked at yet, the insert position
    /// is used instead.
    Flush,
    /// The end of a record that the probe commits: covers asynchronous commits, is always reached, and waits for the
    /// synchronous standbys, if there are any. It takes a transaction id and a flush each time.
    Commit,
}

/// The text names no source of fences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown fence source {0:?}: expected auto, insert, flush or commit")]
pub struct FenceSourceError(String);

// === impl FenceSource ===

impl FenceSource {
    /// The name used in YAML.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Insert => "insert",
            Self::Flush => "flush",
            Self::Commit => "commit",
        }
    }
}

impl fmt::Display for FenceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FenceSource {
    type Err = FenceSourceError;

    fn from_str(text: &str) -> Result<Self, FenceSourceError> {
        let all = [Self::Auto, Self::Insert, Self::Flush, Self::Commit];
        let named = all.into_iter().find(|source| source.as_str().eq_ignore_ascii_case(text));
        named.ok_or_else(|| FenceSourceError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for source in [FenceSource::Auto, FenceSource::Insert, FenceSource::Flush, FenceSource::Commit] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        assert_eq!("FLUSH".parse(), Ok(FenceSource::Flush));
        assert!("write".parse::<FenceSource>().is_err());
    }
}

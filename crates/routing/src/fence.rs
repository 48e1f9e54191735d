//! Positions in the write-ahead log, and what they prove.

use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log, in bytes from its beginning (`pg_lsn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// A position that covers everything acknowledged before a moment, on one lineage of one cluster.
///
/// The position alone proves nothing: another timeline reaches the same numbers with other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// `pg_control_system().system_identifier` of the primary that was asked.
    pub system_id: u64,
    /// The timeline on which that primary was writing.
    pub timeline: u32,
    /// The position that a replica must have replayed.
    pub lsn: Lsn,
}

/// What a replica was seen to have replayed: a lower bound of what it shows from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Observation {
    /// `pg_control_system().system_identifier` of the replica.
    pub system_id: u64,
    /// The timeline from which it was replaying.
    pub timeline: u32,
    /// `pg_last_wal_replay_lsn()`.
    pub lsn: Lsn,
}

/// The text is not a position as `pg_lsn` prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a WAL position of the form X/Y: {0:?}")]
pub struct LsnError(String);

/// The text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token of the form SYSTEM_ID:TIMELINE:X/Y: {0:?}")]
pub struct FenceError(String);

// === impl Lsn ===

impl Lsn {
    /// How many bytes `self` is behind `other`; zero when it is not.
    pub fn behind(self, other: Self) -> u64 {
        other.0.saturating_sub(self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let parse = || {
            let (high, low) = text.split_once('/')?;
            let half = |digits: &str| {
                let digits_only = digits.bytes().all(|b| b.is_ascii_hexdigit());
                u32::from_str_radix(digits, 16).ok().filter(|_| digits_only)
            };
            Some(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
        };
        parse().ok_or_else(|| LsnError(text.to_owned()))
    }
}

// === impl Fence ===

/// The token that SHOW gives and `after` takes: system identifier, timeline and position.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.system_id, self.timeline, self.lsn)
    }
}

impl FromStr for Fence {
    type Err = FenceError;

    fn from_str(text: &str) -> Result<Self, FenceError> {
        let parse = || {
            let mut parts = text.splitn(3, ':');
            let system_id = parts.next()?.parse().ok()?;
            let timeline = parts.next()?.parse().ok()?;
            let lsn = parts.next()?.parse().ok()?;
            Some(Self { system_id, timeline, lsn })
        };
        parse().ok_or_else(|| FenceError(text.to_owned()))
    }
}

// === impl Observation ===

impl Observation {
    /// Whether a snapshot taken after this observation shows everything that `fence` covers.
    pub fn covers(&self, fence: &Fence) -> bool {
        self.system_id == fence.system_id && self.timeline == fence.timeline && self.lsn >= fence.lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_text_round_trips() {
        for text in ["0/0", "0/16B3748", "FFFFFFFF/FFFFFFFF", "1A/0"] {
            assert_eq!(text.parse::<Lsn>().unwrap().to_string(), text);
        }
        for text in ["", "/", "1", "1/", "/1", "1/2/3", "+1/2", "1/123456789", "x/1"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn another_timeline_covers_nothing() {
        let fence = Fence { system_id: 7, timeline: 1, lsn: Lsn(100) };
        let seen = |system_id, timeline, lsn| Observation { system_id, timeline, lsn: Lsn(lsn) };
        assert!(seen(7, 1, 100).covers(&fence));
        assert!(!seen(7, 1, 99).covers(&fence));
        assert!(!seen(7, 2, 1000).covers(&fence));
        assert!(!seen(8, 1, 1000).covers(&fence));
    }
}

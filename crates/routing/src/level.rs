//! Consistency levels: whose writes a read must see.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::fence::Fence;

/// Whose acknowledged writes a read must see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Everyone's, whichever way they came.
    #[default]
    Cluster,
    /// All that passed this Causeway.
    Router,
    /// This session's, and whatever its own earlier reads have shown.
    Session,
    /// The database as it was at most this long ago.
    Bounded(Duration),
    /// Any replica inside the lag limit; no order between reads.
    Eventual,
    /// No replica at all.
    Primary,
    /// Everything that a token covers.
    After(Fence),
}

/// Some of the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Levels(u8);

/// The text names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown consistency level {0:?}: expected cluster, router, session, bounded(250ms), eventual, primary \
     or \"after\" and a token"
)]
pub struct LevelError(String);

/// Units of time as PostgreSQL's settings have them, in nanoseconds. Longer ones first, so that `ms` is not `m`.
const UNITS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

// === impl Level ===

impl Level {
    /// The words for metric labels, in the order of [`Level::index`].
    pub const NAMES: [&'static str; 7] =
        ["cluster", "router", "session", "bounded", "eventual", "primary", "after"];

    /// The position in [`Level::NAMES`], for arrays of metric handles.
    pub fn index(self) -> usize {
        match self {
            Self::Cluster => 0,
            Self::Router => 1,
            Self::Session => 2,
            Self::Bounded(_) => 3,
            Self::Eventual => 4,
            Self::Primary => 5,
            Self::After(_) => 6,
        }
    }

    /// The word for metric labels: the level without its argument.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

// === impl Levels ===

impl Levels {
    /// Each of them.
    pub const ALL: Self = Self(u8::MAX);

    /// Those of these [`Level::NAMES`]. `None` if one is none.
    pub fn named<T: AsRef<str>>(names: &[T]) -> Option<Self> {
        let index = |name: &T| Level::NAMES.iter().position(|known| *known == name.as_ref());
        names.iter().try_fold(Self(0), |Self(levels), name| Some(Self(levels | 1 << index(name)?)))
    }

    /// Whether this level is among them, whatever its argument.
    pub fn contains(self, level: Level) -> bool {
        self.0 & 1 << level.index() != 0
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounded(age) => {
                let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
                let whole = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(*unit);
                let (unit, size) =
                    UNITS.iter().filter(whole).max_by_key(|(_, size)| size).unwrap_or(&UNITS[0]);
                write!(f, "bounded({}{unit})", nanos / size)
            }
            Self::After(fence) => write!(f, "after {fence}"),
            _ => f.write_str(self.as_str()),
        }
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let unknown = || LevelError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        match &*lower {
            "cluster" => return Ok(Self::Cluster),
            "router" => return Ok(Self::Router),
            "session" => return Ok(Self::Session),
            "eventual" => return Ok(Self::Eventual),
            "primary" => return Ok(Self::Primary),
            _ => {}
        }
        if let Some(age) = lower.strip_prefix("bounded") {
            let age = age.trim().strip_prefix('(').and_then(|age| age.strip_suffix(')'));
            return age.and_then(duration).map(Self::Bounded).ok_or_else(unknown);
        }
        let token = lower.strip_prefix("after").filter(|token| token.starts_with([' ', '=', '\t']));
        let token = token.map(|token| token.trim_start_matches([' ', '=', '\t']));
        token.and_then(|token| token.parse().ok()).map(Self::After).ok_or_else(unknown)
    }
}

/// A duration with a unit, longer than nothing.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    let nanos = number.parse::<u64>().ok()?.checked_mul(*size)?;
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Lsn;

    #[test]
    fn names_go_there_and_back() {
        let fence = Fence { system_id: 7_712_345_678_901_234_567, timeline: 2, lsn: Lsn(0x215B_18B0) };
        for level in [
            Level::Cluster,
            Level::Router,
            Level::Session,
            Level::Eventual,
            Level::Primary,
            Level::Bounded(Duration::from_millis(250)),
            Level::Bounded(Duration::from_micros(1_500)),
            Level::Bounded(Duration::from_secs(90)),
            Level::Bounded(Duration::from_hours(2)),
            Level::After(fence),
        ] {
            assert_eq!(level.to_string().parse(), Ok(level), "{level}");
        }
    }

    #[test]
    fn some_of_the_levels() {
        let lax = Levels::named(&["eventual", "bounded"]).unwrap();
        assert!(lax.contains(Level::Eventual) && lax.contains(Level::Bounded(Duration::from_secs(1))));
        assert!(!lax.contains(Level::Cluster) && !lax.contains(Level::Session));
        assert_eq!(Levels::named(&["eventually"]), None);
        assert!(Levels::ALL.contains(Level::Cluster));
    }

    #[test]
    fn text_is_read_as_people_write_it() {
        let bounded = |millis| Ok(Level::Bounded(Duration::from_millis(millis)));
        assert_eq!("Bounded( 2 s )".parse(), bounded(2000));
        assert_eq!("bounded(1min)".parse(), bounded(60_000));
        assert_eq!(" CLUSTER ".parse(), Ok(Level::Cluster));
        for text in [
            "",
            "strong",
            "bounded",
            "bounded()",
            "bounded(5)",
            "bounded(0ms)",
            "bounded(5 y)",
            "bounded(-1s)",
        ] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
        for text in
            ["after", "after ", "after 1", "after 1:2", "after1:2:0/0", "after 1:2:0/0x", "after x:2:0/0"]
        {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }
}

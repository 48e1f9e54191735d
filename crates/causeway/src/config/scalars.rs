//! The scalar values of the configuration, each parsed once into what it means.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use causeway_pool::{Address, AddressError};
use causeway_routing::Level;
use secrecy::SecretString;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A scalar of the configuration.
pub(super) trait Scalar: Sized {
    /// What is expected, for messages: "a duration with a unit, such as \"5s\"".
    const EXPECTED: &'static str;

    /// A valid value; also handed to serde as the type's name, by which the schema is walked in tests.
    const SAMPLE: &'static str;

    /// Reads text. The message must not repeat a secret.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads a bare number; refused unless the type is a number.
    fn from_integer(number: i64) -> Result<Self, String> {
        Err(format!("expected {}, found the bare number {number}", Self::EXPECTED))
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

/// A whole number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u32);

/// A node's share of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(pub(super) u32);

/// A name of the configuration's own: of a cluster or a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) String);

/// Any text: a user, a database, a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) String);

/// Text that no message may show.
#[derive(Clone, Debug)]
pub(super) struct Secret(pub(super) SecretString);

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port; 0 in a place to listen means any free one.
    pub port: u16,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Over TCP.
    Tcp(HostPort),
    /// Over a Unix socket in this directory.
    Unix(PathBuf),
}

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeAddress(pub(super) Address);

/// From where a rule of `auth.rules` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An address and how many of its leading bits count.
    Network(IpAddr, u8),
    /// Unix sockets.
    Unix,
}

/// A consistency level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelName(pub(super) Level);

/// A consistency level without its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelWord(pub(super) &'static str);

macro_rules! deserialize_scalars {
    ($($name:ty),+) => {
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_newtype_struct(<$name as Scalar>::SAMPLE, ScalarVisitor(PhantomData))
            }
        })+
    };
}

deserialize_scalars!(
    Span,
    Count,
    Weight,
    Name,
    Word,
    Secret,
    HostPort,
    Endpoint,
    NodeAddress,
    Origin,
    LevelName,
    LevelWord
);

impl<'de, T: Scalar> Visitor<'de> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        T::from_integer(number).map_err(E::custom)
    }
}

// === impl Span ===

const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60 * 1_000_000),
    ("h", 3_600 * 1_000_000),
    ("d", 86_400 * 1_000_000),
];

/// A thousand years: sums with the present moment cannot overflow.
const LONGEST_MICROS: u64 = 1_000 * 365 * 86_400 * 1_000_000;

impl Scalar for Span {
    const EXPECTED: &'static str = "a duration with a unit, such as \"250ms\" or \"5s\"";
    const SAMPLE: &'static str = "5s";

    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let Some((_, micros)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return match (number, unit) {
                ("", _) => Err(format!("expected {}, found {text:?}", Self::EXPECTED)),
                (_, "") => Err(no_unit(number)),
                _ => Err(format!("unknown unit {unit:?}: the units are us, ms, s, m, h and d")),
            };
        };
        let micros = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*micros));
        match micros.filter(|micros| *micros <= LONGEST_MICROS) {
            Some(micros) => Ok(Self(Duration::from_micros(micros))),
            None => Err(format!("expected {}, found {text:?}", Self::EXPECTED)),
        }
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Err(no_unit(number))
    }
}

fn no_unit(number: impl fmt::Display) -> String {
    format!("a duration needs a unit: write \"{number}s\" for seconds or \"{number}ms\" for milliseconds")
}

// === impl Count, Weight ===

impl Scalar for Count {
    const EXPECTED: &'static str = "a whole number from 1 to 1000000";
    const SAMPLE: &'static str = "1";

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.parse::<i64>().map_err(|_| format!("expected {}, found text", Self::EXPECTED))?;
        Self::from_integer(number)
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        let number = u32::try_from(number).ok().filter(|number| (1..=1_000_000).contains(number));
        number.map(Self).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl Scalar for Weight {
    const EXPECTED: &'static str = "a whole number from 0 (no reads) to 1000";
    const SAMPLE: &'static str = "0";

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.parse::<i64>().map_err(|_| format!("expected {}, found text", Self::EXPECTED))?;
        Self::from_integer(number)
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        let number = u32::try_from(number).ok().filter(|number| *number <= 1_000);
        number.map(Self).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

// === impl Name, Word, Secret ===

impl Scalar for Name {
    const EXPECTED: &'static str = "a name of letters, digits, `-`, `_` and `.`";
    const SAMPLE: &'static str = "name";

    fn from_text(text: &str) -> Result<Self, String> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if (1..=63).contains(&text.len()) && text.bytes().all(valid) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("expected {}, found {text:?}", Self::EXPECTED))
    }
}

impl Scalar for Word {
    const EXPECTED: &'static str = "text";
    const SAMPLE: &'static str = "word";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("expected text that is not empty and has no NUL".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Err(format!("expected text, found a number: write \"{number}\" in quotes"))
    }
}

impl Scalar for Secret {
    const EXPECTED: &'static str = "text";
    const SAMPLE: &'static str = "secret";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("expected text that is not empty and has no NUL".to_owned());
        }
        Ok(Self(SecretString::from(text)))
    }

    fn from_integer(_: i64) -> Result<Self, String> {
        Err("expected text, found a number: write it in quotes".to_owned())
    }
}

// === impl HostPort, Endpoint ===

impl Scalar for HostPort {
    const EXPECTED: &'static str = "\"host:port\"";
    const SAMPLE: &'static str = "localhost:1";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found {text:?}", Self::EXPECTED);
        let (host, port) = text.rsplit_once(':').ok_or_else(|| {
            if text.is_empty() { wrong() } else { format!("the port is missing: write \"{text}:5432\"") }
        })?;
        let port = port.parse().map_err(|_| format!("{port:?} is not a port: expected 0 to 65535"))?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) if v6.parse::<Ipv6Addr>().is_ok() => v6,
            Some(_) => return Err(wrong()),
            None if host.contains(':') => {
                return Err("an IPv6 address stands in brackets: \"[::1]:5432\"".to_owned());
            }
            None => host,
        };
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(valid) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Scalar for Endpoint {
    const EXPECTED: &'static str = "\"host:port\" or \"unix:/directory\"";
    const SAMPLE: &'static str = "unix:/run";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(directory) if directory.starts_with('/') => Ok(Self::Unix(PathBuf::from(directory))),
            Some(_) => Err("a Unix socket needs an absolute directory: \"unix:/run/causeway\"".to_owned()),
            None if text.contains(':') => HostPort::from_text(text).map(Self::Tcp),
            None => Err(format!("expected {}, found {text:?}", Self::EXPECTED)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(directory) => write!(f, "unix:{}", directory.display()),
        }
    }
}

// === impl NodeAddress ===

impl Scalar for NodeAddress {
    const EXPECTED: &'static str = "\"host:port\" or \"unix:/directory:port\"";
    const SAMPLE: &'static str = "localhost:5432";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: AddressError| format!("{error}: expected {}", Self::EXPECTED))
    }
}

// === impl Origin ===

impl Scalar for Origin {
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\", an address, or \"unix\"";
    const SAMPLE: &'static str = "unix";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let wrong = || format!("expected {}, found {text:?}", Self::EXPECTED);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(prefix) => prefix.parse().ok().filter(|bits| *bits <= width).ok_or_else(wrong)?,
        };
        let network = first_address(address, prefix);
        if network == address {
            return Ok(Self::Network(address, prefix));
        }
        Err(format!(
            "the address has bits beyond its prefix: write \"{network}/{prefix}\" for the network or \"{address}\" \
             for the one address"
        ))
    }
}

fn first_address(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

// === impl LevelName ===

impl Scalar for LevelName {
    const EXPECTED: &'static str =
        "a consistency level: cluster, router, session, bounded(250ms), eventual or primary";
    const SAMPLE: &'static str = "cluster";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Level::After(_)) => Err("a token holds for a session, not for a configuration".to_owned()),
            Ok(level) => Ok(Self(level)),
            Err(error) => Err(match super::problem::nearest(text, &Level::NAMES) {
                Some(name) if name != "after" && name != "bounded" => {
                    format!("unknown consistency level {text:?}; did you mean `{name}`?")
                }
                _ => error.to_string(),
            }),
        }
    }
}

// === impl LevelWord ===

impl Scalar for LevelWord {
    const EXPECTED: &'static str =
        "a consistency level: cluster, router, session, bounded, eventual or after";
    const SAMPLE: &'static str = "cluster";

    fn from_text(text: &str) -> Result<Self, String> {
        let level = Level::NAMES.into_iter().find(|name| *name == text && text != "primary");
        level.map(Self).ok_or_else(|| format!("expected {}, found {text:?}", Self::EXPECTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let micros = [("1us", 1), ("250ms", 250_000), ("0s", 0), ("2m", 120_000_000), ("1h", 3_600_000_000)];
        for (text, micros) in micros {
            assert_eq!(Span::from_text(text).unwrap().0, Duration::from_micros(micros), "{text}");
        }
        assert_eq!(Span::from_text("7d").unwrap().0, Duration::from_hours(7 * 24));
        assert_eq!(Span::from_text("5 s").unwrap().0, Duration::from_secs(5));
        for text in ["", "s", "-1s", "1.5s", "99999999999999999999s", "400000000d", "1sec", "5"] {
            assert!(Span::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_need_clean_prefixes() {
        let net = |text: &str| Origin::from_text(text);
        assert_eq!(net("10.0.0.0/8"), Ok(Origin::Network("10.0.0.0".parse().unwrap(), 8)));
        assert_eq!(net("0.0.0.0/0"), Ok(Origin::Network("0.0.0.0".parse().unwrap(), 0)));
        assert_eq!(net("::1"), Ok(Origin::Network("::1".parse().unwrap(), 128)));
        assert_eq!(net("unix"), Ok(Origin::Unix));
        assert!(net("10.1.0.0/8").unwrap_err().contains("\"10.0.0.0/8\""));
        assert!(net("10.0.0.0/33").is_err());
        assert!(net("example.org").is_err());
    }

    #[test]
    fn addresses() {
        for text in ["pg-0:5432", "[::1]:5432", "10.0.0.1:0"] {
            assert_eq!(HostPort::from_text(text).unwrap().to_string(), text);
        }
        for text in ["", "pg-0", "::1:5432", ":5432", "a b:1", "pg:70000", "[x]:1"] {
            assert!(HostPort::from_text(text).is_err(), "{text}");
        }
        assert!(Endpoint::from_text("unix:run").is_err());
    }
}

//! Where a server listens.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The port PostgreSQL listens on unless told otherwise.
const DEFAULT_PORT: u16 = 5432;

/// The address of a server, resolved or not.
///
/// Written `10.0.0.1:5432`, `pg-0.internal:5432`, `[::1]:5432` or `unix:/run/postgresql:5432`; without a port, 5432.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host name or an IP address, without brackets, and a port.
    Tcp {
        /// The name or address.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// The directory of a Unix socket; the port is part of the file's name, as everywhere in PostgreSQL.
    Unix {
        /// The directory of the socket, not the socket itself.
        directory: Arc<Path>,
        /// The port.
        port: u16,
    },
}

/// The text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is nothing where the host should be.
    #[error("no host in address \"{0}\"")]
    NoHost(Box<str>),
    /// The port is no number from 1 to 65535.
    #[error("invalid port in address \"{0}\"")]
    Port(Box<str>),
    /// An IPv6 address stands without brackets, or the brackets hold something else.
    #[error("invalid IPv6 address in \"{0}\": write [::1]:5432")]
    Ipv6(Box<str>),
    /// The directory of a Unix socket is relative.
    #[error("the directory of the Unix socket in \"{0}\" is not absolute")]
    Relative(Box<str>),
}

// === impl Address ===

impl Address {
    /// The port, whatever the kind of socket.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp { port, .. } | Self::Unix { port, .. } => *port,
        }
    }

    /// The socket's file, as PostgreSQL names it (`UNIXSOCK_PATH` in `src/include/libpq/pqcomm.h`).
    pub(crate) fn socket_file(directory: &Path, port: u16) -> PathBuf {
        directory.join(format!(".s.PGSQL.{port}"))
    }
}

impl From<SocketAddr> for Address {
    fn from(resolved: SocketAddr) -> Self {
        let host = match resolved {
            // A link-local address means nothing without its scope.
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            _ => resolved.ip().to_string(),
        };
        Self::Tcp { host: host.into(), port: resolved.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { directory, port } => write!(f, "unix:{}:{port}", directory.display()),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let (directory, port) = host_and_port(rest, text)?;
            let directory = Path::new(directory);
            if !directory.is_absolute() {
                return Err(AddressError::Relative(text.into()));
            }
            return Ok(Self::Unix { directory: directory.into(), port });
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed_host_and_port(bracketed, text)?,
            None => host_and_port(text, text)?,
        };
        // What is left of "::1" after its last colon is taken away is no host: the brackets are missing.
        if !text.starts_with('[') && host.contains(':') {
            return Err(AddressError::Ipv6(text.into()));
        }
        Ok(Self::Tcp { host: host.into(), port })
    }
}

fn host_and_port<'a>(text: &'a str, whole: &str) -> Result<(&'a str, u16), AddressError> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, parse_port(port, whole)?),
        None => (text, DEFAULT_PORT),
    };
    if host.is_empty() { Err(AddressError::NoHost(whole.into())) } else { Ok((host, port)) }
}

fn bracketed_host_and_port<'a>(text: &'a str, whole: &str) -> Result<(&'a str, u16), AddressError> {
    let (host, rest) = text.split_once(']').ok_or_else(|| AddressError::Ipv6(whole.into()))?;
    let address = host.split_once('%').map_or(host, |(address, _scope)| address);
    if address.parse::<Ipv6Addr>().map(IpAddr::V6).is_err() {
        return Err(AddressError::Ipv6(whole.into()));
    }
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, parse_port(port, whole)?)),
        None if rest.is_empty() => Ok((host, DEFAULT_PORT)),
        None => Err(AddressError::Port(whole.into())),
    }
}

fn parse_port(text: &str, whole: &str) -> Result<u16, AddressError> {
    // `parse` takes a leading plus sign, which nobody means.
    match text.parse::<u16>() {
        Ok(port) if port > 0 && !text.starts_with('+') => Ok(port),
        _ => Err(AddressError::Port(whole.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for (text, canonical) in [
            ("10.0.0.1:5432", "10.0.0.1:5432"),
            ("pg-0.internal", "pg-0.internal:5432"),
            ("[::1]:6543", "[::1]:6543"),
            ("[fe80::1%2]:6543", "[fe80::1%2]:6543"),
            ("[::1]", "[::1]:5432"),
            ("unix:/run/postgresql:5433", "unix:/run/postgresql:5433"),
            ("unix:/run/postgresql", "unix:/run/postgresql:5432"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), canonical);
            assert_eq!(canonical.parse::<Address>().unwrap(), address);
        }
    }

    #[test]
    fn refuses_what_is_ambiguous() {
        for text in [
            "",
            ":5432",
            "::1",
            "::1:5432",
            "[::1",
            "[::1]5432",
            "[localhost]:1",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "host:x",
            "unix:run:5432",
            "unix:",
            "unix::5432",
            "1:2:3",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_resolved_address_keeps_its_scope() {
        let resolved: SocketAddr = "[fe80::1%7]:5432".parse().unwrap();
        assert_eq!(Address::from(resolved).to_string(), "[fe80::1%7]:5432");
        let resolved: SocketAddr = "127.0.0.1:5432".parse().unwrap();
        assert_eq!(Address::from(resolved), "127.0.0.1:5432".parse().unwrap());
    }
}

//! Where the process listens: bound before anything is changed, so that a reload can be refused as a whole.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

use super::inherited::{Inherited, Owner};
use crate::config::{Config, Endpoint, HostPort};

/// Connections that the kernel holds until they are accepted; it caps them at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The port in the name of a Unix socket where no TCP address gives one.
const DEFAULT_PORT: u16 = 6432;

/// One place to listen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A TCP address; a name may stand for several.
    Tcp(String, u16),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

/// A place that is bound and listened on.
#[derive(Debug)]
pub enum Bound {
    /// One socket for each address of the name.
    Tcp(Vec<(TcpListener, Owner)>),
    /// The socket, whose file goes with the guard.
    Unix(UnixListener, SocketFile),
}

/// Removes the file of a Unix socket when dropped, unless that is another's to do.
#[derive(Debug)]
pub struct SocketFile(Option<PathBuf>);

/// The place cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place}: {cause}")]
pub struct BindError {
    /// Where.
    pub place: Place,
    /// Why.
    pub cause: io::Error,
}

/// The places of a configuration.
pub fn places(config: &Config) -> Vec<Place> {
    let port = config.listen.iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp(HostPort { port, .. }) => Some(*port),
        Endpoint::Unix(_) => None,
    });
    let file = format!(".s.PGSQL.{}", port.unwrap_or(DEFAULT_PORT));
    let place = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => Place::from(address),
        Endpoint::Unix(directory) => Place::Unix(directory.join(&file)),
    };
    config.listen.iter().map(place).collect()
}

/// Binds every place of `wanted` that is not in `present`, or takes its socket from `inherited`.
///
/// # Errors
///
/// The first place that cannot be bound; nothing stays bound then.
pub fn bind_new(
    wanted: &[Place],
    present: &[Place],
    inherited: &mut Inherited,
) -> Result<Vec<(Place, Bound)>, BindError> {
    let fresh = wanted.iter().filter(|place| !present.contains(place));
    fresh.map(|place| bind(place, inherited).map(|bound| (place.clone(), bound))).collect()
}

/// Binds one place, or takes its socket from `inherited`.
///
/// # Errors
///
/// Why it cannot be bound; for a name with several addresses, only if none can.
pub fn bind(place: &Place, inherited: &mut Inherited) -> Result<Bound, BindError> {
    let failed = |cause| BindError { place: place.clone(), cause };
    match place {
        Place::Tcp(host, port) => bind_tcp(host, *port, inherited).map(Bound::Tcp).map_err(failed),
        Place::Unix(path) => match inherited.unix(path) {
            Some((listener, owner)) => Ok(Bound::Unix(listener, SocketFile::new(path, owner))),
            None => bind_unix(path).map_err(failed),
        },
    }
}

fn bind_tcp(host: &str, port: u16, inherited: &mut Inherited) -> io::Result<Vec<(TcpListener, Owner)>> {
    let mut bound = Vec::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match inherited.tcp(address).map_or_else(|| Ok((listen_tcp(address)?, Owner::Causeway)), Ok) {
            Ok(listener) => bound.push(listener),
            Err(error) => failure = error,
        }
    }
    if bound.is_empty() { Err(failure) } else { Ok(bound) }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the last process' connections to leave TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_unix(path: &Path) -> io::Result<Bound> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile::new(path, Owner::Causeway);
    // Who may connect is decided by `auth.rules`, as at PostgreSQL's own default of `unix_socket_permissions`.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    listener.set_nonblocking(true)?;
    Ok(Bound::Unix(listener, file))
}

/// Whether the file is there and nobody listens behind it: the last process was killed.
fn is_left_over(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

// === impl Place ===

impl From<&HostPort> for Place {
    fn from(address: &HostPort) -> Self {
        Self::Tcp(address.host.clone(), address.port)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => HostPort { host: host.clone(), port: *port }.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// === impl SocketFile ===

impl SocketFile {
    fn new(path: &Path, owner: Owner) -> Self {
        Self((owner == Owner::Causeway).then(|| path.to_owned()))
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        if self.0.is_some() { Owner::Causeway } else { Owner::ServiceManager }
    }

    /// Leaves the file to the process that listens on its socket now.
    pub fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already; the next start copes with one that stays.
        if let Some(path) = &self.0 {
            drop(std::fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_over_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".s.PGSQL.6432");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the standard library leaves the file");
        let place = Place::Unix(path.clone());
        let mut none = Inherited::default();
        let bound = bind(&place, &mut none).unwrap();
        let error = bind(&place, &mut none).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on unix:{}: ", path.display())), "{error}");
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn only_new_places_are_bound() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let old = Place::Tcp("127.0.0.1".to_owned(), port);
        let new = Place::Tcp("127.0.0.1".to_owned(), 0);
        let bound = bind_new(&[old.clone(), new.clone()], &[old], &mut Inherited::default()).unwrap();
        assert_eq!(bound.iter().map(|(place, _)| place).collect::<Vec<_>>(), [&new]);
    }
}

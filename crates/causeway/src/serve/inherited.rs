//! Sockets that were open when the process began: given by systemd (`sd_listen_fds(3)`), or by the process that this one
//! follows.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;

/// Holds the id of the process that gave the sockets and whether it was ready: `1234 ready`. An environment that was only
/// inherited names another process than the parent.
pub(super) const HANDOVER: &str = "CAUSEWAY_HANDOVER";

/// The names of the sockets, as in `sd_listen_fds(3)`.
pub(super) const NAMES: &str = "LISTEN_FDNAMES";

/// What each socket of a handover is.
pub(super) mod name {
    /// A listener, whose file Causeway removes if it has one.
    pub(in crate::serve) const OWN: &str = "own";
    /// A listener that belongs to systemd.
    pub(in crate::serve) const LENT: &str = "lent";
    /// Leads to the process that is followed.
    pub(in crate::serve) const LINK: &str = "link";
}

/// The sockets, until they are taken.
#[derive(Debug, Default)]
pub struct Inherited {
    tcp: Vec<(SocketAddr, TcpListener, Owner)>,
    unix: Vec<(PathBuf, UnixListener, Owner)>,
    predecessor: Option<Predecessor>,
}

/// Who removes the file of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This process.
    Causeway,
    /// The service manager.
    ServiceManager,
}

/// The process that this one follows.
#[derive(Debug)]
pub(super) struct Predecessor {
    /// It waits here for the word that this one is ready, then for cancel requests.
    pub(super) link: UnixDatagram,
    /// Whether it has a node for every cluster: then this one must have, too, before it takes over.
    pub(super) was_ready: bool,
}

// === impl Inherited ===

impl Inherited {
    /// Takes what the environment says is there. To be called once, while the process has one thread.
    ///
    /// # Errors
    ///
    /// When a descriptor is none of a listening socket.
    pub(super) fn take() -> io::Result<Self> {
        let names = std::env::var(NAMES).unwrap_or_default();
        let handover = handover(&std::env::var(HANDOVER).unwrap_or_default(), rustix::process::getppid());
        let mut given = ListenFd::from_env();
        let mut inherited = Self::default();
        let mut names = names.split(':');
        for index in 0..given.len() {
            let called = names.next().unwrap_or_default();
            let owner = if handover.is_some() && called == name::OWN {
                Owner::Causeway
            } else {
                Owner::ServiceManager
            };
            match handover {
                Some(was_ready) if called == name::LINK => {
                    let link = given.take_unix_datagram(index)?;
                    inherited.predecessor = link.map(|link| Predecessor { link, was_ready });
                }
                _ => inherited.keep(&mut given, index, owner)?,
            }
        }
        Ok(inherited)
    }

    fn keep(&mut self, given: &mut ListenFd, index: usize, owner: Owner) -> io::Result<()> {
        if let Ok(socket) = given.take_tcp_listener(index) {
            let Some(socket) = socket else { return Ok(()) };
            socket.set_nonblocking(true)?;
            self.tcp.push((socket.local_addr()?, socket, owner));
        } else if let Some(socket) = given.take_unix_listener(index)? {
            socket.set_nonblocking(true)?;
            let path = socket.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();
            self.unix.push((path, socket, owner));
        }
        Ok(())
    }

    /// The socket that is bound to this address.
    pub(super) fn tcp(&mut self, address: SocketAddr) -> Option<(TcpListener, Owner)> {
        let position = self.tcp.iter().position(|(bound, ..)| *bound == address)?;
        let (_, socket, owner) = self.tcp.swap_remove(position);
        Some((socket, owner))
    }

    /// The socket that is bound to this file.
    pub(super) fn unix(&mut self, path: &Path) -> Option<(UnixListener, Owner)> {
        let position = self.unix.iter().position(|(bound, ..)| *bound == path)?;
        let (_, socket, owner) = self.unix.swap_remove(position);
        Some((socket, owner))
    }

    /// The process that is followed; what else has not been taken is closed.
    pub(super) fn finish(self) -> Option<Predecessor> {
        let tcp = self.tcp.iter().map(|(address, ..)| address.to_string());
        let unix = self.unix.iter().map(|(path, ..)| format!("unix:{}", path.display()));
        for address in tcp.chain(unix) {
            tracing::warn!(
                event = "socket_not_used",
                address,
                "a socket that was given is neither in listen nor in http: it is closed"
            );
        }
        self.predecessor
    }
}

/// What the parent says of itself.
fn handover(said: &str, parent: Option<rustix::process::Pid>) -> Option<bool> {
    let (pid, state) = said.split_once(' ')?;
    let pid: i32 = pid.parse().ok()?;
    (parent?.as_raw_nonzero().get() == pid).then_some(state == "ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parent_hands_over() {
        let parent = rustix::process::getppid();
        let id = parent.unwrap().as_raw_nonzero().get();
        assert_eq!(handover(&format!("{id} ready"), parent), Some(true));
        assert_eq!(handover(&format!("{id} waiting"), parent), Some(false));
        assert_eq!(handover(&format!("{} ready", id + 1), parent), None);
        assert_eq!(handover("", parent), None);
    }

    #[test]
    fn a_socket_is_found_by_its_address() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let tcp = vec![(address, socket, Owner::ServiceManager)];
        let mut inherited = Inherited { tcp, ..Inherited::default() };
        assert!(inherited.tcp("127.0.0.2:1".parse().unwrap()).is_none());
        assert!(inherited.tcp(address).is_some());
        assert!(inherited.tcp(address).is_none());
        assert!(inherited.unix(Path::new("/nowhere")).is_none());
    }
}

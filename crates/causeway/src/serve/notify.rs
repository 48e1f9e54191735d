//! What a service manager is told (`sd_notify(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Clients can connect.
pub(super) const READY: &str = "READY=1";

/// The process is on its way out.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Another process is the service from now on.
pub(super) fn main_pid(pid: u32) -> String {
    format!("MAINPID={pid}")
}

/// Tells the service manager, if there is one; without one nothing happens.
pub(super) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), state) {
        tracing::warn!(event = "not_notified", %error, state, "the service manager could not be told");
    }
}

/// A name that begins with `@` is one without a file.
fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name.split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    // The service manager must never hold the process up.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let with_file = UnixDatagram::bind(&path).unwrap();
        let name = format!("causeway-test-{}", std::process::id());
        let without = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(path.as_os_str().as_encoded_bytes(), READY).unwrap();
        send(format!("@{name}").as_bytes(), &main_pid(7)).unwrap();
        let mut heard = [0; 32];
        assert_eq!(with_file.recv(&mut heard).unwrap(), READY.len());
        assert_eq!(without.recv(&mut heard).unwrap(), "MAINPID=7".len());
        assert!(send(b"/nowhere/at/all", READY).is_err());
    }
}

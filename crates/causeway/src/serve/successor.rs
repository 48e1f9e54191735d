//! The process that takes over: started with this one's listeners, so that no client is refused while one follows the
//! other.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use tokio::net::UnixDatagram;
use tokio::time::{Instant, sleep, timeout_at};

use super::inherited::{HANDOVER, NAMES, Owner, name};

/// How long the new process may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// The first descriptor of `sd_listen_fds(3)`.
const FIRST: i32 = 3;

/// What the new process sends when it serves. Everything else is a cancel request.
pub(super) const READY: &[u8] = b"ready";

/// Longer than any datagram that is sent.
pub(super) const LONGEST: usize = 512;

/// How the process was started.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// A listening socket to be given away.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) socket: OwnedFd,
    pub(super) owner: Owner,
}

/// A process that has been started and has not taken over yet.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    link: UnixDatagram,
    deadline: Instant,
}

/// What becomes of it.
#[derive(Debug)]
pub(super) enum Event {
    /// It serves.
    Ready,
    /// It was asked to cancel a statement that may run here.
    Cancel(Vec<u8>),
    /// It has ended, or was not ready in time.
    Failed(String),
}

// === impl Program ===

impl Program {
    /// The program as it was called, so that a file or link that is replaced is followed. To be called at the start: later
    /// the running file may have been deleted.
    ///
    /// # Errors
    ///
    /// When the program was called without a path and cannot be found.
    pub fn running() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let called = PathBuf::from(arguments.next().unwrap_or_default());
        let path = if called.components().count() > 1 { called } else { std::env::current_exe()? };
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// Starts it with these sockets. `ready`: whether it has to find a node for every cluster before it takes over.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(super) fn start(&self, sockets: Vec<Given>, ready: bool) -> io::Result<Successor> {
        let (link, theirs) = StdDatagram::pair()?;
        link.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let name = |given: &Given| match given.owner {
            Owner::Causeway => name::OWN,
            Owner::ServiceManager => name::LENT,
        };
        let names: Vec<&str> = sockets.iter().map(name).chain([name::LINK]).collect();
        let count = names.len().to_string();
        let descriptors = sockets.into_iter().map(|given| given.socket).chain([OwnedFd::from(theirs)]);
        let mappings =
            descriptors.zip(FIRST..).map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env("LISTEN_FDS", count)
            .env_remove("LISTEN_PID")
            .env(NAMES, names.join(":"))
            .env(HANDOVER, format!("{} {}", std::process::id(), if ready { "ready" } else { "waiting" }))
            .stdin(Stdio::null())
            .fd_mappings(mappings.collect())
            .map_err(io::Error::other)?;
        let child = command.spawn()?;
        let link = UnixDatagram::from_std(link)?;
        Ok(Successor { child, link, deadline: Instant::now() + PATIENCE })
    }
}

// === impl Successor ===

impl Successor {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What happens next. Cancel-safe.
    pub(super) async fn event(&mut self) -> Event {
        let mut datagram = [0; LONGEST];
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Event::Failed(format!("it has ended: {status}")),
                Ok(None) => {}
                Err(error) => return Event::Failed(error.to_string()),
            }
            if Instant::now() >= self.deadline {
                return Event::Failed(format!("it was not ready within {} s", PATIENCE.as_secs()));
            }
            tokio::select! {
                received = self.link.recv(&mut datagram) => match received {
                    Ok(length) => {
                        let datagram = datagram.get(..length).unwrap_or_default();
                        return if datagram == READY { Event::Ready } else { Event::Cancel(datagram.to_vec()) };
                    }
                    Err(error) => return Event::Failed(error.to_string()),
                },
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// It serves: what is left is where its cancel requests come in.
    pub(super) fn took_over(self) -> UnixDatagram {
        self.link
    }

    /// Ends it, if it has not ended.
    pub(super) async fn end(mut self) {
        // It may have gone by itself.
        self.child.kill().ok();
        let deadline = Instant::now() + Duration::from_secs(2);
        let gone = async {
            while matches!(self.child.try_wait(), Ok(None)) {
                sleep(PAUSE).await;
            }
        };
        timeout_at(deadline, gone).await.ok();
    }
}

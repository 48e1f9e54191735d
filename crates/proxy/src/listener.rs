//! Accepting clients.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};

use crate::Proxy;
use crate::accept::{self, Arrival};
use crate::console::Console;
use crate::socket::ClientStream;

/// How long to wait after a failed accept, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where clients come in.
#[derive(Debug)]
pub enum Listener {
    /// By TCP.
    Tcp(TcpListener),
    /// By a Unix socket.
    Unix(UnixListener),
}

// === impl Proxy ===

impl Proxy {
    /// Accepts clients and gives each a task of its own, until the future is dropped; sessions go on after that.
    pub async fn serve(&self, listener: Arc<Listener>, console: Arc<dyn Console>) {
        if let Err(error) = listener.prepare() {
            tracing::warn!(%error, "could not set the options of a listening socket");
        }
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let arrival = Arrival::new(&self.shared);
                    tokio::spawn(accept::serve(arrival, stream, address, Arc::clone(&console)));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

// === impl Listener ===

impl Listener {
    /// Sets what accepted sockets inherit (tcp(7), socket(7)): three system calls less for each client.
    fn prepare(&self) -> std::io::Result<()> {
        let Self::Tcp(listener) = self else { return Ok(()) };
        let socket = socket2::SockRef::from(listener);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(Duration::from_mins(1)))
    }

    /// The same socket once more, to be given to another process.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn duplicate(&self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    async fn accept(&self) -> std::io::Result<(ClientStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((ClientStream::over_tcp(stream), Some(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((ClientStream::over_unix(stream), None))
            }
        }
    }
}

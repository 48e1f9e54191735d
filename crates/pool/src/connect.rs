//! From an address to a connection that may be lent.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use causeway_protocol::buffer::Buffer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::config::{Config, Keepalive};
use crate::conn::Opened;
use crate::error::ConnectError;
use crate::login;
use crate::stream::ServerStream;

/// A connected socket and where it leads.
pub(crate) struct Dialed {
    pub(crate) stream: ServerStream,
    /// Resolved.
    pub(crate) peer: Address,
}

/// Connects, logs in and verifies, all within the connect timeout.
pub(crate) async fn open(config: &Config) -> Result<Opened, ConnectError> {
    let begun_at = Instant::now();
    let deadline = begun_at + config.connect_timeout;
    let attempt = async {
        let Dialed { stream, peer } = dial(&config.address, deadline).await?;
        if let ServerStream::Tcp(socket) = &stream {
            keep_alive(socket, config.keepalive)?;
        }
        let inbound = Buffer::default();
        login::log_in(config, login::Line { stream, inbound }, peer, begun_at).await
    };
    timeout_at(deadline, attempt).await.unwrap_or(Err(ConnectError::Timeout))
}

/// Opens a socket.
///
/// All addresses of a name are tried in the order of the resolver. Each gets its share of the time that is left, so
/// that one that swallows packets does not take the others' turn.
pub(crate) async fn dial(address: &Address, deadline: Instant) -> io::Result<Dialed> {
    match address {
        Address::Unix { directory, port } => dial_unix(directory, *port, address).await,
        Address::Tcp { host, port } => {
            let resolved: Vec<SocketAddr> = lookup_host((&**host, *port)).await?.collect();
            let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for (tried, candidate) in resolved.iter().enumerate() {
                let now = Instant::now();
                let left = u32::try_from(resolved.len() - tried).unwrap_or(u32::MAX);
                let share = now + deadline.saturating_duration_since(now) / left;
                match timeout_at(share, TcpStream::connect(candidate)).await {
                    Ok(Ok(socket)) => {
                        socket.set_nodelay(true)?;
                        return Ok(Dialed { stream: ServerStream::Tcp(socket), peer: (*candidate).into() });
                    }
                    Ok(Err(error)) => failure = error,
                    Err(_elapsed) => failure = io::ErrorKind::TimedOut.into(),
                }
            }
            Err(failure)
        }
    }
}

async fn dial_unix(directory: &Path, port: u16, address: &Address) -> io::Result<Dialed> {
    let socket = UnixStream::connect(Address::socket_file(directory, port)).await?;
    Ok(Dialed { stream: ServerStream::Unix(socket), peer: address.clone() })
}

/// Lets the kernel notice a peer that is gone, whether we wait for it or have sent it something.
fn keep_alive(socket: &TcpStream, keepalive: Keepalive) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if !keepalive.idle.is_zero() {
        let mut probes = TcpKeepalive::new().with_time(keepalive.idle);
        if !keepalive.interval.is_zero() {
            probes = probes.with_interval(keepalive.interval);
        }
        if keepalive.count > 0 {
            probes = probes.with_retries(keepalive.count);
        }
        socket.set_tcp_keepalive(&probes)?;
    }
    if !keepalive.user_timeout.is_zero() {
        socket.set_tcp_user_timeout(Some(keepalive.user_timeout))?;
    }
    Ok(())
}

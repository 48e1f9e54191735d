//! From an address to a connection that may be lent.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use causeway_protocol::buffer::Buffer;
use causeway_tls::{Attempt, PlainSocket, ServerStream, TlsClient};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::config::{Config, Keepalive};
use crate::conn::{Encryption, Opened, Route};
use crate::error::ConnectError;
use crate::login;

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
        if let (Some(tls), Address::Tcp { host, .. }) = (&config.tls, &config.address) {
            return encrypted(config, (tls, host), begun_at).await;
        }
        let Dialed { stream, peer } = dial(&config.address, deadline).await?;
        start(config, stream, Route { peer, encryption: None }, begun_at).await
    };
    timeout_at(deadline, attempt).await.unwrap_or(Err(ConnectError::Timeout))
}

/// Tries the ways of the configured mode until the server has one.
async fn encrypted(
    config: &Config,
    (tls, host): (&TlsClient, &Arc<str>),
    begun_at: Instant,
) -> Result<Opened, ConnectError> {
    let deadline = begun_at + config.connect_timeout;
    let mut failure = ConnectError::Aborted;
    let mut was_plain = false;
    for attempt in tls.attempts() {
        if was_plain && *attempt == Attempt::Plain {
            break;
        }
        let Dialed { mut stream, peer } = dial(&config.address, deadline).await?;
        let outcome = match stream.negotiate(tls, host, *attempt).await {
            Ok(()) => {
                was_plain = stream.session().is_none();
                let encryption = Encryption { client: tls.clone(), host: Arc::clone(host) };
                let encryption = (!was_plain).then(|| Box::new(encryption));
                start(config, stream, Route { peer, encryption }, begun_at).await
            }
            Err(error) => Err(error.into()),
        };
        match outcome {
            // A server that refuses a login for its way says more than one that does not have the other.
            Err(ConnectError::Tls(_)) if failure.is_unwelcome() => {}
            Err(error) if error.is_unwelcome() || matches!(error, ConnectError::Tls(_)) => failure = error,
            done => return done,
        }
    }
    Err(failure)
}

async fn start(
    config: &Config,
    stream: ServerStream,
    route: Route,
    begun_at: Instant,
) -> Result<Opened, ConnectError> {
    if let PlainSocket::Tcp(socket) = stream.socket() {
        keep_alive(socket, config.keepalive)?;
    }
    let line = login::Line { stream, inbound: Buffer::default() };
    login::log_in(config, line, route, begun_at).await
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
                        return Ok(Dialed {
                            stream: ServerStream::over_tcp(socket),
                            peer: (*candidate).into(),
                        });
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
    Ok(Dialed { stream: ServerStream::over_unix(socket), peer: address.clone() })
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

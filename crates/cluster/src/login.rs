//! How to log in at one node, with TLS or without.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_tls::{Attempt, ForeignStream, TlsClient, TlsError};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::tls::{self, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Connection, Socket};

use crate::config::{Monitor, NodeConfig};
use crate::error::ProbeError;

/// How to log in at one node.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    config: tokio_postgres::Config,
    /// `None` also for a Unix socket.
    tls: Option<TlsClient>,
}

/// Begins TLS where a library opens the connection.
#[derive(Clone, Debug)]
pub(crate) struct Connector(Option<TlsClient>);

/// The same for one server.
pub(crate) struct HostConnector {
    tls: Option<TlsClient>,
    host: Box<str>,
}

/// An encrypted stream.
pub(crate) struct Encrypted<S>(ForeignStream<S>);

// === impl Login ===

impl Login {
    /// In `database`, for reading only.
    pub(crate) fn new(monitor: &Monitor, node: &NodeConfig, database: &str, timeout: Duration) -> Self {
        let mut config = tokio_postgres::Config::new();
        config.host(&node.host).port(node.port).user(&monitor.user).dbname(database);
        config.application_name("causeway").connect_timeout(timeout);
        // An answer may be long in coming; a peer that does not even acknowledge is gone.
        config.tcp_user_timeout(timeout.saturating_mul(10));
        // The session reads only, and nobody may shadow what it calls.
        config.options("-c default_transaction_read_only=on -c search_path=pg_catalog");
        if let Some(password) = &monitor.password {
            config.password(password.expose_secret());
        }
        let tls = node.tls.clone().filter(|_| !node.host.starts_with('/'));
        if tls.as_ref().is_some_and(TlsClient::requires_binding) {
            config.channel_binding(ChannelBinding::Require);
        }
        Self { config, tls }
    }

    /// The same with other options for the session.
    #[must_use]
    pub(crate) fn with_options(mut self, options: &str) -> Self {
        self.config.options(options);
        self
    }

    /// The ways to connect, to be tried in order while [`is_unwelcome`].
    pub(crate) fn ways(&self) -> impl Iterator<Item = (tokio_postgres::Config, Connector)> + '_ {
        let attempts = self.tls.as_ref().map_or(&[Attempt::Plain][..], TlsClient::attempts);
        attempts.iter().map(|attempt| {
            let mut config = self.config.clone();
            config.ssl_mode(match attempt {
                Attempt::Plain => SslMode::Disable,
                Attempt::IfOffered => SslMode::Prefer,
                Attempt::Encrypted => SslMode::Require,
            });
            (config, Connector(self.tls.clone()))
        })
    }

    /// Connects and logs in. Cancel-safe: nothing is left of it.
    pub(crate) async fn connect(
        &self,
    ) -> Result<(Client, Connection<Socket, Encrypted<Socket>>), ProbeError> {
        let mut failure = ProbeError::Closed;
        for (config, connector) in self.ways() {
            match config.connect(connector).await {
                Err(error) if is_unwelcome(&error) => failure = error.into(),
                done => return Ok(done?),
            }
        }
        Err(failure)
    }
}

/// Whether a server's rules have no place for such a connection (28000), as where they ask for TLS or for none; or TLS
/// has failed.
pub(crate) fn is_unwelcome(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => code.code() == "28000",
        // All others have the system's error, or none.
        None => error.source().is_some_and(|cause| cause.downcast_ref::<io::Error>().is_none()),
    }
}

// === impl Connector ===

impl Connector {
    /// For the server called `host`.
    pub(crate) fn to(&self, host: &str) -> HostConnector {
        HostConnector { tls: self.0.clone(), host: host.into() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = HostConnector;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostConnector, TlsError> {
        Ok(self.to(host))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for HostConnector {
    type Stream = Encrypted<S>;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted<S>, TlsError>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Self { tls, host } = self;
            // Nobody begins TLS on a way without.
            let tls = tls.ok_or(TlsError::NotOffered)?;
            ForeignStream::connect(&tls, &host, stream).await.map(Encrypted)
        })
    }
}

// === impl Encrypted ===

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> tls::ChannelBinding {
        let hash = self.0.session().end_point();
        hash.map_or_else(tls::ChannelBinding::none, tls::ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl<S> fmt::Debug for Encrypted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encrypted").field(&self.0).finish()
    }
}

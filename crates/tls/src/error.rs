//! Why there is no TLS.

use std::io;

/// A TLS session that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The socket failed.
    #[error("the connection broke during the TLS handshake: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("the other side left during the TLS handshake")]
    Left,
    /// The two did not agree, or one did not believe the other.
    #[error("TLS handshake failed: {0}")]
    Handshake(#[from] rustls::Error),
    /// The server has no TLS, and it is not to be done without.
    #[error("the server offers no TLS")]
    NotOffered,
    /// The server said something else than yes or no. It is not shown: whoever it was that spoke had no need to prove who
    /// it is (CVE-2024-10977).
    #[error("the server answered the request for TLS with neither yes nor no")]
    Answer,
    /// It spoke before it was spoken to.
    #[error("the server sent data before it was asked for any")]
    Unasked,
    /// What the server is called cannot stand in a certificate.
    #[error("a server called \"{0}\" can have no certificate")]
    Name(Box<str>),
    /// The client did not say that it means this protocol.
    #[error("a client that begins with TLS has to ask for \"postgresql\" by ALPN")]
    NoAlpn,
}

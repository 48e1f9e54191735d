//! The sockets of both sides, with TLS or without: bytes are read into buffers that are lent while they are in flight,
//! and TLS is the library's without buffers of its own.
//!
//! A [`Stream`] leads to a client ([`ClientStream`]) or to a server ([`ServerStream`]). What is written to it counts as
//! written when it is on the socket, with TLS too.

#![forbid(unsafe_code)]

pub mod buffers;
mod client;
mod error;
mod foreign;
mod identity;
mod incoming;
mod server;
mod session;
mod socket;
mod stream;
mod verify;
pub mod x509;

use rustls::crypto::{CryptoProvider, ring};

pub use self::client::{Attempt, ClientOptions, Mode, TlsClient};
pub use self::error::TlsError;
pub use self::foreign::ForeignStream;
pub use self::identity::{CertificateChain, CertificateError, PrivateKey};
pub use self::server::{TlsInfo, TlsServer};
pub use self::session::{ClientSession, ServerSession, Side, TlsSession};
pub use self::socket::{PlainSocket, RawSocket, Socket};
pub use self::stream::{ClientStream, ServerStream, Stream};
pub use self::verify::{Authorities, Revocations};

/// What clients may, and those that begin with TLS must, name as the protocol inside (`PG_ALPN_PROTOCOL` in
/// `src/include/libpq/pqcomm.h`).
const ALPN: &[u8] = b"postgresql";

fn provider() -> CryptoProvider {
    ring::default_provider()
}

//! Why a checkout gave no lease.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_protocol::handshake::client::LoginError;
use causeway_tls::TlsError;

/// Why [`Pool::checkout`](crate::Pool::checkout) gave no lease.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The deadline passed in the queue.
    #[error("no server connection became free within {} ms", waited.as_millis())]
    Timeout {
        /// How long the checkout waited.
        waited: Duration,
    },
    /// The queue is full; the checkout did not wait.
    #[error("too many checkouts are waiting for a server connection: {waiters}")]
    QueueFull {
        /// How many are waiting.
        waiters: usize,
    },
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
    /// A connection had to be opened and could not be.
    #[error("could not open a server connection")]
    Connect(#[source] ConnectError),
}

/// Why a connection could not be opened.
///
/// Cheap to clone: one failure may be told to several waiters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name could not be resolved, or the server not reached, or the connection broke.
    #[error("input or output failed")]
    Io {
        /// What the system said.
        #[source]
        cause: Arc<io::Error>,
    },
    /// It took longer than the connect timeout.
    #[error("the connect timeout passed")]
    Timeout,
    /// There is no TLS where there has to be, or the server is not whom it should be.
    #[error(transparent)]
    Tls(Arc<TlsError>),
    /// The server refused the login. The body of its `ErrorResponse`, as it was sent, so that it can be forwarded.
    #[error("the server refused the login")]
    Refused(Arc<[u8]>),
    /// The server did not keep to the protocol, or asked for what is not supported.
    #[error("the handshake failed")]
    Handshake(#[source] Arc<LoginError>),
    /// The server is not the one that was expected.
    #[error("the server was not accepted: {0}")]
    Verification(Box<str>),
    /// The connecting task ended early, because it panicked or its runtime shut down.
    #[error("connecting was aborted")]
    Aborted,
}

// === impl ConnectError ===

impl ConnectError {
    /// The five characters of the refusal's SQLSTATE, if the server refused and sent one.
    pub fn sqlstate(&self) -> Option<&[u8]> {
        let Self::Refused(body) = self else { return None };
        body.split(|&byte| byte == 0)
            .find_map(|field| field.strip_prefix(b"C"))
            .filter(|code| code.len() == 5)
    }

    /// Whether the server's rules have no place for such a connection (28000), as where they ask for TLS or for none. A
    /// wrong password has another code.
    pub(crate) fn is_unwelcome(&self) -> bool {
        self.sqlstate() == Some(b"28000")
    }

    /// Whether the server merely has no room for one more connection (`too_many_connections`, 53300).
    pub(crate) fn is_server_full(&self) -> bool {
        self.sqlstate() == Some(b"53300")
    }
}

impl From<TlsError> for ConnectError {
    fn from(cause: TlsError) -> Self {
        match cause {
            TlsError::Io(cause) => cause.into(),
            cause => Self::Tls(Arc::new(cause)),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(cause: io::Error) -> Self {
        Self::Io { cause: Arc::new(cause) }
    }
}

impl From<LoginError> for ConnectError {
    fn from(cause: LoginError) -> Self {
        match cause {
            LoginError::Refused(body) => Self::Refused(body.as_bytes().into()),
            cause => Self::Handshake(Arc::new(cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sqlstate_is_read_from_the_refusal() {
        let refused =
            ConnectError::Refused(b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0"[..].into());
        assert_eq!(refused.sqlstate(), Some(&b"53300"[..]));
        assert!(refused.is_server_full());
        assert_eq!(ConnectError::Refused(b"SFATAL\0C28\0\0"[..].into()).sqlstate(), None);
        assert_eq!(ConnectError::Timeout.sqlstate(), None);
    }
}

//! TLS towards servers: whether it is wanted, whom to believe, and what to show.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use sha2::{Digest as _, Sha256};

use crate::identity::{CertificateChain, CertificateError, PrivateKey, certified};
use crate::verify::{Authorities, Revocations, Verifier};
use crate::{ALPN, provider};

/// Whether TLS is wanted and what it has to prove: libpq's `sslmode`, less `disable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Where the server refuses a login without.
    Allow,
    /// Where the server has it, and does not refuse the login for it.
    Prefer,
    /// Always; with authorities, as [`Self::VerifyCa`].
    Require,
    /// Always, with a certificate that an authority vouches for.
    VerifyCa,
    /// The same, and the certificate has to be for the server's name or address.
    VerifyFull,
}

/// One way to connect; the next is tried where the server will not have this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Without TLS.
    Plain,
    /// With TLS if the server offers it.
    IfOffered,
    /// With TLS.
    Encrypted,
}

/// What [`TlsClient`] is made from.
#[derive(Debug)]
pub struct ClientOptions {
    /// Whether it is wanted.
    pub mode: Mode,
    /// Whom to believe; needed by the two strictest modes.
    pub authorities: Option<Authorities>,
    /// Which certificates are no longer valid.
    pub revocations: Option<Revocations>,
    /// What is shown to servers that ask who is there.
    pub identity: Option<(CertificateChain, PrivateKey)>,
    /// Whether the server has to prove by SCRAM that it is at the other end of this very session.
    pub require_binding: bool,
}

/// Everything that is needed for TLS with servers. Clones, and those made of equal files, are the same.
#[derive(Clone)]
pub struct TlsClient {
    mode: Mode,
    require_binding: bool,
    config: Arc<ClientConfig>,
    digest: [u8; 32],
}

// === impl Mode ===

impl Mode {
    /// The word used in YAML.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

// === impl TlsClient ===

impl TlsClient {
    /// A client of TLS 1.2 and 1.3.
    ///
    /// # Errors
    ///
    /// When certificate and key are of different pairs, or the authorities can't be used.
    pub fn new(options: ClientOptions) -> Result<Self, CertificateError> {
        let ClientOptions { mode, authorities, revocations, identity, require_binding } = options;
        let mut hash = Sha256::new();
        hash.update(mode.as_str());
        hash.update([u8::from(require_binding)]);
        for (kind, certificates) in [
            (b'a', authorities.as_ref().map(Authorities::certificates)),
            (b'i', identity.as_ref().map(|(chain, _)| chain.0.as_slice())),
        ] {
            for certificate in certificates.unwrap_or_default() {
                hash.update([kind]);
                hash.update(Sha256::digest(certificate));
            }
        }
        for list in revocations.iter().flat_map(Revocations::lists) {
            hash.update(b"r");
            hash.update(Sha256::digest(list));
        }
        let provider = Arc::new(provider());
        let verifier = Verifier::new(mode, authorities, revocations, Arc::clone(&provider))?;
        let other = |error: rustls::Error| CertificateError::Other(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let identity = certified(chain, key)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        // PostgreSQL takes no session up again, and a certificate is to be looked at each time.
        config.resumption = Resumption::disabled();
        Ok(Self { mode, require_binding, config: Arc::new(config), digest: hash.finalize().into() })
    }

    /// The ways to connect over TCP, in order.
    pub fn attempts(&self) -> &'static [Attempt] {
        match self.mode {
            Mode::Allow => &[Attempt::Plain, Attempt::Encrypted],
            Mode::Prefer => &[Attempt::IfOffered, Attempt::Plain],
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[Attempt::Encrypted],
        }
    }

    /// Whether the login has to be bound to the session by SCRAM-SHA-256-PLUS.
    pub fn requires_binding(&self) -> bool {
        self.require_binding
    }

    /// Whether TLS is wanted.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for TlsClient {}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

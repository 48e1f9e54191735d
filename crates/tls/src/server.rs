//! TLS towards clients: what they are shown, and what was agreed with a peer.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::SingleCertAndKey;
use rustls::{CipherSuite, CommonState, NamedGroup, ProtocolVersion};

use crate::identity::{CertificateChain, CertificateError, PrivateKey, certified};
use crate::{ALPN, provider, x509};

/// Everything that is needed to end clients' TLS. Clones are the same.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    chain: Arc<[CertificateDer<'static>]>,
    end_point: Option<Arc<[u8]>>,
}

/// What was agreed with a peer, in IANA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    version: NonZeroU16,
    suite: u16,
    /// Zero for a resumed TLS 1.2 session, which exchanges no key.
    group: u16,
}

// === impl TlsServer ===

impl TlsServer {
    /// Serves TLS 1.2 and 1.3 with this certificate.
    ///
    /// # Errors
    ///
    /// When certificate and key are of different pairs, or can't be served.
    pub fn new(chain: CertificateChain, key: PrivateKey) -> Result<Self, CertificateError> {
        let identity = certified(chain, key)?;
        let shown: Arc<[CertificateDer<'static>]> = identity.cert.as_slice().into();
        let other = |error: rustls::Error| CertificateError::Other(error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Sessions are resumed from what the client keeps: nothing is stored, and no lock taken, for those that don't.
        config.ticketer = Ticketer::new().map_err(other)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // One ticket for each connection: a client resumes as many sessions as it has closed.
        config.send_tls13_tickets = 1;
        let end_point = shown.first().and_then(|own| x509::end_point(own)).map(Into::into);
        Ok(Self { config: Arc::new(config), chain: shown, end_point })
    }

    /// What clients may bind a SCRAM exchange to (`tls-server-end-point`, RFC 5929); `None` for a certificate whose
    /// signature has no one hash (Ed25519).
    pub fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// Whether both show the same certificates, and so have the same key.
    pub fn shows_same(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

// === impl TlsInfo ===

impl TlsInfo {
    /// What `connection` has agreed on; `None` while it has not.
    pub(crate) fn of(connection: &CommonState) -> Option<Self> {
        let suite = connection.negotiated_cipher_suite()?;
        let group = connection.negotiated_key_exchange_group().map_or(0, |group| u16::from(group.name()));
        let version = NonZeroU16::new(u16::from(connection.protocol_version()?))?;
        Some(Self { version, suite: u16::from(suite.suite()), group })
    }
}

/// As PgBouncer's column `tls`: `TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519`.
impl fmt::Display for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match ProtocolVersion::from(self.version.get()) {
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLS",
        };
        let suite = CipherSuite::from(self.suite);
        // The library tells the suites of TLS 1.3 apart by a name that is not IANA's.
        let suite = suite.as_str().unwrap_or("unknown").replace("TLS13_", "TLS_");
        write!(f, "{version}/{suite}")?;
        match (self.group, NamedGroup::from(self.group)) {
            (0, _) => Ok(()),
            (_, NamedGroup::secp256r1) => f.write_str("/ECDH=prime256v1"),
            (_, group) => write!(f, "/ECDH={}", group.as_str().unwrap_or("unknown")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! TLS towards clients: what they are shown, and what was agreed with one.

pub(crate) mod session;

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, Ticketer};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{CipherSuite, CommonState, InconsistentKeys, NamedGroup, ProtocolVersion};

/// What clients may, and those that begin with TLS must, name as the protocol inside (`PG_ALPN_PROTOCOL` in
/// `src/include/libpq/pqcomm.h`).
pub(crate) const ALPN: &[u8] = b"postgresql";

/// A server's own certificate, and those that lead from it to one that clients know.
#[derive(Clone, Debug)]
pub struct CertificateChain(Vec<CertificateDer<'static>>);

/// The key that belongs to a server's certificate.
#[derive(Clone)]
pub struct PrivateKey(Arc<dyn SigningKey>);

/// Everything that is needed to end clients' TLS. Clones are the same.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    chain: Arc<[CertificateDer<'static>]>,
}

/// What was agreed with a client, in IANA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    version: NonZeroU16,
    suite: u16,
    /// Zero for a resumed TLS 1.2 session, which exchanges no key.
    group: u16,
}

/// A certificate or key that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file of the certificate has none.
    #[error("there is no certificate in it: expected PEM, \"-----BEGIN CERTIFICATE-----\"")]
    NoCertificate,
    /// What looks like one is broken.
    #[error("not a certificate: {0}")]
    Certificate(String),
    /// The file of the key has none.
    #[error("there is no private key in it: expected PEM, \"-----BEGIN PRIVATE KEY-----\"")]
    NoKey,
    /// Nobody is there to be asked for a passphrase.
    #[error(
        "the private key is encrypted: write it without a passphrase, with `openssl pkey -in OLD -out NEW`, and let \
         nobody else read it"
    )]
    EncryptedKey,
    /// What looks like a key is broken, or of a kind that is not served.
    #[error("not a private key that can be used (RSA from 2048 bits, ECDSA P-256 or P-384, Ed25519): {0}")]
    Key(String),
    /// They are of different pairs.
    #[error(
        "the private key does not belong to the first certificate of the certificate file, which must be the server's \
         own"
    )]
    Mismatch,
    /// The TLS library refuses to serve with it.
    #[error("cannot be served: {0}")]
    Other(String),
}

// === impl CertificateChain ===

impl CertificateChain {
    /// The certificates of a PEM file, the server's own first.
    ///
    /// # Errors
    ///
    /// When there is none, or one is broken.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
        let chain = found.map_err(|error| CertificateError::Certificate(error.to_string()))?;
        if chain.is_empty() { Err(CertificateError::NoCertificate) } else { Ok(Self(chain)) }
    }
}

// === impl PrivateKey ===

impl PrivateKey {
    /// The first private key of a PEM file: PKCS #8, PKCS #1 (RSA) or SEC 1 (EC).
    ///
    /// # Errors
    ///
    /// When there is none, or it can't be used.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let says = |words: &[u8]| memchr::memmem::find(text, words).is_some();
        if says(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || says(b"Proc-Type: 4,ENCRYPTED") {
            return Err(CertificateError::EncryptedKey);
        }
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            pem::Error::NoItemsFound => CertificateError::NoKey,
            other => CertificateError::Key(other.to_string()),
        })?;
        let loaded = provider().key_provider.load_private_key(key);
        loaded.map(Self).map_err(|error| CertificateError::Key(error.to_string()))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

// === impl TlsServer ===

impl TlsServer {
    /// Serves TLS 1.2 and 1.3 with this certificate.
    ///
    /// # Errors
    ///
    /// When certificate and key are of different pairs, or can't be served.
    pub fn new(chain: CertificateChain, key: PrivateKey) -> Result<Self, CertificateError> {
        let shown: Arc<[_]> = chain.0.as_slice().into();
        let certified = CertifiedKey::new(chain.0, key.0);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(CertificateError::Mismatch),
            Err(error) => return Err(CertificateError::Certificate(error.to_string())),
        }
        let other = |error: rustls::Error| CertificateError::Other(error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Sessions are resumed from what the client keeps: nothing is stored, and no lock taken, for those that don't.
        config.ticketer = Ticketer::new().map_err(other)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // One ticket for each connection: a client resumes as many sessions as it has closed.
        config.send_tls13_tickets = 1;
        Ok(Self { config: Arc::new(config), chain: shown })
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

fn provider() -> CryptoProvider {
    ring::default_provider()
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
mod tests;

//! What either side shows to prove who it is: certificates, and the key that belongs to the first of them.

use std::fmt;
use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use crate::provider;

/// A server's own certificate, and those that lead from it to one that clients know.
#[derive(Clone, Debug)]
pub struct CertificateChain(pub(crate) Vec<CertificateDer<'static>>);

/// The key that belongs to a server's certificate.
#[derive(Clone)]
pub struct PrivateKey(Arc<dyn SigningKey>);

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
    /// What looks like a list of revoked certificates is broken.
    #[error("not a list of revoked certificates: {0}")]
    Revocations(String),
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

/// The two as one, if they are a pair.
pub(crate) fn certified(chain: CertificateChain, key: PrivateKey) -> Result<CertifiedKey, CertificateError> {
    let certified = CertifiedKey::new(chain.0, key.0);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(CertificateError::Mismatch),
        Err(error) => Err(CertificateError::Certificate(error.to_string())),
    }
}

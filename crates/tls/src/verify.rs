//! Whether a server is whom we want to talk to.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::client::Mode;
use crate::identity::CertificateError;
use crate::x509;

/// Who vouches for the other side's certificate.
#[derive(Clone, Debug)]
pub struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
}

/// Certificates that are no longer valid, as their authorities list them.
#[derive(Clone, Debug)]
pub struct Revocations(Vec<CertificateRevocationListDer<'static>>);

/// Judges servers as libpq does in its modes.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// `None`: whoever has the key of the certificate that is shown will do.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that need nobody to vouch for them.
    pinned: Vec<CertificateDer<'static>>,
    by_name: bool,
    provider: Arc<CryptoProvider>,
}

// === impl Authorities ===

impl Authorities {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    ///
    /// When there is none, or one is broken.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = found.map_err(|error| CertificateError::Certificate(error.to_string()))?;
        if certificates.is_empty() {
            return Err(CertificateError::NoCertificate);
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let added = roots.add(certificate.clone());
            added.map_err(|error| CertificateError::Certificate(error.to_string()))?;
        }
        Ok(Self { certificates, roots: Arc::new(roots) })
    }

    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }
}

// === impl Revocations ===

impl Revocations {
    /// The lists of a PEM file.
    ///
    /// # Errors
    ///
    /// When there is none, or one is broken.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let found: Result<Vec<_>, pem::Error> = CertificateRevocationListDer::pem_slice_iter(text).collect();
        let lists = found.map_err(|error| CertificateError::Revocations(error.to_string()))?;
        if lists.is_empty() {
            return Err(CertificateError::Revocations(
                "expected PEM, \"-----BEGIN X509 CRL-----\"".to_owned(),
            ));
        }
        Ok(Self(lists))
    }

    pub(crate) fn lists(&self) -> &[CertificateRevocationListDer<'static>] {
        &self.0
    }
}

// === impl Verifier ===

impl Verifier {
    pub(crate) fn new(
        mode: Mode,
        authorities: Option<Authorities>,
        revocations: Option<Revocations>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        // libpq: with a root certificate at hand, `require` is `verify-ca`; what is weaker looks at nothing.
        let verifies = matches!(mode, Mode::Require | Mode::VerifyCa | Mode::VerifyFull);
        let by_name = mode == Mode::VerifyFull;
        let Some(authorities) = authorities.filter(|_| verifies) else {
            return match mode {
                Mode::VerifyCa | Mode::VerifyFull => Err(CertificateError::NoCertificate),
                _ => Ok(Self { chain: None, pinned: Vec::new(), by_name, provider }),
            };
        };
        let mut builder =
            WebPkiServerVerifier::builder_with_provider(authorities.roots(), Arc::clone(&provider));
        if let Some(Revocations(lists)) = revocations {
            // As OpenSSL: a list that is out of date, or missing for an issuer, is no proof of anything.
            builder = builder.with_crls(lists).enforce_revocation_expiration();
        }
        let chain = builder.build().map_err(|error| CertificateError::Other(error.to_string()))?;
        Ok(Self { chain: Some(chain), pinned: authorities.certificates, by_name, provider })
    }

    /// A certificate that is among the authorities itself: the usual thing where a server signs for itself, and nothing
    /// the library would take.
    fn is_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        self.pinned.iter().any(|pinned| pinned == certificate)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.is_pinned(end_entity) {
            in_time(end_entity, now)?;
            if self.by_name {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last: everything else is proven.
            Err(Error::InvalidCertificate(
                rustls::CertificateError::NotValidForName
                | rustls::CertificateError::NotValidForNameContext { .. },
            )) if !self.by_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn in_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = x509::validity(certificate).ok_or(rustls::CertificateError::BadEncoding)?;
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before {
        return Err(rustls::CertificateError::NotValidYet.into());
    }
    if now > validity.not_after { Err(rustls::CertificateError::Expired.into()) } else { Ok(()) }
}

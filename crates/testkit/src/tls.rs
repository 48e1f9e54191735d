//! Certificates of the test's own, and the client's side of TLS.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs;
use std::hash::BuildHasher as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Signs certificates (ECDSA P-256) that only its own clients trust.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// How a client does TLS. Those made of one value share what they remember for resuming sessions.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl Authority {
    /// A new one with a key of its own.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters of an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two of one name would be taken for one, whose signatures are broken.
        let name = format!("authority {:016x} of the tests", RandomState::new().hash_one(0));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("a certificate of an authority");
        Self { issuer }
    }

    /// The certificate that clients have to trust, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for `localhost` and 127.0.0.1, and its key, in PEM.
    pub fn issue(&self) -> (String, String) {
        self.issue_for(&["localhost", "127.0.0.1"])
    }

    /// A certificate for these names and addresses, and its key, in PEM.
    pub fn issue_for(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (params, key) = (CertificateParams::new(names).expect("names"), key());
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// A certificate for a client called `name`, and its key, in PEM.
    pub fn issue_to(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters of a client");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes `ca.pem`, `server.pem` and `server.key`, the last for nobody else to read, over what was there. Gives the
    /// section `tls` that names the two.
    pub fn write_files(&self, directory: &Path) -> String {
        let (certificate, key) = self.issue();
        write(&directory.join("ca.pem"), &self.pem());
        write(&directory.join("server.pem"), &certificate);
        write(&directory.join("server.key"), &key);
        let mut yaml = String::from("tls:\n");
        for (name, file) in [("cert_file", "server.pem"), ("key_file", "server.key")] {
            writeln!(yaml, "  {name}: \"{}\"", directory.join(file).display()).expect("a String takes it");
        }
        yaml
    }

    /// Clients that trust this authority, of TLS 1.3 if they may choose.
    pub fn client(&self) -> Tls {
        self.client_with(&[&TLS13, &TLS12])
    }

    /// Clients of TLS 1.2.
    pub fn old_client(&self) -> Tls {
        self.client_with(&[&TLS12])
    }

    fn client_with(&self, versions: &[&'static tokio_rustls::rustls::SupportedProtocolVersion]) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("the authority's certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions that ring has")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Tls { config: Arc::new(config) }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Tls {
    /// Clients that name these protocols by ALPN.
    #[must_use]
    pub fn alpn(&self, protocols: &[&str]) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self { config: Arc::new(config) }
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.config))
    }
}

/// Whom the certificates are for.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key")
}

/// Writes a file for nobody else to read, over what was there.
pub fn write(path: &Path, text: &str) {
    // A file keeps the mode with which it was made.
    if let Err(error) = fs::remove_file(path) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", path.display());
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|error| panic!("writing {}: {error}", path.display()));
}

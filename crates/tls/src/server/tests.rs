use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::{CertificateChain, CertificateError, PrivateKey};

/// A certificate that signs itself, and its key, in PEM.
pub(crate) fn pair() -> (String, String) {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn server(certificate: &str, key: &str) -> Result<TlsServer, CertificateError> {
    TlsServer::new(CertificateChain::from_pem(certificate.as_bytes())?, PrivateKey::from_pem(key.as_bytes())?)
}

#[test]
fn a_pair_serves() {
    let (certificate, key) = pair();
    let one = server(&certificate, &key).unwrap();
    assert!(one.shows_same(&server(&certificate, &key).unwrap()));
    // Both in one file, and more certificates behind the server's own.
    let (second, second_key) = pair();
    let both = format!("{key}{certificate}{second}");
    let longer = server(&both, &both).unwrap();
    assert!(!one.shows_same(&longer));
    assert_eq!(server(&both, &second_key).unwrap_err(), CertificateError::Mismatch);
    assert_eq!(format!("{longer:?}"), "TlsServer { certificates: 2, .. }");
}

#[test]
fn what_cannot_serve_says_why() {
    let (certificate, key) = pair();
    let cases = [
        ("", &*key, "there is no certificate in it"),
        (&*key, &*key, "there is no certificate in it"),
        (&*certificate, "", "there is no private key in it"),
        (&*certificate, &*certificate, "there is no private key in it"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", &*key, "not a certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &*key, "not a certificate"),
        (
            &*certificate,
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "not a private key",
        ),
        (
            &*certificate,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "is encrypted",
        ),
        (
            &*certificate,
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC \
             PRIVATE KEY-----\n",
            "is encrypted",
        ),
    ];
    for (certificate, key, problem) in cases {
        let error = server(certificate, key).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_was_agreed_reads_as_in_other_poolers() {
    let info = |version, suite, group| {
        let version = NonZeroU16::new(u16::from(version)).unwrap();
        TlsInfo { version, suite: u16::from(suite), group }.to_string()
    };
    let (tls12, tls13) = (ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3);
    let group = |group: NamedGroup| u16::from(group);
    assert_eq!(
        info(tls13, CipherSuite::TLS13_AES_256_GCM_SHA384, group(NamedGroup::X25519)),
        "TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519"
    );
    assert_eq!(
        info(tls12, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, group(NamedGroup::secp256r1)),
        "TLSv1.2/TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256/ECDH=prime256v1"
    );
    assert_eq!(
        info(tls12, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, 0),
        "TLSv1.2/TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    );
}

use std::net::Ipv4Addr;

use causeway_protocol::buffer::Buffer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::{ClientStream, ServerStream, TlsServer};

/// How much is sent there and back: several records.
const LENGTH: usize = 200_000;

struct Authority(CertifiedIssuer<'static, KeyPair>);

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, key()).unwrap())
    }

    fn authorities(&self) -> Authorities {
        Authorities::from_pem(self.0.pem().as_bytes()).unwrap()
    }

    fn issue(&self, name: &str) -> (CertificateChain, PrivateKey) {
        let key = key();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0);
        pair(&certificate.unwrap().pem(), &key)
    }
}

fn pair(pem: &str, key: &KeyPair) -> (CertificateChain, PrivateKey) {
    let key = PrivateKey::from_pem(key.serialize_pem().as_bytes()).unwrap();
    (CertificateChain::from_pem(pem.as_bytes()).unwrap(), key)
}

fn client(mode: Mode, authorities: Option<Authorities>) -> TlsClient {
    TlsClient::new(ClientOptions {
        mode,
        authorities,
        revocations: None,
        identity: None,
        require_binding: false,
    })
    .unwrap()
}

/// Shakes hands with a server that shows `shown`, and has what it sends sent back.
async fn meet(client: &TlsClient, shown: (CertificateChain, PrivateKey), host: &str) -> Result<(), String> {
    let server = TlsServer::new(shown.0, shown.1).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = async {
        let mut stream = ClientStream::over_tcp(listener.accept().await.unwrap().0);
        let mut input = Buffer::default();
        if stream.start_tls(&server, &mut input).await.is_err() {
            return;
        }
        while input.len() < LENGTH && stream.fill(&mut input).await.is_ok_and(|read| read > 0) {}
        drop(stream.send_all(input.filled()).await);
    };
    let asking = async {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let mut stream = ServerStream::over_tcp(socket);
        stream.start_tls(client, host).await.map_err(|error| error.to_string())?;
        assert!(stream.session().unwrap().is_postgresql() && stream.session().unwrap().end_point().is_some());
        let long = vec![b'x'; LENGTH];
        stream.send_all(&long).await.unwrap();
        let mut answer = Buffer::default();
        while stream.fill(&mut answer).await.unwrap() > 0 {}
        assert_eq!(answer.filled(), long);
        Ok(())
    };
    tokio::join!(serving, asking).1
}

#[tokio::test]
async fn modes() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let trusting = |mode| client(mode, Some(ours.authorities()));
    for (client, shown, host, outcome) in [
        (client(Mode::Require, None), other.issue("pg"), "pg", ""),
        (client(Mode::Prefer, Some(ours.authorities())), other.issue("pg"), "pg", ""),
        (trusting(Mode::Require), ours.issue("pg"), "elsewhere", ""),
        // With a root certificate at hand.
        (trusting(Mode::Require), other.issue("pg"), "pg", "UnknownIssuer"),
        (trusting(Mode::VerifyCa), ours.issue("pg"), "elsewhere", ""),
        (trusting(Mode::VerifyCa), other.issue("pg"), "pg", "UnknownIssuer"),
        (trusting(Mode::VerifyFull), ours.issue("pg"), "pg", ""),
        (trusting(Mode::VerifyFull), ours.issue("10.0.0.1"), "10.0.0.1", ""),
        (trusting(Mode::VerifyFull), ours.issue("pg"), "elsewhere", "not valid for name"),
        (trusting(Mode::VerifyFull), other.issue("elsewhere"), "elsewhere", "UnknownIssuer"),
        (trusting(Mode::VerifyFull), ours.issue("pg"), "no name", "can have no certificate"),
    ] {
        let met = meet(&client, shown, host).await;
        match (&met, outcome) {
            (Ok(()), "") => {}
            (Err(error), part) if !part.is_empty() => assert!(error.contains(part), "{client:?}: {error}"),
            _ => panic!("{client:?}, {host}: {met:?}, expected {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_signs_for_itself_is_believed_where_it_is_listed() {
    let key = key();
    let mut params = CertificateParams::new(vec!["pg".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.clone().self_signed(&key).unwrap();
    let listed = Some(Authorities::from_pem(certificate.pem().as_bytes()).unwrap());
    let full = client(Mode::VerifyFull, listed);
    meet(&full, pair(&certificate.pem(), &key), "pg").await.unwrap();
    let wrong = meet(&full, pair(&certificate.pem(), &key), "elsewhere").await.unwrap_err();
    assert!(wrong.contains("not valid for name"), "{wrong}");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = params.self_signed(&key).unwrap();
    let listed = Some(Authorities::from_pem(expired.pem().as_bytes()).unwrap());
    let error = meet(&client(Mode::VerifyCa, listed), pair(&expired.pem(), &key), "pg").await.unwrap_err();
    assert!(error.contains("Expired"), "{error}");
}

#[test]
fn equal_files_make_equal_clients() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let one = client(Mode::VerifyCa, Some(ours.authorities()));
    assert_eq!(one, client(Mode::VerifyCa, Some(ours.authorities())));
    assert_ne!(one, client(Mode::VerifyFull, Some(ours.authorities())));
    assert_ne!(one, client(Mode::VerifyCa, Some(other.authorities())));
    let with = |identity| {
        let authorities = Some(ours.authorities());
        let options = ClientOptions {
            mode: Mode::VerifyCa,
            authorities,
            revocations: None,
            identity,
            require_binding: false,
        };
        TlsClient::new(options).unwrap()
    };
    assert_ne!(one, with(Some(ours.issue("client"))));
    let strict = ClientOptions {
        mode: Mode::VerifyFull,
        authorities: None,
        revocations: None,
        identity: None,
        require_binding: false,
    };
    assert_eq!(TlsClient::new(strict).unwrap_err(), CertificateError::NoCertificate);
}

use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

use super::*;

fn made(algorithm: &'static rcgen::SignatureAlgorithm, name: DnValue) -> Vec<u8> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(1999, 2, 28);
    params.not_after = date_time_ymd(2096, 2, 29);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "somebody");
    params.distinguished_name.push(DnType::CommonName, name);
    params.self_signed(&KeyPair::generate_for(algorithm).unwrap()).unwrap().der().to_vec()
}

use rcgen::DnValue;

#[test]
fn what_a_certificate_says() {
    let der = made(&rcgen::PKCS_ECDSA_P256_SHA256, "app".into());
    let validity = validity(&der).unwrap();
    // `date -ud 1999-02-28 +%s`, `date -ud 2096-02-29 +%s`
    assert_eq!((validity.not_before.as_secs(), validity.not_after.as_secs()), (920_160_000, 3_981_312_000));
    assert_eq!(common_name(&der).as_deref(), Some("app"));
    assert_eq!(end_point(&der).unwrap(), Sha256::digest(&der).to_vec());
    let der = made(&rcgen::PKCS_ECDSA_P384_SHA384, DnValue::Utf8String("Jürgen".to_owned()));
    assert_eq!(common_name(&der).as_deref(), Some("Jürgen"));
    assert_eq!(end_point(&der).unwrap(), Sha384::digest(&der).to_vec());
    let der = made(&rcgen::PKCS_ED25519, "app\0.example.org".into());
    assert_eq!((common_name(&der), end_point(&der)), (None, None));
}

#[test]
fn hashes_of_signatures() {
    let rsa = |kind| [&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01][..], &[kind]].concat();
    for (kind, hash) in [(4, Hash::Sha256), (5, Hash::Sha256), (11, Hash::Sha256), (13, Hash::Sha512)] {
        assert_eq!(signature_hash(&rsa(kind), None), Some(hash));
    }
    let sha384 = [
        0xA0, 0x0F, 0x30, 0x0D, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00,
    ];
    assert_eq!(signature_hash(&rsa(10), Some(&sha384)), Some(Hash::Sha384));
    assert_eq!(signature_hash(&rsa(10), Some(&[])), Some(Hash::Sha256));
    assert_eq!(signature_hash(&rsa(1), None), None);
}

#[test]
fn times() {
    let time = |kind, text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        Elements(&[&[kind, length], text.as_bytes()].concat()).time().map(|time| time.as_secs())
    };
    assert_eq!(time(UTC_TIME, "700101000000Z"), Some(0));
    assert_eq!(time(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
    assert_eq!(time(UTC_TIME, "500101000000Z"), Some(0));
    assert_eq!(time(GENERALIZED_TIME, "20000301120000Z"), Some(951_912_000));
    assert_eq!(time(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
    for wrong in ["20001301120000Z", "20000300120000Z", "2000030112000Z", "20000301120000", "2000030112+000Z"]
    {
        assert_eq!(time(GENERALIZED_TIME, wrong), None, "{wrong}");
    }
}

proptest! {
    /// Whatever the other side calls a certificate.
    #[test]
    fn anything_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _fields = (validity(&bytes), common_name(&bytes), end_point(&bytes));
    }

    #[test]
    fn what_is_nearly_one_is_answered(at in 0..400_usize, byte in any::<u8>(), len in 0..600_usize) {
        let mut der = made(&rcgen::PKCS_ECDSA_P256_SHA256, "app".into());
        if let Some(changed) = der.get_mut(at) {
            *changed = byte;
        }
        der.truncate(len);
        let _fields = (validity(&der), common_name(&der), end_point(&der));
    }
}

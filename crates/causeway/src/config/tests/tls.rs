//! The section `tls` and its files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::*;

const SECTION: &str = "tls: { cert_file: server.pem, key_file: server.key }\n";

/// A directory with a pair that fits.
pub(super) fn files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = pair();
    write(&directory, "server.pem", &certificate, 0o644);
    write(&directory, "server.key", &key, 0o600);
    directory
}

fn pair() -> (String, String) {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn write(directory: &TempDir, name: &str, text: &str, mode: u32) {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

pub(super) fn read_in(directory: &TempDir, section: &str) -> Result<Config, String> {
    let text = format!("{MINIMAL}{section}");
    let read = parse(&directory.path().join("c.yaml"), &text, &environment);
    read.map_err(|error| error.to_string().replace(directory.path().to_str().unwrap(), ""))
}

#[test]
fn tls_is_for_who_asks_or_for_all() {
    let directory = files();
    assert!(read_in(&directory, "").unwrap().tls.is_none());
    assert_eq!(read_in(&directory, SECTION).unwrap().tls.unwrap().mode, TlsMode::Allow);
    let default = KEYS.iter().find(|key| key.path == "tls.mode").unwrap().default;
    assert_eq!(default, Some("allow"));
    for (word, mode) in [("allow", TlsMode::Allow), ("require", TlsMode::Require)] {
        let section = SECTION.replace(" }", &format!(", mode: {word} }}"));
        assert_eq!(read_in(&directory, &section).unwrap().tls.unwrap().mode, mode);
    }
}

#[test]
fn the_section_is_checked() {
    let directory = files();
    let cases = [
        ("tls: {}", "/c.yaml:6:6: tls: the key `cert_file` is missing"),
        ("tls: { cert_file: server.pem }", "/c.yaml:6:6: tls: the key `key_file` is missing"),
        ("tls: { mode: require }", "/c.yaml:6:6: tls: the key `cert_file` is missing"),
        ("tls: on", "/c.yaml:6:6: tls: expected a map with cert_file and key_file, found text"),
        (
            "tls: { cert_file: server.pem, key_file: server.key, mode: requires }",
            "/c.yaml:6:59: tls.mode: unknown word \"requires\"; did you mean `require`?",
        ),
        (
            "tls: { cert_file: server.pem, key_file: server.key, ca_file: x }",
            "/c.yaml:6:53: tls.ca_file: unknown key; did you mean `cert_file`?",
        ),
        (
            "tls: { cert_file: none.pem, key_file: . }",
            "/c.yaml:6:19: tls.cert_file: none.pem: No such file or directory (os error 2)\n\
             /c.yaml:6:39: tls.key_file: .: not a regular file",
        ),
    ];
    for (section, message) in cases {
        assert_eq!(read_in(&directory, section).unwrap_err(), message, "{section}");
    }
}

#[test]
fn the_files_are_checked() {
    let (other, other_key) = pair();
    let at = |key: &str, column: u32| format!("/c.yaml:6:{column}: tls.{key}_file: server.");
    let cases = [
        ("server.pem", "", at("cert", 19) + "pem: there is no certificate in it"),
        ("server.pem", &*other_key, at("cert", 19) + "pem: there is no certificate in it"),
        (
            "server.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            at("cert", 19) + "pem: not a certificate: ",
        ),
        (
            "server.pem",
            &*other,
            at("key", 41) + "key: the private key does not belong to the first certificate",
        ),
        (
            "server.key",
            &*other_key,
            at("key", 41) + "key: the private key does not belong to the first certificate",
        ),
        ("server.key", "", at("key", 41) + "key: there is no private key in it"),
        (
            "server.key",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            at("key", 41) + "key: the private key is encrypted",
        ),
        (
            "server.key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            at("key", 41) + "key: not a private key that can be used",
        ),
    ];
    for (name, text, message) in cases {
        let directory = files();
        fs::write(directory.path().join(name), text).unwrap();
        let refused = read_in(&directory, SECTION).unwrap_err();
        assert!(refused.starts_with(&message), "{refused}\ninstead of\n{message}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert!(text.is_empty() || !refused.contains("AAAA"), "{refused}");
    }
    // Something else, without end.
    let directory = files();
    let refused = read_in(&directory, "tls: { cert_file: /dev/zero, key_file: server.key }").unwrap_err();
    assert!(refused.ends_with("not a regular file"), "{refused}");
    write(&directory, "server.pem", &"x".repeat(2_000_000), 0o644);
    assert!(read_in(&directory, SECTION).unwrap_err().contains("are too long for a certificate or key"));
}

#[test]
fn the_key_is_nobody_elses_to_read() {
    let directory = files();
    let root = rustix::process::geteuid().is_root();
    let path = directory.path().join("server.key");
    let with_mode = |mode: u32| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        read_in(&directory, SECTION).map(drop)
    };
    for mode in [0o600, 0o400, 0o700] {
        assert_eq!(with_mode(mode), Ok(()), "{mode:o}");
    }
    for mode in [0o644, 0o604, 0o660, 0o650, 0o666, 0o602, 0o601] {
        let refused = with_mode(mode).unwrap_err();
        let words = format!("the private key has mode {mode:04o}: others could read it; run `chmod 06");
        assert!(refused.contains(&words), "{refused}");
    }
    // A group that may read what root owns is the way to share it with other programs.
    assert_eq!(with_mode(0o640).is_ok(), root);
    if root {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let refused = with_mode(0o600).unwrap_err();
        assert!(refused.contains("belongs to the user with id 12345"), "{refused}");
    }
}

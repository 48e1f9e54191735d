use super::*;
use crate::encode;

fn packet(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::startup(&mut out, parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    out[4..8].copy_from_slice(&version.to_be_bytes());
    out
}

fn startup(version: u32, parameters: &[(&str, &str)]) -> Result<Startup, StartupError> {
    let bytes = packet(version, parameters);
    match parse(&bytes)? {
        Some((Packet::Startup(startup), len)) if len == bytes.len() => Ok(*startup),
        other => panic!("{other:?}"),
    }
}

fn raw(body: &[u8]) -> Result<Option<(Packet, usize)>, StartupError> {
    let len = u32::try_from(body.len() + 4).unwrap();
    parse(&[&len.to_be_bytes(), body].concat())
}

fn settings(startup: &Startup) -> Vec<(&str, &str)> {
    startup.settings.iter().map(|(name, value)| (&**name, &**value)).collect()
}

fn refused(error: &StartupError) -> (String, String) {
    let report = error.report().unwrap();
    assert_eq!(report.severity, crate::report::Severity::Fatal);
    (report.code.to_string(), report.message.into_owned())
}

#[test]
fn requests_of_eight_bytes() {
    let mut bytes = Vec::new();
    encode::gssenc_request(&mut bytes);
    encode::ssl_request(&mut bytes);
    for cut in 0..8 {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut}");
    }
    assert_eq!(parse(&bytes), Ok(Some((Packet::GssEnc, 8))));
    assert_eq!(parse(&bytes[8..]), Ok(Some((Packet::Ssl, 8))));
    assert_eq!(raw(b"\x04\xd2\x16\x2fx"), Err(StartupError::Length));
}

#[test]
fn cancel_requests() {
    for len in [4_usize, 32, 256] {
        let key = CancelKey { process_id: -5, secret: vec![3; len].into() };
        let mut bytes = Vec::new();
        encode::cancel_request(&mut bytes, &key);
        assert_eq!(parse(&bytes), Ok(Some((Packet::Cancel(key), 12 + len))));
    }
    for len in [0_usize, 3, 7, 4 + 257] {
        let mut body = CANCEL_REQUEST.to_be_bytes().to_vec();
        body.resize(4 + len, 0);
        assert_eq!(raw(&body), Err(StartupError::Length), "{len}");
    }
}

#[test]
fn lengths_are_bounded() {
    for bad in [0_u32, 3, 4, 7, 10_005, 0x1603_0100, u32::MAX] {
        assert_eq!(parse(&bad.to_be_bytes()), Err(StartupError::Length), "{bad}");
    }
    assert!(StartupError::Length.report().is_none(), "PostgreSQL is silent as well");
    for good in [8_u32, 10_004] {
        assert_eq!(parse(&good.to_be_bytes()), Ok(None), "{good}");
    }
    assert!(is_direct_tls(0x16) && !is_direct_tls(0));
}

#[test]
fn what_a_session_asks_for() {
    let plain = startup(PROTOCOL_3_0, &[("user", "u")]).unwrap();
    assert_eq!((&*plain.user, &*plain.database, plain.replication), ("u", "u", None));
    assert!(!plain.needs_negotiation());

    let full = startup(
        PROTOCOL_3_0,
        &[
            ("user", "u"),
            ("TimeZone", "Asia/Tokyo"),
            ("options", "-c work_mem=1MB -c timezone=UTC --a.b=x"),
            ("database", "d"),
            ("application_name", "psql"),
            ("replication", "off"),
        ],
    )
    .unwrap();
    assert_eq!((&*full.user, &*full.database, full.replication), ("u", "d", None));
    assert_eq!(
        settings(&full),
        [("work_mem", "1MB"), ("a.b", "x"), ("TimeZone", "Asia/Tokyo"), ("application_name", "psql"),]
    );
    assert_eq!((full.setting("timezone"), full.setting("none")), (Some("Asia/Tokyo"), None));

    let twice =
        startup(PROTOCOL_3_0, &[("user", "a"), ("user", "b"), ("database", ""), ("x", "1"), ("X", "2")]);
    let twice = twice.unwrap();
    assert_eq!((&*twice.user, &*twice.database, settings(&twice)), ("b", "b", vec![("X", "2")]));
}

#[test]
fn replication_is_a_boolean_or_database() {
    let of = |value| startup(PROTOCOL_3_0, &[("user", "u"), ("replication", value)]).map(|s| s.replication);
    for value in ["true", "t", "TRUE", "yes", "y", "on", "1"] {
        assert_eq!(of(value), Ok(Some(Replication::Physical)), "{value}");
    }
    for value in ["false", "f", "no", "n", "off", "of", "0"] {
        assert_eq!(of(value), Ok(None), "{value}");
    }
    assert_eq!(of("database"), Ok(Some(Replication::Database)));
    for value in ["", "o", "maybe", "truest", "Database"] {
        let (code, message) = refused(&of(value).unwrap_err());
        assert_eq!(code, "22023");
        assert_eq!(message, format!("invalid value for parameter \"replication\": \"{value}\""));
    }
}

#[test]
fn newer_protocols_and_their_options_are_negotiated() {
    let table: &[(u32, &[&str])] = &[
        (0x0003_0002, &[]),
        (0x0003_270f, &["_pq_.test_protocol_negotiation"]),
        (PROTOCOL_3_0, &["_pq_.other", "_pq_."]),
    ];
    for (version, options) in table {
        let mut parameters = vec![("user", "u"), ("work_mem", "1MB")];
        parameters.extend(options.iter().map(|name| (*name, "1")));
        let startup = startup(*version, &parameters).unwrap();
        assert!(startup.needs_negotiation());
        assert_eq!(startup.version, *version);
        assert_eq!(startup.unknown_protocol_options.iter().map(|name| &**name).collect::<Vec<_>>(), *options);
        assert_eq!(settings(&startup), [("work_mem", "1MB")], "a protocol option is no setting");
    }
}

#[test]
fn what_is_refused_and_how() {
    let table = [
        (0x0002_0000, "unsupported frontend protocol 2.0: server supports 3.0 to 3.0"),
        (0x0004_0001, "unsupported frontend protocol 4.1: server supports 3.0 to 3.0"),
        (0, "unsupported frontend protocol 0.0: server supports 3.0 to 3.0"),
        (SSL_REQUEST + 2, "unsupported frontend protocol 1234.5681: server supports 3.0 to 3.0"),
    ];
    for (version, message) in table {
        let error = startup(version, &[("user", "u")]).unwrap_err();
        assert_eq!(refused(&error), ("0A000".to_owned(), message.to_owned()));
    }
    for parameters in [&[("database", "d")][..], &[("user", "")], &[]] {
        let (code, message) = refused(&startup(PROTOCOL_3_0, parameters).unwrap_err());
        assert_eq!((&*code, &*message), ("28000", "no PostgreSQL user name specified in startup packet"));
    }
    let error = startup(PROTOCOL_3_0, &[("user", "u"), ("options", "-c work_mem")]).unwrap_err();
    assert_eq!(refused(&error), ("42601".to_owned(), "-c work_mem requires a value".to_owned()));

    for layout in [&b"user\0u\0"[..], b"user\0u", b"user\0", b"user", b"", b"user\0u\0\0\0", b"\0user\0u\0\0"]
    {
        let error = raw(&[&PROTOCOL_3_0.to_be_bytes(), layout].concat()).unwrap_err();
        assert_eq!(error, StartupError::Layout, "{layout:?}");
        assert_eq!(refused(&error).0, "08P01");
    }
    let error = raw(b"\0\x03\0\0user\0u\0database\0gr\xfcn\0\0").unwrap_err();
    let expected = ("22021".to_owned(), "invalid byte sequence for encoding \"UTF8\": 0xfc".to_owned());
    assert_eq!(refused(&error), expected);
}

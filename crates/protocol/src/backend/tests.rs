use super::*;
use crate::encode;
use crate::frame::{self, MAX_FRAME_LEN};
use crate::report::ErrorReport;
use crate::startup::CancelKey;

/// The body of the one frame that `write` appends; its type has to be `tag`.
fn body(tag: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    let written = &out[6..];
    let (frame, len) = frame::split(written, MAX_FRAME_LEN).unwrap().unwrap();
    assert_eq!((frame.tag, len), (tag, written.len()));
    frame.body.to_vec()
}

#[test]
fn transaction_status() {
    for status in [TransactionStatus::Idle, TransactionStatus::InTransaction, TransactionStatus::Failed] {
        let body = body(tag::READY_FOR_QUERY, |out| encode::ready_for_query(out, status));
        assert_eq!(ready_for_query(&body), Ok(status));
    }
    for bad in [&b""[..], b"X", b"II", b"i"] {
        assert!(ready_for_query(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn authentication_requests() {
    let of = |write: &dyn Fn(&mut Vec<u8>)| body(tag::AUTHENTICATION, write);
    assert_eq!(authentication(&of(&encode::authentication_ok)), Ok(Authentication::Ok));
    assert_eq!(
        authentication(&of(&encode::authentication_cleartext_password)),
        Ok(Authentication::CleartextPassword)
    );
    let md5 = of(&|out| encode::authentication_md5_password(out, *b"salt"));
    assert_eq!(authentication(&md5), Ok(Authentication::Md5 { salt: *b"salt" }));
    let sasl = of(&|out| encode::authentication_sasl(out, &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"]));
    let Ok(Authentication::Sasl(mechanisms)) = authentication(&sasl) else { panic!("{sasl:?}") };
    let names: Vec<_> = mechanisms.iter().collect();
    assert_eq!(names, [&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]);
    let data = of(&|out| encode::authentication_sasl_continue(out, b"r=x"));
    assert_eq!(authentication(&data), Ok(Authentication::SaslContinue(b"r=x")));
    let data = of(&|out| encode::authentication_sasl_final(out, b"v=x"));
    assert_eq!(authentication(&data), Ok(Authentication::SaslFinal(b"v=x")));
    assert_eq!(authentication(&[0, 0, 0, 7, 1]), Ok(Authentication::Unsupported(7)));
    for bad in [&b""[..], &[0, 0, 0], &[0, 0, 0, 0, 0], &[0, 0, 0, 5, 1, 2, 3], &[0, 0, 0, 10, b'a', 0]] {
        assert!(authentication(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn session_messages() {
    let status = body(tag::PARAMETER_STATUS, |out| encode::parameter_status(out, b"TimeZone", b"UTC"));
    assert_eq!(parameter_status(&status), Ok((&b"TimeZone"[..], &b"UTC"[..])));
    assert!(parameter_status(b"TimeZone\0UTC").is_err());
    assert!(parameter_status(b"TimeZone\0UTC\0\0").is_err());

    for len in [4, 32, 256] {
        let key = CancelKey { process_id: -7, secret: vec![9; len].into() };
        let data = body(tag::BACKEND_KEY_DATA, |out| encode::backend_key_data(out, &key));
        assert_eq!(backend_key_data(&data), Ok((-7, &*key.secret)));
    }
    assert!(backend_key_data(&[0; 7]).is_err(), "the key is too short");
    assert!(backend_key_data(&[0; 4 + 257]).is_err(), "the key is too long");

    let complete = body(tag::COMMAND_COMPLETE, |out| encode::command_complete(out, b"SELECT 1"));
    assert_eq!(command_complete(&complete), Ok(&b"SELECT 1"[..]));

    let bytes = body(tag::NOTIFICATION_RESPONSE, |out| encode::notification_response(out, 42, b"ch", b"hi"));
    assert_eq!(notification(&bytes), Ok(Notification { process_id: 42, channel: b"ch", payload: b"hi" }));

    let bytes = body(tag::NEGOTIATE_PROTOCOL_VERSION, |out| {
        encode::negotiate_protocol_version(out, 0x0003_0000, &["_pq_.a", "_pq_.b"]);
    });
    let negotiation = negotiation(&bytes).unwrap();
    assert_eq!((negotiation.version, negotiation.count), (0x0003_0000, 2));
    assert_eq!(negotiation.options().collect::<Vec<_>>(), [b"_pq_.a", b"_pq_.b"]);
}

#[test]
fn errors_and_notices() {
    let report = ErrorReport::error(SqlState::UNDEFINED_TABLE, "relation \"t\" does not exist")
        .with_detail("a detail")
        .with_hint("a hint")
        .with_position(15);
    let bytes = body(tag::ERROR_RESPONSE, |out| encode::error_response(out, &report));
    let fields = error_fields(&bytes).unwrap();
    assert_eq!(fields.severity(), Some(Severity::Error));
    assert_eq!(fields.code(), SqlState::UNDEFINED_TABLE);
    assert_eq!(fields.message(), b"relation \"t\" does not exist");
    assert_eq!(fields.get(b'D'), Some(&b"a detail"[..]));
    assert_eq!(fields.get(b'H'), Some(&b"a hint"[..]));
    assert_eq!(fields.get(b'P'), Some(&b"15"[..]));
    assert_eq!(fields.get(b'q'), None);
    let kinds: Vec<_> = fields.iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, b"SVCMDHP");

    let notice = ErrorReport::notice("x\0y");
    let bytes = body(tag::NOTICE_RESPONSE, |out| encode::notice_response(out, &notice));
    let fields = error_fields(&bytes).unwrap();
    assert_eq!((fields.severity(), fields.message()), (Some(Severity::Notice), &b"x y"[..]));
}

#[test]
fn errors_of_other_servers() {
    let localized = error_fields(b"SFEHLER\0VERROR\0C40001\0MWeh\0\0").unwrap();
    assert_eq!(localized.severity(), Some(Severity::Error));
    let old = error_fields(b"SFATAL\0C57P03\0Mno\0\0").unwrap();
    assert_eq!((old.severity(), old.code()), (Some(Severity::Fatal), SqlState::CANNOT_CONNECT_NOW));
    let bare = error_fields(b"\0").unwrap();
    assert_eq!((bare.severity(), bare.code(), bare.message()), (None, SqlState::INTERNAL_ERROR, &b""[..]));
    for bad in [&b""[..], b"S", b"SERROR", b"SERROR\0", b"\0\0"] {
        assert!(error_fields(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn results() {
    let columns = [
        Column::text(b"name"),
        Column {
            name: b"id",
            table_oid: 4_000_000_000,
            attribute: -1,
            type_oid: 23,
            type_len: 4,
            type_modifier: 7,
            format: 1,
        },
    ];
    let bytes = body(tag::ROW_DESCRIPTION, |out| encode::row_description(out, &columns));
    let description = row_description(&bytes).unwrap();
    assert_eq!((description.len(), description.iter().collect::<Vec<_>>()), (2, columns.to_vec()));
    assert!(row_description(&bytes[..bytes.len() - 1]).is_err());

    let values = [Some(&b"a\0b"[..]), None, Some(b"")];
    let bytes = body(tag::DATA_ROW, |out| encode::data_row(out, values));
    let row = data_row(&bytes).unwrap();
    assert_eq!((row.len(), row.iter().collect::<Vec<_>>()), (3, values.to_vec()));
    assert!(data_row(b"\0\x01\xff\xff\xff\xfe").is_err(), "-2 is no length");
    assert!(data_row(b"\0\x01\x7f\xff\xff\xff").is_err(), "longer than the message");
    assert!(data_row(&[&bytes[..], b"x"].concat()).is_err());

    let bytes = body(tag::PARAMETER_DESCRIPTION, |out| encode::parameter_description(out, [23, u32::MAX]));
    let oids = parameter_description(&bytes).unwrap();
    assert_eq!((oids.len(), oids.iter().collect::<Vec<_>>()), (2, vec![23, u32::MAX]));

    let bytes = body(tag::COPY_IN_RESPONSE, |out| encode::copy_in_response(out, 1, 3));
    let copy = copy_response(&bytes).unwrap();
    assert_eq!((copy.format, copy.columns.iter().collect::<Vec<_>>()), (1, vec![1, 1, 1]));
    assert!(copy_response(b"\0\0\x02\0\0").is_err());
}

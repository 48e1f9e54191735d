use super::*;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn frames_are_byte_for_byte_what_the_manual_says() {
    let key = CancelKey { process_id: 0x0102_0304, secret: (*b"\x05\x06\x07\x08").into() };
    let table: &[(Vec<u8>, &[u8])] = &[
        (written(sync), b"S\0\0\0\x04"),
        (written(flush), b"H\0\0\0\x04"),
        (written(terminate), b"X\0\0\0\x04"),
        (written(parse_complete), b"1\0\0\0\x04"),
        (written(bind_complete), b"2\0\0\0\x04"),
        (written(close_complete), b"3\0\0\0\x04"),
        (written(no_data), b"n\0\0\0\x04"),
        (written(portal_suspended), b"s\0\0\0\x04"),
        (written(empty_query_response), b"I\0\0\0\x04"),
        (written(copy_done), b"c\0\0\0\x04"),
        (written(|out| copy_data(out, b"1\n")), b"d\0\0\0\x061\n"),
        (written(|out| raw(out, b'Y', b"z")), b"Y\0\0\0\x05z"),
        (written(ssl_request), b"\0\0\0\x08\x04\xd2\x16\x2f"),
        (written(gssenc_request), b"\0\0\0\x08\x04\xd2\x16\x30"),
        (
            written(|out| cancel_request(out, &key)),
            b"\0\0\0\x10\x04\xd2\x16\x2e\x01\x02\x03\x04\x05\x06\x07\x08",
        ),
        (written(|out| startup(out, [(&b"user"[..], &b"u"[..])])), b"\0\0\0\x10\0\x03\0\0user\0u\0\0"),
        (written(|out| query(out, b"")), b"Q\0\0\0\x05\0"),
        (written(|out| copy_out_response(out, 0, 1)), b"H\0\0\0\x09\0\0\x01\0\0"),
        (written(|out| ready_for_query(out, TransactionStatus::Idle)), b"Z\0\0\0\x05I"),
    ];
    for (bytes, expected) in table {
        assert_eq!(bytes, expected);
    }
}

#[test]
fn a_nul_does_not_shift_fields() {
    let bytes = written(|out| parameter_status(out, b"a\0b", b"\0"));
    assert_eq!(backend::parameter_status(&bytes[5..]), Ok((&b"a b"[..], &b" "[..])));
}

#[test]
fn lists_are_cut_where_their_count_ends() {
    let bytes = written(|out| parameter_description(out, 0..70_000));
    let types = backend::parameter_description(&bytes[5..]).unwrap();
    assert_eq!((types.len(), types.iter().last()), (65_535, Some(65_534)));
}

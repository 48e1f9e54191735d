use super::*;
use crate::encode;
use crate::frame::{self, MAX_FRAME_LEN};

fn body(tag: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    let (frame, len) = frame::split(&out, MAX_FRAME_LEN).unwrap().unwrap();
    assert_eq!((frame.tag, len), (tag, out.len()));
    frame.body.to_vec()
}

#[test]
fn queries_and_statements() {
    let bytes = body(tag::QUERY, |out| encode::query(out, b"SELECT '\xfc'"));
    assert_eq!(query(&bytes), Ok(&b"SELECT '\xfc'"[..]));
    assert_eq!(query(b"").unwrap_err().problem, Problem::Unterminated);
    assert_eq!(query(b"a\0b\0").unwrap_err().problem, Problem::Trailing);

    let bytes = body(tag::PARSE, |out| encode::parse(out, b"s1", b"SELECT $1", [23, 0]));
    let statement = parse(&bytes).unwrap();
    assert_eq!((statement.name, statement.sql), (&b"s1"[..], &b"SELECT $1"[..]));
    assert_eq!(statement.types.iter().collect::<Vec<_>>(), [23, 0]);
    for cut in 0..bytes.len() {
        assert!(parse(&bytes[..cut]).is_err(), "{cut}");
    }

    for (target, tag) in [(Target::Statement, tag::DESCRIBE), (Target::Portal, tag::CLOSE)] {
        let bytes = body(tag, |out| match target {
            Target::Statement => encode::describe(out, target, b"x"),
            Target::Portal => encode::close(out, target, b"x"),
        });
        assert_eq!(describe(&bytes), Ok(Named { target, name: b"x" }));
        assert_eq!(close(&bytes), Ok(Named { target, name: b"x" }));
    }
    assert_eq!(close(b"Xx\0").unwrap_err().report().message, "invalid message subtype");

    let bytes = body(tag::EXECUTE, |out| encode::execute(out, b"p", -1));
    assert_eq!(execute(&bytes), Ok(Execute { portal: b"p", max_rows: -1 }));
    assert_eq!(function_call(&[0, 0, 0, 9, 1]), Ok(9));
    let bytes = body(tag::COPY_FAIL, |out| encode::copy_fail(out, b"why"));
    assert_eq!(copy_fail(&bytes), Ok(&b"why"[..]));
}

#[test]
fn passwords() {
    let bytes = body(tag::PASSWORD, |out| encode::password(out, b"secret"));
    assert_eq!(password(&bytes), Ok(&b"secret"[..]));
    for response in [None, Some(&b"n,,n=,r=x"[..]), Some(b"")] {
        let bytes = body(tag::PASSWORD, |out| encode::sasl_initial_response(out, b"SCRAM-SHA-256", response));
        let expected = SaslInitialResponse { mechanism: b"SCRAM-SHA-256", response };
        assert_eq!(sasl_initial_response(&bytes), Ok(expected));
    }
    let bytes = body(tag::PASSWORD, |out| encode::sasl_response(out, b"c=biws"));
    assert_eq!(sasl_response(&bytes), b"c=biws");
}

#[test]
fn bind_is_read_from_any_prefix() {
    let values = [Some(&b"1"[..]), None, Some(b"\0\0")];
    let bytes = body(tag::BIND, |out| encode::bind(out, (b"p1", b"s1"), &[0, 1, 1], &values, &[1]));
    let bound = bind(&bytes).unwrap();
    assert_eq!((bound.portal, bound.statement, bound.count), (&b"p1"[..], &b"s1"[..], 3));
    assert_eq!(bound.formats.iter().collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(bound.values().collect::<Vec<_>>(), values);
    assert_eq!(bound.result_formats.iter().collect::<Vec<_>>(), [1]);

    for cut in 0..bytes.len() {
        assert!(bind(&bytes[..cut]).is_err(), "{cut}");
        match bind_names(&bytes[..cut]).unwrap() {
            None => assert!(cut < 6, "{cut}"),
            Some(names) => {
                assert!(cut >= 6, "{cut}");
                assert_eq!(names, BindNames { portal: b"p1", statement: b"s1", rest_at: 6 });
            }
        }
    }
}

#[test]
fn bind_header_and_rest_are_a_bind() {
    let mut whole = Vec::new();
    encode::bind(&mut whole, (b"", b"server_7"), &[], &[Some(b"x")], &[]);
    let original = body(tag::BIND, |out| encode::bind(out, (b"", b"client"), &[], &[Some(b"x")], &[]));
    let rest = &original[bind_names(&original).unwrap().unwrap().rest_at..];
    let mut parts = Vec::new();
    encode::bind_header(&mut parts, b"", b"server_7", rest.len());
    parts.extend_from_slice(rest);
    assert_eq!(parts, whole);
}

#[test]
fn endless_names_are_refused_in_time() {
    let endless = vec![b'x'; MAX_BIND_NAMES_LEN];
    assert_eq!(bind_names(&endless[1..]), Ok(None));
    assert!(bind_names(&endless).is_err());
    let mut late = endless.clone();
    late.extend_from_slice(b"\0\0\0\0\0\0\0\0");
    assert!(bind_names(&late).is_err());
    assert!(bind(&late).is_err());
    let mut just = vec![b'x'; MAX_BIND_NAMES_LEN - 2];
    just.extend_from_slice(b"\0\0rest");
    assert_eq!(bind_names(&just).unwrap().unwrap().rest_at, MAX_BIND_NAMES_LEN);
}

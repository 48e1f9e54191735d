//! No bytes can panic a parser, and what a parser takes it takes whole.

use causeway_protocol::backend::{self, Authentication, Column, TransactionStatus};
use causeway_protocol::frontend::{self, Target};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::scram::{Exchange, Verifier};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::{self, CancelKey};
use causeway_protocol::{encode, frame};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Every message there is, with something in each field.
fn messages() -> Vec<Vec<u8>> {
    let key = CancelKey { process_id: 7, secret: vec![1; 32].into() };
    let report = ErrorReport::error(SqlState::SYNTAX_ERROR, "syntax error").with_detail("d").with_position(3);
    let values = [Some(&b"value"[..]), None, Some(b"")];
    let columns = [Column::text(b"a"), Column { format: 1, ..Column::text(b"b") }];
    vec![
        written(|out| encode::query(out, b"SELECT 1")),
        written(|out| encode::parse(out, b"name", b"SELECT $1", [23, 25])),
        written(|out| encode::bind(out, (b"portal", b"name"), &[0, 1], &values, &[1])),
        written(|out| encode::describe(out, Target::Statement, b"name")),
        written(|out| encode::execute(out, b"portal", 5)),
        written(|out| encode::sasl_initial_response(out, b"SCRAM-SHA-256", Some(b"n,,n=,r=x"))),
        written(|out| encode::authentication_sasl(out, &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"])),
        written(|out| encode::authentication_md5_password(out, [1; 4])),
        written(|out| encode::backend_key_data(out, &key)),
        written(|out| encode::parameter_status(out, b"TimeZone", b"UTC")),
        written(|out| encode::ready_for_query(out, TransactionStatus::Failed)),
        written(|out| encode::error_response(out, &report)),
        written(|out| encode::row_description(out, &columns)),
        written(|out| encode::data_row(out, values)),
        written(|out| encode::parameter_description(out, [1, 2, 3])),
        written(|out| encode::notification_response(out, 1, b"channel", b"payload")),
        written(|out| encode::copy_in_response(out, 1, 3)),
        written(|out| encode::negotiate_protocol_version(out, 0x0003_0000, &["_pq_.a"])),
        written(|out| encode::command_complete(out, b"SELECT 1")),
    ]
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Gives `body` to every parser and walks what they return; the sum keeps the walks alive.
fn parse_as_everything(body: &[u8]) -> usize {
    let texts = [
        frontend::query(body).map_or(0, <[u8]>::len),
        frontend::password(body).map_or(0, <[u8]>::len),
        frontend::copy_fail(body).map_or(0, <[u8]>::len),
        backend::command_complete(body).map_or(0, <[u8]>::len),
        backend::parameter_status(body).map_or(0, |(name, value)| name.len() + value.len()),
        backend::backend_key_data(body).map_or(0, |(_, key)| key.len()),
        backend::notification(body).map_or(0, |n| n.channel.len() + n.payload.len()),
    ];
    let mut seen: usize = texts.iter().sum();
    seen += usize::from(backend::ready_for_query(body).is_ok());
    seen += usize::from(frontend::function_call(body).is_ok());
    seen += usize::from(frontend::describe(body).is_ok()) + usize::from(frontend::close(body).is_ok());
    seen += usize::from(frontend::execute(body).is_ok());
    seen += frontend::sasl_initial_response(body).map_or(0, |s| s.response.unwrap_or_default().len());
    seen += frontend::parse(body).map_or(0, |parse| parse.types.iter().count());
    if let Ok(Some(names)) = frontend::bind_names(body) {
        assert_eq!(names.rest_at, names.portal.len() + names.statement.len() + 2);
        assert!(names.rest_at <= body.len());
    }
    if let Ok(bind) = frontend::bind(body) {
        assert_eq!(bind.values().count(), usize::from(bind.count));
        seen += bind.formats.iter().chain(bind.result_formats.iter()).count();
    }
    if let Ok(row) = backend::data_row(body) {
        assert_eq!(row.iter().count(), row.len());
    }
    if let Ok(description) = backend::row_description(body) {
        assert_eq!(description.iter().count(), description.len());
    }
    if let Ok(fields) = backend::error_fields(body) {
        seen += fields.iter().count() + fields.message().len() + fields.code().class().len();
        seen += usize::from(fields.severity().is_some());
    }
    if let Ok(oids) = backend::parameter_description(body) {
        assert_eq!(oids.iter().count(), oids.len());
    }
    if let Ok(copy) = backend::copy_response(body) {
        assert_eq!(copy.columns.iter().count(), copy.columns.len());
    }
    if let Ok(negotiation) = backend::negotiation(body) {
        assert_eq!(u32::try_from(negotiation.options().count()), Ok(negotiation.count));
    }
    if let Ok(Authentication::Sasl(mechanisms)) = backend::authentication(body) {
        seen += mechanisms.iter().count();
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_body_is_parsed_or_refused(body in vec(any::<u8>(), 0..300)) {
        parse_as_everything(&body);
    }

    #[test]
    fn any_damaged_message_is_parsed_or_refused(
        which in any::<Index>(),
        damage in vec((any::<Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f)]), 0..4),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let messages = messages();
        let mut bytes = which.get(&messages).clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        parse_as_everything(bytes.get(frame::HEADER_LEN..).unwrap_or_default());
        if let Ok(Some((frame, len))) = frame::split(&bytes, frame::MAX_FRAME_LEN) {
            prop_assert_eq!(len, frame.body.len() + frame::HEADER_LEN);
        }
    }

    #[test]
    fn any_message_is_accepted_by_a_parser(which in any::<Index>()) {
        let messages = messages();
        let bytes = which.get(&messages);
        let (frame, len) = frame::split(bytes, frame::MAX_FRAME_LEN).unwrap().unwrap();
        prop_assert_eq!(len, bytes.len());
        let body = frame.body;
        let accepted = match frame.tag {
            b'Q' => frontend::query(body).is_ok(),
            b'P' => frontend::parse(body).is_ok(),
            b'B' => frontend::bind(body).is_ok(),
            b'D' => frontend::describe(body).is_ok() != backend::data_row(body).is_ok(),
            b'E' => frontend::execute(body).is_ok() != backend::error_fields(body).is_ok(),
            b'p' => frontend::sasl_initial_response(body).is_ok(),
            b'R' => backend::authentication(body).is_ok(),
            b'K' => backend::backend_key_data(body).is_ok(),
            b'S' => backend::parameter_status(body).is_ok(),
            b'Z' => backend::ready_for_query(body).is_ok(),
            b'T' => backend::row_description(body).is_ok(),
            b't' => backend::parameter_description(body).is_ok(),
            b'A' => backend::notification(body).is_ok(),
            b'G' => backend::copy_response(body).is_ok(),
            b'v' => backend::negotiation(body).is_ok(),
            b'C' => backend::command_complete(body).is_ok(),
            _ => false,
        };
        prop_assert!(accepted, "{:?}", bytes);
    }

    #[test]
    fn any_first_packet_is_parsed_or_refused(
        code in prop_oneof![Just(0x0003_0000_u32), Just(80_877_102), Just(80_877_103), 0x0003_0000_u32..0x0003_ffff, any::<u32>()],
        body in prop_oneof![
            vec(any::<u8>(), 0..300),
            vec("(user|database|options|replication|_pq_.x|[a-z. -]{0,5})\0[ -c=\\\\a-z1]{0,9}\0", 0..6)
                .prop_map(|texts| (texts.concat() + "\0").into_bytes()),
        ],
        shift in -2_i64..3,
    ) {
        let len = u32::try_from(i64::try_from(body.len()).unwrap() + 8 + shift).unwrap();
        let bytes = [&len.to_be_bytes()[..], &code.to_be_bytes(), &body].concat();
        match startup::parse(&bytes) {
            Ok(Some((_, taken))) => prop_assert_eq!(taken, usize::try_from(len).unwrap()),
            Ok(None) => prop_assert!(shift > 0),
            Err(error) => {
                error.report();
            }
        }
    }

    #[test]
    fn any_text_is_a_verifier_or_not(text in "(SCRAM-SHA-256\\$)?[0-9]{0,5}:?[A-Za-z=]{0,9}\\$?.{0,90}") {
        if let Ok(verifier) = Verifier::parse(&text) {
            prop_assert_eq!(Verifier::parse(&verifier.to_string()), Ok(verifier));
        }
    }

    #[test]
    fn any_exchange_is_refused(
        first in prop_oneof!["[ny],,n=u?,r=[!-+]{1,5}(,x=1)?", "[nyp=,amr]{0,12}", ".{0,20}"],
        last in prop_oneof!["c=biws,r=[!-+]{0,9},p=[A-Za-z=]{0,50}", "[cbiwspr=,]{0,12}", ".{0,20}"],
    ) {
        let verifier = Verifier::derive(b"secret", b"salt", 1);
        if let Ok((proof, _)) = Exchange::new(verifier, [0; 18], true).client_first(first.as_bytes()) {
            prop_assert!(proof.client_final(last.as_bytes()).is_err());
        }
    }
}

use super::*;
use crate::backend::{self, Authentication};
use crate::frame::MAX_FRAME_LEN;
use crate::handshake::client::{self, ClientHandshake, Login, LoginError, Secret};
use crate::scram::MECHANISM;

const NONCE: [u8; scram::NONCE_LEN] = [5; scram::NONCE_LEN];

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::default();
    buffer.extend(bytes);
    buffer
}

fn start(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::startup(&mut out, parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    out
}

fn requests(kinds: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for kind in kinds.chars() {
        match kind {
            's' => encode::ssl_request(&mut out),
            'g' => encode::gssenc_request(&mut out),
            _ => out.extend(start(&[("user", "u")])),
        }
    }
    out
}

fn code(output: &[u8]) -> String {
    let (frame, len) = frame::split(output, MAX_FRAME_LEN).unwrap().unwrap();
    assert_eq!((frame.tag, len), (backend::tag::ERROR_RESPONSE, output.len()));
    let fields = backend::error_fields(frame.body).unwrap();
    assert_eq!(fields.get(b'S'), Some(&b"FATAL"[..]));
    format!("{} {}", fields.code(), String::from_utf8_lossy(fields.message()))
}

fn method(password: &str, known_user: bool) -> Method {
    let verifier = Verifier::derive(password.as_bytes(), b"salt", 16);
    Method::ScramSha256 { verifier, nonce: NONCE, known_user, end_point: None }
}

/// The handshake after the start-up message, waiting for SCRAM.
fn in_scram() -> ServerHandshake {
    let (mut input, mut output) = (buffer(&start(&[("user", "u")])), Vec::new());
    let step = ServerHandshake::new(false).read(&mut input, &mut output);
    let Ok(Step::NeedMethod(asked)) = step else { panic!("{step:?}") };
    match asked.resume(method("secret", true), &mut input, &mut output) {
        Ok(Step::NeedBytes(next)) => next,
        other => panic!("{other:?}"),
    }
}

/// Sends requests as a client does, each after the answer to the one before it.
fn in_turn(mut handshake: ServerHandshake, kinds: &str, output: &mut Vec<u8>) -> Result<Step, Refusal> {
    let mut last = None;
    for kind in kinds.chars() {
        let mut input = buffer(&requests(&kind.to_string()));
        match handshake.read(&mut input, output)? {
            Step::NeedBytes(next) => handshake = next,
            other => {
                last = Some(other);
                handshake = ServerHandshake::new(false);
            }
        }
    }
    Ok(last.unwrap_or(Step::NeedBytes(handshake)))
}

#[test]
fn encryption_is_asked_for_at_most_once_of_a_kind() {
    let second_tls = "0A000 unsupported frontend protocol 1234.5679: server supports 3.0 to 3.0";
    let second_gss = "0A000 unsupported frontend protocol 1234.5680: server supports 3.0 to 3.0";
    for (kinds, answers, error) in [
        ("u", &b""[..], None),
        ("su", b"N", None),
        ("gu", b"N", None),
        ("gsu", b"NN", None),
        ("sgu", b"NN", None),
        ("ss", b"N", Some(second_tls)),
        ("gg", b"N", Some(second_gss)),
        ("gsg", b"NN", Some(second_gss)),
        ("sgs", b"NN", Some(second_tls)),
    ] {
        let mut output = Vec::new();
        let step = in_turn(ServerHandshake::new(false), kinds, &mut output);
        assert!(output.starts_with(answers), "{kinds}");
        match error {
            None => {
                assert!(matches!(step, Ok(Step::NeedMethod(_))), "{kinds}");
                assert_eq!(output, answers, "{kinds}");
            }
            Some(error) => {
                assert!(step.is_err(), "{kinds}");
                assert_eq!(code(&output[answers.len()..]), error, "{kinds}");
            }
        }
    }
}

#[test]
fn tls_is_started_and_ends_the_requests_for_encryption() {
    for before in ["s", "gs"] {
        for (after, accepted) in [("u", true), ("s", false), ("g", false)] {
            let mut output = Vec::new();
            let step = in_turn(ServerHandshake::new(true), before, &mut output);
            let Ok(Step::StartTls(next)) = step else { panic!("{step:?}") };
            assert_eq!(output.last(), Some(&b'S'));
            let step = next.read(&mut buffer(&requests(after)), &mut output);
            assert_eq!(matches!(step, Ok(Step::NeedMethod(_))), accepted, "{before} {after}");
            assert_eq!(step.is_err(), !accepted, "{before} {after}");
        }
    }
    for (kinds, accepted) in [("u", true), ("s", false), ("g", false)] {
        let step = ServerHandshake::in_direct_tls().read(&mut buffer(&requests(kinds)), &mut Vec::new());
        assert_eq!(step.is_ok(), accepted, "{kinds}");
    }
}

#[test]
fn bytes_ahead_of_tls_are_refused() {
    for stuffed in ["su", "gsu"] {
        let (mut input, mut output) = (buffer(&requests(stuffed)), Vec::new());
        let step = ServerHandshake::new(true).read(&mut input, &mut output);
        assert!(matches!(step, Err(Refusal::UnencryptedData)), "{step:?}");
        let error = &output[stuffed.len() - 2..];
        assert_eq!(code(error), "08P01 received unencrypted data after SSL request");
    }
}

#[test]
fn a_cancel_request_ends_the_handshake() {
    let key = CancelKey { process_id: 3, secret: vec![1; 32].into() };
    let (mut bytes, mut output) = (Vec::new(), Vec::new());
    encode::cancel_request(&mut bytes, &key);
    let Ok(Step::NeedBytes(next)) = in_turn(ServerHandshake::new(false), "s", &mut output) else {
        panic!("a request for TLS is answered");
    };
    match next.read(&mut buffer(&bytes), &mut output) {
        Ok(Step::Cancel(asked)) => assert_eq!(asked, key),
        other => panic!("{other:?}"),
    }
    assert_eq!(output, b"N");
}

#[test]
fn newer_protocols_are_answered_before_authentication() {
    let mut bytes = start(&[("user", "u"), ("_pq_.test", "1")]);
    bytes[4..8].copy_from_slice(&0x0003_270f_u32.to_be_bytes());
    let (mut input, mut output) = (buffer(&bytes), Vec::new());
    let step = ServerHandshake::new(false).read(&mut input, &mut output);
    let Ok(Step::NeedMethod(asked)) = step else { panic!("{step:?}") };
    assert_eq!(asked.startup().version, 0x0003_270f);
    let (frame, len) = frame::split(&output, MAX_FRAME_LEN).unwrap().unwrap();
    assert_eq!((frame.tag, len), (backend::tag::NEGOTIATE_PROTOCOL_VERSION, output.len()));
    let negotiation = backend::negotiation(frame.body).unwrap();
    assert_eq!(negotiation.version, PROTOCOL_3_0);
    assert_eq!(negotiation.options().collect::<Vec<_>>(), [b"_pq_.test"]);

    let step = asked.resume(Method::Trust, &mut input, &mut output);
    assert!(matches!(step, Ok(Step::Accepted(Accepted { keys: None, .. }))), "{step:?}");
    assert_eq!(output[len..], *b"R\0\0\0\x08\0\0\0\0");
}

#[test]
fn rejections_are_told() {
    let (mut input, mut output) = (buffer(&requests("u")), Vec::new());
    let step = ServerHandshake::new(false).read(&mut input, &mut output);
    let Ok(Step::NeedMethod(asked)) = step else { panic!("{step:?}") };
    let report = ErrorReport::fatal(SqlState::INVALID_AUTHORIZATION, "no entry for host");
    let step = asked.resume(Method::Reject(report), &mut input, &mut output);
    assert!(matches!(step, Err(Refusal::Rejected(_))), "{step:?}");
    assert_eq!(code(&output), "28000 no entry for host");
}

#[test]
fn garbage_is_refused_in_silence() {
    let mut output = Vec::new();
    let step = ServerHandshake::new(true).read(&mut buffer(b"GET / HTTP/1.1\r\n"), &mut output);
    assert!(matches!(step, Err(Refusal::Startup(StartupError::Length))), "{step:?}");
    assert_eq!(output, b"");
}

#[test]
fn what_is_no_sasl_response_is_refused() {
    let frame = |tag: u8, body: &[u8]| {
        let mut out = Vec::new();
        encode::raw(&mut out, tag, body);
        out
    };
    let mut other_mechanism = Vec::new();
    encode::sasl_initial_response(&mut other_mechanism, b"SCRAM-SHA-256-PLUS", Some(b"p=x,,n=,r=x"));
    for (bytes, error) in [
        (frame(b'Q', b"SELECT 1\0"), "08P01 expected SASL response, got message type 81"),
        (b"Q".to_vec(), "08P01 expected SASL response, got message type 81"),
        (frame(b'p', b"SCRAM"), "08P01 invalid string in message"),
        (frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,"), "08P01 insufficient data left in message"),
        (frame(b'p', &[b'x'; 1025]), "08P01 message of type 'p' is 1030 bytes long, the limit is 1029"),
        (b"p\0\0\0\x03".to_vec(), "08P01 invalid message length 3 in message of type 'p'"),
        (other_mechanism, "08P01 client selected an invalid SASL authentication mechanism"),
        (frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x03n,,"), "08P01 malformed SCRAM message"),
    ] {
        let mut output = Vec::new();
        let step = in_scram().read(&mut buffer(&bytes), &mut output);
        assert!(step.is_err(), "{bytes:?}");
        assert_eq!(code(&output), error);
    }
}

#[test]
fn the_first_message_may_come_after_the_mechanism() {
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    let mut bytes = Vec::new();
    encode::sasl_initial_response(&mut bytes, MECHANISM.as_bytes(), None);
    input.extend(&bytes);
    let step = in_scram().read(&mut input, &mut output);
    let Ok(Step::NeedBytes(next)) = step else { panic!("{step:?}") };
    assert_eq!(output, b"R\0\0\0\x08\0\0\0\x0b", "an empty challenge");
    bytes.clear();
    encode::sasl_response(&mut bytes, b"n,,n=,r=x");
    input.extend(&bytes);
    output.clear();
    let step = next.read(&mut input, &mut output);
    assert!(matches!(step, Ok(Step::NeedBytes(_))), "{step:?}");
    let (frame, _) = frame::split(&output, MAX_FRAME_LEN).unwrap().unwrap();
    assert!(matches!(backend::authentication(frame.body), Ok(Authentication::SaslContinue(_))));
}

/// Both machines against each other, until the server side has decided.
fn meet(secret: Secret, method: Method) -> (Result<Accepted, Refusal>, Result<client::Step, LoginError>) {
    let (mut to_server, mut to_client) = (Buffer::default(), Buffer::default());
    let mut output = Vec::new();
    let login = Login {
        user: "u".into(),
        database: "d".into(),
        parameters: vec![("application_name".into(), "test".into())],
        secret,
        allow_cleartext: false,
        channel: client::Channel::default(),
    };
    let mut client = ClientHandshake::start(login, &mut output);
    to_server.extend(&output);
    let mut method = Some(method);
    let mut server = ServerHandshake::new(true);
    loop {
        output.clear();
        let mut step = server.read(&mut to_server, &mut output);
        if let Ok(Step::NeedMethod(asked)) = step {
            assert_eq!(asked.startup().setting("application_name"), Some("test"));
            step = asked.resume(method.take().unwrap(), &mut to_server, &mut output);
        }
        to_client.extend(&output);
        output.clear();
        let answered = client.read(&mut to_client, &mut output);
        to_server.extend(&output);
        match (step, answered) {
            (Ok(Step::NeedBytes(next)), Ok(client::Step::NeedBytes(waiting))) => {
                server = next;
                client = waiting;
            }
            (Ok(Step::Accepted(accepted)), answered) => return (Ok(accepted), answered),
            (Err(refusal), answered) => return (Err(refusal), answered),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn client_and_server_agree() {
    let password = |text: &str| Secret::Password(text.as_bytes().into());
    let (accepted, step) = meet(Secret::None, Method::Trust);
    assert_eq!(&*accepted.unwrap().startup.database, "d");
    assert!(matches!(step, Ok(client::Step::NeedBytes(_))), "{step:?}");

    let (accepted, step) = meet(password("secret"), method("secret", true));
    assert!(matches!(step, Ok(client::Step::NeedBytes(_))), "{step:?}");
    let keys = accepted.unwrap().keys.unwrap();

    let (accepted, step) = meet(Secret::ScramKeys(keys.clone(), [1; 18]), method("secret", true));
    assert!(matches!(step, Ok(client::Step::NeedBytes(_))), "{step:?}");
    assert_eq!(accepted.unwrap().keys, Some(keys.clone()));

    let denied = "password authentication failed for user \"u\" (28P01)";
    for (secret, method) in [
        (password("wrong"), method("secret", true)),
        (password("secret"), method("secret", false)),
        (Secret::ScramKeys(keys, [1; 18]), method("changed", true)),
    ] {
        let (refusal, step) = meet(secret, method);
        assert!(matches!(refusal, Err(Refusal::Scram { source: ScramError::WrongProof, .. })));
        let Err(LoginError::Refused(body)) = step else { panic!("{step:?}") };
        assert_eq!(body.to_string(), denied);
    }
}

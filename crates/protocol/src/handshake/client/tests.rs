use super::*;
use crate::backend::TransactionStatus;
use crate::report::ErrorReport;
use crate::sqlstate::SqlState;

fn login(secret: Secret, allow_cleartext: bool) -> Login {
    let channel = Channel::default();
    Login { user: "u".into(), database: "d".into(), parameters: Vec::new(), secret, allow_cleartext, channel }
}

fn password() -> Secret {
    Secret::Password((*b"secret").into())
}

/// What comes of a login when the server sends just this, and what is sent to it after the start-up message.
fn answered(login: Login, write: impl FnOnce(&mut Vec<u8>)) -> (Result<Step, LoginError>, Vec<u8>) {
    let (mut input, mut bytes, mut output) = (Buffer::default(), Vec::new(), Vec::new());
    let client = ClientHandshake::start(login, &mut output);
    output.clear();
    write(&mut bytes);
    input.extend(&bytes);
    (client.read(&mut input, &mut output), output)
}

fn notice(out: &mut Vec<u8>) {
    encode::notice_response(out, &ErrorReport::notice("hello"));
}

#[test]
fn a_trusting_server_is_entered() {
    let mut start = Vec::new();
    let mut login = login(Secret::None, false);
    login.parameters = vec![("work_mem".into(), "1MB".into())];
    let client = ClientHandshake::start(login, &mut start);
    let mut expected = Vec::new();
    let parameters = [("user", "u"), ("database", "d"), ("work_mem", "1MB")];
    encode::startup(&mut expected, parameters.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    assert_eq!(start, expected);

    let key = CancelKey { process_id: 9, secret: vec![7; 32].into() };
    let mut bytes = Vec::new();
    notice(&mut bytes);
    encode::parameter_status(&mut bytes, b"early", b"1");
    encode::authentication_ok(&mut bytes);
    encode::parameter_status(&mut bytes, b"TimeZone", b"UTC");
    encode::backend_key_data(&mut bytes, &key);
    encode::parameter_status(&mut bytes, b"early", b"2");
    notice(&mut bytes);
    encode::ready_for_query(&mut bytes, TransactionStatus::Idle);
    bytes.extend_from_slice(b"S\0");
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    input.extend(&bytes);
    let step = client.read(&mut input, &mut output);
    let Ok(Step::LoggedIn(logged_in)) = step else { panic!("{step:?}") };
    assert_eq!((input.filled(), &*output), (&b"S\0"[..], &b""[..]), "what follows is the session's");
    assert_eq!(logged_in.key, Some(key));
    assert_eq!(logged_in.notices.len(), 2);
    assert_eq!(logged_in.parameters.len(), 2);
    assert_eq!(logged_in.parameter("early"), Some(&b"2"[..]));
    assert_eq!(logged_in.parameter("TimeZone"), Some(&b"UTC"[..]));
    assert_eq!(logged_in.parameter("none"), None);
}

#[test]
fn passwords_are_given_as_asked_for() {
    let (step, output) = answered(login(password(), false), |out| {
        encode::authentication_md5_password(out, [42, 61, 143, 224]);
    });
    assert!(matches!(step, Ok(Step::NeedBytes(_))), "{step:?}");
    assert_eq!(&output[..8], b"p\0\0\0\x28md5");

    let (step, output) = answered(login(password(), true), encode::authentication_cleartext_password);
    assert!(matches!(step, Ok(Step::NeedBytes(_))), "{step:?}");
    assert_eq!(output, b"p\0\0\0\x0bsecret\0");

    let offer: &[&[u8]] = &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"];
    let (step, output) = answered(login(password(), false), |out| encode::authentication_sasl(out, offer));
    assert!(matches!(step, Ok(Step::NeedBytes(_))), "{step:?}");
    assert_eq!(&output[5..31], b"SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=");
}

#[test]
fn what_is_not_given() {
    let (step, output) = answered(login(password(), false), encode::authentication_cleartext_password);
    assert!(matches!(step, Err(LoginError::CleartextNotAllowed)), "{step:?}");
    assert_eq!(output, b"");

    let keys = Secret::ScramKeys(Keys { client_key: [1; 32], server_key: [2; 32] }, [3; NONCE_LEN]);
    for secret in [Secret::None, keys] {
        let (step, _) = answered(login(secret.clone(), true), encode::authentication_cleartext_password);
        assert!(matches!(step, Err(LoginError::PasswordRequired)), "{step:?}");
        let (step, _) = answered(login(secret, true), |out| encode::authentication_md5_password(out, [0; 4]));
        assert!(matches!(step, Err(LoginError::PasswordRequired)), "{step:?}");
    }
    let (step, _) =
        answered(login(Secret::None, true), |out| encode::authentication_sasl(out, &[b"SCRAM-SHA-256"]));
    assert!(matches!(step, Err(LoginError::PasswordRequired)), "{step:?}");

    let (step, _) = answered(login(password(), true), |out| encode::raw(out, b'R', &[0, 0, 0, 7]));
    assert_eq!(step.unwrap_err().to_string(), "authentication method 7 is not supported");
    let (step, _) =
        answered(login(password(), true), |out| encode::authentication_sasl(out, &[b"OAUTHBEARER", b"X"]));
    assert_eq!(step.unwrap_err().to_string(), "authentication method OAUTHBEARER, X is not supported");
}

#[test]
fn the_servers_error_is_kept_as_it_came() {
    let report = ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, "database \"d\" does not exist");
    let mut expected = Vec::new();
    encode::error_response(&mut expected, &report);
    let (step, _) = answered(login(Secret::None, false), |out| {
        encode::authentication_ok(out);
        encode::parameter_status(out, b"a", b"b");
        encode::error_response(out, &report);
    });
    let Err(LoginError::Refused(body)) = step else { panic!("{step:?}") };
    assert_eq!(body.as_bytes(), &expected[5..]);
    assert_eq!(body.fields().code(), SqlState::INVALID_CATALOG_NAME);
    assert_eq!(body.to_string(), "database \"d\" does not exist (3D000)");
}

#[test]
fn messages_out_of_turn_are_refused() {
    let ready = |out: &mut Vec<u8>| encode::ready_for_query(out, TransactionStatus::Idle);
    let (step, _) = answered(login(Secret::None, false), ready);
    assert_eq!(step.unwrap_err().to_string(), "expected an authentication request, got message type 90");

    // A server may not skip its half of the proof.
    let (step, _) = answered(login(password(), false), |out| {
        encode::authentication_sasl(out, &[b"SCRAM-SHA-256"]);
        encode::authentication_ok(out);
    });
    assert_eq!(step.unwrap_err().to_string(), "expected AuthenticationSASLContinue, got message type 82");

    let (step, _) = answered(login(Secret::None, false), |out| {
        encode::authentication_ok(out);
        encode::authentication_ok(out);
    });
    assert_eq!(step.unwrap_err().to_string(), "expected ReadyForQuery, got message type 82");

    let (step, _) = answered(login(password(), false), |out| {
        encode::authentication_sasl(out, &[b"SCRAM-SHA-256"]);
        encode::authentication_sasl_continue(out, b"r=other,s=AAAA,i=1");
    });
    assert!(matches!(step, Err(LoginError::Password(_))), "{step:?}");
}

#[test]
fn what_is_collected_is_bounded() {
    let (step, _) = answered(login(Secret::None, false), |out| {
        for _ in 0..20 {
            encode::parameter_status(out, b"a", &b"x".repeat(60_000));
        }
    });
    assert!(matches!(step, Err(LoginError::TooMuch)), "{step:?}");
    let (step, _) = answered(login(Secret::None, false), |out| encode::raw(out, b'N', &b"x".repeat(70_000)));
    assert!(matches!(step, Err(LoginError::Frame(FrameError::TooLong { .. }))), "{step:?}");
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", login(password(), true));
    assert!(!shown.contains("secret\"") && !shown.contains("115"), "{shown}");
}

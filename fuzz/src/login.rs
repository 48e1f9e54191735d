//! Everything up to the first query: the first packet, both handshakes, SCRAM.

use causeway_protocol::backend::{self, TransactionStatus};
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::frame::{self, HEADER_LEN, MAX_FRAME_LEN};
use causeway_protocol::handshake::client::{self, Channel, ClientHandshake, Login, Secret};
use causeway_protocol::handshake::server::{self, Method, ServerHandshake};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::scram::client::AwaitServerFirst;
use causeway_protocol::scram::{Binding, Exchange, Keys, MECHANISM, NONCE_LEN, Verifier};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::{self, CancelKey, MAX_PACKET_LEN, Packet, Startup};

use super::input::{Input, pieces};

const CLIENT_NONCE: [u8; NONCE_LEN] = [1; NONCE_LEN];
const SERVER_NONCE: [u8; NONCE_LEN] = [2; NONCE_LEN];
const PASSWORD: &[u8] = b"a-password-to-be-kept";
/// The most messages of a script.
const SCRIPT_LEN: usize = 24;

/// The keys behind [`verifier`], which no password gives: nothing has to be derived.
fn keys() -> Keys {
    let from = |first: u8| std::array::from_fn(|i| u8::try_from(i).map_or(0, |i| first + i));
    Keys { client_key: from(0), server_key: from(32) }
}

fn verifier() -> Verifier {
    let text = "SCRAM-SHA-256$4096:c2FsdA==\
                $Yw3NKWbEM2aRElRIu7JbT/QSpJxzLbLIq8G4WBvXEN0=:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    Verifier::parse(text).expect("the text is a verifier")
}

/// The four messages of an exchange that succeeds: the same every time, since the nonces are.
struct Transcript {
    client_first: String,
    server_first: String,
    client_final: String,
    server_final: String,
}

fn transcript() -> Transcript {
    let (client, client_first) = AwaitServerFirst::start(keys(), CLIENT_NONCE, Binding::Unsupported);
    let exchange = Exchange::new(verifier(), SERVER_NONCE, true);
    let (exchange, server_first) = exchange.client_first(client_first.as_bytes()).expect("it is right");
    let (client, client_final) = client.server_first(server_first.as_bytes()).expect("it is right");
    let verified = exchange.client_final(client_final.as_bytes()).expect("it is right");
    client.server_final(verified.server_final.as_bytes()).expect("it is right");
    Transcript { client_first, server_first, client_final, server_final: verified.server_final }
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

// === the first packet ===

/// A first packet is parsed or refused, alike however much follows it; what was understood can be written again; and
/// the handshake sees the same packet.
pub fn startup(data: &[u8]) {
    let announced = data.first_chunk().map(|word| u32::from_be_bytes(*word) as usize);
    match startup::parse(data) {
        Ok(Some((packet, len))) => {
            assert_eq!(Some(len), announced);
            assert_eq!(startup::parse(&data[..len]), Ok(Some((packet.clone(), len))), "what follows counts");
            assert_eq!(startup::parse(&data[..len - 1]), Ok(None), "a part is enough");
            match packet {
                Packet::Ssl => written(&data[..len], encode::ssl_request),
                Packet::GssEnc => written(&data[..len], encode::gssenc_request),
                Packet::Cancel(key) => written(&data[..len], |out| encode::cancel_request(out, &key)),
                Packet::Startup(startup) => {
                    settings(&startup);
                    asks_for_a_method(&data[..len], &startup);
                }
            }
        }
        Ok(None) => assert!(announced.is_none_or(|len| data.len() < len && len <= MAX_PACKET_LEN + 4)),
        Err(error) => {
            let mut output = Vec::new();
            let mut input = filled(data);
            assert!(ServerHandshake::in_direct_tls().read(&mut input, &mut output).is_err());
            if let Some(report) = error.report() {
                let body = output.get(HEADER_LEN..).unwrap_or_default();
                let fields = backend::error_fields(body).expect("the client is told why");
                assert_eq!(fields.code(), report.code);
            } else {
                assert!(output.is_empty());
            }
        }
    }
}

fn filled(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::default();
    buffer.extend(bytes);
    buffer
}

fn written(packet: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    assert_eq!(out, packet);
}

/// The settings, sent one by one, are understood as the same settings.
fn settings(startup: &Startup) {
    let names: Vec<_> = startup.settings.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    for (i, name) in names.iter().enumerate() {
        assert!(!names[..i].contains(name), "{name} twice");
        assert_eq!(startup.setting(name), Some(&*startup.settings[i].1));
    }
    let special = |name: &String| {
        matches!(name.as_str(), "" | "user" | "database" | "options" | "replication")
            || name.starts_with("_pq_.")
    };
    if names.iter().any(special) {
        return;
    }
    let mut out = Vec::new();
    let identity = [("user", &startup.user), ("database", &startup.database)];
    let settings = startup.settings.iter().map(|(name, value)| (&**name, value));
    let all = identity.into_iter().chain(settings).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    encode::startup(&mut out, all);
    if out.len() > MAX_PACKET_LEN + 4 {
        return;
    }
    let Ok(Some((Packet::Startup(again), len))) = startup::parse(&out) else {
        panic!("not a start-up message")
    };
    assert_eq!(len, out.len());
    assert_eq!((&again.user, &again.database), (&startup.user, &startup.database));
    assert_eq!(again.settings, startup.settings);
    assert!(!again.needs_negotiation());
}

/// The handshake stops behind the packet, and has sent nothing but a negotiation.
fn asks_for_a_method(packet: &[u8], startup: &Startup) {
    let mut input = filled(packet);
    input.extend(b"p");
    let mut output = Vec::new();
    match ServerHandshake::new(true).read(&mut input, &mut output) {
        Ok(server::Step::NeedMethod(asked)) => assert_eq!(asked.startup(), startup),
        other => panic!("{other:?}"),
    }
    assert_eq!(input.filled(), b"p");
    assert_eq!(!output.is_empty(), startup.needs_negotiation());
    if let Ok(Some((frame, len))) = frame::split(&output, MAX_FRAME_LEN) {
        let negotiation = backend::negotiation(frame.body).expect("it is a negotiation");
        assert_eq!((frame.tag, len), (backend::tag::NEGOTIATE_PROTOCOL_VERSION, output.len()));
        assert_eq!(negotiation.options().count(), startup.unknown_protocol_options.len());
    }
}

// === the handshake with a client ===

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Trust,
    Scram { known_user: bool },
    Reject,
}

/// How a handshake ended: what became of it, what was sent, and what it left unread.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    outcome: String,
    output: Vec<u8>,
    left: Vec<u8>,
}

/// A scripted client is let in only with the right proof, whatever else it sends, and however that is cut into reads.
///
/// The input: whether TLS is offered, how clients are authenticated, the lengths of the reads behind a byte with their
/// number, and for each message a byte that tells what it is, with what that takes.
pub fn server_handshake(data: &[u8]) {
    let mut input = Input::new(data);
    let offers_tls = input.flag();
    let scram = |known_user| Way::Scram { known_user };
    let way = input.pick(&[scram(true), scram(false), Way::Trust, Way::Reject]);
    let lengths = input.piece();
    let right = transcript();
    let script = client_script(input, &right);
    let stream = script.concat();

    let parts: Vec<_> = script.iter().map(Vec::as_slice).collect();
    let whole = serve(&parts, offers_tls, way);
    let reads: Vec<_> = parts.iter().flat_map(|part| pieces(part, lengths)).collect();
    let cut = serve(&reads, offers_tls, way);
    // What comes behind a request for encryption is refused if it is there when the request is read.
    if ![&whole, &cut].iter().any(|ending| ending.outcome.contains("UnencryptedData")) {
        assert_eq!(cut, whole, "the reads decide");
    }
    assert!(stream.ends_with(&whole.left));
    let accepted = whole.outcome.starts_with("Accepted");
    if accepted {
        let proven = way == Way::Scram { known_user: true } && contains(&stream, &right.client_final);
        assert!(proven || way == Way::Trust, "let in without a proof: {whole:?}");
    }
    answers(&whole, accepted);
}

/// What the client sends; a part ends where it waits for the answer to a request for encryption.
fn client_script(mut input: Input<'_>, right: &Transcript) -> Vec<Vec<u8>> {
    let (mut parts, mut out) = (Vec::new(), Vec::new());
    let first = right.client_first.as_bytes();
    for _ in 0..SCRIPT_LEN {
        if input.is_empty() {
            break;
        }
        match input.byte() % 13 {
            0 => encode::startup(&mut out, [(&b"user"[..], &b"u"[..]), (b"database", b"d")]),
            1 => encode::sasl_initial_response(&mut out, MECHANISM.as_bytes(), Some(first)),
            2 => encode::sasl_response(&mut out, right.client_final.as_bytes()),
            3 => {
                encode::ssl_request(&mut out);
                parts.push(std::mem::take(&mut out));
            }
            4 => {
                encode::gssenc_request(&mut out);
                parts.push(std::mem::take(&mut out));
            }
            5 => encode::sasl_initial_response(&mut out, MECHANISM.as_bytes(), None),
            6 => encode::sasl_response(&mut out, first),
            7 => encode::startup(&mut out, [(&b"user"[..], &b"u"[..]), (input.piece(), input.piece())]),
            8 => {
                let mut proof = right.client_final.clone().into_bytes();
                let at = usize::from(input.byte()) % proof.len();
                proof[at] ^= input.byte().max(1);
                encode::sasl_response(&mut out, &proof);
            }
            9 => encode::raw(&mut out, input.byte(), input.piece()),
            10 => encode::raw(&mut out, b'p', input.piece()),
            11 => {
                encode::cancel_request(&mut out, &CancelKey { process_id: 1, secret: input.piece().into() });
            }
            _ => out.extend_from_slice(input.piece()),
        }
    }
    parts.push(out);
    parts
}

fn serve(reads: &[&[u8]], offers_tls: bool, way: Way) -> Ending {
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    let mut handshake = ServerHandshake::new(offers_tls);
    let mut outcome = "incomplete".to_owned();
    let mut reads = reads.iter();
    'reads: for read in reads.by_ref() {
        input.extend(read);
        loop {
            let mut step = handshake.read(&mut input, &mut output);
            if let Ok(server::Step::NeedMethod(asked)) = step {
                step = asked.resume(method(way), &mut input, &mut output);
            }
            match step {
                Ok(server::Step::NeedBytes(next)) => {
                    handshake = next;
                    break;
                }
                // The rest stands for what would be decrypted.
                Ok(server::Step::StartTls(next)) => handshake = next,
                Ok(server::Step::Accepted(accepted)) => {
                    assert_eq!(accepted.keys.is_some(), way != Way::Trust);
                    assert!(accepted.keys.is_none_or(|revealed| revealed == keys()));
                    outcome = format!("Accepted {:?}", accepted.startup);
                    break 'reads;
                }
                Ok(other) => {
                    outcome = format!("{other:?}");
                    break 'reads;
                }
                Err(refusal) => {
                    outcome = format!("refused: {refusal:?}");
                    // Nothing more is read from it.
                    return Ending { outcome, output, left: Vec::new() };
                }
            }
        }
    }
    let left = reads.fold(input.filled().to_vec(), |left, read| [&left[..], read].concat());
    Ending { outcome, output, left }
}

fn method(way: Way) -> Method {
    match way {
        Way::Trust => Method::Trust,
        Way::Scram { known_user } => {
            Method::ScramSha256 { verifier: verifier(), nonce: SERVER_NONCE, known_user, end_point: None }
        }
        Way::Reject => Method::Reject(ErrorReport::fatal(SqlState::INVALID_AUTHORIZATION, "no")),
    }
}

/// What a client is sent can be read: one byte for each request for encryption, then whole frames, of which
/// `AuthenticationOk` comes last and only to who is let in, and an error only to who is not.
fn answers(ending: &Ending, accepted: bool) {
    let mut rest = &ending.output[..];
    while let [b'N' | b'S', tail @ ..] = rest {
        rest = tail;
    }
    let mut last = None;
    while let Ok(Some((frame, len))) = frame::split(rest, MAX_FRAME_LEN) {
        let ok = frame.tag == b'R' && frame.body == [0; 4];
        assert!(matches!(last, None | Some((b'R' | b'v', false))), "sent after the last word: {ending:?}");
        last = Some((frame.tag, ok));
        rest = &rest[len..];
    }
    assert!(rest.is_empty(), "half a frame: {ending:?}");
    assert_eq!(last.is_some_and(|(_, ok)| ok), accepted, "{ending:?}");
    if last.is_some_and(|(tag, _)| tag == b'E') {
        assert!(ending.outcome.starts_with("refused"), "{ending:?}");
    }
}

// === the handshake with a server ===

/// The proxy logs in at a scripted server only by a way that the protocol has, tells it no password it must not, and
/// comes to the same end however the server's bytes are cut into reads.
///
/// The input: the secret, whether the password may be sent as it is, the lengths of the reads behind a byte with their
/// number, and for each message a byte that tells what it is, with what that takes.
pub fn client_handshake(data: &[u8]) {
    let mut input = Input::new(data);
    let secret = input.byte() % 3;
    let allow_cleartext = input.flag();
    let lengths = input.piece();
    let right = transcript();
    let stream = server_script(input, &right);

    let whole = log_in(&[&stream], secret, allow_cleartext);
    let cut = log_in(&pieces(&stream, lengths), secret, allow_cleartext);
    assert_eq!((&cut.outcome, &cut.left), (&whole.outcome, &whole.left), "the reads decide");
    // With a password the nonce is drawn inside.
    assert_eq!(cut.output.len(), whole.output.len());
    assert!(secret == PASSWORD_KNOWN || cut.output == whole.output);
    let told = whole.output.windows(PASSWORD.len()).any(|window| window == PASSWORD);
    assert!(!told || allow_cleartext && secret == PASSWORD_KNOWN, "the password is out");
    if whole.outcome.starts_with("LoggedIn") {
        let read = &stream[..stream.len() - whole.left.len()];
        authenticated(read, secret, allow_cleartext, &right);
    }
}

const NOTHING_KNOWN: u8 = 0;
const PASSWORD_KNOWN: u8 = 1;

fn log_in(reads: &[&[u8]], secret: u8, allow_cleartext: bool) -> Ending {
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    let secret = match secret {
        NOTHING_KNOWN => Secret::None,
        PASSWORD_KNOWN => Secret::Password(PASSWORD.into()),
        _ => Secret::ScramKeys(keys(), CLIENT_NONCE),
    };
    let parameters = vec![("application_name".into(), "fuzz".into())];
    let login = Login {
        user: "u".into(),
        database: "d".into(),
        parameters,
        secret,
        allow_cleartext,
        channel: Channel::default(),
    };
    let mut handshake = ClientHandshake::start(login, &mut output);
    assert!(matches!(startup::parse(&output), Ok(Some((Packet::Startup(_), len))) if len == output.len()));
    let mut reads = reads.iter();
    let mut outcome = "incomplete".to_owned();
    for read in reads.by_ref() {
        input.extend(read);
        match handshake.read(&mut input, &mut output) {
            Ok(client::Step::NeedBytes(next)) => handshake = next,
            Ok(client::Step::LoggedIn(logged_in)) => {
                outcome = format!("LoggedIn {logged_in:?}");
                break;
            }
            Err(error) => return Ending { outcome: format!("{error:?}"), output, left: Vec::new() },
        }
    }
    let left = reads.fold(input.filled().to_vec(), |left, read| [&left[..], read].concat());
    Ending { outcome, output, left }
}

fn server_script(mut input: Input<'_>, right: &Transcript) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..SCRIPT_LEN {
        if input.is_empty() {
            break;
        }
        match input.byte() % 16 {
            0 => encode::authentication_ok(&mut out),
            1 => encode::authentication_sasl(&mut out, &[b"OTHER", MECHANISM.as_bytes()]),
            2 => encode::authentication_sasl_continue(&mut out, right.server_first.as_bytes()),
            3 => encode::authentication_sasl_final(&mut out, right.server_final.as_bytes()),
            4 => encode::ready_for_query(&mut out, TransactionStatus::Idle),
            5 => encode::authentication_md5_password(&mut out, [7; 4]),
            6 => encode::authentication_cleartext_password(&mut out),
            7 => encode::parameter_status(&mut out, b"TimeZone", input.piece()),
            8 => encode::notice_response(&mut out, &ErrorReport::notice("a notice")),
            9 => {
                encode::backend_key_data(
                    &mut out,
                    &CancelKey { process_id: 1, secret: input.piece().into() },
                );
            }
            10 => encode::error_response(
                &mut out,
                &ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, "no such database"),
            ),
            11 => {
                let mut message = [right.server_first.as_bytes(), right.server_final.as_bytes()]
                    [usize::from(input.flag())]
                .to_vec();
                let at = usize::from(input.byte()) % message.len();
                message[at] ^= input.byte().max(1);
                let code = 11 + u32::from(input.flag());
                encode::raw(&mut out, b'R', &[&code.to_be_bytes(), &message[..]].concat());
            }
            12 => encode::raw(&mut out, input.byte(), input.piece()),
            13 => encode::raw(&mut out, b'R', input.piece()),
            14 => encode::negotiate_protocol_version(&mut out, 0x0003_0000, &["_pq_.x"]),
            _ => out.extend_from_slice(input.piece()),
        }
    }
    out
}

/// What the server sent on the way to the end of the login was one of the ways in.
fn authenticated(read: &[u8], secret: u8, allow_cleartext: bool, right: &Transcript) {
    let mut rest = read;
    let mut codes = Vec::new();
    let mut last = 0;
    while let Ok(Some((frame, len))) = frame::split(rest, MAX_FRAME_LEN) {
        if frame.tag == b'R' {
            codes.extend(frame.body.first_chunk().map(|code| u32::from_be_bytes(*code)));
        }
        last = frame.tag;
        rest = &rest[len..];
    }
    assert!(rest.is_empty() && last == b'Z', "the login ends at ReadyForQuery");
    match *codes {
        [0] => {}
        [3, 0] => assert!(allow_cleartext && secret == PASSWORD_KNOWN),
        [5, 0] => assert_eq!(secret, PASSWORD_KNOWN),
        [10, 11, 12, 0] => {
            assert!(
                secret > PASSWORD_KNOWN && contains(read, &right.server_final),
                "the server proved nothing"
            );
        }
        _ => panic!("authenticated by {codes:?}"),
    }
}

// === SCRAM ===

/// Whatever is changed in whatever message of an exchange, it fails, on the side that gets the message; and it succeeds
/// if nothing is. Other messages are refused, and texts are verifiers or not.
///
/// The input: whether the user is known, and what is tried, with what that takes.
pub fn scram(data: &[u8]) {
    let mut input = Input::new(data);
    let known_user = input.flag();
    match input.byte() % 3 {
        0 => tampered(input, known_user),
        1 => {
            let exchange = Exchange::new(verifier(), SERVER_NONCE, known_user);
            let first = input.piece();
            if let Ok((exchange, answer)) = exchange.client_first(first) {
                assert!(answer.starts_with("r=") && answer.ends_with(",s=c2FsdA==,i=4096"), "{answer}");
                assert!(exchange.client_final(input.rest()).is_err(), "nobody can guess a proof");
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(input.rest())
                && let Ok(verifier) = Verifier::parse(text)
            {
                assert_eq!(Verifier::parse(&verifier.to_string()), Ok(verifier));
            }
        }
    }
}

fn tampered(mut input: Input<'_>, known_user: bool) {
    let which = input.byte() % 5;
    let at = usize::from(input.byte());
    let mask = input.byte();
    let change = |message: String, number: u8| {
        let mut bytes = message.into_bytes();
        if number == which {
            let at = at % bytes.len();
            bytes[at] ^= mask;
        }
        bytes
    };
    let changed = which < 4 && mask != 0;

    let (client, client_first) = AwaitServerFirst::start(keys(), CLIENT_NONCE, Binding::Unsupported);
    let exchange = Exchange::new(verifier(), SERVER_NONCE, known_user);
    let Ok((exchange, server_first)) = exchange.client_first(&change(client_first, 0)) else {
        return assert!(changed, "the first message is right");
    };
    // "r=" and the client's nonce in base64: a server that repeats another one answers another client.
    let in_nonce = changed && which == 1 && (2..26).contains(&(at % server_first.len()));
    let Ok((client, client_final)) = client.server_first(&change(server_first, 1)) else {
        return assert!(changed, "the server's first message is right");
    };
    assert!(!in_nonce, "an answer to another client");
    match exchange.client_final(&change(client_final, 2)) {
        Ok(verified) => {
            assert!(known_user && (!changed || which == 3), "let in with a changed message {which}");
            assert!(verified.keys == keys());
            let proven = client.server_final(&change(verified.server_final, 3));
            assert_eq!(proven.is_ok(), !changed, "a proof of the server that was changed");
        }
        Err(_) => assert!(changed && which < 3 || !known_user, "an exchange without a change failed"),
    }
}

//! How the bytes of a handshake are cut into reads changes nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::handshake::client::{self, ClientHandshake, Login, Secret};
use causeway_protocol::handshake::server::{self, Method, ServerHandshake};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::scram::client::AwaitServerFirst;
use causeway_protocol::scram::{Binding, Exchange, Keys, MECHANISM, Verified, Verifier};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::CancelKey;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const CLIENT_NONCE: [u8; 18] = [1; 18];
const SERVER_NONCE: [u8; 18] = [2; 18];

fn verifier() -> Verifier {
    Verifier::derive(b"secret", b"salt", 2)
}

/// All four messages of the exchange, which are the same every time, and the keys it reveals.
struct Transcript {
    client_first: String,
    server_first: String,
    client_final: String,
    verified: Verified,
}

fn transcript(keys: Keys) -> Transcript {
    let (client, client_first) = AwaitServerFirst::start(keys, CLIENT_NONCE, Binding::Unsupported);
    let exchange = Exchange::new(verifier(), SERVER_NONCE, true);
    let (exchange, server_first) = exchange.client_first(client_first.as_bytes()).unwrap();
    let (_, client_final) = client.server_first(server_first.as_bytes()).unwrap();
    let verified = exchange.client_final(client_final.as_bytes()).unwrap();
    Transcript { client_first, server_first, client_final, verified }
}

/// The keys of the password "secret", revealed by a client that knows it.
fn keys() -> Keys {
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    let mut client = ScramSha256::new(b"secret", ChannelBinding::unsupported());
    let exchange = Exchange::new(verifier(), SERVER_NONCE, true);
    let (exchange, answer) = exchange.client_first(client.message()).unwrap();
    client.update(answer.as_bytes()).unwrap();
    exchange.client_final(client.message()).unwrap().keys
}

/// The pieces of `bytes` between `cuts`.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.push(bytes.len());
    at.sort_unstable();
    let starts = std::iter::once(0).chain(at.iter().copied());
    starts.zip(&at).map(|(start, end)| &bytes[start..*end]).collect()
}

/// How the server's side ends, what it sends, and what it leaves unread.
fn serve(pieces: &[&[u8]], scram: bool) -> (String, Vec<u8>) {
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    let mut handshake = ServerHandshake::new(false);
    for piece in pieces {
        input.extend(piece);
        let mut step = handshake.read(&mut input, &mut output);
        if let Ok(server::Step::NeedMethod(asked)) = step {
            let method = if scram {
                Method::ScramSha256 {
                    verifier: verifier(),
                    nonce: SERVER_NONCE,
                    known_user: true,
                    end_point: None,
                }
            } else {
                Method::Trust
            };
            step = asked.resume(method, &mut input, &mut output);
        }
        match step {
            Ok(server::Step::NeedBytes(next)) => handshake = next,
            other => return (format!("{other:?}"), output),
        }
    }
    ("incomplete".to_owned(), output)
}

fn log_in(pieces: &[&[u8]]) -> (String, Vec<u8>) {
    let (mut input, mut output) = (Buffer::default(), Vec::new());
    let login = Login {
        user: "u".into(),
        database: "d".into(),
        parameters: Vec::new(),
        secret: Secret::ScramKeys(keys(), CLIENT_NONCE),
        allow_cleartext: false,
        channel: client::Channel::default(),
    };
    let mut handshake = ClientHandshake::start(login, &mut output);
    for piece in pieces {
        input.extend(piece);
        match handshake.read(&mut input, &mut output) {
            Ok(client::Step::NeedBytes(next)) => handshake = next,
            other => return (format!("{other:?}"), output),
        }
    }
    ("incomplete".to_owned(), output)
}

fn client_bytes(requests: &str, parameters: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for request in requests.chars() {
        match request {
            's' => encode::ssl_request(&mut out),
            _ => encode::gssenc_request(&mut out),
        }
    }
    let named = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    encode::startup(&mut out, std::iter::once((&b"user"[..], &b"u"[..])).chain(named));
    let Transcript { client_first, client_final, .. } = transcript(keys());
    encode::sasl_initial_response(&mut out, MECHANISM.as_bytes(), Some(client_first.as_bytes()));
    encode::sasl_response(&mut out, client_final.as_bytes());
    out
}

fn server_bytes(notices: &[bool], refused: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut notices = notices.iter();
    let mut interject = |out: &mut Vec<u8>| {
        if notices.next() == Some(&true) {
            encode::notice_response(out, &ErrorReport::notice("in between"));
            encode::parameter_status(out, b"TimeZone", b"UTC");
        }
    };
    let Transcript { server_first, verified, .. } = transcript(keys());
    interject(&mut out);
    encode::authentication_sasl(&mut out, &[MECHANISM.as_bytes()]);
    interject(&mut out);
    encode::authentication_sasl_continue(&mut out, server_first.as_bytes());
    interject(&mut out);
    encode::authentication_sasl_final(&mut out, verified.server_final.as_bytes());
    interject(&mut out);
    encode::authentication_ok(&mut out);
    interject(&mut out);
    if refused {
        encode::error_response(
            &mut out,
            &ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, "no such database"),
        );
    }
    encode::backend_key_data(&mut out, &CancelKey { process_id: 1, secret: vec![2; 4].into() });
    interject(&mut out);
    encode::ready_for_query(&mut out, TransactionStatus::Idle);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_a_clients_bytes(
        requests in prop_oneof![Just(""), Just("s"), Just("g"), Just("sg"), Just("gs")],
        parameters in vec(("(database|options|_pq_.x|[a-z]{1,5})", "[a-z]{0,5}"), 0..4),
        damage in proptest::option::of((any::<Index>(), any::<u8>())),
        scram in any::<bool>(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let mut bytes = client_bytes(requests, &parameters);
        let intact = damage.is_none() && !parameters.iter().any(|(name, _)| name == "options");
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // A client waits for the answer to each request for encryption: what it sends before that is refused.
        let (asked, rest) = bytes.split_at(requests.len() * 8);
        let in_turn: Vec<&[u8]> = asked.chunks(8).collect();
        let whole = serve(&[&in_turn[..], &[rest]].concat(), scram);
        let split = [in_turn.clone(), pieces(rest, &cuts)].concat();
        prop_assert_eq!(serve(&split, scram), whole.clone());
        if intact {
            prop_assert!(whole.0.starts_with("Ok(Accepted"), "{}", whole.0);
        }
    }

    #[test]
    fn of_a_servers_bytes(
        notices in vec(any::<bool>(), 6),
        refused in any::<bool>(),
        damage in proptest::option::of((any::<Index>(), any::<u8>())),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let mut bytes = server_bytes(&notices, refused);
        let intact = damage.is_none();
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = log_in(&[&bytes]);
        prop_assert_eq!(log_in(&pieces(&bytes, &cuts)), whole.clone());
        if intact {
            let expected = if refused { "Err(Refused" } else { "Ok(LoggedIn" };
            prop_assert!(whole.0.starts_with(expected), "{}", whole.0);
        }
    }

    #[test]
    fn of_any_bytes(bytes in vec(any::<u8>(), 0..200), cuts in vec(any::<Index>(), 0..8)) {
        prop_assert_eq!(serve(&pieces(&bytes, &cuts), true), serve(&[&bytes], true));
        prop_assert_eq!(log_in(&pieces(&bytes, &cuts)), log_in(&[&bytes]));
    }
}

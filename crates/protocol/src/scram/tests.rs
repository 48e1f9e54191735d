use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use postgres_protocol::password;

use super::client::AwaitServerFirst;
use super::*;

const NONCE: [u8; NONCE_LEN] = *b"eighteen bytes now";

fn verifier(password: &str) -> Verifier {
    Verifier::derive(password.as_bytes(), b"0123456789abcdef", 64)
}

/// The other client's way through the exchange.
fn log_in(
    verifier: &Verifier,
    known_user: bool,
    password: &str,
    binding: ChannelBinding,
) -> Result<Verified, ScramError> {
    let mut client = ScramSha256::new(password.as_bytes(), binding);
    let exchange = Exchange::new(verifier.clone(), NONCE, known_user);
    let (exchange, answer) = exchange.client_first(client.message())?;
    client.update(answer.as_bytes()).unwrap();
    let verified = exchange.client_final(client.message())?;
    client.finish(verified.server_final.as_bytes()).unwrap();
    Ok(verified)
}

#[test]
fn the_exchange_of_rfc_7677() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let verifier = Verifier::derive(b"pencil", &salt, 4096);
    let client_first_bare = "n=user,r=rOprNGfwEbeRWgbNEkqO";
    // The nonce of the RFC's server is not base64 of 18 bytes: the state is made by hand.
    let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
    let exchange = AwaitProof {
        verifier,
        known_user: true,
        binding: Binding::Unsupported,
        client_first_bare: client_first_bare.to_owned(),
        server_first: format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        nonce: nonce.clone(),
    };
    let proof = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let verified = exchange.client_final(proof.as_bytes()).unwrap();
    assert_eq!(verified.server_final, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

#[test]
fn postgres_protocol_logs_in() {
    let verifier = verifier("secret");
    for binding in [ChannelBinding::unsupported(), ChannelBinding::unrequested()] {
        assert!(log_in(&verifier, true, "secret", binding).is_ok());
    }
    let none = ChannelBinding::unsupported;
    assert_eq!(log_in(&verifier, true, "Secret", none()), Err(ScramError::WrongProof));
    assert_eq!(log_in(&verifier, false, "secret", none()), Err(ScramError::WrongProof));
    let bound = ChannelBinding::tls_server_end_point(vec![1]);
    assert!(matches!(log_in(&verifier, true, "secret", bound), Err(ScramError::Malformed(_))));
}

#[test]
fn verifiers_are_the_ones_of_postgres_protocol() {
    // Its own are salted at random: derive with that salt and compare the whole.
    for password in ["secret", "", "I\u{ad}X", "\u{aa}", "pass\u{7}word", "gr\u{fc}n\u{2000}!"] {
        let theirs = Verifier::parse(&password::scram_sha_256(password.as_bytes())).unwrap();
        assert_eq!(
            Verifier::derive(password.as_bytes(), &theirs.salt, theirs.iterations),
            theirs,
            "{password:?}"
        );
        assert!(theirs.matches(password.as_bytes()));
        assert!(!theirs.matches(b"other"));
    }
    let not_utf8 = b"\xff\xfe";
    let theirs = Verifier::parse(&password::scram_sha_256(not_utf8)).unwrap();
    assert!(theirs.matches(not_utf8));
}

#[test]
fn long_keys_are_hashed() {
    let long = "x".repeat(65);
    let theirs = Verifier::parse(&password::scram_sha_256(long.as_bytes())).unwrap();
    assert!(theirs.matches(long.as_bytes()));
    assert!(!theirs.matches("x".repeat(64).as_bytes()));
}

#[test]
fn verifiers_are_read_and_written() {
    let text = verifier("secret").to_string();
    assert!(text.starts_with("SCRAM-SHA-256$64:MDEyMzQ1Njc4OWFiY2RlZg==$"), "{text}");
    assert_eq!(Verifier::parse(&text), Ok(verifier("secret")));
    let shown = format!("{:?}", verifier("secret"));
    assert_eq!(shown, "Verifier { iterations: 64, .. }");
    let key = STANDARD.encode([0; 32]);
    for bad in [
        String::new(),
        "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        text.replace("SHA-256", "SHA-1"),
        text.replace("$64:", "$0:"),
        text.replace("$64:", "$-1:"),
        text.replace("$64:", "$4000000000:"),
        format!("SCRAM-SHA-256$64:$${key}:{key}"),
        format!("SCRAM-SHA-256$64:$:{key}:{key}"),
        format!("SCRAM-SHA-256$64:AAAA${key}:AAAA"),
        format!("SCRAM-SHA-256$64:AAAA${key}"),
        text.trim_end_matches('=').to_owned(),
        format!("{text} "),
    ] {
        assert_eq!(Verifier::parse(&bad), Err(VerifierError), "{bad:?}");
    }
}

#[test]
fn mocks_do_not_tell_and_do_not_open() {
    let mock = Verifier::mock(b"secret", "nobody");
    assert_eq!(mock, Verifier::mock(b"secret", "nobody"), "the same at every attempt");
    assert_ne!(mock, Verifier::mock(b"secret", "somebody"));
    assert_ne!(mock, Verifier::mock(b"other", "nobody"));
    let real = Verifier::parse(&password::scram_sha_256(b"x")).unwrap();
    assert_eq!((mock.salt.len(), mock.iterations), (real.salt.len(), real.iterations));
    for known_user in [true, false] {
        let result = log_in(&mock, known_user, "x", ChannelBinding::unsupported());
        assert_eq!(result, Err(ScramError::WrongProof));
    }
}

#[test]
fn revealed_keys_log_in_elsewhere() {
    let verifier = verifier("secret");
    let Verified { keys, .. } = log_in(&verifier, true, "secret", ChannelBinding::unsupported()).unwrap();
    assert_eq!(sha256(&[&keys.client_key]), verifier.stored_key);

    let (client, first) = AwaitServerFirst::start(keys.clone(), [7; NONCE_LEN], Binding::Unsupported);
    let exchange = Exchange::new(verifier.clone(), NONCE, true);
    let (exchange, answer) = exchange.client_first(first.as_bytes()).unwrap();
    let (client, proof) = client.server_first(answer.as_bytes()).unwrap();
    let verified = exchange.client_final(proof.as_bytes()).unwrap();
    assert_eq!(client.server_final(verified.server_final.as_bytes()), Ok(()));
    assert_eq!(verified.keys, keys);

    // A server without the verifier is found out.
    let (client, first) = AwaitServerFirst::start(keys, [7; NONCE_LEN], Binding::Unsupported);
    let (_, answer) = Exchange::new(verifier, NONCE, true).client_first(first.as_bytes()).unwrap();
    let (client, _) = client.server_first(answer.as_bytes()).unwrap();
    let forged = format!("v={}", STANDARD.encode([0; 32]));
    assert_eq!(client.server_final(forged.as_bytes()), Err(ScramError::WrongProof));
}

#[test]
fn foreign_nonces_are_refused_by_the_client() {
    let keys = Keys { client_key: [1; 32], server_key: [2; 32] };
    let own = STANDARD.encode([7; NONCE_LEN]);
    for answer in [format!("r={own},s=AAAA,i=1"), "r=x,s=AAAA,i=1".to_owned(), "x".to_owned(), String::new()]
    {
        let (client, _) = AwaitServerFirst::start(keys.clone(), [7; NONCE_LEN], Binding::Unsupported);
        assert!(matches!(client.server_first(answer.as_bytes()), Err(ScramError::Malformed(_))), "{answer}");
    }
}

#[test]
fn first_messages_that_are_refused() {
    let table: &[(&[u8], &str)] = &[
        (b"", "08P01"),
        (b"n", "08P01"),
        (b"n,", "08P01"),
        (b"n,,", "08P01"),
        (b"n,,n=u", "08P01"),
        (b"n,,n=u,r=", "08P01"),
        (b"n,,r=x,n=u", "08P01"),
        (b"n,,n=u,r=\x07", "08P01"),
        (b"n,,n=u,r=x\0", "08P01"),
        (b"n,,n=\xff,r=x", "08P01"),
        (b"z,,n=u,r=x", "08P01"),
        (b"p=tls-server-end-point,,n=u,r=x", "08P01"),
        (b"n,a=admin,n=u,r=x", "0A000"),
        (b"n,,m=ext,n=u,r=x", "0A000"),
    ];
    for (message, code) in table {
        let error = Exchange::new(verifier("x"), NONCE, true).client_first(message).unwrap_err();
        assert_eq!(error.report("u").code.as_str(), *code, "{message:?}");
    }
    assert!(Exchange::new(verifier("x"), NONCE, true).client_first(b"y,,n=any,r=x,ext=1").is_ok());
}

#[test]
fn final_messages_that_are_refused() {
    let nonce = format!("x{}", STANDARD.encode(NONCE));
    let proof = STANDARD.encode([0; 32]);
    let long_proof = STANDARD.encode([0; 33]);
    for (message, wrong_proof) in [
        (format!("c=biws,r={nonce},p={proof}"), true),
        (format!("c=biws,r={nonce},ext=1,p={proof}"), true),
        (format!("c=eSws,r={nonce},p={proof}"), false),
        (format!("c=biws,r={nonce}y,p={proof}"), false),
        (format!("c=biws,r=x,p={proof}"), false),
        (format!("c=biws,r={nonce},p={long_proof}"), false),
        (format!("c=biws,r={nonce},p=!"), false),
        (format!("c=biws,r={nonce}"), false),
        (format!("r={nonce},c=biws,p={proof}"), false),
        (String::new(), false),
    ] {
        let (exchange, _) = Exchange::new(verifier("x"), NONCE, true).client_first(b"n,,n=u,r=x").unwrap();
        let error = exchange.client_final(message.as_bytes()).unwrap_err();
        assert_eq!(error == ScramError::WrongProof, wrong_proof, "{message}");
        let expected = if wrong_proof { "28P01" } else { "08P01" };
        assert_eq!(error.report("u").code.as_str(), expected, "{message}");
    }
    let report = ScramError::WrongProof.report("x");
    assert_eq!(report.message, "password authentication failed for user \"x\"");
}

/// The other client's way through an exchange that offers binding, by the mechanism it chooses.
fn log_in_bound(mechanism: &str, hash: &[u8], binding: ChannelBinding) -> Option<Result<(), ScramError>> {
    let verifier = verifier("secret");
    let exchange = Exchange::new(verifier, NONCE, true).with_end_point(Some(hash.into()));
    assert_eq!(exchange.mechanisms(), [MECHANISM_PLUS.as_bytes(), MECHANISM.as_bytes()]);
    let exchange = exchange.choose(mechanism.as_bytes())?;
    let mut client = ScramSha256::new(b"secret", binding);
    Some(exchange.client_first(client.message()).and_then(|(exchange, answer)| {
        client.update(answer.as_bytes()).unwrap();
        let verified = exchange.client_final(client.message())?;
        client.finish(verified.server_final.as_bytes()).unwrap();
        Ok(())
    }))
}

#[test]
fn binding() {
    let bound = |hash: &[u8]| ChannelBinding::tls_server_end_point(hash.to_vec());
    assert_eq!(log_in_bound(MECHANISM_PLUS, b"hash", bound(b"hash")), Some(Ok(())));
    // Whoever shows another certificate than ours is in the middle.
    assert_eq!(log_in_bound(MECHANISM_PLUS, b"hash", bound(b"other")), Some(Err(ScramError::Binding)));
    let unrequested = ChannelBinding::unrequested();
    assert_eq!(log_in_bound(MECHANISM, b"hash", unrequested), Some(Err(ScramError::Downgrade)));
    assert_eq!(log_in_bound(MECHANISM, b"hash", ChannelBinding::unsupported()), Some(Ok(())));
    for (mechanism, binding) in [(MECHANISM_PLUS, ChannelBinding::unsupported()), (MECHANISM, bound(b"hash"))]
    {
        let refused = log_in_bound(mechanism, b"hash", binding);
        assert!(matches!(refused, Some(Err(ScramError::Malformed(_)))), "{refused:?}");
    }
    assert_eq!(log_in_bound("SCRAM-SHA-1", b"hash", ChannelBinding::unsupported()), None);
    // Not where nothing is offered.
    let exchange = Exchange::new(verifier("secret"), NONCE, true);
    assert!(exchange.choose(MECHANISM_PLUS.as_bytes()).is_none());
}

#[test]
fn keys_are_bound_too() {
    let password = verifier("secret");
    let keys = log_in(&password, true, "secret", ChannelBinding::unsupported()).unwrap().keys;
    let (client, first) =
        AwaitServerFirst::start(keys, [7; NONCE_LEN], Binding::EndPoint(b"hash"[..].into()));
    let exchange = Exchange::new(password, NONCE, true).with_end_point(Some(b"hash"[..].into()));
    let (exchange, answer) =
        exchange.choose(MECHANISM_PLUS.as_bytes()).unwrap().client_first(first.as_bytes()).unwrap();
    let (client, proof) = client.server_first(answer.as_bytes()).unwrap();
    let verified = exchange.client_final(proof.as_bytes()).unwrap();
    client.server_final(verified.server_final.as_bytes()).unwrap();
}

//! S-HS: how a connection starts.

use causeway_testkit::wire::request::{gss_request, query, ssl_request, startup_packet};
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{Place, code, everywhere, through, value};

const VERSION_3_0: u32 = 0x0003_0000;

/// The rest of a login without a password, and one query.
async fn logs_in(mut client: Client, place: &Place, version: u32, more: &[(&str, &str)]) -> Client {
    let mut parameters = vec![("user", "postgres"), ("database", place.database())];
    parameters.extend_from_slice(more);
    let greeting = client.startup_version(version, &parameters).await;
    assert_eq!(greeting.last().map(|message| message.tag), Some(b'Z'), "{greeting:?}");
    assert_eq!(client.one("SELECT 'in'").await, "in");
    client
}

/// A PostgreSQL built with GSSAPI says yes to its request; there is no ticket to go on with here.
fn answers_no(place: &Place, requests: &[Vec<u8>]) -> bool {
    !place.is_direct() || !requests.contains(&gss_request())
}

#[tokio::test]
async fn s_hs_01_encryption_requests_before_anything_else() {
    everywhere("", async |place: &Place| {
        let (gss, ssl) = (gss_request(), ssl_request());
        let orders = [vec![ssl.clone()], vec![gss.clone(), ssl.clone()], vec![ssl, gss.clone()], vec![gss]];
        for order in orders.into_iter().filter(|order| answers_no(place, order)) {
            let mut client = Client::connect(place.port()).await;
            for request in &order {
                client.send_bytes(request).await;
                assert_eq!(client.recv_byte().await, b'N');
            }
            logs_in(client, place, VERSION_3_0, &[]).await;
        }
        for request in [ssl_request(), gss_request()] {
            if !answers_no(place, std::slice::from_ref(&request)) {
                continue;
            }
            let mut client = Client::connect(place.port()).await;
            client.send_bytes(&request).await;
            assert_eq!(client.recv_byte().await, b'N');
            client.send_bytes(&request).await;
            let refused = client.until_eof().await;
            assert!(refused.is_empty() || code(&refused) == "0A000", "asked twice: {refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn s_hs_02_other_protocol_versions() {
    everywhere("", async |place: &Place| {
        let parameters = [("user", "postgres"), ("database", place.database())];
        for minor in [2, 9999] {
            let mut client = Client::connect(place.port()).await;
            let greeting = client.startup_version(VERSION_3_0 + minor, &parameters).await;
            let negotiated = greeting.iter().position(|message| message.tag == b'v');
            let spoken = negotiated.map(|position| &greeting[position].body[..4]);
            if place.is_direct() {
                // PostgreSQL up to 17 says the minor version alone, 18 the full number.
                assert!(matches!(spoken, Some([0, 0 | 3, 0, 0 | 2])), "{greeting:?}");
            } else if minor == 2 {
                // Spoken, or negotiated down to 3.0.
                assert!(matches!(spoken, None | Some([0, 3, 0, 0])), "{greeting:?}");
            } else {
                assert!(matches!(spoken, Some([0, 3, 0, 0 | 2])), "{greeting:?}");
                assert_eq!(negotiated, Some(0), "before authentication: {greeting:?}");
            }
            assert_eq!(client.one("SELECT 'in'").await, "in");
        }
        for version in [0x0002_0000, 0x0004_0000] {
            let mut client = Client::connect(place.port()).await;
            client.send_bytes(&startup_packet(version, &parameters)).await;
            if version >= VERSION_3_0 || !place.is_direct() {
                let refused = client.until_eof().await;
                assert_eq!((summary(&refused).as_str(), refused[0].field(b'V')), ("E(0A000)", Some("FATAL")));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn s_hs_03_protocol_extensions() {
    everywhere("", async |place: &Place| {
        for version in [VERSION_3_0, VERSION_3_0 + 9999] {
            let mut client = Client::connect(place.port()).await;
            let parameters = [
                ("user", "postgres"),
                ("database", place.database()),
                ("_pq_.other", "1"),
                ("_pq_.test_protocol_negotiation", ""),
            ];
            let greeting = client.startup_version(version, &parameters).await;
            let negotiated = greeting.iter().find(|message| message.tag == b'v');
            let body = &negotiated.unwrap_or_else(|| panic!("no negotiation in {greeting:?}")).body;
            assert_eq!(body[4..], *b"\0\0\0\x02_pq_.other\0_pq_.test_protocol_negotiation\0");
            assert_eq!(client.one("SELECT 'in'").await, "in");
        }
    })
    .await;
}

#[tokio::test]
async fn s_hs_04_bytes_stuffed_behind_an_ssl_request() {
    everywhere("", async |place: &Place| {
        for request in [ssl_request(), gss_request()] {
            if !answers_no(place, std::slice::from_ref(&request)) {
                continue;
            }
            let mut client = Client::connect(place.port()).await;
            let mut bytes = request;
            bytes
                .extend(startup_packet(VERSION_3_0, &[("user", "postgres"), ("database", place.database())]));
            client.send_bytes(&bytes).await;
            assert_eq!(client.recv_byte().await, b'N');
            let refused = client.until_eof().await;
            assert!(refused.is_empty() || code(&refused) == "08P01", "{refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn s_hs_06_a_startup_parameter_the_server_does_not_know() {
    everywhere("", async |place: &Place| {
        for (name, setting, want) in [("no_such_guc", "1", "42704"), ("work_mem", "zzz", "22023")] {
            let mut client = Client::connect(place.port()).await;
            let parameters = [("user", "postgres"), ("database", place.database()), (name, setting)];
            let greeting = client.startup(&parameters).await;
            let refused = greeting.last().map(|error| (error.code(), error.field(b'V')));
            assert_eq!(refused, Some((want, Some("FATAL"))), "{name}: {greeting:?}");
            client.expect_eof().await;
        }
        let mut client =
            logs_in(Client::connect(place.port()).await, place, VERSION_3_0, &[("a.b", "1")]).await;
        for _ in 0..4 {
            assert_eq!(client.one("SHOW a.b").await, "1");
        }
        let mut other = place.client().await;
        // Once a server session has seen the name, it shows an empty value instead of an error.
        let shown = other.query("SHOW a.b").await;
        assert!(summary(&shown) == "E(42704) Z(I)" || value(&shown).is_empty(), "{shown:?}");
    })
    .await;
}

#[tokio::test]
async fn what_the_greeting_says() {
    everywhere("", async |place: &Place| {
        let (client, greeting) = place.client_with(&[]).await;
        assert!(summary(&greeting).starts_with("R S("), "{greeting:?}");
        let tags: Vec<u8> = greeting.iter().map(|message| message.tag).collect();
        assert_eq!((tags[0], &tags[tags.len() - 2..]), (b'R', &b"KZ"[..]), "{greeting:?}");
        for (name, want) in [
            ("in_hot_standby", "off"),
            ("default_transaction_read_only", "off"),
            ("is_superuser", "on"),
            ("session_authorization", "postgres"),
            ("integer_datetimes", "on"),
            ("server_encoding", "UTF8"),
        ] {
            assert_eq!(client.parameter(name), Some(want), "{name}");
        }
        let version = client.parameter("server_version").expect("a version").to_owned();
        let direct = place.admin("SHOW server_version").await;
        assert_eq!(version, direct);
        assert_ne!(client.key().pid, 0);
    })
    .await;
}

#[tokio::test]
async fn malformed_packets_harm_nobody_else() {
    through("", async |place: &Place| {
        let mut other = place.client().await;
        let startup = startup_packet(VERSION_3_0, &[("user", "postgres"), ("database", place.database())]);
        let endless = [0x40, 0, 0, 0, 0, 3, 0, 0];
        let tiny = [0, 0, 0, 3, 0, 3, 0, 0];
        let unterminated = [0, 0, 0, 12, 0, 3, 0, 0, b'u', b's', b'e', b'r'];
        for packet in
            [&endless[..], &tiny[..], &unterminated[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 2, 0, 1]]
        {
            let mut client = Client::connect(place.port()).await;
            client.send_bytes(packet).await;
            client.finish_writing().await;
            let answer = client.until_eof().await;
            assert!(answer.len() <= 1, "{packet:?}: {answer:?}");
        }
        // After login: a message of 1 GiB, a negative length, an unknown type, a Query without an end, garbage in Bind.
        let messages: [&[u8]; 5] = [
            b"Q\x40\0\0\0SELECT",
            b"Q\xff\xff\xff\xffSELECT",
            b"?\0\0\0\x04",
            b"Q\0\0\0\x0cSELECT 1",
            b"P\0\0\0\x10\0SELECT 1\0\0\0B\0\0\0\x0a\0\0\xff\xff\xff\xffS\0\0\0\x04",
        ];
        for message in messages {
            let mut client = Client::connect(place.port()).await;
            client.send_bytes(&startup).await;
            client.until_ready().await;
            client.send_bytes(message).await;
            let answer = client.until(b'E').await;
            assert!(["08P01", "54000"].contains(&code(&answer)), "{message:?}: {answer:?}");
            assert_eq!(other.one("SELECT 'undisturbed'").await, "undisturbed");
        }
        assert_eq!(
            summary(&other.run(&[query("UPDATE shop.item SET qty = qty WHERE id = 1")]).await),
            "C Z(I)"
        );
    })
    .await;
}

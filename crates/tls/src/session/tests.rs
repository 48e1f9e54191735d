use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::task::Waker;

use proptest::prelude::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::*;
use crate::server::tests::pair;
use crate::{CertificateChain, PrivateKey};

/// A socket whose kernel takes and gives as much as the test says.
#[derive(Default)]
struct Kernel(RefCell<Bytes>);

#[derive(Default)]
struct Bytes {
    /// From the client.
    arrived: VecDeque<u8>,
    ended: bool,
    /// How much one read gives at most; 0 stands for everything.
    read_len: usize,
    /// Every other read has nothing, as when each segment comes by itself.
    stutter: Option<bool>,
    /// For the client.
    sent: Vec<u8>,
    /// How much more can be sent before the client has to read.
    room: usize,
    writes: usize,
    reads: usize,
}

impl Kernel {
    fn write(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut kernel = self.0.borrow_mut();
        let n = bytes.len().min(kernel.room);
        if n == 0 {
            return Poll::Pending;
        }
        kernel.room -= n;
        kernel.writes += 1;
        kernel.sent.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }
}

impl RawSocket for Kernel {
    fn poll_read_into(&mut self, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let kernel = self.0.get_mut();
        if let Some(now) = &mut kernel.stutter {
            *now = !*now;
            if !*now {
                return Poll::Pending;
            }
        }
        let n = kernel.arrived.len().min(buffer.remaining());
        let n = if kernel.read_len == 0 { n } else { n.min(kernel.read_len) };
        if n == 0 && !kernel.ended {
            return Poll::Pending;
        }
        kernel.reads += 1;
        buffer.put_slice(&kernel.arrived.drain(..n).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }

    fn poll_write_from(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(bytes)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.write(bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Both ends, and the kernel between them.
struct Ends {
    client: ClientConnection,
    session: ServerSession,
    kernel: Kernel,
    plain: Buffer,
}

impl Ends {
    fn new(version: &'static SupportedProtocolVersion) -> Self {
        Self::with_alpn(version, ALPN)
    }

    fn with_alpn(version: &'static SupportedProtocolVersion, alpn: &[u8]) -> Self {
        let (certificate, key) = pair();
        let chain = CertificateChain::from_pem(certificate.as_bytes()).unwrap();
        let server = TlsServer::new(chain, PrivateKey::from_pem(key.as_bytes()).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        // Messages of the handshake take several records each.
        config.max_fragment_size = Some(100);
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        client.set_buffer_limit(None);
        let kernel = Kernel::default();
        kernel.0.borrow_mut().room = usize::MAX;
        // The first bytes have been read already, as they are where TLS begins at once.
        let mut begun = Vec::new();
        client.write_tls(&mut begun).unwrap();
        let mut input = Buffer::with_storage(buffers::lend());
        input.extend(&begun[..7]);
        kernel.0.borrow_mut().arrived.extend(&begun[7..]);
        let session = ServerSession::new(&server, &mut input).unwrap();
        assert_eq!(input.capacity(), 0, "the storage is given back");
        Self { client, session, kernel, plain: Buffer::default() }
    }

    fn established(version: &'static SupportedProtocolVersion) -> Self {
        let mut ends = Self::new(version);
        ends.shake_hands();
        ends
    }

    fn shake_hands(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100_000 {
            let polled = self.session.poll_handshake(&mut self.kernel, &mut cx, &mut self.plain);
            self.deliver_to_session();
            self.read_by_client();
            if let Poll::Ready(result) = polled {
                result.unwrap();
                assert!(!self.client.is_handshaking());
                // Of TLS 1.2 the client has heard only now that it is over.
                self.deliver_to_session();
                return;
            }
        }
        panic!("the handshake does not end");
    }

    /// What the client has written goes into the kernel.
    fn deliver_to_session(&mut self) {
        let mut records = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut records).unwrap();
        }
        self.kernel.0.borrow_mut().arrived.extend(records);
    }

    /// What was sent is read by the client.
    fn read_by_client(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.kernel.0.borrow_mut().sent);
        let mut rest = &sent[..];
        let mut plain = Vec::new();
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets().unwrap();
            let mut piece = vec![0; 1 << 20];
            while let Ok(n) = self.client.reader().read(&mut piece) {
                if n == 0 {
                    break;
                }
                plain.extend_from_slice(&piece[..n]);
            }
        }
        plain
    }

    fn fill(&mut self) -> Poll<io::Result<usize>> {
        self.session.poll_fill(&mut self.kernel, &mut Context::from_waker(Waker::noop()), &mut self.plain)
    }

    /// Fills until `want` bytes are there.
    fn receive(&mut self, want: usize) -> Vec<u8> {
        let mut received = Vec::new();
        for _ in 0..1_000_000 {
            if let Poll::Ready(filled) = self.fill() {
                assert_eq!(filled.unwrap(), self.plain.len());
                received.extend_from_slice(self.plain.filled());
                self.plain.consume(self.plain.len());
                buffers::give_back(&mut self.plain);
            }
            if received.len() >= want {
                return received;
            }
        }
        panic!("{} of {want} bytes arrived", received.len());
    }

    fn send(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let kernel = &self.kernel;
        self.session.send(bytes, |records| kernel.write(records))
    }

    fn is_at_rest(&self) -> bool {
        self.session.incoming.storage.capacity() == 0 && self.session.outgoing.capacity() == 0
    }
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
}

/// The lengths of the records in `sent`, without their headers.
fn records(mut sent: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [0x17, 3, 3, high, low, rest @ ..] = sent {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(len);
        sent = &rest[len..];
    }
    assert!(sent.is_empty());
    lengths
}

#[test]
fn a_session_of_either_version() {
    for version in [&TLS12, &TLS13] {
        let mut ends = Ends::new(version);
        assert_eq!(ends.session.info(), None);
        ends.shake_hands();
        assert!(ends.session.is_postgresql() && !ends.session.is_resumed());
        let expected = if version == &TLS12 { "TLSv1.2/TLS_ECDHE_ECDSA" } else { "TLSv1.3/TLS_AES" };
        let info = ends.session.info().unwrap().to_string();
        assert!(info.starts_with(expected), "{info}");
        assert!(ends.is_at_rest(), "after the handshake");
        ends.client.writer().write_all(b"a question").unwrap();
        ends.deliver_to_session();
        assert_eq!(ends.receive(1), b"a question");
        assert!(matches!(ends.fill(), Poll::Pending));
        assert!(matches!(ends.send(b"an answer"), Poll::Ready(Ok(9))));
        assert_eq!(ends.read_by_client(), b"an answer");
        assert!(ends.is_at_rest() && ends.plain.capacity() == 0);
    }
}

#[test]
fn what_comes_with_the_end_of_the_handshake_is_kept() {
    for version in [&TLS12, &TLS13] {
        let mut ends = Ends::new(version);
        // It is sent as soon as the client has keys.
        ends.client.writer().write_all(b"a start-up packet").unwrap();
        ends.shake_hands();
        let mut got = ends.plain.filled().to_vec();
        ends.plain = Buffer::default();
        if got.is_empty() {
            got = ends.receive(1);
        }
        assert_eq!(got, b"a start-up packet");
        assert!(ends.is_at_rest());
    }
}

#[test]
fn large_answers_are_full_records_in_few_writes() {
    let mut ends = Ends::established(&TLS13);
    let answer = data(2 * BUFFER_LEN + 100);
    ends.kernel.0.get_mut().writes = 0;
    assert!(matches!(ends.send(&answer), Poll::Ready(Ok(n)) if n == answer.len()));
    let kernel = ends.kernel.0.get_mut();
    assert_eq!(kernel.writes, 3);
    // A byte for the type and 16 for the proof.
    let mut lengths = vec![16 * 1024 + 17; 8];
    lengths.push(117);
    assert_eq!(records(&kernel.sent), lengths);
    assert_eq!(ends.read_by_client(), answer);
}

#[test]
fn nothing_counts_as_sent_before_it_is_on_the_socket() {
    for version in [&TLS12, &TLS13] {
        let mut ends = Ends::established(version);
        let answer = data(300_000);
        let (mut from, mut got) = (0, Vec::new());
        ends.kernel.0.get_mut().room = 0;
        assert!(matches!(ends.send(&answer), Poll::Pending));
        for step in 0.. {
            ends.kernel.0.get_mut().room = 1 + step * 977 % 40_000;
            if let Poll::Ready(sent) = ends.send(&answer[from..]) {
                from += sent.unwrap();
            }
            got.extend(ends.read_by_client());
            assert!(got.len() >= from, "{from} bytes count as sent, {} have arrived", got.len());
            assert_eq!(ends.session.outgoing.is_empty(), ends.session.encrypted == 0);
            assert!(ends.session.outgoing.capacity() <= buffers::OUTGOING_LEN);
            if from == answer.len() {
                break;
            }
        }
        assert!(got == answer, "what arrived is what was sent");
        assert!(ends.is_at_rest());
    }
}

#[test]
fn what_tls_itself_answers_does_not_take_part_in_what_is_sent() {
    let mut ends = Ends::established(&TLS13);
    let answer = data(1_000);
    ends.kernel.0.get_mut().room = 100;
    assert!(matches!(ends.send(&answer), Poll::Pending));
    // While that is stuck, the client asks for new keys and sends on: reading must not finish what `send` has begun,
    // or nobody would learn of it.
    ends.client.refresh_traffic_keys().unwrap();
    ends.client.writer().write_all(b"more").unwrap();
    ends.deliver_to_session();
    ends.kernel.0.get_mut().room = usize::MAX;
    assert_eq!(ends.receive(4), b"more");
    assert_eq!(ends.kernel.0.borrow().sent.len(), 100);
    assert!(matches!(ends.send(&answer), Poll::Ready(Ok(1_000))));
    assert!(ends.read_by_client() == answer);
    // Now under the new keys.
    assert!(matches!(ends.send(&answer), Poll::Ready(Ok(1_000))));
    assert!(ends.read_by_client() == answer);
    assert!(ends.is_at_rest());
}

#[test]
fn the_end_is_an_end_announced_or_not() {
    for announced in [true, false] {
        let mut ends = Ends::established(&TLS13);
        ends.client.writer().write_all(b"last words").unwrap();
        if announced {
            ends.client.send_close_notify();
        }
        ends.deliver_to_session();
        ends.kernel.0.get_mut().ended = !announced;
        assert_eq!(ends.receive(1), b"last words");
        for _ in 0..3 {
            assert!(matches!(ends.fill(), Poll::Ready(Ok(0))));
        }
        // It may still read.
        assert!(matches!(ends.send(b"an answer"), Poll::Ready(Ok(9))));
        assert_eq!(ends.read_by_client(), b"an answer");
        assert!(ends.is_at_rest());
    }
}

#[test]
fn our_end_is_announced() {
    for version in [&TLS12, &TLS13] {
        let mut ends = Ends::established(version);
        ends.client.send_close_notify();
        ends.deliver_to_session();
        ends.session.say_goodbye(&ends.kernel);
        assert!(ends.read_by_client().is_empty());
        // Without the announcement this would block, or be an unexpected end.
        assert_eq!(ends.client.reader().read(&mut [0]).unwrap(), 0);
    }
    // But not in the middle of a record, nor of a handshake.
    let mut ends = Ends::established(&TLS13);
    ends.kernel.0.get_mut().room = 10;
    assert!(matches!(ends.send(&data(100)), Poll::Pending));
    ends.kernel.0.get_mut().room = usize::MAX;
    ends.session.say_goodbye(&ends.kernel);
    assert_eq!(ends.kernel.0.borrow().sent.len(), 10);
    let mut ends = Ends::new(&TLS13);
    ends.session.say_goodbye(&ends.kernel);
    assert!(ends.kernel.0.borrow().sent.is_empty());
    assert!(
        matches!(ends.send(b"too early"), Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::NotConnected)
    );
}

#[test]
fn a_broken_record_ends_it_after_what_came_ahead() {
    let mut ends = Ends::established(&TLS13);
    ends.client.writer().write_all(b"whole").unwrap();
    ends.deliver_to_session();
    ends.client.writer().write_all(b"broken").unwrap();
    ends.deliver_to_session();
    *ends.kernel.0.get_mut().arrived.back_mut().unwrap() ^= 1;
    assert_eq!(ends.receive(1), b"whole");
    for _ in 0..2 {
        assert!(matches!(ends.fill(), Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidData));
        assert!(matches!(ends.send(b"x"), Poll::Ready(Err(_))));
    }
    let told = ends.kernel.0.borrow().sent.clone();
    assert_eq!(records(&told).len(), 1, "an alert");
    ends.session.say_goodbye(&ends.kernel);
    assert_eq!(ends.kernel.0.borrow().sent, told);
}

#[test]
fn what_is_no_handshake_is_told_so() {
    let cases: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0x16, 3, 1, 0, 4, 1, 0, 0, 0],
        &[0x17, 3, 3, 0, 1, 0],
    ];
    for bytes in cases {
        let mut ends = Ends::new(&TLS13);
        ends.session.incoming = Incoming::default();
        let kernel = ends.kernel.0.get_mut();
        kernel.arrived.clear();
        kernel.arrived.extend(bytes);
        kernel.ended = true;
        let mut cx = Context::from_waker(Waker::noop());
        let polled = ends.session.poll_handshake(&mut ends.kernel, &mut cx, &mut ends.plain);
        let Poll::Ready(Err(TlsError::Handshake(_))) = polled else { panic!("{bytes:?}: {polled:?}") };
        let sent = ends.kernel.0.borrow().sent.clone();
        assert_eq!((sent.len(), sent.first()), (7, Some(&0x15)), "{bytes:?}: an alert");
    }
    // One that never ends is bounded.
    let mut ends = Ends::new(&TLS13);
    ends.session.incoming = Incoming::default();
    let kernel = ends.kernel.0.get_mut();
    kernel.arrived.clear();
    let mut piece = vec![0x16, 3, 1, 0x40, 0];
    piece.extend([1, 0xff, 0xff, 0xff]);
    piece.resize(5 + 0x4000, 0);
    kernel.arrived.extend(&piece);
    for _ in 0..10 {
        piece[5..9].fill(0);
        kernel.arrived.extend(&piece);
    }
    let mut cx = Context::from_waker(Waker::noop());
    let polled = ends.session.poll_handshake(&mut ends.kernel, &mut cx, &mut ends.plain);
    assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
}

#[test]
fn another_protocol_is_refused_by_its_name() {
    for version in [&TLS12, &TLS13] {
        let mut ends = Ends::with_alpn(version, b"http/1.1");
        let mut cx = Context::from_waker(Waker::noop());
        let polled = ends.session.poll_handshake(&mut ends.kernel, &mut cx, &mut ends.plain);
        let Poll::Ready(Err(TlsError::Handshake(rustls::Error::NoApplicationProtocol))) = polled else {
            panic!("{polled:?}")
        };
        let sent = ends.kernel.0.borrow().sent.clone();
        let mut rest = &sent[..];
        let told = loop {
            ends.client.read_tls(&mut rest).unwrap();
            match ends.client.process_new_packets() {
                Ok(_) => assert!(!rest.is_empty(), "nothing was told"),
                Err(error) => break error,
            }
        };
        assert_eq!(told, rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol));
    }
}

#[test]
fn reading_takes_no_more_than_there_is_room_for() {
    let mut ends = Ends::established(&TLS13);
    let question = data(1_000_000);
    ends.client.writer().write_all(&question).unwrap();
    ends.deliver_to_session();
    let mut got = Vec::new();
    ends.kernel.0.get_mut().reads = 0;
    while got.len() < question.len() {
        assert!(matches!(ends.fill(), Poll::Ready(Ok(n)) if n == ends.plain.len()));
        // A lent buffer is enough, and goes back to the store.
        assert_eq!(ends.plain.capacity(), BUFFER_LEN);
        got.extend_from_slice(ends.plain.filled());
        ends.plain.consume(ends.plain.len());
        buffers::give_back(&mut ends.plain);
    }
    assert!(got == question);
    // Records of 100 bytes are a third of overhead.
    assert!(ends.kernel.0.borrow().reads <= 25, "{} reads", ends.kernel.0.borrow().reads);
    assert!(ends.is_at_rest());
    // A large frame gathers in a buffer that is doubled.
    ends.client.writer().write_all(&question).unwrap();
    ends.deliver_to_session();
    while ends.plain.len() < question.len() {
        assert!(matches!(ends.fill(), Poll::Ready(Ok(_))));
        assert!(ends.plain.capacity() <= 4 * ends.plain.len().max(BUFFER_LEN));
    }
    assert!(ends.plain.filled() == question);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However the kernel cuts both directions, everything arrives, in order and once.
    #[test]
    fn any_split(
        read_len in 1_usize..200,
        room in 1_usize..5_000,
        question in 0_usize..50_000,
        answer in 0_usize..150_000,
        old in any::<bool>(),
        stutter in any::<bool>(),
    ) {
        let mut ends = Ends::new(if old { &TLS12 } else { &TLS13 });
        ends.kernel.0.get_mut().read_len = read_len;
        ends.kernel.0.get_mut().stutter = stutter.then_some(false);
        ends.shake_hands();
        let (question, answer) = (data(question), data(answer));
        ends.client.writer().write_all(&question).unwrap();
        ends.deliver_to_session();
        ends.kernel.0.get_mut().room = 0;
        let (mut from, mut received, mut got) = (0, Vec::new(), Vec::new());
        for _ in 0..1_000_000 {
            ends.kernel.0.get_mut().room = room;
            if from < answer.len() && let Poll::Ready(sent) = ends.send(&answer[from..]) {
                from += sent.unwrap();
            }
            got.extend(ends.read_by_client());
            if let Poll::Ready(filled) = ends.fill() {
                prop_assert!(filled.unwrap() > 0);
                received.extend_from_slice(ends.plain.filled());
                ends.plain.consume(ends.plain.len());
                buffers::give_back(&mut ends.plain);
            }
            if from == answer.len() && received.len() == question.len() {
                break;
            }
        }
        prop_assert!(received == question && got == answer);
        prop_assert!(matches!(ends.fill(), Poll::Pending));
        prop_assert!(ends.is_at_rest());
    }
}

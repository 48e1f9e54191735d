//! A scripted client.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::login::Login;
use super::message::Message;
use super::request::{self, Request};
use super::stream::Stream;
use super::{PATIENCE, Reader};
use crate::tls::{self, Tls};

/// What a client needs to cancel its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The process id as told at login.
    pub pid: i32,
    /// The secret that goes with it.
    pub secret: Vec<u8>,
}

/// A client that sends what it is told to and sees every message. A wait that lasts longer than [`PATIENCE`] fails the
/// test with the messages received so far in that call.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    reader: Reader,
    password: Option<String>,
    key: Option<Key>,
    parameters: BTreeMap<String, String>,
    status: Option<char>,
}

impl Client {
    /// Connects to 127.0.0.1 and sends nothing yet.
    pub async fn connect(port: u16) -> Self {
        Self::connect_to(SocketAddr::from(([127, 0, 0, 1], port))).await
    }

    /// Connects and sends nothing yet.
    pub async fn connect_to(address: SocketAddr) -> Self {
        Self::try_connect(address).await.unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    /// As [`connect_to`](Self::connect_to), where a refusal is a possible outcome.
    ///
    /// # Errors
    ///
    /// Those of `connect(2)`.
    pub async fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = within("a connection", TcpStream::connect(address)).await?;
        Self::over(stream)
    }

    /// Connects with a receive buffer of about so many bytes: a reader that makes the server wait early.
    pub async fn connect_slow(port: u16, receive_buffer: u32) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(receive_buffer).expect("a receive buffer");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = within("a connection", socket.connect(address)).await;
        Self::over(stream.unwrap_or_else(|error| panic!("connecting to {address}: {error}")))
            .expect("an option of the socket")
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        // Otherwise the kernel joins writes that a test wants apart.
        stream.set_nodelay(true)?;
        let (stream, reader) = (Stream::Plain(stream), Reader::default());
        Ok(Self { stream, reader, password: None, key: None, parameters: BTreeMap::new(), status: None })
    }

    /// Logs in and fails the test if that does not succeed.
    pub async fn login(port: u16, user: &str, database: &str) -> Self {
        Self::login_with(port, &[("user", user), ("database", database)]).await.0
    }

    /// Logs in with these start-up parameters; also returns the greeting, which ends in `Z`.
    pub async fn login_with(port: u16, parameters: &[(&str, &str)]) -> (Self, Vec<Message>) {
        let mut client = Self::connect(port).await;
        let greeting = client.startup(parameters).await;
        let succeeded = greeting.last().is_some_and(|last| last.tag == b'Z');
        assert!(succeeded, "login with {parameters:?}: {greeting:?}");
        (client, greeting)
    }

    /// Asks for TLS, and begins it.
    pub async fn tls(mut self, tls: &Tls) -> Self {
        self.send_bytes(&request::ssl_request()).await;
        assert_eq!(self.recv_byte().await, b'S', "TLS is to be had");
        self.direct_tls(tls).await
    }

    /// Begins TLS without asking for it.
    pub async fn direct_tls(self, tls: &Tls) -> Self {
        self.try_direct_tls(tls).await.expect("a TLS handshake")
    }

    /// As [`direct_tls`](Self::direct_tls), where a failure is a possible outcome.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub async fn try_direct_tls(self, tls: &Tls) -> io::Result<Self> {
        let Stream::Plain(stream) = self.stream else { panic!("a connection has TLS once") };
        let connecting = tls.connector().connect(tls::server_name(), stream);
        let stream = within("a TLS handshake", connecting).await?;
        Ok(Self { stream: Stream::Tls(Box::new(stream)), ..self })
    }

    /// Uses this connection to cancel another client's query; as [`cancel`](super::cancel).
    pub async fn cancel(self, key: &Key) -> Vec<u8> {
        super::cancel_over(self.stream, key).await
    }

    /// What to answer when asked for a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sends a `StartupMessage` of protocol 3.0 and authenticates; returns everything up to the first `Z` or fatal `E`.
    pub async fn startup(&mut self, parameters: &[(&str, &str)]) -> Vec<Message> {
        self.startup_version(0x0003_0000, parameters).await
    }

    /// As [`startup`](Self::startup) with another protocol version.
    pub async fn startup_version(&mut self, version: u32, parameters: &[(&str, &str)]) -> Vec<Message> {
        self.send_bytes(&request::startup_packet(version, parameters)).await;
        let password = self.password.clone();
        let mut login = Login::new(password.as_deref());
        let mut greeting = Vec::new();
        loop {
            let message = self.next("the greeting", &greeting).await;
            if message.tag == b'R'
                && let Some(answer) = login.answer(&message.body)
            {
                self.send(&[answer]).await;
            }
            let is_last = matches!(message.tag, b'Z' | b'E');
            greeting.push(message);
            if is_last {
                return greeting;
            }
        }
    }

    /// Sends the requests in one write.
    pub async fn send(&mut self, requests: &[Request]) {
        self.send_bytes(&Self::encode(requests)).await;
    }

    /// The requests as they would be sent.
    pub fn encode(requests: &[Request]) -> Vec<u8> {
        requests.iter().flat_map(Request::encode).collect()
    }

    /// Sends bytes of any kind in one write.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).await.expect("sending to the server");
    }

    /// As [`send_bytes`](Self::send_bytes), where the other side may have closed the connection.
    ///
    /// # Errors
    ///
    /// Those of `write(2)`.
    pub async fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        within("the server to take what was sent", sending).await
    }

    /// Sends the bytes in pieces of these sizes, the rest as the last, so far apart that each arrives by itself.
    pub async fn send_split(&mut self, bytes: &[u8], sizes: &[usize]) {
        let mut rest = bytes;
        for size in sizes.iter().copied().chain([usize::MAX]) {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            self.send_bytes(piece).await;
            if rest.is_empty() {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// The next message. The end of the stream fails the test.
    pub async fn recv(&mut self) -> Message {
        self.next("a message", &[]).await
    }

    /// The next message, or `None` if there is none for so long.
    pub async fn try_recv(&mut self, wait: Duration) -> Option<Message> {
        let read = timeout(wait, self.reader.frame(&mut self.stream)).await.ok()?;
        let frame = read.expect("reading from the server");
        Some(self.note(frame.expect("the server closed the connection")))
    }

    /// Fails the test if anything arrives for so long, the end of the stream included.
    pub async fn expect_silence(&mut self, wait: Duration) {
        if let Ok(read) = timeout(wait, self.reader.frame(&mut self.stream)).await {
            let what = read.map(|frame| frame.map(|(tag, body)| Message { tag, body }));
            panic!("silence was expected and this came: {what:?}");
        }
    }

    /// One byte, such as the answer to an `SSLRequest`.
    pub async fn recv_byte(&mut self) -> u8 {
        let read = within("one byte", self.reader.byte(&mut self.stream)).await;
        read.expect("reading from the server").expect("the server closed the connection")
    }

    /// Reads and forgets so many bytes, without a look at messages; for a slow reader that will not go on.
    pub async fn skip_bytes(&mut self, count: usize) {
        let mut buffer = vec![0; count];
        within("bytes", self.stream.read_exact(&mut buffer)).await.expect("reading from the server");
    }

    /// Everything up to the next message of this type, that one included.
    pub async fn until(&mut self, tag: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.next(&format!("a message of type {}", char::from(tag)), &messages).await;
            let is_last = message.tag == tag;
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// Everything up to the next `ReadyForQuery`, that one included.
    pub async fn until_ready(&mut self) -> Vec<Message> {
        self.until(b'Z').await
    }

    /// Everything up to the end of the stream. A reset is an end too.
    pub async fn until_eof(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match waiting("the end of the stream", &messages, self.reader.frame(&mut self.stream)).await {
                Ok(Some(frame)) => {
                    let message = self.note(frame);
                    messages.push(message);
                }
                Ok(None) => return messages,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return messages,
                Err(error) => panic!("reading from the server: {error}; so far: {messages:?}"),
            }
        }
    }

    /// Fails the test unless the stream ends with no further message.
    pub async fn expect_eof(&mut self) {
        let messages = self.until_eof().await;
        assert!(messages.is_empty(), "the stream should have ended, and this came: {messages:?}");
    }

    /// Sends the requests and reads to the next `ReadyForQuery`.
    pub async fn run(&mut self, requests: &[Request]) -> Vec<Message> {
        self.send(requests).await;
        self.until_ready().await
    }

    /// A simple Query and all its answers.
    pub async fn query(&mut self, sql: &str) -> Vec<Message> {
        self.run(&[request::query(sql)]).await
    }

    /// Parse, Bind, Describe, Execute and Sync of the unnamed statement in one write, and all their answers.
    pub async fn execute(&mut self, sql: &str, values: &[Option<&str>]) -> Vec<Message> {
        self.run(&[
            request::parse("", sql),
            request::bind("", "", values),
            request::describe_portal(""),
            request::execute("", 0),
            request::sync(),
        ])
        .await
    }

    /// The rows of a simple Query; an error fails the test.
    pub async fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.query(sql).await;
        assert!(!messages.iter().any(|message| message.tag == b'E'), "{sql}: {messages:?}");
        messages.iter().filter(|message| message.tag == b'D').map(Message::columns).collect()
    }

    /// The single value that a simple Query gives; NULL reads as `null`.
    pub async fn one(&mut self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        match rows.as_slice() {
            [row] if row.len() == 1 => {
                row.iter().flatten().next().cloned().unwrap_or_else(|| "null".to_owned())
            }
            _ => panic!("{sql} should give one value and gave {rows:?}"),
        }
    }

    /// What cancels this client's query, as told at login.
    pub fn key(&self) -> Key {
        self.key.clone().expect("the server told no key at login")
    }

    /// The value the server has last reported for a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The transaction status of the last `ReadyForQuery`.
    pub fn status(&self) -> Option<char> {
        self.status
    }

    /// This side's address.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.socket().local_addr().expect("the address of a connected socket")
    }

    /// Closes the connection with a reset, as a client that crashes with unread data does.
    pub fn reset(self) {
        self.stream.socket().set_zero_linger().expect("an option of the socket");
    }

    /// Closes this side's half of the connection and goes on reading.
    pub async fn finish_writing(&mut self) {
        self.stream.shutdown().await.expect("closing one half of the connection");
    }

    /// Sends Terminate and waits for the end of the stream.
    pub async fn terminate(mut self) {
        self.send(&[request::terminate()]).await;
        self.expect_eof().await;
    }

    async fn next(&mut self, what: &str, so_far: &[Message]) -> Message {
        match waiting(what, so_far, self.reader.frame(&mut self.stream)).await {
            Ok(Some(frame)) => self.note(frame),
            Ok(None) => panic!("{what} was expected and the stream ended; so far: {so_far:?}"),
            Err(error) => panic!("{what} was expected: {error}; so far: {so_far:?}"),
        }
    }

    fn note(&mut self, (tag, body): (u8, Vec<u8>)) -> Message {
        let message = Message { tag, body };
        match tag {
            b'S' => {
                let (name, value) = message.parameter();
                self.parameters.insert(name, value);
            }
            b'K' => {
                let (pid, secret) = message.body.split_at(4.min(message.body.len()));
                let pid = i32::from_be_bytes(pid.try_into().expect("BackendKeyData holds a process id"));
                self.key = Some(Key { pid, secret: secret.to_vec() });
            }
            b'Z' => self.status = Some(message.status()),
            _ => {}
        }
        message
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    waiting(what, &[] as &[Message], future).await
}

async fn waiting<T>(what: &str, so_far: &(impl Debug + ?Sized), future: impl Future<Output = T>) -> T {
    let done = timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("{what} was expected within {PATIENCE:?}; so far: {so_far:?}"))
}

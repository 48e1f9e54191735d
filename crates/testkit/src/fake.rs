//! A scripted PostgreSQL server, for what a real one does too rarely or too fast.
//!
//! It takes a login without a password, tells the parameters it was given, and then does what the script of the
//! connection says. What does not follow the script is written down and fails the test in [`Server::finish`] or when
//! the server is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::wire::{PATIENCE, Reader, Request, reply};

/// Answers one request; an empty answer says nothing.
pub type Responder = Arc<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// One step of a script.
#[derive(Clone)]
pub enum Step {
    /// These requests must come next, each given as its letter (`P`) or as it prints (`Q(SELECT 1)`).
    Expect(Vec<String>),
    /// Send these bytes.
    Send(Vec<u8>),
    /// Wait.
    Delay(Duration),
    /// Answer every request until the client leaves.
    Respond(Responder),
    /// Close the connection.
    Close,
    /// Reset the connection.
    Reset,
}

impl Step {
    /// See [`Step::Expect`].
    pub fn expect(requests: &[&str]) -> Self {
        Self::Expect(requests.iter().map(|request| (*request).to_owned()).collect())
    }

    /// Sends these messages, made by [`reply`], in one write.
    pub fn send(messages: &[Vec<u8>]) -> Self {
        Self::Send(messages.concat())
    }

    /// See [`Step::Respond`].
    pub fn respond(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Respond(Arc::new(answer))
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expect(requests) => write!(f, "Expect({})", requests.join(" ")),
            Self::Send(bytes) => write!(f, "Send({} bytes)", bytes.len()),
            Self::Delay(time) => write!(f, "Delay({time:?})"),
            Self::Respond(_) => f.write_str("Respond"),
            Self::Close => f.write_str("Close"),
            Self::Reset => f.write_str("Reset"),
        }
    }
}

/// What a server shall be like.
#[derive(Debug, Clone)]
pub struct Builder {
    parameters: Vec<(String, String)>,
    greeting: Option<Vec<u8>>,
    scripts: Scripts,
}

#[derive(Debug, Clone)]
enum Scripts {
    /// Every connection follows the same one.
    Same(Vec<Step>),
    /// The n-th connection follows the n-th one; there must be no more of them.
    Each(Vec<Vec<Step>>),
}

impl Builder {
    /// Tells this parameter at login, instead of another value or besides the others.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.retain(|(known, _)| known != name);
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers a login with these bytes instead of the usual greeting.
    #[must_use]
    pub fn greeting(mut self, bytes: Vec<u8>) -> Self {
        self.greeting = Some(bytes);
        self
    }

    /// Every connection follows this script.
    #[must_use]
    pub fn script(mut self, script: Vec<Step>) -> Self {
        self.scripts = Scripts::Same(script);
        self
    }

    /// The n-th connection follows the n-th script; one more connection fails the test.
    #[must_use]
    pub fn scripts(mut self, scripts: Vec<Vec<Step>>) -> Self {
        self.scripts = Scripts::Each(scripts);
        self
    }

    /// Listens on a free port of 127.0.0.1.
    pub async fn start(self) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        let record = Arc::new(Mutex::new(Record::default()));
        let accepting = tokio::spawn(accept(listener, Arc::new(self), Arc::clone(&record)));
        Server { address, record, accepting }
    }
}

/// What has happened.
#[derive(Debug, Default)]
struct Record {
    /// How many connections got as far as a `StartupMessage`.
    logins: Vec<BTreeMap<String, String>>,
    /// How many of them are still at their script.
    busy: usize,
    cancels: Vec<(i32, Vec<u8>)>,
    requests: Vec<String>,
    failures: Vec<String>,
}

/// A fake server that is listening; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    record: Arc<Mutex<Record>>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// A server whose connections do nothing after the login until told otherwise.
    pub fn builder() -> Builder {
        let parameters = [
            ("server_version", "15.20"),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
            ("in_hot_standby", "off"),
            ("default_transaction_read_only", "off"),
            ("is_superuser", "on"),
            ("application_name", ""),
        ];
        Builder {
            parameters: parameters
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            greeting: None,
            scripts: Scripts::Same(Vec::new()),
        }
    }

    /// A server whose connections all follow this script.
    pub async fn start(script: Vec<Step>) -> Self {
        Self::builder().script(script).start().await
    }

    /// A server whose n-th connection follows the n-th script.
    pub async fn scripts(scripts: Vec<Vec<Step>>) -> Self {
        Self::builder().scripts(scripts).start().await
    }

    /// A server that answers every request by this function.
    pub async fn respond(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::builder().script(vec![Step::respond(answer)]).start().await
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many connections have logged in up to now.
    pub fn connections(&self) -> usize {
        self.record().logins.len()
    }

    /// The start-up parameters of each login.
    pub fn logins(&self) -> Vec<BTreeMap<String, String>> {
        self.record().logins.clone()
    }

    /// Process id and secret of each `CancelRequest`. The n-th login, from 0, was told process id 1000 + n and the
    /// secret n in four bytes.
    pub fn cancels(&self) -> Vec<(i32, Vec<u8>)> {
        self.record().cancels.clone()
    }

    /// Every request of every connection as it prints, in the order of arrival.
    pub fn requests(&self) -> Vec<String> {
        self.record().requests.clone()
    }

    /// Waits until the connections are through with their scripts, then fails the test if one did not go as written.
    pub async fn finish(self) {
        let deadline = Instant::now() + PATIENCE;
        while self.record().busy > 0 {
            assert!(Instant::now() < deadline, "scripts are not through; requests: {:?}", self.requests());
            sleep(Duration::from_millis(5)).await;
        }
        drop(self);
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        let failures = std::mem::take(&mut self.record().failures);
        if !std::thread::panicking() {
            assert!(failures.is_empty(), "the fake server saw: {failures:#?}");
        }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, plan: Arc<Builder>, record: Arc<Mutex<Record>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let conversation =
                    Conversation { stream, reader: Reader::default(), record: Arc::clone(&record) };
                connections.spawn(conversation.hold(Arc::clone(&plan)));
            }
            Err(error) => lock(&record).failures.push(format!("accepting: {error}")),
        }
        while connections.try_join_next().is_some() {}
    }
}

struct Conversation {
    stream: TcpStream,
    reader: Reader,
    record: Arc<Mutex<Record>>,
}

impl Conversation {
    async fn hold(mut self, plan: Arc<Builder>) {
        let record = Arc::clone(&self.record);
        let Some(index) = self.log_in(&plan).await.unwrap_or_default() else { return };
        let outcome = match &plan.scripts {
            Scripts::Same(script) => self.follow(script).await,
            Scripts::Each(scripts) => match scripts.get(index) {
                Some(script) => self.follow(script).await,
                None => Err(format!("there are {} scripts only", scripts.len())),
            },
        };
        let mut record = lock(&record);
        record.busy -= 1;
        if let Err(failure) = outcome {
            record.failures.push(format!("connection {index}: {failure}"));
        }
    }

    /// The number of the login, or `None` for a `CancelRequest` or a client that left.
    async fn log_in(&mut self, plan: &Builder) -> io::Result<Option<usize>> {
        self.stream.set_nodelay(true)?;
        loop {
            let Some(packet) = self.reader.startup(&mut self.stream).await? else { return Ok(None) };
            let (code, rest) = packet.split_at(4.min(packet.len()));
            match u32::from_be_bytes(code.try_into().unwrap_or_default()) {
                80_877_103 | 80_877_104 => self.stream.write_all(b"N").await?,
                80_877_102 => {
                    let (pid, secret) = rest.split_at(4.min(rest.len()));
                    let pid = i32::from_be_bytes(pid.try_into().unwrap_or_default());
                    lock(&self.record).cancels.push((pid, secret.to_vec()));
                    return Ok(None);
                }
                _ => {
                    let index = {
                        let mut record = lock(&self.record);
                        record.logins.push(parameters_of(rest));
                        record.busy += 1;
                        record.logins.len() - 1
                    };
                    let greeting = plan.greeting.clone().unwrap_or_else(|| plan.usual_greeting(index));
                    // A client that left shows in the script.
                    drop(self.stream.write_all(&greeting).await);
                    return Ok(Some(index));
                }
            }
        }
    }

    async fn follow(&mut self, script: &[Step]) -> Result<(), String> {
        for (number, step) in script.iter().enumerate() {
            let at = |what: String| format!("step {number}, {step:?}: {what}");
            match step {
                Step::Expect(expected) => {
                    for wanted in expected {
                        let request = timeout(PATIENCE, self.request()).await;
                        let request = request.map_err(|_| at(format!("nothing came for {PATIENCE:?}")))?;
                        let request =
                            request.ok_or_else(|| at(format!("{wanted} was expected, the client left")))?;
                        check(wanted, &request).map_err(at)?;
                    }
                }
                Step::Send(bytes) => {
                    self.stream.write_all(bytes).await.map_err(|error| at(error.to_string()))?;
                }
                Step::Delay(time) => sleep(*time).await,
                Step::Respond(answer) => {
                    while let Some(request) = self.request().await
                        && request.tag != b'X'
                    {
                        // The client may have left meanwhile, which the next read shows.
                        drop(self.stream.write_all(&answer(&request)).await);
                    }
                    return Ok(());
                }
                Step::Close => return Ok(()),
                Step::Reset => return self.stream.set_zero_linger().map_err(|error| at(error.to_string())),
            }
        }
        match self.request().await {
            Some(request) if request.tag != b'X' => Err(format!("after the script came {request:?}")),
            _ => Ok(()),
        }
    }

    /// The next request; `None` when the client has left in whatever way.
    async fn request(&mut self) -> Option<Request> {
        let (tag, body) = self.reader.frame(&mut self.stream).await.ok()??;
        let request = Request { tag, body };
        lock(&self.record).requests.push(format!("{request:?}"));
        Some(request)
    }
}

impl Builder {
    fn usual_greeting(&self, index: usize) -> Vec<u8> {
        let number = i32::try_from(index).expect("a test has fewer connections");
        let mut greeting = reply::authentication_ok();
        for (name, value) in &self.parameters {
            greeting.extend(reply::parameter_status(name, value));
        }
        greeting.extend(reply::key_data(1000 + number, &number.to_be_bytes()));
        greeting.extend(reply::ready(b'I'));
        greeting
    }
}

fn check(wanted: &str, request: &Request) -> Result<(), String> {
    let shown = format!("{request:?}");
    let is_letter = wanted.len() == 1 && wanted.as_bytes().first() == Some(&request.tag);
    if is_letter || wanted == shown { Ok(()) } else { Err(format!("{wanted} was expected, {shown} came")) }
}

fn parameters_of(body: &[u8]) -> BTreeMap<String, String> {
    let words: Vec<String> =
        body.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    words
        .chunks_exact(2)
        .filter(|pair| !pair[0].is_empty())
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

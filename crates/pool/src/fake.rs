//! A scripted server for tests: speaks just enough of the protocol to be logged in to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::encode;
use causeway_protocol::report::{ErrorReport, Severity};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::CancelKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::config::Config;

/// What a connection meets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Greeting {
    /// A login without a password.
    Welcome,
    /// A login after some time.
    Slow(Duration),
    /// A FATAL error with this SQLSTATE.
    Refuse(&'static [u8; 5]),
    /// A closed socket.
    HangUp,
    /// A closed socket after some time.
    HangUpLater(Duration),
}

/// Something to do to a session.
#[derive(Debug)]
pub(crate) enum Action {
    Send(Vec<u8>),
    HangUp,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// What the next connections meet; a welcome when empty.
    pub(crate) greetings: VecDeque<Greeting>,
    /// The row that answers any query, or an error.
    pub(crate) answer: Option<Result<Vec<Option<&'static str>>, Severity>>,
    /// How long a cancel request takes.
    pub(crate) cancel_takes: Duration,
    pub(crate) startups: Vec<Vec<u8>>,
    /// Connections that got as far as a greeting, cancel requests not counted.
    pub(crate) accepted: usize,
    pub(crate) open: usize,
    pub(crate) most_open: usize,
    greeting: usize,
    pub(crate) most_greeting: usize,
    pub(crate) terminated: usize,
    pub(crate) cancels: Vec<CancelKey>,
    sessions: Vec<mpsc::Sender<Action>>,
}

#[derive(Clone)]
pub(crate) struct FakeServer {
    pub(crate) address: Address,
    log: Arc<Mutex<Log>>,
}

// === impl FakeServer ===

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let server = Self { address, log: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                tokio::spawn(async move { server.serve(socket).await });
            }
        });
        server
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    pub(crate) fn script(&self, greetings: impl IntoIterator<Item = Greeting>) {
        self.log().greetings.extend(greetings);
    }

    /// A pool's configuration for this server, of so many connections.
    pub(crate) fn config(&self, size: usize) -> Config {
        Config { size, ..Config::new(self.address.clone(), "shop", "app") }
    }

    /// Does something to the session with that process id.
    pub(crate) async fn act(&self, process_id: i32, action: Action) {
        let session = self.log().sessions[usize::try_from(process_id).unwrap() - 1].clone();
        session.send(action).await.unwrap();
    }

    /// Waits until the log is as expected.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Log) -> bool) {
        let since = std::time::SystemTime::now();
        while !holds(&self.log()) {
            // Not tokio's clock, which may be paused.
            let log = self.log();
            assert!(since.elapsed().unwrap() < Duration::from_secs(10), "never: {what}: {log:?}");
            drop(log);
            settle().await;
        }
    }

    async fn serve(self, mut socket: TcpStream) {
        let Some(startup) = read_startup(&mut socket).await else { return };
        if let [4, 210, 22, 46, key @ ..] = &startup[..] {
            let (process_id, secret) = key.split_first_chunk::<4>().unwrap();
            let takes = self.log().cancel_takes;
            let process_id = i32::from_be_bytes(*process_id);
            self.log().cancels.push(CancelKey { process_id, secret: secret.into() });
            sleep(takes).await;
            return;
        }
        let (greeting, process_id, actions) = {
            let mut log = self.log();
            log.startups.push(startup);
            log.accepted += 1;
            log.open += 1;
            log.most_open = log.most_open.max(log.open);
            log.greeting += 1;
            log.most_greeting = log.most_greeting.max(log.greeting);
            let (sender, actions) = mpsc::channel(16);
            log.sessions.push(sender);
            (log.greetings.pop_front().unwrap_or(Greeting::Welcome), log.sessions.len(), actions)
        };
        let welcome = self.greet(&mut socket, greeting, i32::try_from(process_id).unwrap()).await;
        self.log().greeting -= 1;
        if welcome {
            self.session(&mut socket, actions).await;
        }
        self.log().open -= 1;
    }

    async fn greet(&self, socket: &mut TcpStream, greeting: Greeting, process_id: i32) -> bool {
        match greeting {
            Greeting::HangUp => return false,
            Greeting::HangUpLater(duration) => {
                sleep(duration).await;
                return false;
            }
            Greeting::Refuse(code) => {
                socket.write_all(&error(Severity::Fatal, *code, "refused")).await.unwrap();
                return false;
            }
            Greeting::Slow(duration) => sleep(duration).await,
            Greeting::Welcome => {}
        }
        let mut out = Vec::new();
        encode::authentication_ok(&mut out);
        encode::parameter_status(&mut out, b"server_version", b"15.0");
        let secret = process_id.to_be_bytes().into();
        encode::backend_key_data(&mut out, &CancelKey { process_id, secret });
        encode::ready_for_query(&mut out, TransactionStatus::Idle);
        socket.write_all(&out).await.is_ok()
    }

    async fn session(&self, socket: &mut TcpStream, mut actions: mpsc::Receiver<Action>) {
        let mut chunk = [0; 1024];
        loop {
            tokio::select! {
                action = actions.recv() => match action {
                    Some(Action::Send(bytes)) => socket.write_all(&bytes).await.unwrap(),
                    Some(Action::HangUp) | None => return,
                },
                read = socket.read(&mut chunk) => match read {
                    Ok(n) if n > 0 && chunk[0] == b'X' => {
                        self.log().terminated += 1;
                        return;
                    }
                    Ok(n) if n > 0 => {
                        let answer = self.answer();
                        if socket.write_all(&answer).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
            }
        }
    }

    fn answer(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.log().answer.clone() {
            Some(Ok(values)) => {
                encode::row_description(&mut out, &[]);
                encode::data_row(&mut out, values.iter().map(|value| value.map(str::as_bytes)));
                encode::command_complete(&mut out, b"SELECT 1");
            }
            Some(Err(severity)) => out.extend(error(severity, *b"42501", "not for you")),
            None => encode::command_complete(&mut out, b"SELECT 0"),
        }
        encode::ready_for_query(&mut out, TransactionStatus::Idle);
        out
    }
}

/// Lets the runtime's driver and all tasks that are ready have their turn, without moving a paused clock: it stands
/// still while a blocking task is awaited.
pub(crate) async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

/// A clock that stands still until it is advanced, even while sockets are waited for.
pub(crate) struct Frozen {
    _release: std::sync::mpsc::SyncSender<()>,
}

/// Stops the clock. A blocking task that does not end keeps tokio from moving it when everybody waits.
pub(crate) fn freeze() -> Frozen {
    tokio::time::pause();
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    tokio::task::spawn_blocking(move || released.recv().unwrap_err());
    Frozen { _release: release }
}

pub(crate) fn error(severity: Severity, code: [u8; 5], message: &'static str) -> Vec<u8> {
    let mut out = Vec::new();
    encode::error_response(
        &mut out,
        &ErrorReport::new(severity, SqlState::from_bytes(&code).unwrap(), message),
    );
    out
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn read_startup(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let len = socket.read_u32().await.ok()?;
    let mut body = vec![0; usize::try_from(len).unwrap() - 4];
    socket.read_exact(&mut body).await.ok()?;
    Some(body)
}

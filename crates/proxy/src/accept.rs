//! From an accepted socket to a client that has been let in, under one deadline.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::handshake::server::{Accepted, Method, Refusal, ServerHandshake, Step};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::scram::Verifier;
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::{CancelKey, Startup, is_direct_tls};
use causeway_tls::{TlsError, TlsServer};
use tokio::time::{Instant, timeout_at};

use crate::Shared;
use crate::config::AuthMethod;
use crate::console::Console;
use crate::metrics::Counter;
use crate::registry::{ClientState, Interrupt};
use crate::relay::CANCEL_TIMEOUT;
use crate::socket::{ClientStream, Socket};
use crate::{console_session, login, replication};

/// A connection that is not a session yet.
pub(crate) struct Door {
    pub(crate) stream: ClientStream,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) inbound: Buffer,
    pub(crate) outbound: Vec<u8>,
}

/// A connection that is accepted and neither a session nor turned away yet: whoever waits for the last client waits for
/// these too.
pub(crate) struct Arrival(Arc<Shared>);

/// Why a connection did not become a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Turned {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the client left")]
    Left,
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Report(ErrorReport),
    /// The body of a server's `ErrorResponse`, which says it all.
    #[error("a server refused the login")]
    Verbatim(Arc<[u8]>),
}

/// What a handshake has led to.
enum Outcome {
    Session(Accepted),
    Cancel(CancelKey),
}

/// Serves one connection from its first byte to its last.
pub(crate) async fn serve(
    arrival: Arrival,
    stream: ClientStream,
    address: Option<SocketAddr>,
    console: Arc<dyn Console>,
) {
    let shared = Arc::clone(&arrival.0);
    let deadline = Instant::now() + shared.snapshot.load().defaults.login_timeout;
    let mut door = Door { stream, address, inbound: Buffer::default(), outbound: Vec::new() };
    let outcome = timeout_at(deadline, handshake(&shared, &mut door)).await;
    let result: Result<(), Turned> = match outcome {
        Ok(Ok(Outcome::Cancel(key))) => return shared.cancel_anywhere(&key).await,
        Ok(Ok(Outcome::Session(accepted))) => {
            if console.owns(&accepted.startup.database) {
                drop(arrival);
                console_session::serve(&shared, door, &accepted.startup, &*console).await;
                return;
            }
            if accepted.startup.replication.is_some() {
                let opened = replication::open(&shared, &mut door, *accepted.startup);
                match timeout_at(deadline, Box::pin(opened)).await {
                    Ok(Ok(stream)) => return stream.relay(door).await,
                    Ok(Err(turned)) => return turn_away(&shared, door, turned).await,
                    Err(_) => return turn_away(&shared, door, Turned::Report(too_slow())).await,
                }
            }
            match timeout_at(deadline, login::login(&shared, &mut door, *accepted.startup)).await {
                Ok(Ok(session)) => return session.into_client(shared, door).start(),
                Ok(Err(turned)) => Err(turned),
                Err(_) => Err(Turned::Report(too_slow())),
            }
        }
        Ok(Err(turned)) => Err(turned),
        Err(_) => Err(Turned::Report(too_slow())),
    };
    if let Err(turned) = result {
        turn_away(&shared, door, turned).await;
    }
}

async fn handshake(shared: &Shared, door: &mut Door) -> Result<Outcome, Turned> {
    let offered = shared.snapshot.load().tls.as_ref().map(|tls| tls.server.clone());
    let tls = offered.filter(|_| door.stream.is_exposed());
    if door.fill().await? == 0 {
        return Err(Turned::Left);
    }
    let mut state = ServerHandshake::new(tls.is_some());
    if let Some(server) = &tls
        && door.inbound.filled().first().is_some_and(|first| is_direct_tls(*first))
    {
        start_tls(shared, door, server, true).await?;
        state = ServerHandshake::in_direct_tls();
    }
    loop {
        let mut step = state.read(&mut door.inbound, &mut door.outbound)?;
        if let Step::NeedMethod(waiting) = step {
            let method = method(shared, door, waiting.startup(), tls.as_ref());
            step = waiting.resume(method, &mut door.inbound, &mut door.outbound)?;
        }
        door.flush().await?;
        state = match (step, &tls) {
            (Step::NeedBytes(next), _) => {
                if door.fill().await? == 0 {
                    return Err(Turned::Left);
                }
                next
            }
            (Step::StartTls(next), Some(server)) => {
                start_tls(shared, door, server, false).await?;
                next
            }
            (Step::Cancel(key), _) => return Ok(Outcome::Cancel(key)),
            (Step::Accepted(accepted), _) => return Ok(Outcome::Session(accepted)),
            // A method has been chosen above, and TLS is begun only where it was offered.
            (Step::NeedMethod(_), _) | (Step::StartTls(_), None) => return Err(Turned::Left),
        };
    }
}

/// Begins TLS. `direct`: the client did without asking for it, and has to prove by ALPN that it means this protocol
/// (`ProcessSSLStartup` in `src/backend/tcop/backend_startup.c`).
async fn start_tls(
    shared: &Shared,
    door: &mut Door,
    server: &TlsServer,
    direct: bool,
) -> Result<(), TlsError> {
    let metrics = &shared.metrics.process;
    // However it ends, the deadline included.
    let mut result = CountedOnDrop(&metrics.tls_failed);
    let session = door.stream.start_tls(server, &mut door.inbound).await?;
    if direct && !session.is_postgresql() {
        return Err(TlsError::NoAlpn);
    }
    result.0 = if session.is_resumed() { &metrics.tls_resumed } else { &metrics.tls_full };
    Ok(())
}

/// How this client has to prove who it is.
///
/// `tls`: what has been shown to it, if it has begun TLS.
fn method(shared: &Shared, door: &Door, startup: &Startup, tls: Option<&TlsServer>) -> Method {
    let snapshot = shared.snapshot.load();
    if door.stream.is_exposed() && snapshot.tls.as_ref().is_some_and(|tls| tls.required) {
        return Method::Reject(unencrypted(door, startup));
    }
    let encrypted = door.stream.session().is_some();
    let from = (door.address.map(|address| address.ip()), encrypted);
    match snapshot.auth_method(from, &startup.database, &startup.user) {
        AuthMethod::Trust => Method::Trust,
        AuthMethod::Reject => Method::Reject(
            ErrorReport::fatal(
                SqlState::INVALID_AUTHORIZATION,
                format!("no entry of auth.rules lets user \"{}\" in", startup.user),
            )
            .with_detail(format!("Database \"{}\".", startup.database)),
        ),
        AuthMethod::ScramSha256 => {
            let known = snapshot.users.get(&startup.user).and_then(|user| user.verifier.clone());
            let known_user = known.is_some();
            let verifier = known.map_or_else(
                || Verifier::mock(&shared.mock_secret, &startup.user),
                |verifier| (*verifier).clone(),
            );
            let end_point = tls.filter(|_| encrypted).and_then(TlsServer::end_point).map(Into::into);
            Method::ScramSha256 { verifier, nonce: rand::random(), known_user, end_point }
        }
    }
}

/// As PostgreSQL where all that fits is `hostssl` (`ClientAuthentication` in `src/backend/libpq/auth.c`).
fn unencrypted(door: &Door, startup: &Startup) -> ErrorReport {
    let host =
        door.address.map_or_else(|| "unix".to_owned(), |address| address.ip().to_canonical().to_string());
    let Startup { user, database, .. } = startup;
    ErrorReport::fatal(
        SqlState::INVALID_AUTHORIZATION,
        format!("no connection without TLS is let in: host \"{host}\", user \"{user}\", database \"{database}\", no encryption"),
    )
    .with_hint("tls.mode is require: connect with sslmode=require or stricter.")
}

// === impl Shared ===

impl Shared {
    /// Passes a cancel request on to the server, if the key is that of a client of this process. There is no answer: the
    /// connection is closed when the server has had its signal.
    pub(crate) async fn cancel(&self, key: &CancelKey) -> bool {
        let metrics = &self.metrics.process;
        let Some(entry) = self.clients.find(key) else { return false };
        if let Some(lease) = entry.lease() {
            match lease.cancel.cancel(Instant::now() + CANCEL_TIMEOUT).await {
                Ok(_) => metrics.cancels_forwarded.add(1),
                Err(error) => tracing::debug!(%error, "cancel request failed"),
            }
        } else if entry.state() == ClientState::Waiting {
            entry.interrupt(Interrupt { cancel: true, ..Interrupt::default() });
            metrics.cancels_forwarded.add(1);
        } else {
            metrics.cancels_ignored.add(1);
        }
        true
    }
}

// === impl Arrival ===

impl Arrival {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.arrivals.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrivals.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn turn_away(shared: &Shared, mut door: Door, turned: Turned) {
    match turned {
        Turned::Io(error) => tracing::debug!(%error, "connection broke before login"),
        Turned::Left => return,
        // What it is told is in the output already.
        Turned::Refusal(refusal) => {
            if let Refusal::Scram { .. } | Refusal::Rejected(_) = refusal {
                shared.metrics.process.auth_failures.add(1);
            }
            tracing::info!(address = ?door.address, error = %refusal, "client turned away");
        }
        // It was told by an alert of TLS, if at all.
        Turned::Tls(error) => {
            tracing::info!(address = ?door.address, %error, "client turned away");
            return;
        }
        Turned::Report(report) => {
            if report.code == SqlState::TOO_MANY_CONNECTIONS {
                shared.metrics.process.limit_rejections.add(1);
            }
            tracing::info!(address = ?door.address, error = %report, "client turned away");
            encode::error_response(&mut door.outbound, &report);
        }
        Turned::Verbatim(body) => {
            encode::raw(&mut door.outbound, causeway_protocol::backend::tag::ERROR_RESPONSE, &body);
        }
    }
    let last = timeout_at(Instant::now() + std::time::Duration::from_secs(1), door.flush()).await;
    if !matches!(last, Ok(Ok(()))) {
        tracing::debug!("client did not read why it was turned away");
    }
}

/// Why nobody new is let in at the moment.
pub(crate) fn closed_door(shared: &Shared) -> Option<ErrorReport> {
    if shared.draining.load(Ordering::Acquire) {
        return Some(ErrorReport::fatal(SqlState::CANNOT_CONNECT_NOW, "Causeway is shutting down"));
    }
    let limit = shared.snapshot.load().defaults.max_clients;
    (shared.clients.len() >= limit).then(|| {
        ErrorReport::fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
            .with_detail(format!("limits.max_clients is {limit}."))
    })
}

fn too_slow() -> ErrorReport {
    ErrorReport::fatal(SqlState::QUERY_CANCELED, "canceling authentication due to timeout")
        .with_hint("timeouts.login_timeout is how long a login may take.")
}

/// Counts, in the counter it has last, when it is dropped.
struct CountedOnDrop<'a>(&'a Counter);

impl Drop for CountedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

// === impl Door ===

impl Door {
    /// Sends everything there is to send.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while !self.outbound.is_empty() {
            let written = poll_fn(|cx| self.stream.poll_drain(cx, &self.outbound)).await?;
            self.outbound.drain(..written);
        }
        Ok(())
    }

    /// Reads once; zero bytes are the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.stream.poll_fill(cx, &mut self.inbound)).await
    }
}

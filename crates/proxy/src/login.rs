//! The greeting: what a client is told at login is the primary's truth.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_pool::{CheckoutError, CloseReason, ConnectError, Lease, Seat};
use causeway_protocol::backend::{self, TransactionStatus, tag};
use causeway_protocol::encode;
use causeway_protocol::frame;
use causeway_protocol::report::{ErrorReport, Severity};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::Startup;
use tokio::time::Instant;

use crate::Shared;
use crate::accept::{Door, Turned, closed_door};
use crate::client::Client;
use crate::failover::{leads, no_primary};
use crate::home::Home;
use crate::registry::{Introduction, Registration};
use crate::session::Told;
use crate::session::settings::{SessionSettings, transition};
use crate::socket::{self, Socket};

/// The most logins that are remembered.
const REMEMBERED: usize = 4096;

/// One column, as text: `0`.
const NO_SCHEMA: [u8; 7] = [0, 1, 0, 0, 0, 1, b'0'];

/// How long a login waits for a server process of its own to start; it does without one then.
const SEAT_TIMEOUT: Duration = Duration::from_secs(1);

/// A message longer than this is not expected in answer to settings.
const MAX_ANSWER: usize = 1024 * 1024;

/// Logins that the primary has accepted lately, and what it reported.
#[derive(Default)]
pub(crate) struct LoginCache {
    logins: Mutex<HashMap<LoginKey, Remembered>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LoginKey {
    database: Arc<str>,
    user: Arc<str>,
    settings: Vec<(Box<str>, Box<str>)>,
}

struct Remembered {
    at: Instant,
    known: Arc<Known>,
}

/// What all who log in alike have in common.
struct Known {
    parameters: Told,
    /// The same as messages.
    greeting: Box<[u8]>,
    /// Shared, so that comparing them with what a connection has is comparing pointers.
    settings: SessionSettings,
    home: Home,
}

/// A client that may begin.
pub(crate) struct LoggedIn {
    home: Home,
    entry: Registration,
    seat: Option<Seat>,
    settings: SessionSettings,
    parameters: Told,
}

// === impl LoginCache ===

impl LoginCache {
    /// Forgets every login.
    pub(crate) fn clear(&self) {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn find(&self, key: &LoginKey, lifetime: Duration) -> Option<Arc<Known>> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = logins.get(key).filter(|remembered| remembered.at.elapsed() < lifetime)?;
        Some(Arc::clone(&remembered.known))
    }

    fn remember(&self, key: LoginKey, known: &Arc<Known>) {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        if logins.len() >= REMEMBERED {
            logins.clear();
        }
        logins.insert(key, Remembered { at: Instant::now(), known: Arc::clone(known) });
    }
}

/// Lets an authenticated client begin: its database and settings are found good, and it is greeted.
pub(crate) async fn login(
    shared: &Arc<Shared>,
    door: &mut Door,
    startup: Startup,
) -> Result<LoggedIn, Turned> {
    if let Some(report) = closed_door(shared) {
        return Err(Turned::Report(report));
    }
    let database: Arc<str> = Arc::from(&*startup.database);
    let user: Arc<str> = Arc::from(&*startup.user);
    let application_name = startup.setting("application_name").unwrap_or_default().into();
    let key =
        LoginKey { database: Arc::clone(&database), user: Arc::clone(&user), settings: startup.settings };
    let snapshot = shared.snapshot.load_full();
    let admission = shared.crowd.admit(&snapshot, &database, &user).map_err(Turned::Report)?;
    let lifetime = snapshot.defaults.login_cache;
    let known = match shared.logins.find(&key, lifetime) {
        Some(known) => known,
        None => introduce(shared, key).await?,
    };
    let mut home = known.home.clone();
    let seat = Box::pin(take_seat(shared, &mut home)).await;
    let (address, tls) = (door.address, door.stream.tls());
    let who = Introduction { database, user, application_name, address, tls };
    let mut entry = shared.clients.register(who, seat.as_ref().map(Seat::process_id));
    entry.admission = Some(admission);
    door.outbound.extend_from_slice(&known.greeting);
    encode::backend_key_data(&mut door.outbound, &entry.key);
    encode::ready_for_query(&mut door.outbound, TransactionStatus::Idle);
    door.flush().await?;
    shared.metrics.process.logins.add(1);
    Ok(LoggedIn {
        home,
        entry,
        seat,
        settings: known.settings.clone(),
        parameters: Arc::clone(&known.parameters),
    })
}

/// A server process for the client to call its own, if the primary's pool has one that is nobody else's.
async fn take_seat(shared: &Shared, home: &mut Home) -> Option<Seat> {
    let id = home.control.view().primary?;
    let pool = home.pool(shared, id)?;
    pool.pool.seat(Instant::now() + SEAT_TIMEOUT).await
}

/// Has the primary accept a login that nobody has made lately, and remembers it.
async fn introduce(shared: &Shared, key: LoginKey) -> Result<Arc<Known>, Turned> {
    let Some(mut home) = Home::find(shared, &key.database, &key.user) else {
        let message = format!("database \"{}\" does not exist", key.database);
        return Err(Turned::Report(
            ErrorReport::fatal(SqlState::INVALID_CATALOG_NAME, message)
                .with_hint("databases in Causeway's configuration has neither this name nor \"*\"."),
        ));
    };
    let settings = SessionSettings::new(key.settings.iter().map(|(name, value)| (&**name, &**value)));
    if let Some(report) = settings.refusal() {
        return Err(Turned::Report(report));
    }
    let parameters = ask_primary(shared, &mut home, &settings).await?;
    let known = Arc::new(Known { greeting: greeting(&parameters, &settings), parameters, settings, home });
    shared.logins.remember(key, &known);
    Ok(known)
}

fn greeting(parameters: &Told, settings: &SessionSettings) -> Box<[u8]> {
    // The client's server is the primary, whatever it was when this connection to it was made. Who asks for replicas has a
    // replica answer what a server is asked about itself (`target_session_attrs` of libpq, `fe-connect.c`).
    let standby: &[u8] = if settings.asks_replica() { b"on" } else { b"off" };
    let mut out = Vec::new();
    for (name, value) in parameters.iter() {
        let value: &[u8] = if &**name == "in_hot_standby" { standby } else { value };
        encode::parameter_status(&mut out, name.as_bytes(), value);
    }
    out.into()
}

/// Has the primary accept the login, and returns what it reports for these settings.
async fn ask_primary(shared: &Shared, home: &mut Home, settings: &SessionSettings) -> Result<Told, Turned> {
    let deadline = Instant::now() + home.checkout_timeout.max(home.primary_wait);
    let mut lease = loop {
        let primary = home.control.view().primary.and_then(|id| home.pool(shared, id));
        let Some(pool) = primary else {
            wait_for_primary(home, deadline).await?;
            continue;
        };
        let checkout = match pool.pool.try_checkout() {
            Some(lease) => Ok(lease),
            None => pool.pool.checkout(deadline).await,
        };
        match checkout {
            Ok(mut lease) => {
                if leads(&*home.control, &mut lease, pool.id) {
                    break lease;
                }
                lease.discard(CloseReason::RoleChanged);
                home.control.node_failed(pool.id);
                wait_for_primary(home, deadline).await?;
            }
            Err(CheckoutError::Connect(ConnectError::Refused(body))) => {
                let code = backend::error_fields(&body).map(|fields| fields.code());
                if code.is_ok_and(|code| code != SqlState::CANNOT_CONNECT_NOW) {
                    return Err(Turned::Verbatim(body));
                }
                wait_for_primary(home, deadline).await?;
            }
            Err(CheckoutError::Connect(
                error @ (ConnectError::Handshake(_) | ConnectError::Verification(_) | ConnectError::Tls(_)),
            )) => {
                let message = format!("could not log in at node \"{}\"", pool.key.node);
                let code = SqlState::CANNOT_CONNECT;
                return Err(Turned::Report(ErrorReport::fatal(code, message).with_detail(error.to_string())));
            }
            Err(CheckoutError::Connect(_)) => {
                home.control.node_failed(pool.id);
                wait_for_primary(home, deadline).await?;
            }
            Err(error) => {
                let message = "no server connection became free in time";
                let report = ErrorReport::fatal(SqlState::TOO_MANY_CONNECTIONS, message);
                return Err(Turned::Report(report.with_detail(error.to_string())));
            }
        }
    };
    let wanted = settings.wanted(false);
    if let Some(sql) = transition(&lease.books.settings, wanted) {
        if let Err(turned) = establish(&mut lease, &sql).await {
            lease.discard(CloseReason::UnknownState);
            return Err(turned);
        }
        lease.books.settings = wanted.clone();
    }
    let parameters = lease.parameters().into();
    socket::give_back(&mut lease.inbound);
    lease.checkin();
    Ok(parameters)
}

async fn wait_for_primary(home: &Home, deadline: Instant) -> Result<(), Turned> {
    let mut changes = home.control.changes();
    changes.mark_unchanged();
    let pause = deadline.min(Instant::now() + Duration::from_millis(100));
    // Whether it changed or the time is over: the caller looks again.
    drop(tokio::time::timeout_at(pause, changes.changed()).await);
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Turned::Report(no_primary(home).with_severity(Severity::Fatal)))
}

/// Runs statements that change the state of a server's session, and that nobody waits for the answers of.
///
/// # Errors
///
/// What the server says against them, or that the connection broke; it is not to be used again then.
pub(crate) async fn establish(lease: &mut Lease, sql: &str) -> Result<(), Turned> {
    ask(lease, sql).await.map(drop)
}

/// Makes a server's session as good as new for the next client; says whether it is.
///
/// A server process that has had temporary objects keeps the schema for them until it ends (`myTempNamespace` in
/// src/backend/catalog/namespace.c), and `pg_my_temp_schema`, `current_schema` and PREPARE TRANSACTION tell.
///
/// # Errors
///
/// As [`establish`].
pub(crate) async fn start_over(lease: &mut Lease) -> Result<bool, Turned> {
    establish(lease, "DISCARD ALL").await?;
    let schema = ask(lease, "SELECT pg_catalog.pg_my_temp_schema()").await?;
    Ok(schema.as_deref() == Some(&NO_SCHEMA))
}

/// As [`establish`]; returns the body of the last row, if there was one.
async fn ask(lease: &mut Lease, sql: &str) -> Result<Option<Box<[u8]>>, Turned> {
    let mut row = None;
    let mut query = Vec::new();
    encode::query(&mut query, sql.as_bytes());
    let mut failure = None;
    loop {
        let server = &mut **lease;
        while let Some((frame, len)) = frame::split(server.inbound.filled(), MAX_ANSWER).map_err(broken)? {
            let mut reported = None;
            match frame.tag {
                tag::ERROR_RESPONSE => failure = Some(refusal(frame.body)),
                tag::DATA_ROW => row = Some(frame.body.into()),
                tag::PARAMETER_STATUS => {
                    let (name, value) = backend::parameter_status(frame.body).map_err(broken)?;
                    reported = Some((Box::<[u8]>::from(name), Box::<[u8]>::from(value)));
                }
                tag::READY_FOR_QUERY => {
                    server.inbound.consume(len);
                    return failure.map_or(Ok(row), |report| Err(Turned::Report(report)));
                }
                _ => {}
            }
            server.inbound.consume(len);
            if let Some((name, value)) = reported {
                server.parameter_status(&name, &value);
            }
        }
        let read = poll_fn(|cx| {
            if !query.is_empty()
                && let std::task::Poll::Ready(written) = server.stream.poll_drain(cx, &query)
            {
                match written {
                    Ok(n) => drop(query.drain(..n)),
                    Err(error) => return std::task::Poll::Ready(Err(error)),
                }
            }
            server.stream.poll_fill(cx, &mut server.inbound)
        });
        if read.await.map_err(broken)? == 0 {
            return Err(failure.map_or_else(|| broken("it closed the connection"), Turned::Report));
        }
    }
}

/// What a server says against a start-up parameter ends the login, as it would there.
fn refusal(body: &[u8]) -> ErrorReport {
    let Ok(fields) = backend::error_fields(body) else {
        return ErrorReport::fatal(SqlState::INTERNAL_ERROR, "a start-up parameter was refused");
    };
    let text = |field| fields.get(field).map(|text| String::from_utf8_lossy(text).into_owned());
    let mut report = ErrorReport::fatal(fields.code(), text(b'M').unwrap_or_default());
    if let Some(detail) = text(b'D') {
        report = report.with_detail(detail);
    }
    if let Some(hint) = text(b'H') {
        report = report.with_hint(hint);
    }
    report
}

fn broken(cause: impl std::fmt::Display) -> Turned {
    let report = ErrorReport::fatal(SqlState::CONNECTION_FAILURE, "the server connection broke during login");
    Turned::Report(report.with_detail(cause.to_string()))
}

// === impl LoggedIn ===

impl LoggedIn {
    /// The session, on the connection it came in by.
    pub(crate) fn into_client(self, shared: Arc<Shared>, door: Door) -> Client {
        let session = (self.settings, self.parameters);
        Client::new(shared, (door.stream, door.inbound), self.home, (self.entry, self.seat), session)
    }
}

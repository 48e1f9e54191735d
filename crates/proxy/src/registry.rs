//! The clients at hand: who they are, what they do, and how they are reached from outside their task.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use causeway_pool::{CancelHandle, LeaseNumber};
use causeway_protocol::startup::CancelKey;
use causeway_routing::PinSet;
use causeway_tls::TlsInfo;
use tokio::time::Instant;

use crate::crowd::Admission;
use crate::deadlines::Since;
use crate::pools::NodePool;

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClientState {
    /// It waits for nothing.
    Idle,
    /// It waits for a server connection.
    Waiting,
    /// A server works for it.
    Active,
    /// It holds a server connection between two statements of a transaction.
    InTransaction,
    /// It holds a server connection outside a transaction.
    Pinned,
}

/// What is known of a client from outside.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// The process id it was told.
    pub id: i32,
    /// The database it asked for.
    pub database: Arc<str>,
    /// Who it is.
    pub user: Arc<str>,
    /// The application name it gave at login.
    pub application_name: Arc<str>,
    /// Where it comes from; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// What was agreed on if it came with TLS.
    pub tls: Option<TlsInfo>,
    /// What it does.
    pub state: ClientState,
    /// Why it keeps its server connection.
    pub pinned: PinSet,
    /// Since when; `None` if it keeps none.
    pub pinned_since: Option<Instant>,
    /// When it logged in.
    pub connected_at: SystemTime,
    /// The node it works on.
    pub node: Option<Arc<str>>,
}

/// Somebody wants something of a session; what it is may be more than one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// End the wait for a server connection.
    pub(crate) cancel: bool,
    /// End the session now.
    pub(crate) kill: bool,
    /// End the session when it is outside a transaction.
    pub(crate) drain: bool,
}

/// The ids that are not those of server processes begin here: positive, and beyond what any system gives a process.
const OWN_NUMBERS: i32 = 1 << 30;

const CANCEL: u8 = 1;
const KILL: u8 = 2;
const DRAIN: u8 = 4;
/// The primary has changed: look whether the connection at hand is still one to it.
const LOOK: u8 = 8;
/// The session has taken long over something: look whether that is too long.
const CLOCK: u8 = 16;

/// One client, shared between its task and whoever looks at it or wants something of it.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    pub(crate) key: CancelKey,
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    application_name: Arc<str>,
    address: Option<SocketAddr>,
    tls: Option<TlsInfo>,
    connected_at: SystemTime,
    state: AtomicU8,
    pub(crate) since: Since,
    counted_time: Arc<AtomicU64>,
    interrupts: AtomicU8,
    waker: Mutex<Option<Waker>>,
    /// The server connection that it had last; its pool tells whether it still has it.
    lease: Mutex<Option<(Arc<NodePool>, LeaseNumber)>>,
    pinned: Mutex<(PinSet, Option<Instant>)>,
}

/// The server connection a client has.
#[derive(Clone, Debug)]
pub(crate) struct LeaseMark {
    pub(crate) node: Arc<str>,
    pub(crate) cancel: CancelHandle,
}

/// What a new client says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) application_name: Arc<str>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) tls: Option<TlsInfo>,
}

/// All clients by the process id they were told.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicI32,
    /// Milliseconds, as far as they have been counted.
    counted_time: Arc<AtomicU64>,
    entries: Mutex<HashMap<i32, Arc<ClientEntry>>>,
}

/// Takes the client out of the registry when its task is over, however that comes.
#[derive(Debug)]
pub(crate) struct Registration {
    clients: Arc<Clients>,
    entry: Arc<ClientEntry>,
    /// Its place among the clients of its database and user.
    pub(crate) admission: Option<Admission>,
}

// === impl Clients ===

impl Clients {
    /// Gives a new client its process id and key.
    ///
    /// The id is that of its own server process if it has one; a number of ours otherwise, or while another client holds
    /// that id of another server.
    pub(crate) fn register(self: &Arc<Self>, who: Introduction, server_process: Option<i32>) -> Registration {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |id: &i32| !entries.contains_key(id);
        let process_id = server_process.filter(|id| *id > 0).filter(free).unwrap_or_else(|| {
            loop {
                let id = self.next.fetch_add(1, Ordering::Relaxed) & (OWN_NUMBERS - 1) | OWN_NUMBERS;
                if free(&id) {
                    break id;
                }
            }
        });
        let secret: [u8; 4] = rand::random();
        let entry = Arc::new(ClientEntry {
            key: CancelKey { process_id, secret: secret.into() },
            database: who.database,
            user: who.user,
            application_name: who.application_name,
            address: who.address,
            tls: who.tls,
            connected_at: SystemTime::now(),
            state: AtomicU8::new(ClientState::Idle as u8),
            since: Since::default(),
            counted_time: Arc::clone(&self.counted_time),
            interrupts: AtomicU8::new(0),
            waker: Mutex::new(None),
            lease: Mutex::new(None),
            pinned: Mutex::default(),
        });
        entry.enter(ClientState::Idle);
        entries.insert(process_id, Arc::clone(&entry));
        Registration { clients: Arc::clone(self), entry, admission: None }
    }

    /// The client that holds this key.
    pub(crate) fn find(&self, key: &CancelKey) -> Option<Arc<ClientEntry>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&key.process_id)?;
        // Every byte is compared, so that time tells nothing of where the first wrong one is.
        let differing = |known: &[u8], given: &[u8]| {
            known.iter().zip(given).fold(known.len() ^ given.len(), |bits, (a, b)| bits | usize::from(a ^ b))
        };
        (differing(&entry.key.secret, &key.secret) == 0).then(|| Arc::clone(entry))
    }

    /// The client with this process id.
    pub(crate) fn by_id(&self, id: i32) -> Option<Arc<ClientEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(&id).map(Arc::clone)
    }

    /// So much time has passed.
    pub(crate) fn count_time(&self, passed: Duration) {
        let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.counted_time.fetch_add(passed, Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<ClientEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }
}

// === impl ClientEntry ===

impl ClientEntry {
    /// What is known of the client.
    pub(crate) fn info(&self) -> ClientInfo {
        let lease = self.lease();
        let (pinned, pinned_since) = *self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        ClientInfo {
            id: self.key.process_id,
            database: Arc::clone(&self.database),
            user: Arc::clone(&self.user),
            application_name: Arc::clone(&self.application_name),
            address: self.address,
            tls: self.tls,
            state: self.state(),
            pinned,
            pinned_since,
            connected_at: self.connected_at,
            node: lease.map(|lease| lease.node),
        }
    }

    /// What the client does.
    pub(crate) fn state(&self) -> ClientState {
        match self.state.load(Ordering::Relaxed) {
            1 => ClientState::Waiting,
            2 => ClientState::Active,
            3 => ClientState::InTransaction,
            4 => ClientState::Pinned,
            _ => ClientState::Idle,
        }
    }

    /// Notes what the client does.
    pub(crate) fn enter(&self, state: ClientState) {
        self.state.store(state as u8, Ordering::Relaxed);
        self.since.begin();
    }

    /// The milliseconds counted so far.
    pub(crate) fn counted_time(&self) -> u64 {
        self.counted_time.load(Ordering::Relaxed)
    }

    /// Notes why the client keeps its server connection.
    pub(crate) fn pin(&self, reasons: PinSet) {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let since = pinned.1.unwrap_or_else(Instant::now);
        *pinned = (reasons, (!reasons.is_empty()).then_some(since));
    }

    /// Notes the server connection that the client has. When it is over need not be told: its pool knows.
    pub(crate) fn lend(&self, pool: &Arc<NodePool>, number: LeaseNumber) {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *lease {
            Some((known, last)) if Arc::ptr_eq(known, pool) => *last = number,
            other => *other = Some((Arc::clone(pool), number)),
        }
    }

    /// The server connection that the client has.
    pub(crate) fn lease(&self) -> Option<LeaseMark> {
        let (pool, number) = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let cancel = pool.pool.cancel_handle(number)?;
        Some(LeaseMark { node: Arc::clone(&pool.key.node), cancel })
    }

    /// Makes interrupts wake this task from now on. A task's waker stays the same, so once is enough.
    pub(crate) fn wake_by(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// Wants something of the session.
    pub(crate) fn interrupt(&self, wanted: Interrupt) {
        let bits = (u8::from(wanted.cancel) * CANCEL)
            | (u8::from(wanted.kill) * KILL)
            | (u8::from(wanted.drain) * DRAIN);
        self.set(bits);
    }

    /// Has the session look whether its connection still leads to the primary.
    pub(crate) fn look(&self) {
        self.set(LOOK);
    }

    /// Has the session look whether it has taken too long.
    pub(crate) fn look_at_clock(&self) {
        self.set(CLOCK);
    }

    /// Whether it has to, which it does now.
    pub(crate) fn takes_look_at_clock(&self) -> bool {
        self.interrupts.fetch_and(!CLOCK, Ordering::AcqRel) & CLOCK != 0
    }

    /// Whether it has to look at anything.
    pub(crate) fn must_look(&self) -> bool {
        self.interrupts.load(Ordering::Acquire) & (LOOK | CLOCK) != 0
    }

    /// It has.
    pub(crate) fn looked(&self) {
        if self.must_look() {
            self.interrupts.fetch_and(!LOOK, Ordering::AcqRel);
        }
    }

    fn set(&self, bits: u8) {
        self.interrupts.fetch_or(bits, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What is wanted of the session.
    pub(crate) fn interrupts(&self) -> Interrupt {
        let bits = self.interrupts.load(Ordering::Acquire);
        Interrupt { cancel: bits & CANCEL != 0, kill: bits & KILL != 0, drain: bits & DRAIN != 0 }
    }

    /// Forgets a cancel that came for an earlier statement; says whether there was one.
    pub(crate) fn clear_cancel(&self) -> bool {
        self.interrupts.fetch_and(!CANCEL, Ordering::AcqRel) & CANCEL != 0
    }
}

// === impl Registration ===

impl std::ops::Deref for Registration {
    type Target = ClientEntry;

    fn deref(&self) -> &ClientEntry {
        &self.entry
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let id = self.entry.key.process_id;
        self.clients.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

impl ClientState {
    /// The word used by SHOW CLIENTS and in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::InTransaction => "in_transaction",
            Self::Pinned => "pinned",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction() -> Introduction {
        let text = || Arc::from("x");
        Introduction { database: text(), user: text(), application_name: text(), address: None, tls: None }
    }

    #[test]
    fn a_key_finds_its_client_and_no_other_does() {
        let clients = Arc::new(Clients::default());
        let one = clients.register(introduction(), None);
        let two = clients.register(introduction(), None);
        assert_ne!(one.key.process_id, two.key.process_id);
        assert!(clients.find(&one.key).is_some());
        let mut wrong = one.key.clone();
        wrong.secret[3] ^= 1;
        assert!(clients.find(&wrong).is_none());
        wrong.secret = one.key.secret.iter().copied().chain([0]).collect();
        assert!(clients.find(&wrong).is_none());
        drop(one);
        assert_eq!(clients.len(), 1);
    }

    #[test]
    fn interrupts_add_up_and_only_cancel_is_forgotten() {
        let clients = Arc::new(Clients::default());
        let client = clients.register(introduction(), None);
        client.interrupt(Interrupt { cancel: true, ..Interrupt::default() });
        client.interrupt(Interrupt { drain: true, ..Interrupt::default() });
        assert!(client.clear_cancel());
        assert!(!client.clear_cancel());
        assert_eq!(client.interrupts(), Interrupt { drain: true, ..Interrupt::default() });
    }
}

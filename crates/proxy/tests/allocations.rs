//! A relayed statement of a session that has warmed up allocates nothing, whichever protocol it comes by.
//!
//! The data plane runs on the thread that is measured; the client and the server, which allocate as they please, on
//! others.

#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use causeway_pool::{Address, Keepalive, ServerConn, Verification};
use causeway_protocol::report::ErrorReport;
use causeway_proxy::config::{
    AuthMethod, AuthRule, ClusterConfig, Consistency, DatabaseConfig, Defaults, Network, NodeEndpoint,
    Overlap, Overrides, PoolMode, Timeouts,
};
use causeway_proxy::console::{Column, Console, ReplyFuture};
use causeway_proxy::{ControlPlane, HealthPolicy, Listener, Metrics, Need, Proxy, Snapshot};
use causeway_routing::catalogue::{Catalogue, CatalogueBuilder};
use causeway_routing::{Bound, Fence, Level, Lsn, NodeId, NodeState, NodeView, Observation, Role, View};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

const WARM_UP: usize = 200;
const MEASURED: usize = 1000;

/// ReadyForQuery, idle: the end of every answer.
const READY: &[u8] = b"Z\0\0\0\x05I";

// === messages ===

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &len.to_be_bytes()[..], body].concat()
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}

/// Bind with one text parameter, Describe, Execute and Sync.
fn execute(name: &str, value: &str) -> Vec<u8> {
    let len = u32::try_from(value.len()).unwrap().to_be_bytes();
    let bind = [b"\0", name.as_bytes(), b"\0\0\0\0\x01", &len[..], value.as_bytes(), b"\0\0"].concat();
    let rest = [message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")];
    [message(b'B', &bind), rest.concat()].concat()
}

/// The first whole frame of `bytes`: its tag and its length.
fn frame(bytes: &[u8]) -> Option<(u8, usize)> {
    let len = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?);
    let end = 1 + usize::try_from(len).ok()?;
    (bytes.len() >= end).then_some((bytes[0], end))
}

// === the server ===

fn serve(mut socket: TcpStream) {
    socket.set_nodelay(true).unwrap();
    let (mut pending, mut chunk) = (Vec::new(), [0; 4096]);
    let row = [message(b'T', b"\0\0"), message(b'D', b"\0\0")].concat();
    let complete = message(b'C', b"SELECT 1\0");
    let (mut greeted, mut open) = (false, false);
    while let Ok(n @ 1..) = socket.read(&mut chunk) {
        pending.extend_from_slice(&chunk[..n]);
        let mut answer = Vec::new();
        if !greeted {
            greeted = true;
            pending.clear();
            let parameter = |text: &[u8]| message(b'S', text);
            answer.extend(message(b'R', &[0; 4]));
            answer.extend(parameter(b"client_encoding\0UTF8\0"));
            answer.extend(parameter(b"standard_conforming_strings\0on\0"));
            answer.extend(message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]));
            answer.extend(READY);
        }
        while let Some((tag, end)) = frame(&pending) {
            let request: Vec<u8> = pending.drain(..end).collect();
            match tag {
                b'Q' => {
                    open = request[5..].starts_with(b"BEGIN") || open && !request[5..].starts_with(b"COMMIT");
                    answer.extend([&row[..], &complete].concat());
                    answer.extend(message(b'Z', if open { b"T" } else { b"I" }));
                }
                b'P' => answer.extend(message(b'1', b"")),
                b'B' => answer.extend(message(b'2', b"")),
                b'D' => answer.extend(message(b'T', b"\0\0")),
                b'E' => answer.extend([&message(b'D', b"\0\0")[..], &complete].concat()),
                b'S' => answer.extend(READY),
                _ => return,
            }
        }
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

// === the control plane ===

/// Two nodes that never change, and a primary that tells at once what a read must see.
struct Fixed {
    view: Arc<View>,
    /// Up to when it has told.
    told: Mutex<Option<Instant>>,
    changes: watch::Sender<u64>,
    catalogue: Arc<Catalogue>,
}

const FENCE: Fence = Fence { system_id: 7, timeline: 1, lsn: Lsn(100) };

impl Fixed {
    fn new() -> Self {
        let node = |id: u16, role| NodeView {
            id: NodeId(id),
            name: format!("pg-{id}").into(),
            role,
            state: NodeState::Serving,
            weight: 1,
            levels: causeway_routing::Levels::ALL,
            observation: Some(Observation { system_id: 7, timeline: 1, lsn: Lsn(100) }),
            lag_bytes: None,
            lag: None,
        };
        let nodes = vec![node(0, Role::Primary), node(1, Role::Replica)];
        let view = View { nodes, primary: Some(NodeId(0)), fence: Some(FENCE), ..View::default() };
        let view = Arc::new(view);
        let catalogue = CatalogueBuilder::new().build().with_identity(1 << 64);
        Self { view, told: Mutex::default(), changes: watch::Sender::new(0), catalogue: Arc::new(catalogue) }
    }
}

impl ControlPlane for Fixed {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }
    fn view_version(&self) -> u64 {
        0
    }
    fn fence_since(&self, moment: Instant) -> Option<Fence> {
        (*self.told.lock().unwrap() >= Some(moment)).then_some(FENCE)
    }
    fn fence(&self, moment: Instant) -> oneshot::Receiver<Fence> {
        // Before there is a connection.
        *self.told.lock().unwrap() = Some(moment);
        let (reply, answer) = oneshot::channel();
        reply.send(FENCE).unwrap();
        answer
    }
    fn wake_at_fence(&self, moment: Instant, waker: &Waker) -> bool {
        *self.told.lock().unwrap() = Some(moment);
        waker.wake_by_ref();
        true
    }
    fn position(&self, _: &Need) -> oneshot::Receiver<()> {
        unreachable!("level eventual needs no position")
    }
    fn holds(&self, _: NodeId, _: &ServerConn) -> bool {
        true
    }
    fn era(&self) -> u64 {
        1
    }
    fn leads(&self, _: NodeId, _: &ServerConn) -> bool {
        true
    }
    fn bound(&self, _: u64, _: Instant) -> Bound {
        unreachable!("the era does not change")
    }
    fn shown(&self, _: NodeId, _: Instant) -> Option<Fence> {
        unreachable!("the era does not change")
    }
    fn shown_up_to(&self, _: NodeId) -> Option<Instant> {
        *self.told.lock().unwrap()
    }
    fn verification(&self) -> Option<Verification> {
        None
    }
    fn wrote(&self, _: Instant) {}
    fn last_write(&self) -> Instant {
        unreachable!("level eventual does not ask")
    }
    fn catalogue(&self, _: &str) -> Option<Arc<Catalogue>> {
        // Of a database without any code of its own.
        Some(Arc::clone(&self.catalogue))
    }
    fn definition_seen(&self, _: &str) {}
    fn node_failed(&self, node: NodeId) {
        panic!("node {node:?} failed");
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

struct NoConsole;

impl Console for NoConsole {
    fn owns(&self, _: &str) -> bool {
        false
    }
    fn refuse(&self, _: &str) -> Option<ErrorReport> {
        None
    }
    fn describe(&self, _: &str) -> Result<Option<Vec<Column>>, ErrorReport> {
        Ok(None)
    }
    fn run<'a>(&'a self, _: &'a str, _: &'a str) -> ReplyFuture<'a> {
        unreachable!("nobody asks for the console")
    }
}

fn snapshot(server: u16, level: Level) -> Snapshot {
    let minute = Duration::from_mins(1);
    let endpoint = |name: &str| NodeEndpoint {
        name: name.into(),
        address: Address::Tcp { host: "127.0.0.1".into(), port: server },
        max_server_connections: None,
        tls: None,
    };
    Snapshot {
        tls: None,
        peers: Arc::default(),
        generation: 0,
        clusters: vec![ClusterConfig {
            name: "main".into(),
            nodes: vec![endpoint("pg-0"), endpoint("pg-1")],
            control: Arc::new(Fixed::new()),
            fallbacks: Arc::new(Semaphore::new(1)),
            primary_wait: minute,
            health: HealthPolicy::default(),
        }],
        databases: std::collections::HashMap::default(),
        any_database: Some(DatabaseConfig { cluster: 0, overrides: Overrides::default() }),
        users: std::collections::HashMap::default(),
        auth_rules: vec![AuthRule {
            network: Some(Network { address: [127, 0, 0, 1].into(), prefix: 32 }),
            database: None,
            user: None,
            tls: None,
            method: AuthMethod::Trust,
        }],
        defaults: Defaults {
            pool_mode: PoolMode::Transaction,
            pool_size: 1,
            max_waiters: 10,
            checkout_timeout: minute,
            connect_timeout: minute,
            idle_timeout: minute,
            lifetime: minute,
            keepalive: Keepalive::default(),
            max_connecting: 4,
            level,
            consistency: Consistency { overlap: Overlap::Auto, ..Consistency::default() },
            login_timeout: minute,
            login_cache: minute,
            max_clients: 10,
            max_prepared_statements: 10,
            timeouts: Timeouts::default(),
        },
    }
}

// === the client ===

struct Client {
    socket: TcpStream,
}

impl Client {
    fn connect(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut client = Self { socket };
        let body = b"\0\x03\0\0user\0u\0database\0d\0\0";
        let len = u32::try_from(body.len() + 4).unwrap();
        client.ask(&[&len.to_be_bytes()[..], body].concat());
        client
    }

    fn ask(&mut self, request: &[u8]) {
        self.socket.write_all(request).unwrap();
        let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
        while !ends(&answer) {
            let n = self.socket.read(&mut chunk).unwrap();
            assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&chunk[..n]);
        }
        assert!(!answer.starts_with(b"E"), "{:?}", String::from_utf8_lossy(&answer));
    }
}

/// Whether the last message of an answer is there, in whatever state it leaves the transaction.
fn ends(answer: &[u8]) -> bool {
    matches!(answer, [.., b'Z', 0, 0, 0, 5, b'I' | b'T'])
}

/// How many allocations the data plane makes for [`MEASURED`] requests made by `request` of their number.
fn allocations(level: Level, first: &[u8], request: impl Fn(usize) -> Vec<u8> + Send + 'static) -> u64 {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let server_port = server.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in server.incoming() {
            thread::spawn(|| serve(socket.unwrap()));
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = Proxy::new(snapshot(server_port, level), Arc::new(Metrics::default()));
    runtime.spawn(async move { proxy.serve(Arc::new(Listener::Tcp(listener)), Arc::new(NoConsole)).await });
    let (warm, mut warmed) = tokio::sync::mpsc::channel(1);
    let (go, gone) = mpsc::sync_channel(1);
    let (end, mut ended) = tokio::sync::mpsc::channel(1);
    let first = first.to_vec();
    let client = thread::spawn(move || {
        let mut client = Client::connect(port);
        if !first.is_empty() {
            client.ask(&first);
        }
        (0..WARM_UP).for_each(|n| client.ask(&request(n)));
        warm.blocking_send(()).unwrap();
        gone.recv().unwrap();
        (WARM_UP..WARM_UP + MEASURED).for_each(|n| client.ask(&request(n)));
        end.blocking_send(()).unwrap();
    });
    runtime.block_on(warmed.recv()).expect("the client has warmed up");
    let measured = allocation_counter::measure(|| {
        go.send(()).unwrap();
        runtime.block_on(ended.recv()).expect("the client has asked everything");
    });
    client.join().unwrap();
    measured.count_total
}

/// What the pool's housekeeping and waiting for the client's end may allocate beside the requests.
const BESIDE: u64 = 20;

fn check(what: &str, first: &[u8], request: impl Fn(usize) -> Vec<u8> + Send + 'static) {
    check_at(Level::Eventual, what, first, request);
}

fn check_at(level: Level, what: &str, first: &[u8], request: impl Fn(usize) -> Vec<u8> + Send + 'static) {
    let count = allocations(level, first, request);
    assert!(count <= BESIDE, "{what}: {count} allocations for {MEASURED} requests");
}

#[test]
fn a_read_in_the_simple_protocol() {
    check("simple read", b"", |n| query(&format!("SELECT {n}")));
}

/// Of which the primary is asked what it must see, while it runs.
#[test]
fn a_read_that_runs_ahead() {
    check_at(Level::Cluster, "read ahead", b"", |n| query(&format!("SELECT {n}")));
}

#[test]
fn a_write_in_the_simple_protocol() {
    check("simple write", b"", |n| query(&format!("UPDATE t SET a = {n}")));
}

#[test]
fn a_transaction() {
    check("transaction", b"", |n| {
        // The client asks for each answer in turn: one request here is one unit of three.
        query(["BEGIN", "UPDATE t SET a = 1", "COMMIT"][n % 3])
    });
}

#[test]
fn an_unnamed_statement() {
    check("unnamed", b"", |n| [parse("", "SELECT $1::int4"), execute("", &n.to_string())].concat());
}

#[test]
fn a_prepared_statement() {
    let first = [parse("s", "SELECT $1::int4"), message(b'S', b"")].concat();
    check("prepared", &first, |n| execute("s", &n.to_string()));
}

#[test]
fn a_new_statement_is_counted() {
    let count = allocations(Level::Eventual, b"", |n| {
        [parse("", &format!("SELECT $1::int4 + {n}")), execute("", "1")].concat()
    });
    assert!(count > u64::try_from(MEASURED).unwrap(), "{count} allocations: the others count nothing either");
}

//! A TCP relay on 127.0.0.1 that misbehaves on demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What is done to the bytes of one direction; the default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Each piece that is read waits for so long before it is passed on.
    pub delay: Duration,
    /// At most so many bytes are passed on in one write.
    pub chunk: Option<usize>,
    /// Nothing is passed on, the end of the stream included, until this is lifted; then all of it is.
    pub hold: bool,
    /// A connection is closed on both sides once so many bytes of it have passed in this direction.
    pub cut_after: Option<u64>,
}

/// What the connections are told; counters tell those that were open at the time from later ones.
#[derive(Debug, Clone, Default)]
struct Orders {
    to_server: Faults,
    to_client: Faults,
    half_closes_to_server: u64,
    half_closes_to_client: u64,
    closes: u64,
    resets: u64,
}

impl Orders {
    fn faults(&self, direction: Direction) -> Faults {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    fn half_closes(&self, direction: Direction) -> u64 {
        match direction {
            Direction::ToServer => self.half_closes_to_server,
            Direction::ToClient => self.half_closes_to_client,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicUsize,
    open: AtomicUsize,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Counters {
    fn bytes(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// A relay in front of a server. It stops, and its connections end, when it is dropped.
#[derive(Debug)]
pub struct FaultRelay {
    address: SocketAddr,
    orders: Arc<watch::Sender<Orders>>,
    targets: watch::Sender<Vec<SocketAddr>>,
    counters: Arc<Counters>,
    /// `None` while connections are refused.
    accepting: Option<JoinHandle<()>>,
    /// Connections outlive a time of refusal, so they are not the accepting task's.
    connections: Arc<tokio::sync::Mutex<JoinSet<()>>>,
}

impl FaultRelay {
    /// Relays a free port to `target`, which is `host:port` with a numeric address.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        let mut relay = Self {
            address,
            orders: Arc::new(watch::Sender::default()),
            targets: watch::Sender::new(vec![parsed(target)]),
            counters: Arc::default(),
            accepting: None,
            connections: Arc::default(),
        };
        relay.accept(listener);
        relay
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Relays new connections to another server.
    pub fn set_target(&self, target: &str) {
        self.alternate(&[target]);
    }

    /// Relays new connections to these servers in turn, as a round-robin name does.
    pub fn alternate(&self, targets: &[&str]) {
        self.targets.send_replace(targets.iter().map(|target| parsed(target)).collect());
    }

    /// Does this to one direction of every connection from now on.
    pub fn faults(&self, direction: Direction, faults: Faults) {
        self.orders.send_modify(|orders| match direction {
            Direction::ToServer => orders.to_server = faults,
            Direction::ToClient => orders.to_client = faults,
        });
    }

    /// Passes everything on again, what was held included.
    pub fn heal(&self) {
        self.both(Faults::default());
    }

    /// Passes nothing on in either direction; connections stay open and new ones are accepted.
    pub fn black_hole(&self) {
        self.both(Faults { hold: true, ..Faults::default() });
    }

    /// Delays each direction.
    pub fn delay(&self, delay: Duration) {
        self.both(Faults { delay, ..Faults::default() });
    }

    /// Passes on one byte at a time in both directions.
    pub fn byte_wise(&self) {
        self.both(Faults { chunk: Some(1), ..Faults::default() });
    }

    /// Closes the open connections on both sides.
    pub fn close_all(&self) {
        self.orders.send_modify(|orders| orders.closes += 1);
    }

    /// Resets the open connections on both sides.
    pub fn reset_all(&self) {
        self.orders.send_modify(|orders| orders.resets += 1);
    }

    /// Ends the stream in one direction on the open connections; the other goes on.
    pub fn half_close(&self, direction: Direction) {
        self.orders.send_modify(|orders| match direction {
            Direction::ToServer => orders.half_closes_to_server += 1,
            Direction::ToClient => orders.half_closes_to_client += 1,
        });
    }

    /// Refuses new connections; the open ones go on.
    pub async fn refuse(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        accepting.abort();
        // The listener is closed only when the task is gone.
        drop(accepting.await);
    }

    /// Accepts new connections again, on the same port.
    pub async fn accept_again(&mut self) {
        if self.accepting.is_none() {
            let listener = TcpListener::bind(self.address).await.expect("the port is still free");
            self.accept(listener);
        }
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> usize {
        self.counters.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.counters.open.load(Ordering::SeqCst)
    }

    /// How many bytes have been passed on in this direction, over all connections.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counters.bytes(direction).load(Ordering::SeqCst)
    }

    fn both(&self, faults: Faults) {
        self.orders.send_modify(|orders| {
            orders.to_server = faults;
            orders.to_client = faults;
        });
    }

    fn accept(&mut self, listener: TcpListener) {
        let (orders, targets) = (Arc::clone(&self.orders), self.targets.subscribe());
        let (counters, connections) = (Arc::clone(&self.counters), Arc::clone(&self.connections));
        self.accepting = Some(tokio::spawn(async move {
            // An error of accept ends the relay: the test's next connection is refused and says so.
            while let Ok((client, _)) = listener.accept().await {
                let turn = counters.accepted.fetch_add(1, Ordering::SeqCst);
                let target = {
                    let targets = targets.borrow();
                    targets.get(turn % targets.len().max(1)).copied()
                };
                let Some(target) = target else { continue };
                let (orders, counters) = (orders.subscribe(), Arc::clone(&counters));
                let mut connections = connections.lock().await;
                while connections.try_join_next().is_some() {}
                connections.spawn(connection(client, target, orders, counters));
            }
        }));
    }
}

impl Drop for FaultRelay {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

fn parsed(target: &str) -> SocketAddr {
    target.parse().unwrap_or_else(|error| panic!("{target} is no address: {error}"))
}

/// How a connection ends before both its directions have.
enum End {
    Close,
    Reset,
}

async fn connection(
    mut client: TcpStream,
    target: SocketAddr,
    mut orders: watch::Receiver<Orders>,
    counters: Arc<Counters>,
) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        drop(client.set_zero_linger());
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    counters.open.fetch_add(1, Ordering::SeqCst);
    let at_start = orders.borrow_and_update().clone();
    let follower = orders.clone();
    let end = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let pump = |direction| Pump {
            direction,
            orders: follower.clone(),
            at_start: &at_start,
            counters: &counters,
        };
        let (closes, resets) = (at_start.closes, at_start.resets);
        tokio::select! {
            biased;
            told = orders.wait_for(|orders| orders.closes != closes || orders.resets != resets) => match told {
                Ok(orders) if orders.resets != resets => End::Reset,
                _ => End::Close,
            },
            passed = async {
                tokio::try_join!(
                    pump(Direction::ToServer).run(&mut from_client, &mut to_server),
                    pump(Direction::ToClient).run(&mut from_server, &mut to_client),
                )
            } => passed.err().unwrap_or(End::Close),
        }
    };
    if matches!(end, End::Reset) {
        drop(client.set_zero_linger());
        drop(server.set_zero_linger());
    }
    counters.open.fetch_sub(1, Ordering::SeqCst);
}

/// One direction of one connection.
struct Pump<'a> {
    direction: Direction,
    orders: watch::Receiver<Orders>,
    at_start: &'a Orders,
    counters: &'a Counters,
}

impl Pump<'_> {
    /// Passes bytes on until this direction ends, or the connection shall end with it.
    async fn run(mut self, from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>) -> Result<(), End> {
        let mut buffer = vec![0; 64 << 10];
        let mut passed = 0;
        loop {
            let orders = self.orders.borrow_and_update().clone();
            if orders.half_closes(self.direction) != self.at_start.half_closes(self.direction) {
                return to.shutdown().await.map_err(|_| End::Close);
            }
            if orders.faults(self.direction).hold {
                self.changed().await?;
                continue;
            }
            let length = tokio::select! {
                biased;
                changed = self.changed() => {
                    changed?;
                    continue;
                }
                read = from.read(&mut buffer) => read.map_err(|_| End::Reset)?,
            };
            sleep(orders.faults(self.direction).delay).await;
            let faults = self.faults_once_released().await?;
            if length == 0 {
                return to.shutdown().await.map_err(|_| End::Close);
            }
            self.write(&buffer[..length], faults, &mut passed, to).await?;
        }
    }

    async fn write(
        &self,
        bytes: &[u8],
        faults: Faults,
        passed: &mut u64,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), End> {
        for piece in bytes.chunks(faults.chunk.unwrap_or(usize::MAX).max(1)) {
            let allowed = faults.cut_after.map_or(u64::MAX, |limit| limit.saturating_sub(*passed));
            let piece = &piece[..piece.len().min(usize::try_from(allowed).unwrap_or(usize::MAX))];
            to.write_all(piece).await.map_err(|_| End::Close)?;
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            *passed += length;
            self.counters.bytes(self.direction).fetch_add(length, Ordering::SeqCst);
            if faults.cut_after.is_some_and(|limit| *passed >= limit) {
                return Err(End::Close);
            }
            if faults.chunk.is_some() {
                // Gives the reader a chance to see this piece by itself.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// What has been read before a hold is kept back by it too.
    async fn faults_once_released(&mut self) -> Result<Faults, End> {
        let direction = self.direction;
        let orders = self.orders.wait_for(|orders| !orders.faults(direction).hold).await;
        orders.map(|orders| orders.faults(direction)).map_err(|_| End::Close)
    }

    /// Waits for new orders; without a relay there is no connection.
    async fn changed(&mut self) -> Result<(), End> {
        self.orders.changed().await.map_err(|_| End::Close)
    }
}

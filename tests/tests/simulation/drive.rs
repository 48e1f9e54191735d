//! Two routers with the code that is shipped, their clients, and what these were told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway::control::ClusterControl;
use causeway_cluster::simulation::Simulation;
use causeway_cluster::{Cluster, Config, Monitor, NodeConfig, Reconnect};
use causeway_proxy::ControlPlane as _;
use causeway_proxy::simulation::{Servers, Session};
use causeway_routing::{Fence, Level, Levels, NodeId};
use causeway_testkit::history::{
    self, Event, Moment, NEVER, Op, Outcome, Reign, Served, Spending, Violation,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Lines, NAMES, World, instance};

/// What is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    /// A bug in the monitors' code.
    pub(crate) cluster: Option<causeway_cluster::simulation::Fault>,
    /// A bug in the sessions' code.
    pub(crate) proxy: Option<causeway_proxy::simulation::Fault>,
    /// Reads run before it is known what they must see.
    pub(crate) overlap: bool,
}

/// What has come of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    /// Reads at level `cluster`, and how many of them replicas have answered.
    pub(crate) reads: u64,
    pub(crate) by_replicas: u64,
}

const ROUTERS: u16 = 2;
const CLIENTS: u32 = 4;
/// How long a run is disturbed.
const TIME: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_millis(40);
const MINIMUM: Duration = Duration::from_millis(2);

struct Router {
    id: u16,
    world: Arc<World>,
    cluster: Cluster,
    control: Arc<ClusterControl>,
    idle: Mutex<Vec<Connection>>,
    base: Instant,
}

#[derive(Clone)]
struct Connection {
    node: usize,
    generation: u64,
    opened: Instant,
}

/// One key of the servers.
struct Key<'a>(&'a Router, u32);

struct Client {
    router: Arc<Router>,
    session: Session<ClusterControl>,
    /// Also the key that only it writes.
    id: u32,
    written: u64,
    token: Option<(Moment, Fence)>,
    events: Vec<Event>,
}

/// Runs one seed. Every other one has a change of primary in it.
pub(crate) async fn run(trial: Trial) -> Report {
    let world = World::new(trial.seed);
    let base = Instant::now();
    let mut background = JoinSet::new();
    for node in 0..NAMES.len() {
        background.spawn(world.clone().background(node));
        background.spawn(world.clone().replay(node));
    }
    let routers: Vec<_> = (0..ROUTERS).map(|id| Arc::new(Router::new(id, &world, trial, base))).collect();
    for router in &routers {
        assert!(router.cluster.wait_settled(base + Duration::from_secs(9)).await, "the nodes answer");
    }
    let reigns = Arc::new(Mutex::new(Vec::new()));
    background.spawn(watch(routers.clone(), reigns.clone()));
    let local = tokio::task::LocalSet::new();
    let clients: Vec<_> = (0..CLIENTS * u32::from(ROUTERS))
        .map(|id| Client::new(id, routers[id as usize % routers.len()].clone(), trial))
        .map(|client| local.spawn_local(client.work()))
        .collect();
    let fails_over = trial.seed % 2 == 1;
    let mut events = Vec::new();
    local
        .run_until(async {
            disturb(&world, fails_over).await;
            for client in clients {
                events.extend(client.await.expect("a client ends").events);
            }
        })
        .await;
    world.state().quiet = true;
    let mut report = Report::default();
    if fails_over {
        forget_lost(&mut events, &world.committed());
    } else {
        sleep(Duration::from_millis(150)).await;
        let mut last = Client::new(CLIENTS * u32::from(ROUTERS), routers[0].clone(), trial);
        report.violations.extend(last.quiet(&routers, trial).await);
        events.append(&mut last.events);
    }
    judge(&events, &reigns.lock().expect("no holder panics"), &mut report);
    for router in &routers {
        report.violations.extend(history::spent(&router.spending()));
        router.cluster.shutdown();
    }
    report
}

async fn disturb(world: &World, fails_over: bool) {
    let begun = Instant::now();
    let mut failed_over = !fails_over;
    while begun.elapsed() < TIME {
        world.pass(10, 60).await;
        if !failed_over && begun.elapsed() > TIME / 3 {
            failed_over = true;
            world.fail_over().await;
        } else {
            let node = 1 + usize::try_from(world.below(2)).expect("a node");
            world.crash(node).await;
        }
    }
}

async fn watch(routers: Vec<Arc<Router>>, reigns: Arc<Mutex<Vec<Reign>>>) {
    loop {
        sleep(Duration::from_millis(5)).await;
        for router in &routers {
            let timeline = router.cluster.epoch().map_or(0, |epoch| epoch.timeline);
            let primary = router.cluster.view().primary.map(|node| node.0);
            let reign = Reign { router: router.id, at: router.now(), timeline, primary };
            reigns.lock().expect("no holder panics").push(reign);
        }
    }
}

/// What the old primary alone had acknowledged is lost, as documented: it is no part of the history any more.
fn forget_lost(events: &mut Vec<Event>, committed: &HashSet<(u32, u64)>) {
    events.retain(|event| match event.op {
        Op::Read(value) => value == 0 || committed.contains(&(event.key, value)),
        Op::Write(value) => committed.contains(&(event.key, value)),
        Op::Told => true,
    });
}

fn judge(events: &[Event], reigns: &[Reign], report: &mut Report) {
    report.violations.extend(history::registers(events).violations);
    report.violations.extend(history::reigns(reigns));
    let answered = |event: &&Event| event.outcome == Outcome::Done && matches!(event.op, Op::Read(_));
    let reads = || events.iter().filter(|event| event.level == history::Level::Cluster).filter(answered);
    let on_replicas = || reads().filter(|event| event.served.is_some_and(|served| served.replica));
    report.violations.extend(history::going_back(on_replicas()));
    report.violations.extend(history::going_back(
        reads().filter(|event| event.served.is_some_and(|served| !served.replica)),
    ));
    report.reads = reads().count() as u64;
    report.by_replicas = on_replicas().count() as u64;
}

// === impl Router ===

impl Router {
    fn new(id: u16, world: &Arc<World>, trial: Trial, base: Instant) -> Self {
        let node = |name: &&str| NodeConfig {
            name: (*name).into(),
            host: String::new(),
            port: 1,
            weight: 1,
            tls: None,
            levels: Levels::ALL,
        };
        let monitor = Monitor { user: String::new(), password: None, database: String::new() };
        let mut config = Config::new("main", NAMES.iter().map(node).collect(), monitor);
        (config.interval, config.min_interval, config.poll_interval) = (WAIT / 2, MINIMUM, MINIMUM);
        config.timeout = Duration::from_millis(100);
        config.reconnect = Reconnect { first: Duration::from_millis(4), most: Duration::from_millis(15) };
        let network = Arc::new(Lines(world.clone()));
        config.simulation = Some(Simulation { network, fault: trial.cluster });
        let cluster = Cluster::start(config);
        let names = NAMES.iter().map(|name| (*name).into()).collect();
        let control = Arc::new(ClusterControl::new(cluster.clone(), names));
        Self { id, world: world.clone(), cluster, control, idle: Mutex::default(), base }
    }

    fn now(&self) -> Moment {
        Moment::try_from(self.base.elapsed().as_micros()).expect("a short run")
    }

    fn spending(&self) -> Spending {
        let probes = self.cluster.totals().probes_of(causeway_cluster::ProbeKind::Fence);
        Spending {
            elapsed: self.base.elapsed(),
            probes,
            pipeline: 1,
            round_trip: MINIMUM,
            nudges: 0,
            nudge_interval: MINIMUM,
        }
    }
}

// === impl Key ===

impl Servers for Key<'_> {
    type Connection = Connection;
    type Shown = (u64, bool);

    async fn checkout(&self, node: NodeId) -> Option<Connection> {
        let Self(router, _) = self;
        let node = usize::from(node.0);
        let reuses = router.world.below(4) > 0;
        {
            let mut idle = router.idle.lock().expect("no holder panics");
            idle.retain(|connection| {
                router.world.state().nodes[connection.node].serves(connection.generation)
            });
            let kept = idle.iter().position(|connection| connection.node == node);
            if let Some(kept) = kept.filter(|_| reuses) {
                return Some(idle.swap_remove(kept));
            }
        }
        let generation = router.world.connect(node).await?;
        let opened = Instant::now();
        router.world.travel().await;
        Some(Connection { node, generation, opened })
    }

    fn opened_at(&self, connection: &Connection) -> Instant {
        connection.opened
    }

    fn holds(&self, node: NodeId, connection: &Connection) -> bool {
        self.0.control.holds_for(node, connection.opened, instance(connection.node))
    }

    async fn read(&self, connection: &mut Connection) -> Option<(u64, bool)> {
        let Self(router, key) = self;
        router.world.travel().await;
        let shown = {
            let state = router.world.state();
            let node = &state.nodes[connection.node];
            node.serves(connection.generation).then(|| (node.value(*key), node.replica))?
        };
        router.world.travel().await;
        router.idle.lock().expect("no holder panics").push(connection.clone());
        Some(shown)
    }
}

// === impl Client ===

impl Client {
    fn new(id: u32, router: Arc<Router>, trial: Trial) -> Self {
        let mut session = Session::new(router.control.clone(), WAIT, trial.proxy);
        if trial.overlap {
            session.overlap();
        }
        Self { router, session, id, written: 0, token: None, events: Vec::new() }
    }

    async fn work(mut self) -> Self {
        let begun = Instant::now();
        while begun.elapsed() < TIME {
            self.router.world.pass(0, 8).await;
            match self.router.world.below(22) {
                0..6 => self.write(false).await,
                6..10 => self.read(Level::Cluster, history::Level::Cluster).await,
                10..15 => self.read(Level::Session, history::Level::Session).await,
                15 => self.read(Level::Router, history::Level::Router).await,
                16 => {
                    let age = Duration::from_millis(20);
                    self.read(Level::Bounded(age), history::Level::Bounded(20_000)).await;
                }
                17 => self.read(Level::Eventual, history::Level::Eventual).await,
                18 => self.take_token().await,
                19 | 20 => self.read(Level::Primary, history::Level::Primary).await,
                _ => {
                    if let Some((asked, token)) = self.token {
                        self.read(Level::After(token), history::Level::After(asked)).await;
                    }
                }
            }
        }
        self
    }

    async fn take_token(&mut self) {
        let asked = self.router.now();
        let fence = timeout(WAIT, self.router.control.fence(Instant::now())).await;
        if let Ok(Ok(fence)) = fence {
            self.token = Some((asked, fence));
        }
    }

    async fn write(&mut self, aligned: bool) {
        let Some(primary) = self.router.control.view().primary else { return };
        self.written += 1;
        let value = self.written;
        let invoked = self.router.now();
        self.session.writes();
        let outcome = self.router.world.write(usize::from(primary.0), (self.id, value), aligned).await;
        self.session.wrote();
        let completed = if outcome == Outcome::Unknown { NEVER } else { self.router.now() };
        self.record(self.id, Op::Write(value), history::Level::Cluster, (invoked, completed));
        if let Some(event) = self.events.last_mut() {
            event.outcome = outcome;
        }
    }

    async fn read(&mut self, level: Level, named: history::Level) {
        // Its own key, or one that others write.
        let keys = u64::from(CLIENTS) * u64::from(ROUTERS);
        let any = u32::try_from(self.router.world.below(keys)).expect("a key");
        let own = self.router.world.below(3) == 0;
        let key = if own { self.id } else { any };
        self.read_key(key, level, named).await;
    }

    async fn read_key(&mut self, key: u32, level: Level, named: history::Level) -> Option<bool> {
        let router = self.router.clone();
        let invoked = router.now();
        let random = router.world.random();
        let limit = Duration::from_secs(2);
        let answer = timeout(limit, self.session.read(level, &Key(&router, key), random)).await;
        let answer = answer.expect("a read ends")?;
        let (value, replica) = answer.shown;
        self.record(key, Op::Read(value), named, (invoked, router.now()));
        if let Some(event) = self.events.last_mut() {
            event.served = Some(Served { node: answer.node.0, replica });
        }
        Some(replica)
    }

    fn record(&mut self, key: u32, op: Op, level: history::Level, (invoked, completed): (Moment, Moment)) {
        self.events.push(Event {
            session: self.id,
            router: self.router.id,
            key,
            op,
            level,
            invoked,
            completed,
            outcome: Outcome::Done,
            served: None,
            proof: None,
        });
    }

    /// While nothing else happens, replicas answer: also when the last record ends where a page does.
    async fn quiet(&mut self, routers: &[Arc<Router>], trial: Trial) -> Vec<Violation> {
        let mut violations = Vec::new();
        for router in routers {
            for _ in 0..2 {
                self.write(true).await;
                sleep(Duration::from_millis(100)).await;
                self.router = router.clone();
                self.session = Session::new(router.control.clone(), WAIT, trial.proxy);
                let replica = self.read_key(self.id, Level::Cluster, history::Level::Cluster).await;
                if replica != Some(true) {
                    let view = router.cluster.view();
                    let states: Vec<_> =
                        view.nodes.iter().map(|node| (node.state, node.observation, node.lag)).collect();
                    let text = format!(
                        "{replica:?} answered through router {}, and all are well: {states:?}, fence {:?}, written {}",
                        router.id, view.fence, self.written
                    );
                    violations.push(Violation { invariant: 13, text });
                }
            }
        }
        violations
    }
}

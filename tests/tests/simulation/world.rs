//! The model: a primary, two replicas, and everything between them and the routers, on the runtime's paused clock.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use causeway_cluster::Instance;
use causeway_cluster::simulation::{Answer, Conversation, Network, Pending};
use causeway_testkit::history::Outcome;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use crate::node::{BLOCK, Node, SEGMENT};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Shared by everything in one run.
pub(crate) struct World {
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) random: StdRng,
    pub(crate) nodes: [Node; 3],
    records: u64,
    /// Nothing happens by itself any more.
    pub(crate) quiet: bool,
}

/// A monitor's connection.
struct Talk {
    world: Arc<World>,
    node: usize,
    generation: u64,
}

/// The way into the model for the monitors.
pub(crate) struct Lines(pub(crate) Arc<World>);

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let nodes = [Node::new(false), Node::new(true), Node::new(true)];
        let state = State { random: StdRng::seed_from_u64(seed), nodes, records: 0, quiet: false };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.state().random.random_range(0..end)
    }

    pub(crate) fn random(&self) -> u64 {
        self.state().random.next_u64()
    }

    /// Sleeps for some whole milliseconds.
    pub(crate) async fn pass(&self, least: u64, end: u64) {
        let millis = least + self.below(end - least);
        if millis > 0 {
            sleep(Duration::from_millis(millis)).await;
        }
    }

    /// One way over the network. It takes some time: of two things at one moment of the clock nobody knows which was first.
    pub(crate) async fn travel(&self) {
        let slow = self.below(50) == 0 && !self.state().quiet;
        if slow { self.pass(5, 25).await } else { self.pass(1, 4).await }
    }

    /// Connects to a node; the answer is the generation of its connections.
    pub(crate) async fn connect(&self, node: usize) -> Option<u64> {
        self.travel().await;
        let state = self.state();
        let node = &state.nodes[node];
        (node.up && node.reachable).then(|| *node.generation.borrow())
    }

    /// A write through a router that takes `node` for the primary.
    pub(crate) async fn write(&self, node: usize, (key, value): (u32, u64), aligned: bool) -> Outcome {
        self.travel().await;
        let asynchronous = self.below(3) == 0;
        let (generation, count) = {
            let mut state = self.state();
            let length = 8 * state.random.random_range(3..20);
            if state.nodes[node].replica || !state.nodes[node].up || !state.nodes[node].reachable {
                return Outcome::Failed;
            }
            let count = state.append(node, Some((key, value)), (!aligned).then_some(length));
            let generation = *state.nodes[node].generation.borrow();
            if asynchronous {
                state.nodes[node].visible.push(count - 1);
            }
            (generation, count)
        };
        if !asynchronous {
            self.pass(1, 5).await;
            self.state().flush(node, count);
            // Standbys may have it before the primary shows it.
            self.pass(0, 4).await;
            self.state().nodes[node].visible.push(count - 1);
        }
        self.travel().await;
        if self.state().nodes[node].serves(generation) { Outcome::Done } else { Outcome::Unknown }
    }

    /// What a primary does by itself: open transactions log things, and now and then the log is flushed.
    pub(crate) async fn background(self: Arc<Self>, node: usize) {
        loop {
            self.pass(1, 12).await;
            let mut state = self.state();
            if state.nodes[node].replica
                || state.quiet && state.nodes[node].flushed == state.nodes[node].log.len()
            {
                continue;
            }
            let cut_off = !state.nodes[node].reachable;
            if !state.quiet && (cut_off || state.random.random_range(0..4) == 0) {
                let length = 8 * state.random.random_range(3..20);
                state.append(node, None, Some(length));
            }
            if cut_off || state.quiet || state.random.random_range(0..5) == 0 {
                state.nodes[node].flushed = state.nodes[node].log.len();
            }
        }
    }

    /// Replication to one node, for as long as it is a replica.
    pub(crate) async fn replay(self: Arc<Self>, node: usize) {
        loop {
            self.pass(1, 3).await;
            let mut state = self.state();
            let now = Instant::now();
            if !state.nodes[node].replica || !state.nodes[node].up {
                continue;
            }
            state.receive(node);
            if state.nodes[node].stalled_until.is_some_and(|until| now < until) && !state.quiet {
                continue;
            }
            let step = state.random.random_range(0..4);
            if state.random.random_range(0..60) == 0 {
                let stall = Duration::from_millis(state.random.random_range(5..50));
                state.nodes[node].stalled_until = Some(now + stall);
            }
            let replica = &mut state.nodes[node];
            replica.replayed = (replica.replayed + step).min(replica.log.len());
        }
    }

    /// A process of a replica dies: all connections end, and replay begins again further back.
    pub(crate) async fn crash(&self, node: usize) {
        {
            let mut state = self.state();
            if !state.nodes[node].replica {
                return;
            }
            let back = state.random.random_range(1..16);
            let replica = &mut state.nodes[node];
            replica.up = false;
            replica.disconnect();
            replica.replayed = replica.replayed.saturating_sub(back).max(1);
        }
        self.pass(1, 5).await;
        let mut state = self.state();
        state.nodes[node].up = true;
        // It takes a while to replay what was replayed before.
        let stall = Duration::from_millis(state.random.random_range(2..20));
        state.nodes[node].stalled_until = Some(Instant::now() + stall);
    }

    /// The primary is cut off and goes on writing, the second node is promoted, the third follows it later if at all.
    pub(crate) async fn fail_over(&self) {
        {
            let mut state = self.state();
            state.nodes[0].reachable = false;
            state.nodes[0].disconnect();
        }
        self.pass(5, 30).await;
        while !self.state().nodes[1].up {
            self.pass(1, 2).await;
        }
        {
            let mut state = self.state();
            state.nodes[1].source = 1;
            state.records += 1;
            let id = state.records;
            state.nodes[1].promote(id);
        }
        if self.below(2) == 0 {
            return;
        }
        self.pass(20, 60).await;
        let mut state = self.state();
        let State { nodes: [_, primary, replica], .. } = &mut *state;
        replica.disconnect();
        replica.rewind(primary);
        replica.source = 1;
    }

    /// What the newest primary has committed.
    pub(crate) fn committed(&self) -> HashSet<(u32, u64)> {
        let state = self.state();
        let newest = state.nodes.iter().filter(|node| !node.replica).max_by_key(|node| node.timeline);
        newest.map(|node| node.log.iter().filter_map(|record| record.commit).collect()).unwrap_or_default()
    }
}

pub(crate) fn instance(node: usize) -> Instance {
    let last = u8::try_from(node).expect("three nodes");
    Instance { system_id: 7, started: 1, server: Some(([10, 0, 0, last].into(), 5432)) }
}

// === impl State ===

impl State {
    fn append(&mut self, node: usize, commit: Option<(u32, u64)>, length: Option<u64>) -> usize {
        self.records += 1;
        self.nodes[node].append(self.records, commit, length)
    }

    fn flush(&mut self, node: usize, count: usize) {
        let node = &mut self.nodes[node];
        node.flushed = node.flushed.max(count);
    }

    fn receive(&mut self, node: usize) {
        let source = self.nodes[node].source;
        if let Ok([replica, source]) = self.nodes.get_disjoint_mut([node, source]) {
            replica.receive(source);
        }
    }
}

// === impl Lines ===

impl Network for Lines {
    fn connect(&self, node: &str) -> Pending<Box<dyn Conversation>> {
        let world = self.0.clone();
        let node = NAMES.iter().position(|name| *name == node).expect("a node of the model");
        Box::pin(async move {
            let generation = world.connect(node).await?;
            world.travel().await;
            Some(Box::new(Talk { world, node, generation }) as Box<dyn Conversation>)
        })
    }
}

// === impl Talk ===

impl Conversation for Talk {
    fn ask(&mut self) -> Pending<Answer> {
        let (world, index, generation) = (self.world.clone(), self.node, self.generation);
        Box::pin(async move {
            world.travel().await;
            let answer = {
                let state = world.state();
                let node = &state.nodes[index];
                let position =
                    if node.replica { node.position(node.replayed) } else { node.insert_position() };
                node.serves(generation).then(|| Answer {
                    instance: instance(index),
                    timeline: node.timeline,
                    replica: node.replica,
                    position,
                    flushed: node.position(node.flushed),
                    sizes: (SEGMENT, BLOCK),
                })
            };
            world.travel().await;
            answer
        })
    }

    fn lost(&mut self) -> Pending<()> {
        let (world, index, generation) = (self.world.clone(), self.node, self.generation);
        let mut current = world.state().nodes[index].generation.subscribe();
        Box::pin(async move {
            current.wait_for(|now| *now != generation).await.ok()?;
            // The news may come late.
            world.pass(0, 10).await;
            None
        })
    }
}

//! Monitors of scripted nodes, on the runtime's paused clock.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use causeway_routing::{Fence, Lsn, NodeId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::*;
use crate::config::{Config, Monitor};
use crate::instance::Instance;
use crate::truth::Sighting;
use crate::waiting::Need;

const IDLE: Duration = Duration::from_millis(250);
const MINIMUM: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(3);

/// What the three nodes do: the first is a primary, the others replay what it writes.
struct World {
    inserted: u64,
    flushed: u64,
    replayed: [u64; 3],
    /// From question to answer; the node looks when half of it has passed.
    latency: Duration,
    /// Each question: of which node, and when.
    asked: Vec<(usize, Instant)>,
    in_flight: [usize; 3],
    most_in_flight: usize,
}

/// One node of it.
struct Script {
    node: usize,
    world: Arc<Mutex<World>>,
    flight: VecDeque<Question>,
}

struct Question {
    requested: Instant,
    arrived: Pin<Box<Sleep>>,
    seen: Option<Position>,
    answered: Pin<Box<Sleep>>,
}

/// Monitors at work.
struct Rig {
    state: Arc<State>,
    world: Arc<Mutex<World>>,
    _monitors: JoinSet<()>,
}

impl Link for Script {
    fn ask(&mut self, requested: Instant) {
        let mut world = self.world.lock().unwrap();
        assert_eq!(requested, Instant::now(), "the moment is that of the question");
        world.asked.push((self.node, requested));
        world.in_flight[self.node] += 1;
        world.most_in_flight = world.most_in_flight.max(world.in_flight[self.node]);
        let (arrived, answered) = (sleep(world.latency / 2), sleep(world.latency));
        let (arrived, answered) = (Box::pin(arrived), Box::pin(answered));
        self.flight.push_back(Question { requested, arrived, seen: None, answered });
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sighting, ProbeError>> {
        for question in &mut self.flight {
            if question.seen.is_none() && question.arrived.as_mut().poll(cx).is_ready() {
                let world = self.world.lock().unwrap();
                question.seen = Some(match self.node {
                    0 => Position::Inserted { end: Lsn(world.inserted), flushed: Lsn(world.flushed) },
                    _ => Position::Replayed(Lsn(world.replayed[self.node])),
                });
            }
        }
        let Some(Question { requested, seen: Some(position), answered, .. }) = self.flight.front_mut() else {
            return Poll::Pending;
        };
        ready!(answered.as_mut().poll(cx));
        let instance = Instance { system_id: 7, started: 0, server: None };
        let sighting = Sighting { requested: *requested, instance, timeline: 1, position: *position };
        self.flight.pop_front();
        self.world.lock().unwrap().in_flight[self.node] -= 1;
        Poll::Ready(Ok(sighting))
    }
}

impl Rig {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let node = |name: &str| NodeConfig {
            name: name.into(),
            host: String::new(),
            port: 1,
            weight: 1,
            levels: causeway_routing::Levels::ALL,
            tls: None,
        };
        let monitor = Monitor { user: String::new(), password: None, database: String::new() };
        let mut config = Config::new("main", vec![node("a"), node("b"), node("c")], monitor);
        (config.interval, config.min_interval, config.poll_interval) = (IDLE, MINIMUM, POLL);
        change(&mut config);
        let world = World {
            inserted: 100,
            flushed: 100,
            replayed: [0, 100, 100],
            latency: Duration::from_millis(1),
            asked: Vec::new(),
            in_flight: [0; 3],
            most_in_flight: 0,
        };
        let (state, world) = (Arc::new(State::new(config.clone())), Arc::new(Mutex::new(world)));
        let watches: Vec<_> = config
            .nodes
            .iter()
            .zip(1..)
            .map(|(node, key)| Watch {
                key: Key(key),
                node: node.clone(),
                bell: Arc::default(),
                state: state.clone(),
            })
            .collect();
        let bells = watches.iter().map(|watch| (watch.key, watch.bell.clone())).collect();
        state.configure(config, bells);
        let mut monitors = JoinSet::new();
        for (node, watch) in watches.into_iter().enumerate() {
            let mut script = Script { node, world: world.clone(), flight: VecDeque::new() };
            monitors.spawn(async move {
                let (error, _) = watch.follow(&mut script, Alarm::coarse()).await;
                watch.state.down(watch.key, error.to_string());
            });
        }
        let rig = Self { state, world, _monitors: monitors };
        // Away from the beginning, and from a moment at which idle nodes are asked.
        sleep(IDLE + IDLE / 2).await;
        let view = rig.state.published().view.clone();
        assert_eq!(
            (view.primary, view.nodes.iter().filter(|n| n.serves_reads()).count()),
            (Some(NodeId(0)), 2)
        );
        rig.world().asked.clear();
        rig
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// The moments at which a node was asked since the last look.
    fn asked(&self, node: usize) -> Vec<Instant> {
        let mut world = self.world();
        let asked =
            world.asked.iter().filter(|(asked, _)| *asked == node).map(|(_, moment)| *moment).collect();
        world.asked.retain(|(asked, _)| *asked != node);
        asked
    }

    fn write(&self, inserted: u64) {
        let mut world = self.world();
        (world.inserted, world.flushed) = (inserted, inserted);
    }

    fn replay(&self, node: usize, replayed: u64) {
        self.world().replayed[node] = replayed;
    }

    async fn fence(&self) -> Fence {
        self.state.fence(Instant::now()).await.unwrap()
    }

    fn position(&self, fence: Fence, node: Option<u16>, until: Duration) -> oneshot::Receiver<()> {
        let need = Need { fence, node: node.map(NodeId), since: None, until: Instant::now() + until };
        self.state.position(need)
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// That the clock was seen as milliseconds, rounded.
fn took(begun: Instant) -> u128 {
    (begun.elapsed() + Duration::from_micros(500)).as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_primary_asked_at_once() {
    let rig = Rig::new().await;
    let begun = Instant::now();
    assert_eq!(rig.fence().await.lsn, Lsn(100));
    assert!(begun.elapsed() <= ms(2), "{:?}", begun.elapsed());
    assert_eq!(rig.asked(0), [begun]);
    assert_eq!(rig.asked(1).len() + rig.asked(2).len(), 0, "they cover it");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_share_a_probe_and_are_woken_once() {
    let rig = Rig::new().await;
    let waiting: Vec<_> = (0..1000).map(|_| rig.state.fence(Instant::now())).collect();
    for _ in 0..100_000 {
        rig.state.need_fence();
    }
    for fence in waiting {
        assert_eq!(fence.await.unwrap().lsn, Lsn(100));
    }
    sleep(ms(20)).await;
    assert_eq!(rig.asked(0).len(), 1);
    assert_eq!(rig.state.totals().fences_wanted, 101_000);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_arrives_during_a_probe_gets_the_next() {
    let rig = Rig::new().await;
    rig.world().latency = ms(10);
    let first = rig.state.fence(Instant::now());
    sleep(ms(7)).await;
    rig.write(200);
    let arrived = Instant::now();
    let second = rig.state.fence(arrived);
    assert_eq!(rig.state.published().fences.as_ref().unwrap().since(arrived), None);
    assert_eq!(first.await.unwrap().lsn, Lsn(100));
    let answered = Instant::now();
    let mut polls = 0;
    let mut second = std::pin::pin!(second);
    let counted = poll_fn(|cx| {
        polls += 1;
        second.as_mut().poll(cx)
    });
    assert_eq!(counted.await.unwrap().lsn, Lsn(200));
    assert_eq!(polls, 2, "woken once");
    let asked = rig.asked(0);
    assert_eq!(asked.len(), 2);
    assert!(asked[1] >= arrived && asked[1] <= answered + ms(1), "at once when the first has come back");
    assert_eq!(rig.world().most_in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn probes_start_no_sooner_than_the_minimum_after_one_another() {
    let rig = Rig::new().await;
    let begun = Instant::now();
    let mut waits = 0;
    while begun.elapsed() < ms(1000) {
        rig.fence().await;
        waits += 1;
    }
    let asked = rig.asked(0);
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= MINIMUM));
    assert!(asked.len() <= 501 && asked.len() >= 300 && waits >= 300, "{} {waits}", asked.len());
    assert_eq!(rig.world().most_in_flight, 1);
}

/// How many fences so many readers get in a while, whose reads take 4 to 12 ms, and by how many probes.
async fn shared(rig: &Rig, readers: u64) -> (usize, usize) {
    rig.asked(0);
    let until = Instant::now() + ms(4000);
    let mut reading = JoinSet::new();
    for reader in 0..readers {
        let state = rig.state.clone();
        let mut random = StdRng::seed_from_u64(reader);
        reading.spawn(async move {
            let mut fences = 0_usize;
            while Instant::now() < until {
                state.fence(Instant::now()).await.unwrap();
                fences += 1;
                sleep(Duration::from_micros(random.random_range(4000..12_000))).await;
            }
            fences
        });
    }
    let mut fences = 0;
    while let Some(some) = reading.join_next().await {
        fences += some.unwrap();
    }
    (fences, rig.asked(0).len())
}

#[tokio::test(start_paused = true)]
async fn many_readers_wait_for_one_another_and_few_do_not() {
    let quickly = |gather| move |config: &mut Config| (config.min_interval, config.gather) = (ms(1), gather);
    let (each, together) = (Rig::with(quickly(ms(0))).await, Rig::with(quickly(ms(3))).await);
    let (fences, probes) = shared(&each, 40).await;
    let (gathered, shared_probes) = shared(&together, 40).await;
    let per_probe = (fences / probes, gathered / shared_probes);
    assert!(
        per_probe.1 >= per_probe.0 * 3 / 2 && gathered * 5 >= fences * 4,
        "{per_probe:?} {fences} {gathered}"
    );
    // Those who are left over from a crowd do not wait for it any longer.
    shared(&together, 2).await;
    let (fences, probes) = shared(&each, 2).await;
    let (alone, probes_alone) = shared(&together, 2).await;
    assert!(
        alone * 50 >= fences * 49,
        "{alone} fences instead of {fences}, by {probes_alone} probes instead of {probes}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_in_flight_where_that_is_configured() {
    let rig = Rig::with(|config| config.pipeline = 2).await;
    rig.world().latency = ms(10);
    let begun = Instant::now();
    let first = rig.state.fence(begun);
    sleep(ms(6)).await;
    rig.write(200);
    let second = rig.state.fence(Instant::now());
    sleep(ms(6)).await;
    rig.write(300);
    let third = rig.state.fence(Instant::now());
    let fences = [first.await.unwrap().lsn, second.await.unwrap().lsn];
    assert_eq!((fences, took(begun)), ([Lsn(100), Lsn(200)], 16));
    assert_eq!(third.await.unwrap().lsn, Lsn(300));
    assert_eq!(rig.asked(0).len(), 3);
    assert_eq!(rig.world().most_in_flight, 2);
}

#[tokio::test(start_paused = true)]
async fn idle_nodes_are_asked_and_published_at_the_idle_interval_only() {
    let rig = Rig::new().await;
    let mut progress = rig.state.progress();
    let before = *progress.borrow_and_update();
    sleep(ms(10_000)).await;
    for node in 0..3 {
        let asked = rig.asked(node).len();
        assert!((38..=41).contains(&asked), "{asked} times in ten seconds");
    }
    assert!(*progress.borrow() - before <= 123);
}

#[tokio::test(start_paused = true)]
async fn fences_of_an_idle_primary_are_no_news_of_the_nodes() {
    let rig = Rig::new().await;
    let (before, begun) = (rig.state.publications(), Instant::now());
    for _ in 0..100 {
        assert_eq!(rig.fence().await.lsn, Lsn(100));
    }
    // The replicas are asked at the idle interval.
    let asked = begun.elapsed().as_millis() / IDLE.as_millis() + 1;
    assert!(u128::from(rig.state.publications() - before) <= 2 * asked);
    rig.write(200);
    let (before, now) = (rig.state.publications(), Instant::now());
    assert_eq!(rig.fence().await.lsn, Lsn(200));
    assert!(rig.state.publications() > before);
    assert_eq!(rig.state.published().view.fence.unwrap().lsn, Lsn(200));
    assert_eq!(rig.state.published().fences.as_ref().unwrap().since(now).unwrap().lsn, Lsn(200));
}

#[tokio::test(start_paused = true)]
async fn a_replica_behind_is_polled_until_it_covers_the_fence() {
    let rig = Rig::new().await;
    rig.write(200);
    rig.replay(2, 200);
    let begun = Instant::now();
    let fence = rig.fence().await;
    let arrived = Instant::now();
    // Nobody knows yet that the second has it already.
    let found = rig.position(fence, None, ms(1000));
    let behind = rig.position(fence, Some(1), ms(1000));
    timeout(ms(3), found).await.unwrap().unwrap();
    let replayed = async {
        sleep(ms(20)).await;
        rig.replay(1, 200);
    };
    let (answer, ()) = tokio::join!(behind, replayed);
    answer.unwrap();
    let polls = rig.asked(1);
    assert!(polls[0] - arrived <= ms(1), "at once");
    assert!(polls.windows(2).all(|pair| pair[1] - pair[0] >= POLL && pair[1] - pair[0] <= POLL + ms(2)));
    assert!(polls.len() >= 5, "{polls:?}");
    assert!(took(begun) <= 30, "{}", took(begun));
    assert_eq!(rig.asked(2).len(), 1, "it covers the fence");
    sleep(ms(50)).await;
    assert_eq!(rig.asked(1).len() + rig.asked(2).len(), 0, "nobody waits any more");
    assert_eq!(rig.state.totals().probes_of(ProbeKind::Position), 1 + u64::try_from(polls.len()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn polling_ends_with_the_waiter() {
    let rig = Rig::new().await;
    rig.write(200);
    let fence = rig.fence().await;
    let waiting = rig.position(fence, None, ms(1000));
    sleep(ms(10)).await;
    assert!(rig.asked(1).len() >= 2 && rig.asked(2).len() >= 2);
    drop(waiting);
    sleep(ms(5)).await;
    rig.world().asked.clear();
    sleep(ms(100)).await;
    assert_eq!(rig.asked(1).len() + rig.asked(2).len(), 0, "it has gone");

    let begun = Instant::now();
    let waiting = rig.position(fence, Some(1), ms(20));
    assert!(waiting.await.is_err(), "its time has passed");
    assert!(begun.elapsed() >= ms(20));
    rig.world().asked.clear();
    sleep(ms(100)).await;
    assert_eq!(rig.asked(1).len(), 0);

    // Who does not say for how long is taken to wait for the configured time.
    rig.write(300);
    rig.state.need_fence();
    sleep(ms(10)).await;
    assert!(rig.asked(1).len() >= 2);
    sleep(ms(110)).await;
    rig.world().asked.clear();
    sleep(ms(100)).await;
    assert_eq!(rig.asked(1).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_still_is_polled_more_and_more_rarely() {
    let rig = Rig::new().await;
    rig.write(200);
    rig.replay(2, 200);
    let fence = rig.fence().await;
    let begun = Instant::now();
    let waiting = rig.position(fence, Some(1), ms(10_000));
    sleep(ms(2000)).await;
    let polls = rig.asked(1);
    let gap = |after: u64| {
        let first = polls.iter().position(|poll| *poll - begun >= ms(after)).unwrap();
        polls[first + 1] - polls[first]
    };
    assert!(gap(30) <= ms(5), "{:?}", gap(30));
    assert!(gap(800) >= ms(40) && gap(800) <= ms(60), "{:?}", gap(800));
    assert!(polls.len() < 100, "{}", polls.len());
    rig.replay(1, 150);
    sleep(ms(200)).await;
    rig.world().asked.clear();
    sleep(ms(30)).await;
    assert!(rig.asked(1).len() >= 3, "it moves again");
    rig.replay(1, 200);
    timeout(ms(10), waiting).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_young_connection_waits_for_a_young_observation() {
    let rig = Rig::new().await;
    let fence = rig.fence().await;
    let met = rig.position(fence, Some(1), ms(1000));
    timeout(ms(0), met).await.expect("it is met already").unwrap();
    assert_eq!(rig.asked(1).len(), 0);
    let opened = Instant::now();
    let need = Need { fence, node: Some(NodeId(1)), since: Some(opened), until: opened + ms(1000) };
    timeout(ms(3), rig.state.position(need)).await.unwrap().unwrap();
    assert!(rig.state.published().observed[1].unwrap().requested >= opened);
    assert_eq!((rig.asked(1).len(), rig.asked(2).len()), (1, 0));
    let nowhere = Need { node: Some(NodeId(9)), ..need };
    assert!(rig.state.position(nowhere).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_fence_beyond_flush_is_nudged_for_those_who_wait() {
    let rig = Rig::new().await;
    (rig.world().inserted, rig.world().flushed) = (200, 150);
    let fence = rig.fence().await;
    assert_eq!(rig.state.stuck(), None, "nobody waits for a replica yet");
    assert!(timeout(ms(0), rig.state.nudge.notified()).await.is_err());
    let waiting = rig.position(fence, None, ms(1000));
    assert!(timeout(ms(0), rig.state.nudge.notified()).await.is_ok());
    assert_eq!(rig.state.stuck().map(|(_, fence)| fence.lsn), Some(Lsn(200)));
    assert_eq!(rig.state.totals().fences_unflushed, 1);
    drop(waiting);
    rig.state.need_fence();
    sleep(ms(3)).await;
    assert!(timeout(ms(0), rig.state.nudge.notified()).await.is_ok());
    rig.world().flushed = 200;
    rig.fence().await;
    assert_eq!(rig.state.stuck(), None);
}

#[tokio::test(start_paused = true)]
async fn no_answer_in_time_ends_the_connection() {
    let rig = Rig::new().await;
    rig.world().latency = ms(5000);
    let begun = Instant::now();
    let waiting = rig.state.fence(begun);
    sleep(ms(1100)).await;
    assert_eq!(rig.state.published().view.primary, None);
    assert_eq!(rig.state.totals().probes[ProbeKind::Fence as usize], [0, 0, 1]);
    // It waits for another primary, or for this one's return, until all is over.
    rig.state.stop();
    assert!(waiting.await.is_err());
    assert!(rig.state.fence(Instant::now()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn whatever_the_order_nobody_misses_or_overtakes() {
    for seed in 0..40 {
        let rig = Rig::with(|config| config.pipeline = 1 + usize::try_from(seed % 3).unwrap()).await;
        rig.world().latency = ms(2 + seed % 7);
        let mut random = StdRng::seed_from_u64(seed);
        let mut readers = JoinSet::new();
        for _ in 0..300 {
            if random.random_bool(0.3) {
                let inserted = rig.world().inserted + random.random_range(1..50);
                rig.write(inserted);
            }
            if random.random_bool(0.3) {
                let replica = random.random_range(1..3);
                let inserted = rig.world().inserted;
                rig.replay(replica, inserted);
            }
            if random.random_bool(0.5) {
                sleep(ms(random.random_range(0..5))).await;
            }
            let (state, written) = (rig.state.clone(), rig.world().inserted);
            let (world, patient) = (rig.world.clone(), random.random_bool(0.8));
            readers.spawn(async move {
                let arrived = Instant::now();
                let waiting = state.fence(arrived);
                if !patient {
                    return;
                }
                let fence = waiting.await.unwrap();
                let limit = 2 * world.lock().unwrap().latency + MINIMUM + ms(4);
                assert!(arrived.elapsed() <= limit, "seed {seed}: {:?}", arrived.elapsed());
                assert!(fence.lsn.0 >= written, "seed {seed}: {fence:?} of {written}");
                let need = Need { fence, node: None, since: None, until: arrived + ms(60_000) };
                state.position(need).await.unwrap();
                let replayed = world.lock().unwrap().replayed;
                assert!(replayed.iter().any(|lsn| *lsn >= written), "seed {seed}");
            });
        }
        rig.replay(1, u64::MAX);
        while let Some(reader) = readers.join_next().await {
            reader.unwrap();
        }
        let world = rig.world();
        assert!(world.most_in_flight <= 1 + usize::try_from(seed % 3).unwrap(), "seed {seed}");
    }
}

//! The task that watches one node.

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::alarm::Alarm;
use crate::config::{Config, NodeConfig};
use crate::demand::{Pace, Turn};
use crate::error::ProbeError;
use crate::origin;
use crate::probe::{Link, Probe};
use crate::state::State;
use crate::totals::{ProbeKind, ProbeResult};
use crate::truth::{Key, Origin, Position, Sighting};

/// Wakes a task that would otherwise sleep for long.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    ring: Notify,
    /// The task sleeps, or is about to.
    armed: AtomicBool,
    /// Probe at once, or try to connect at once.
    urgent: AtomicBool,
}

/// Watches one node until its cluster is gone.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) key: Key,
    pub(crate) node: NodeConfig,
    pub(crate) bell: Arc<Bell>,
    pub(crate) state: Arc<State>,
}

/// The way to one node, as far as attempts to reach it go.
#[derive(Debug, Default)]
struct History {
    /// In a row.
    failures: u32,
    /// When a connection that broke was replaced without a pause.
    resumed: Option<Instant>,
    /// The log was told that the role lacks rights.
    warned: bool,
}

/// The questions on one connection.
struct Talk {
    pace: Pace,
    /// When each left, and what for.
    flight: VecDeque<(Instant, ProbeKind)>,
    alarm: Alarm,
    /// The last answer of a replica.
    shown: Option<Position>,
    answered: bool,
    urgent: bool,
    /// A primary is being asked where its timeline comes from, once for each connection.
    origin: Option<Pin<Box<dyn Future<Output = Origin> + Send>>>,
    asked_origin: bool,
}

// === impl Bell ===

impl Bell {
    /// Somebody waits for this task. Cheap while it is awake anyway.
    pub(crate) fn wanted(&self) {
        if self.is_armed() && self.armed.swap(false, Ordering::SeqCst) {
            self.ring.notify_one();
        }
    }

    /// The node is suspected to have failed.
    pub(crate) fn urgent(&self) {
        if !self.urgent.swap(true, Ordering::SeqCst) {
            self.ring.notify_one();
        }
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// To be called before the look for what there is to do: whoever comes too late for the look finds it armed, and
    /// rings.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Nobody has to ring: the task is awake.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    /// Returns when it is rung, or was since the last return. Cancel-safe.
    pub(crate) async fn rung(&self) {
        self.ring.notified().await;
    }
}

// === impl Watch ===

impl Watch {
    /// Never returns; the task ends by being aborted, at any await.
    pub(crate) async fn run(self) {
        let mut history = History::default();
        loop {
            let begun = Instant::now();
            let config = self.state.config();
            let error = match self.attempt(&config, &mut history).await {
                Ok((error, answered)) => {
                    self.state.lost(self.key);
                    let lately =
                        history.resumed.is_some_and(|moment| moment.elapsed() < config.reconnect.first);
                    if answered && !lately && !matches!(error, ProbeError::Timeout(_)) {
                        // It was fine until now: whether it still is, the next attempt shows at once.
                        history.resumed = Some(Instant::now());
                        continue;
                    }
                    error
                }
                Err(error) => error,
            };
            history.failures = history.failures.saturating_add(1);
            self.state.down(self.key, error.to_string());
            let pause = config.reconnect.pause(history.failures, config.chance());
            self.pause(begun + config.reconnect.first, Instant::now() + pause).await;
        }
    }

    /// Connects, and probes until the connection fails.
    async fn attempt(
        &self,
        config: &Config,
        history: &mut History,
    ) -> Result<(ProbeError, bool), ProbeError> {
        #[cfg(feature = "simulation")]
        if let Some(simulation) = &config.simulation {
            let mut link = simulation.connect(&self.node, config.timeout).await?;
            return Ok(self.follow(&mut link, Alarm::coarse()).await);
        }
        let login = config.monitor.login(&self.node, &config.monitor.database, config.timeout);
        let probe = Probe::connect(&login, config.timeout).await?;
        Ok(self.acquainted(probe, history).await)
    }

    async fn acquainted(&self, mut probe: Probe, history: &mut History) -> (ProbeError, bool) {
        if !probe.sees_receiver() && !history.warned {
            history.warned = true;
            warn!(node = %self.node, "the monitor's role is not a member of pg_monitor: the timeline of a replica \
                   is known as of its last restart point only, and it is refused until then after a failover");
        }
        let (error, answered) = self.follow(&mut probe, Alarm::new()).await;
        if answered {
            history.failures = 0;
        }
        (error, answered)
    }

    /// Probes until the connection fails; the flag says whether it ever answered.
    async fn follow(&self, link: &mut impl Link, alarm: Alarm) -> (ProbeError, bool) {
        let mut talk = Talk::new(alarm);
        loop {
            let config = self.state.config();
            self.bell.arm();
            let turn =
                self.state.turn(self.key, &talk.pace).map(|turn| talk.hastened(turn, config.reconnect.first));
            if turn.is_none() && !self.state.takes_more(self.key, &talk.pace) {
                self.bell.disarm();
            }
            let expires = talk.flight.front().map(|(requested, _)| *requested + config.timeout);
            tokio::select! {
                biased;
                answer = poll_fn(|cx| link.poll_answer(cx)) => match answer {
                    Ok(sighting) => {
                        talk.take(&self.state, sighting.position);
                        self.ask_origin(&mut talk, &sighting, &config);
                        self.state.sighted(self.key, sighting);
                    }
                    Err(error) => {
                        talk.give_up(&self.state, ProbeResult::Failed);
                        return (error, talk.answered);
                    }
                },
                kind = talk.alarm.due(turn) => {
                    self.bell.disarm();
                    self.state.asking(self.key);
                    if kind == ProbeKind::Fence {
                        talk.pace.crowd.sent(self.state.waiting().gathered());
                    }
                    link.ask(talk.ask(kind));
                }
                () = self.bell.rung() => talk.urgent |= self.bell.urgent.swap(false, Ordering::SeqCst),
                origin = Talk::told(&mut talk.origin) => self.state.learnt(self.key, &origin),
                () = at(expires) => {
                    talk.give_up(&self.state, ProbeResult::TimedOut);
                    return (ProbeError::Timeout(config.timeout), talk.answered);
                }
            }
        }
    }

    /// A primary that was promoted is asked where its timeline comes from: it is not elected before that is known, or
    /// known not to be told.
    fn ask_origin(&self, talk: &mut Talk, seen: &Sighting, config: &Config) {
        if talk.asked_origin || seen.timeline <= 1 || !matches!(seen.position, Position::Inserted { .. }) {
            return;
        }
        talk.asked_origin = true;
        let login = config.monitor.login(&self.node, &config.monitor.database, config.timeout);
        let server = (seen.instance, seen.timeline);
        talk.origin = Some(Box::pin(origin::ask(login, self.node.clone(), server, config.timeout)));
    }

    /// Sleeps until `due`, or only until `soonest` if the bell says that it is urgent.
    async fn pause(&self, soonest: Instant, due: Instant) {
        let urgent = async {
            while !self.bell.urgent.swap(false, Ordering::SeqCst) {
                self.bell.rung().await;
            }
        };
        tokio::select! {
            biased;
            () = sleep_until(due) => {}
            () = urgent => sleep_until(soonest.min(due)).await,
        }
    }
}

// === impl Talk ===

impl Talk {
    fn new(alarm: Alarm) -> Self {
        Self {
            pace: Pace::default(),
            flight: VecDeque::new(),
            alarm,
            shown: None,
            answered: false,
            urgent: false,
            origin: None,
            asked_origin: false,
        }
    }

    /// The answer to that.
    async fn told(origin: &mut Option<Pin<Box<dyn Future<Output = Origin> + Send>>>) -> Origin {
        let Some(asked) = origin else { return pending().await };
        let told = asked.await;
        *origin = None;
        told
    }

    /// A suspected failure is looked into at once, though not again and again.
    fn hastened(&mut self, turn: Turn, pause: std::time::Duration) -> Turn {
        if turn.kind == ProbeKind::Idle {
            // Nobody waits: the next who does is not to pay for how long the last one did.
            self.pace.still = None;
        }
        let soonest = self.pace.last.filter(|_| self.urgent).map(|last| last + pause);
        Turn { at: soonest.map_or(turn.at, |soonest| soonest.min(turn.at)), ..turn }
    }

    /// The answer is the moment of the question: everything that waits by now may rely on it.
    fn ask(&mut self, kind: ProbeKind) -> Instant {
        let requested = Instant::now();
        self.flight.push_back((requested, kind));
        self.pace = Pace { last: Some(requested), in_flight: self.flight.len(), ..self.pace };
        self.urgent = false;
        requested
    }

    fn take(&mut self, state: &State, position: Position) {
        let Some((requested, kind)) = self.flight.pop_front() else { return };
        state.meter.probed(kind, ProbeResult::Answered, requested.elapsed());
        self.answered = true;
        if kind == ProbeKind::Fence {
            self.pace.crowd.answered(requested.elapsed());
        }
        let moved = self.shown.replace(position) != Some(position);
        if kind == ProbeKind::Position && (moved || self.pace.still.is_none()) {
            self.pace.still = Some(requested);
        }
        self.pace.in_flight = self.flight.len();
    }

    /// Nothing more will be answered.
    fn give_up(&mut self, state: &State, result: ProbeResult) {
        for (requested, kind) in self.flight.drain(..) {
            state.meter.probed(kind, result, requested.elapsed());
        }
    }
}

// === impl Alarm ===

impl Alarm {
    /// Returns what is due when it is.
    async fn due(&mut self, turn: Option<Turn>) -> ProbeKind {
        match turn {
            Some(turn) => {
                self.until(turn.at).await;
                turn.kind
            }
            None => pending().await,
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;

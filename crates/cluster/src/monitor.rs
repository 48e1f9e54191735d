//! The task that watches one node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::config::NodeConfig;
use crate::error::ProbeError;
use crate::probe::Probe;
use crate::state::State;
use crate::truth::Key;

/// Wakes a monitor before its time.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    ring: Notify,
    /// The monitor sleeps, or is about to, for the idle interval.
    idle: AtomicBool,
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

// === impl Bell ===

impl Bell {
    /// Somebody waits for a fence. Cheap while the monitor is awake anyway.
    pub(crate) fn wanted(&self) {
        if self.idle.swap(false, Ordering::SeqCst) {
            self.ring.notify_one();
        }
    }

    /// The node is suspected to have failed.
    pub(crate) fn urgent(&self) {
        if !self.urgent.swap(true, Ordering::SeqCst) {
            self.ring.notify_one();
        }
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
            let login = config.monitor.login(&self.node, &config.monitor.database, config.timeout);
            let error = match Probe::connect(&login, config.timeout).await {
                Ok(probe) => {
                    let (error, answered) = self.follow(probe, &mut history).await;
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
            let pause = self.state.config().reconnect.pause(history.failures, rand::random());
            let due = Instant::now() + pause;
            while !self.pause(begun + config.reconnect.first, due).await {}
        }
    }

    /// Probes until the connection fails; the flag says whether it ever answered.
    async fn follow(&self, mut probe: Probe, history: &mut History) -> (ProbeError, bool) {
        if !probe.sees_receiver() && !history.warned {
            history.warned = true;
            warn!(node = %self.node, "the monitor's role is not a member of pg_monitor: the timeline of a replica \
                   is known as of its last restart point only, and it is refused until then after a failover");
        }
        let mut answered = false;
        loop {
            let requested = Instant::now();
            match probe.ask(self.state.config().timeout).await {
                Ok(sighting) => self.state.sighted(self.key, sighting),
                Err(error) => return (error, answered),
            }
            (answered, history.failures) = (true, 0);
            tokio::select! {
                () = self.rest(requested) => {}
                () = probe.closed() => return (ProbeError::Closed, answered),
            }
        }
    }

    /// Waits until the next probe is due: after the idle interval, or the active one while somebody waits.
    async fn rest(&self, requested: Instant) {
        loop {
            // Raised before the look for waiters: whoever is too late for the look finds it raised, and rings.
            self.bell.idle.store(true, Ordering::SeqCst);
            let awaited = self.state.awaited(self.key);
            if awaited {
                self.bell.idle.store(false, Ordering::SeqCst);
            }
            let config = self.state.config();
            let soonest = requested + config.active_interval;
            let due = if awaited { soonest } else { requested + config.interval };
            if self.pause(soonest, due).await {
                return;
            }
        }
    }

    /// Sleeps until `due`, or only until `soonest` if the bell says that it is urgent. False when rung for
    /// anything else, which the caller has to look at.
    async fn pause(&self, soonest: Instant, due: Instant) -> bool {
        tokio::select! {
            () = sleep_until(due) => return true,
            () = self.bell.ring.notified() => {}
        }
        let urgent = self.bell.urgent.swap(false, Ordering::SeqCst);
        if urgent {
            sleep_until(soonest.min(due)).await;
        }
        urgent
    }
}

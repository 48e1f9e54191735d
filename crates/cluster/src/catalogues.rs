//! The catalogues of the databases in use, loaded when asked for and kept fresh while they are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use causeway_routing::catalogue::Catalogue;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use crate::state::State;
use load::{LoadError, Loaded};

mod load;
mod sql;

/// All databases of one cluster.
#[derive(Debug)]
pub(crate) struct Catalogues {
    /// Copied on each new database, so that readers never wait.
    entries: Arc<ArcSwap<HashMap<Arc<str>, Arc<Entry>>>>,
    /// `None` once stopped.
    tasks: Mutex<Option<JoinSet<()>>>,
    state: Arc<State>,
    runtime: Handle,
}

#[derive(Debug)]
struct Entry {
    database: Arc<str>,
    current: ArcSwapOption<Current>,
    base: Instant,
    /// When somebody asked last, in milliseconds since `base`.
    asked: AtomicU64,
    /// Somebody misses it, or knows that it changed.
    bell: Notify,
}

/// A catalogue that was the database's at `verified` or later.
#[derive(Debug)]
struct Current {
    loaded: Loaded,
    verified: Instant,
}

/// The task of one database.
struct Keeper {
    entry: Arc<Entry>,
    entries: Arc<ArcSwap<HashMap<Arc<str>, Arc<Entry>>>>,
    state: Arc<State>,
    failures: u32,
    /// The last failure logged, so that one that repeats is logged once.
    complaint: Option<String>,
}

/// A database that nobody asked for during this time is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// More databases than this are not tracked: what they define counts as unknown.
const MOST_DATABASES: usize = 1000;
/// The rest after a load, so that a burst of definitions costs few of them.
const COALESCE: Duration = Duration::from_millis(50);
/// The limit of a whole load.
const LOAD_LIMIT: Duration = Duration::from_secs(30);

// === impl Catalogues ===

impl Catalogues {
    pub(crate) fn new(state: Arc<State>, runtime: Handle) -> Self {
        Self { entries: Arc::default(), tasks: Mutex::new(Some(JoinSet::new())), state, runtime }
    }

    /// The database's catalogue; `None` while it is not loaded, or was not verified lately though it could be.
    pub(crate) fn current(&self, database: &str) -> Option<Arc<Catalogue>> {
        let entries = self.entries.load();
        let Some(entry) = entries.get(database) else {
            self.track(database);
            return None;
        };
        let now = Instant::now();
        entry.asked.store(entry.milliseconds(now), Ordering::Relaxed);
        let current = entry.current.load();
        // Without a primary it can be neither verified nor changed.
        let fresh = current.as_ref().filter(|current| {
            let limit =
                self.state.published().view.primary.map(|_| self.state.config().catalogue_refresh * 3);
            limit.is_none_or(|limit| now.saturating_duration_since(current.verified) <= limit)
        });
        if fresh.is_none() {
            entry.bell.notify_one();
        }
        fresh.map(|current| current.loaded.catalogue.clone())
    }

    /// The database's definitions have changed.
    pub(crate) fn changed(&self, database: &str) {
        if let Some(entry) = self.entries.load().get(database) {
            entry.bell.notify_one();
        }
    }

    /// The configuration has changed: rests under way were measured by the old one, and what was judged by other overrides
    /// holds no longer.
    pub(crate) fn reconfigured(&self) {
        let config = self.state.config();
        for entry in self.entries.load().values() {
            let overrides = config.overrides(&entry.database);
            if entry.current.load().as_ref().is_some_and(|current| current.loaded.overrides != overrides) {
                entry.current.store(None);
            }
            entry.bell.notify_one();
        }
    }

    /// Ends all tasks.
    pub(crate) fn stop(&self) {
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn track(&self, database: &str) {
        // The lock makes looking and adding one step.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tasks) = tasks.as_mut() else { return };
        while tasks.try_join_next().is_some() {}
        let entries = self.entries.load_full();
        if entries.contains_key(database) || entries.len() >= MOST_DATABASES {
            return;
        }
        let entry = Arc::new(Entry::new(database));
        self.entries.rcu(|entries| {
            let mut more = HashMap::clone(entries);
            more.insert(entry.database.clone(), entry.clone());
            more
        });
        let keeper = Keeper {
            entry,
            entries: self.entries.clone(),
            state: self.state.clone(),
            failures: 0,
            complaint: None,
        };
        tasks.spawn_on(keeper.run(), &self.runtime);
    }
}

// === impl Entry ===

impl Entry {
    fn new(database: &str) -> Self {
        Self {
            database: Arc::from(database),
            current: ArcSwapOption::empty(),
            base: Instant::now(),
            asked: AtomicU64::new(0),
            bell: Notify::new(),
        }
    }

    fn milliseconds(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.base).as_millis()).unwrap_or(u64::MAX)
    }

    fn last_asked(&self) -> Instant {
        self.base + Duration::from_millis(self.asked.load(Ordering::Relaxed))
    }
}

// === impl Keeper ===

impl Keeper {
    async fn run(mut self) {
        loop {
            let begun = Instant::now();
            let outcome = timeout(LOAD_LIMIT, self.load()).await;
            self.settle(begun, outcome.unwrap_or(Err(LoadError::Timeout(LOAD_LIMIT))));
            if !self.rest(begun).await {
                self.entries.rcu(|entries| {
                    let mut fewer = HashMap::clone(entries);
                    fewer.remove(&self.entry.database);
                    fewer
                });
                return;
            }
        }
    }

    async fn load(&self) -> Result<Option<Loaded>, LoadError> {
        let config = self.state.config();
        let view = self.state.published().view.clone();
        let primary = view.primary.and_then(|id| view.node(id)).ok_or(LoadError::NoPrimary)?;
        let node = config.nodes.iter().find(|node| node.name == primary.name).ok_or(LoadError::NoPrimary)?;
        let login = config.monitor.login(node, &self.entry.database, config.timeout);
        let overrides = config.overrides(&self.entry.database);
        let current = self.entry.current.load_full().filter(|current| current.loaded.overrides == overrides);
        let known = current.map(|current| current.loaded.fingerprint.clone());
        load::load(login, config.timeout, known.as_deref(), overrides).await
    }

    /// Books the outcome of a load that began at `begun`; `None` means that nothing has changed.
    fn settle(&mut self, begun: Instant, outcome: Result<Option<Loaded>, LoadError>) {
        let database = &self.entry.database;
        let error = match outcome {
            Ok(Some(loaded)) => {
                debug!(%database, size = loaded.size, "catalogue loaded");
                self.entry.current.store(Some(Arc::new(Current { loaded, verified: begun })));
                None
            }
            Ok(None) => {
                let verified = self
                    .entry
                    .current
                    .load_full()
                    .map(|current| Arc::new(Current { loaded: current.loaded.clone(), verified: begun }));
                self.entry.current.store(verified);
                None
            }
            Err(error) => Some(error),
        };
        self.failures = if error.is_some() { self.failures.saturating_add(1) } else { 0 };
        let complaint = error.map(|error| error.to_string());
        if let Some(why) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            // The primary serves meanwhile. The database may be gone, or be one that this role may not see.
            info!(%database, why, "catalogue not loaded");
        }
        self.complaint = complaint;
    }

    /// Waits until it is time to load again; false when nobody has asked for so long that it should end.
    async fn rest(&self, begun: Instant) -> bool {
        let refresh = self.state.config().catalogue_refresh;
        let pause = self.state.config().reconnect.pause(self.failures, rand::random());
        let soonest = Instant::now() + if self.failures == 0 { COALESCE } else { pause };
        let mut due = begun + refresh;
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.entry.bell.notified() => {
                    sleep_until(soonest).await;
                    return true;
                }
            }
            let asked = self.entry.last_asked();
            if asked >= begun {
                return true;
            }
            let now = Instant::now();
            if now.saturating_duration_since(asked) > FORGOTTEN_AFTER {
                return false;
            }
            due = now + refresh;
        }
    }
}

#[cfg(test)]
mod tests;

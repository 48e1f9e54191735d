//! Where one session's statements may go: its part of the configuration, and its pools.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Level, Load, NodeId, View};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Shared;
use crate::config::{Consistency, PoolMode, Snapshot};
use crate::control::ControlPlane;
use crate::load::NodeLoad;
use crate::metrics::DatabaseMetrics;
use crate::pools::{NodePool, PoolPolicy};
use crate::session::Lookups;

/// How long a session goes by the catalogue it was given: a tenth of the time that a new one takes to be loaded after
/// a definition has changed.
const CATALOGUE_KEPT: Duration = Duration::from_millis(5);

/// One database and user under one configuration.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) control: Arc<dyn ControlPlane>,
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) level: Level,
    pub(crate) mode: PoolMode,
    pub(crate) checkout_timeout: Duration,
    pub(crate) consistency: Consistency,
    /// Rights to read on a primary in place of a replica.
    pub(crate) fallbacks: Arc<Semaphore>,
    pub(crate) primary_wait: Duration,
    /// What sessions of this user in this database have been seen to do.
    pub(crate) habits: Arc<Habits>,
    pub(crate) metrics: Arc<DatabaseMetrics>,
    cluster: usize,
    policy: PoolPolicy,
    pools: Vec<Option<Arc<NodePool>>>,
    loads: Vec<Arc<NodeLoad>>,
    catalogue: Option<Arc<Catalogue>>,
    catalogue_asked: Option<Instant>,
    /// The nodes as last seen, and which version of that it is.
    view: Option<(u64, Arc<View>)>,
    /// Filled anew for each decision.
    load_values: Vec<Load>,
}

/// What sessions of one user in one database have been seen to do.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    uses_currval: AtomicBool,
}

/// The habits of everybody.
#[derive(Debug, Default)]
pub(crate) struct HabitsOfAll {
    known: Mutex<HashMap<DatabaseAndUser, Arc<Habits>>>,
}

type DatabaseAndUser = (Arc<str>, Arc<str>);

// === impl Habits ===

impl Habits {
    /// currval or lastval was called: what it tells belongs to the connection that a sequence was last advanced on.
    pub(crate) fn called_currval(&self) {
        self.uses_currval.store(true, Ordering::Relaxed);
    }

    /// Whether a session that writes should keep its connection, since it may ask for a sequence's value later.
    pub(crate) fn calls_currval(&self) -> bool {
        self.uses_currval.load(Ordering::Relaxed)
    }
}

// === impl HabitsOfAll ===

impl HabitsOfAll {
    fn of(&self, database: &Arc<str>, user: &Arc<str>) -> Arc<Habits> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((Arc::clone(database), Arc::clone(user))).or_default())
    }
}

// === impl Home ===

impl Home {
    /// The home of this user in this database; `None` when no such database is configured.
    pub(crate) fn find(shared: &Shared, database: &Arc<str>, user: &Arc<str>) -> Option<Self> {
        let snapshot = shared.snapshot.load_full();
        let entry = snapshot.database(database)?;
        let of_user = snapshot.users.get(&**user);
        let defaults = &snapshot.defaults;
        let overrides = &entry.overrides;
        let user_overrides = of_user.map(|user| &user.overrides);
        let mode =
            user_overrides.and_then(|o| o.pool_mode).or(overrides.pool_mode).unwrap_or(defaults.pool_mode);
        let size =
            user_overrides.and_then(|o| o.pool_size).or(overrides.pool_size).unwrap_or(defaults.pool_size);
        let level = user_overrides.and_then(|o| o.level).or(overrides.level).unwrap_or(defaults.level);
        let checkout_timeout = user_overrides
            .and_then(|o| o.checkout_timeout)
            .or(overrides.checkout_timeout)
            .unwrap_or(defaults.checkout_timeout);
        let consistency = overrides.consistency(defaults.consistency);
        let consistency = user_overrides.map_or(consistency, |overrides| overrides.consistency(consistency));
        let cluster = snapshot.clusters.get(entry.cluster)?;
        Some(Self {
            control: Arc::clone(&cluster.control),
            database: Arc::clone(database),
            user: Arc::clone(user),
            level,
            mode,
            checkout_timeout,
            consistency,
            fallbacks: Arc::clone(&cluster.fallbacks),
            primary_wait: cluster.primary_wait,
            habits: shared.habits.of(database, user),
            metrics: shared.metrics.database(database),
            cluster: entry.cluster,
            policy: PoolPolicy { mode, size, password: of_user.and_then(|user| user.password.clone()) },
            pools: vec![None; cluster.nodes.len()],
            loads: cluster.nodes.iter().map(|node| shared.pools.load(&cluster.name, &node.name)).collect(),
            view: None,
            load_values: Vec::with_capacity(cluster.nodes.len()),
            catalogue: None,
            catalogue_asked: None,
            snapshot,
        })
    }

    /// The name of the cluster.
    pub(crate) fn cluster_name(&self) -> Arc<str> {
        self.snapshot.clusters.get(self.cluster).map(|cluster| Arc::clone(&cluster.name)).unwrap_or_default()
    }

    /// Whether a newer configuration is in force.
    pub(crate) fn is_outdated(&self, shared: &Shared) -> bool {
        shared.generation.load(Ordering::Acquire) != self.snapshot.generation
    }

    /// The nodes as last seen.
    pub(crate) fn view(&mut self) -> Arc<View> {
        let version = self.control.view_version();
        match &self.view {
            Some((known, view)) if *known == version => Arc::clone(view),
            _ => {
                let view = self.control.view();
                self.view = Some((version, Arc::clone(&view)));
                view
            }
        }
    }

    /// The pool of one node.
    pub(crate) fn pool(&mut self, shared: &Shared, id: NodeId) -> Option<Arc<NodePool>> {
        let known = self.pools.get_mut(usize::from(id.0))?;
        if known.is_none() {
            *known = shared.pools.pool(
                &self.snapshot,
                (self.cluster, id),
                (&self.database, &self.user),
                &self.policy,
                &shared.metrics,
            );
        }
        known.clone()
    }

    /// What decisions go by: the control plane, and how busy each node is now.
    pub(crate) fn loads(&mut self) -> (&dyn ControlPlane, &[Load]) {
        self.load_values.clear();
        self.load_values.extend(self.loads.iter().map(|load| load.load()));
        (&*self.control, &self.load_values)
    }

    /// What a session's statements are looked up in, as of `now`. `defined_lately`: it has defined code that the catalogue may
    /// not know yet.
    pub(crate) fn lookups<'a>(
        &'a mut self,
        shared: &'a Shared,
        now: Instant,
        defined_lately: bool,
    ) -> Lookups<'a> {
        Lookups {
            classifier: &shared.classifier,
            registry: &shared.registry,
            refusals: &shared.refusals,
            level: self.level,
            defined_lately,
            catalogue: self.catalogue(now),
            metrics: &shared.metrics.process,
        }
    }

    /// What is known of the database's objects, or was a moment before `now`.
    pub(crate) fn catalogue(&mut self, now: Instant) -> Option<&Catalogue> {
        if self.catalogue_asked.is_none_or(|asked| now.saturating_duration_since(asked) > CATALOGUE_KEPT) {
            self.catalogue = self.control.catalogue(&self.database);
            self.catalogue_asked = Some(now);
        }
        self.catalogue.as_deref()
    }
}

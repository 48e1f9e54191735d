//! Bounds on the server connections of several pools together.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::Shared;

/// So much longer must another pool have waited than the oldest in our own queue to be given a connection's place. The
/// other one has to open a connection of its own, which is dear where both have much to do.
const PATIENCE: Duration = Duration::from_millis(100);

/// A bound on the server connections of all pools that it is given to: open and being opened.
///
/// A pool that finds it reached has the longest unused idle connection of the others closed. If all are at work, the next
/// one that is given back and that nobody waits for longer is closed instead of being kept.
pub struct Quota {
    name: Box<str>,
    books: Mutex<Books>,
    /// Whether somebody waits for this, or there are too many.
    pressed: AtomicBool,
}

struct Books {
    limit: usize,
    used: usize,
    members: Vec<Weak<Shared>>,
    /// Pools that could not open a connection, and since when the first in their queue waits.
    wishes: VecDeque<(Weak<Shared>, Instant)>,
}

// === impl Quota ===

impl Quota {
    /// A bound that nothing counts against yet. `name` is what messages call it.
    pub fn new(name: impl Into<Box<str>>, limit: usize) -> Arc<Self> {
        let books = Books { limit, used: 0, members: Vec::new(), wishes: VecDeque::new() };
        Arc::new(Self { name: name.into(), books: Mutex::new(books), pressed: AtomicBool::new(false) })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most connections.
    pub fn limit(&self) -> usize {
        self.books().limit
    }

    /// Changes the bound. Connections beyond it are closed when they are given back.
    pub fn set_limit(&self, limit: usize) {
        let mut books = self.books();
        books.limit = limit;
        self.note(&books);
        drop(books);
        self.offer();
    }

    /// Whether no connection can be opened.
    pub fn is_reached(&self) -> bool {
        let books = self.books();
        books.used >= books.limit
    }

    pub(crate) fn join(&self, pool: &Weak<Shared>) {
        let mut books = self.books();
        books.members.retain(|member| member.strong_count() > 0);
        books.members.push(Weak::clone(pool));
    }

    /// Counts one connection more, if there may be one. Otherwise notes that this pool wants one since then.
    fn take(&self, pool: &Weak<Shared>, since: Option<Instant>) -> bool {
        let mut books = self.books();
        if books.used < books.limit {
            books.used += 1;
            return true;
        }
        if let Some(since) = since {
            match books.wishes.iter_mut().find(|(known, _)| known.ptr_eq(pool)) {
                Some(known) => known.1 = since,
                None => books.wishes.push_back((Weak::clone(pool), since)),
            }
        }
        self.note(&books);
        false
    }

    fn release(&self, count: usize) {
        let mut books = self.books();
        books.used = books.used.saturating_sub(count);
        self.note(&books);
    }

    /// Whether a connection that is given back is to be closed for this, though somebody of its own pool may have
    /// waited since `own`.
    fn claims(&self, own: Option<Instant>) -> bool {
        if !self.pressed.load(Ordering::Relaxed) {
            return false;
        }
        let books = self.books();
        let longer = |(_, since): &(_, Instant)| own.is_none_or(|own| *since + PATIENCE < own);
        books.used > books.limit || books.used == books.limit && books.wishes.front().is_some_and(longer)
    }

    /// The pool has nobody left that waits.
    fn forget(&self, pool: &Weak<Shared>) {
        if self.pressed.load(Ordering::Relaxed) {
            let mut books = self.books();
            books.wishes.retain(|(known, _)| !known.ptr_eq(pool));
            self.note(&books);
        }
    }

    /// Lets pools that wait open connections while there may be more. To be called with no pool's mutex held.
    fn offer(&self) {
        loop {
            let next = {
                let mut books = self.books();
                if books.used >= books.limit {
                    return;
                }
                let next = books.wishes.pop_front();
                self.note(&books);
                next
            };
            let Some((pool, _)) = next else { return };
            if let Some(pool) = pool.upgrade() {
                pool.pump();
            }
        }
    }

    fn members(&self) -> Vec<Arc<Shared>> {
        self.books().members.iter().filter_map(Weak::upgrade).collect()
    }

    fn note(&self, books: &Books) {
        let pressed = books.used > books.limit || !books.wishes.is_empty();
        self.pressed.store(pressed, Ordering::Relaxed);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let books = self.books();
        f.debug_struct("Quota")
            .field("name", &self.name)
            .field("limit", &books.limit)
            .field("used", &books.used)
            .finish_non_exhaustive()
    }
}

/// The bounds of one pool. A pool's mutex may be held while theirs are taken, never the other way round.
#[derive(Clone, Default)]
pub(crate) struct Quotas {
    all: Arc<[Arc<Quota>]>,
    pool: Weak<Shared>,
}

// === impl Quotas ===

impl Quotas {
    pub(crate) fn new(all: &[Arc<Quota>], pool: &Weak<Shared>) -> Self {
        for quota in all {
            quota.join(pool);
        }
        Self { all: all.into(), pool: Weak::clone(pool) }
    }

    /// Counts up to `wanted` connections more; says how many. `since`: when the oldest waiter came, if any waits.
    pub(crate) fn take(&self, wanted: usize, since: Option<Instant>) -> usize {
        let one = |_: &usize| {
            let taken = self.all.iter().take_while(|quota| quota.take(&self.pool, since)).count();
            if taken < self.all.len() {
                for quota in self.all.iter().take(taken) {
                    quota.release(1);
                }
            }
            taken == self.all.len()
        };
        (0..wanted).take_while(one).count()
    }

    /// So many connections are gone, or were not opened.
    pub(crate) fn release(&self, count: usize) {
        for quota in &*self.all {
            quota.release(count);
        }
    }

    pub(crate) fn claim(&self, own: Option<Instant>) -> bool {
        self.all.iter().any(|quota| quota.claims(own))
    }

    pub(crate) fn forget(&self) {
        for quota in &*self.all {
            quota.forget(&self.pool);
        }
    }

    pub(crate) fn offer(&self) {
        for quota in &*self.all {
            quota.offer();
        }
    }

    /// Of the other pools under a bound that is reached, the one whose idle connection has not been used for longest.
    pub(crate) fn richest(&self) -> Option<Arc<Shared>> {
        let full = self.all.iter().find(|quota| quota.is_reached())?;
        let others =
            full.members().into_iter().filter(|pool| !std::ptr::eq(Arc::as_ptr(pool), self.pool.as_ptr()));
        let idle = others.filter_map(|pool| {
            let since = pool.lock().idle_since()?;
            Some((since, pool))
        });
        idle.min_by_key(|(since, _)| *since).map(|(_, pool)| pool)
    }
}

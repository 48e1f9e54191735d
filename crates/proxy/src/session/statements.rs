//! Prepared statements as clients made them, and what they are called on servers.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_pool::StatementId;
use causeway_routing::Class;

/// What the names of server-side statements begin with.
pub(crate) const SERVER_NAME_PREFIX: &[u8] = b"causeway_";

/// A prepared statement: what Parse was given, and everything else that decides what it means.
#[derive(Debug)]
pub(crate) struct Statement {
    /// What the books of server connections know it by.
    pub(crate) id: StatementId,
    /// Its name on servers; empty for the unnamed statement.
    pub(crate) server_name: Box<[u8]>,
    /// The query.
    pub(crate) sql: Box<[u8]>,
    /// The parameter types that were given.
    pub(crate) types: Box<[u32]>,
    /// The settings that a server consults at Parse, literals being converted there: a `timestamptz '...'` prepared
    /// under one TimeZone must not be executed for a session under another.
    parse_settings: Arc<str>,
    /// What it is.
    pub(crate) class: Arc<Class>,
    /// A server found that it would now give other columns: those who prepared it get the error that they would get
    /// from a server of their own, and those who prepare the same text from now on get another statement.
    outdated: AtomicBool,
}

/// All named statements of all sessions, each text once.
#[derive(Debug, Default)]
pub(crate) struct StatementRegistry {
    hasher: RandomState,
    next: AtomicU64,
    statements: Mutex<Interned>,
}

#[derive(Debug, Default)]
struct Interned {
    by_hash: HashMap<u64, Vec<Weak<Statement>>>,
    /// At this size the dead entries are swept out.
    sweep_at: usize,
}

/// What a statement is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) sql: &'a [u8],
    pub(crate) types: &'a [u32],
    pub(crate) parse_settings: &'a Arc<str>,
    pub(crate) class: &'a Arc<Class>,
}

/// Named statements by their names.
pub(crate) type Names = HashMap<Box<[u8]>, Arc<Statement>>;

/// The names one client has given to its statements.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    named: Names,
    unnamed: Option<Arc<Statement>>,
    /// Names that SQL may have prepared something under.
    by_sql: HashSet<Box<[u8]>>,
}

/// What servers know a named statement by.
pub(crate) fn server_name(id: StatementId) -> Box<[u8]> {
    [SERVER_NAME_PREFIX, format!("{:x}", id.0).as_bytes()].concat().into()
}

// === impl Statement ===

impl Statement {
    /// Its columns have changed on a server.
    pub(crate) fn outdate(&self) {
        self.outdated.store(true, Ordering::Relaxed);
    }

    fn is(&self, content: &Content<'_>) -> bool {
        !self.outdated.load(Ordering::Relaxed)
            && *self.sql == *content.sql
            && *self.types == *content.types
            && self.parse_settings == *content.parse_settings
    }

    fn new(id: u64, server_name: Box<[u8]>, content: &Content<'_>) -> Arc<Self> {
        Arc::new(Self {
            id: StatementId(id),
            server_name,
            sql: content.sql.into(),
            types: content.types.into(),
            parse_settings: Arc::clone(content.parse_settings),
            class: Arc::clone(content.class),
            outdated: AtomicBool::new(false),
        })
    }
}

// === impl StatementRegistry ===

impl StatementRegistry {
    /// The statement of this content under a server-side name, shared with everyone who prepared the same.
    pub(crate) fn named(&self, content: &Content<'_>) -> Arc<Statement> {
        let hash = self.hasher.hash_one((content.sql, content.types, &**content.parse_settings));
        let mut interned = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        let known = interned.by_hash.get(&hash).and_then(|candidates| {
            candidates.iter().filter_map(Weak::upgrade).find(|statement| statement.is(content))
        });
        if let Some(statement) = known {
            return statement;
        }
        let id = self.next_id();
        let statement = Statement::new(id, server_name(StatementId(id)), content);
        interned.sweep();
        interned.by_hash.entry(hash).or_default().push(Arc::downgrade(&statement));
        statement
    }

    /// A statement for the empty name, which is never shared.
    pub(crate) fn unnamed(&self, content: &Content<'_>) -> Arc<Statement> {
        Statement::new(self.next_id(), Box::default(), content)
    }

    /// How many different statements are alive.
    #[cfg(test)]
    fn len(&self) -> usize {
        let interned = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        interned.by_hash.values().flatten().filter(|statement| statement.strong_count() > 0).count()
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

// === impl Interned ===

impl Interned {
    /// Drops the entries of statements that nobody holds any more, each time their number may have doubled.
    fn sweep(&mut self) {
        const FIRST: usize = 1024;
        if self.by_hash.len() < self.sweep_at.max(FIRST) {
            return;
        }
        self.by_hash.retain(|_, candidates| {
            candidates.retain(|statement| statement.strong_count() > 0);
            !candidates.is_empty()
        });
        self.sweep_at = self.by_hash.len().saturating_mul(2);
    }
}

// === impl ClientStatements ===

impl ClientStatements {
    /// The statement of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// Gives `name` to a statement and returns the one that had it.
    pub(crate) fn insert(&mut self, name: &[u8], statement: Arc<Statement>) -> Option<Arc<Statement>> {
        if name.is_empty() {
            self.unnamed.replace(statement)
        } else {
            self.named.insert(name.into(), statement)
        }
    }

    /// Takes `name` from its statement.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    /// SQL prepares something under this name.
    pub(crate) fn prepared_by_sql(&mut self, name: &[u8]) {
        self.by_sql.insert(name.into());
    }

    /// Whether it may have.
    pub(crate) fn is_prepared_by_sql(&self, name: &[u8]) -> bool {
        self.by_sql.contains(name)
    }

    /// A name of this statement.
    pub(crate) fn name_of(&self, statement: &Arc<Statement>) -> Option<&[u8]> {
        self.named.iter().find(|(_, known)| Arc::ptr_eq(known, statement)).map(|(name, _)| &**name)
    }

    /// Takes all names away, as DEALLOCATE ALL does; the unnamed statement stays.
    pub(crate) fn take_named(&mut self) -> Names {
        self.by_sql.clear();
        std::mem::take(&mut self.named)
    }

    /// Gives names back that were taken away.
    pub(crate) fn restore_named(&mut self, names: Names) {
        self.named.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_routing::classify::{Limits, classify};

    fn content<'a>(sql: &'a [u8], settings: &'a Arc<str>, class: &'a Arc<Class>) -> Content<'a> {
        Content { sql, types: &[], parse_settings: settings, class }
    }

    #[test]
    fn shared_only_between_equals() {
        let registry = StatementRegistry::default();
        let class = Arc::new(classify(b"SELECT 1", &Limits::default()));
        let (utc, tokyo) = (Arc::from("timezone=UTC"), Arc::from("timezone=Asia/Tokyo"));
        let first = registry.named(&content(b"SELECT 1", &utc, &class));
        assert!(Arc::ptr_eq(&first, &registry.named(&content(b"SELECT 1", &utc, &class))));
        let typed = Content { types: &[23], ..content(b"SELECT 1", &utc, &class) };
        for other in [
            registry.named(&content(b"SELECT 1", &tokyo, &class)),
            registry.named(&content(b"SELECT 2", &utc, &class)),
            registry.named(&typed),
        ] {
            assert_ne!(first.id, other.id);
            assert_ne!(first.server_name, other.server_name);
        }
    }

    #[test]
    fn the_dead_are_swept_out() {
        let registry = StatementRegistry::default();
        let class = Arc::new(classify(b"SELECT 1", &Limits::default()));
        let settings = Arc::from("");
        for n in 0..10_000 {
            registry.named(&content(format!("SELECT {n}").as_bytes(), &settings, &class));
        }
        assert_eq!(registry.len(), 0);
        assert!(registry.statements.lock().unwrap().by_hash.len() <= 1024);
    }
}

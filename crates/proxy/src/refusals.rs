//! Reads that a replica refused: they run on the primary from then on.
//!
//! A function may be labelled STABLE and write; a standby says so. The verdict on such a statement is kept with its class
//! ([`Class::refuse`]), so that every session knows it at no cost; here is what was kept, for as long as it holds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_protocol::sqlstate::SqlState;
use causeway_routing::Class;
use causeway_routing::catalogue::Catalogue;
use tokio::time::Instant;

use crate::client::Client;

/// How long a refusal is remembered: the function may have been mended in a way that no catalogue tells.
const KEPT: Duration = Duration::from_mins(10);

/// How many are remembered.
const MOST: usize = 1000;

/// How much of a text is kept to be shown.
const SHOWN_LEN: usize = 1024;

/// A read that a replica refused.
#[derive(Clone, Debug)]
pub struct RefusedRead {
    /// The database.
    pub database: Arc<str>,
    /// The text that was refused, without its constants. It stands for all that differ in them alone.
    pub text: Box<str>,
    /// What the replica said.
    pub code: SqlState,
    /// How long ago, at this moment.
    pub age: Duration,
}

/// Those of all databases.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The oldest first.
    entries: Mutex<VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    database: Arc<str>,
    class: Arc<Class>,
    text: Box<str>,
    code: SqlState,
    since: Instant,
}

// === impl Refusals ===

impl Refusals {
    /// Takes in that a replica refused a text of this class, which the catalogue had found to be a read.
    pub(crate) fn remember(
        &self,
        database: &Arc<str>,
        (class, sql): (&Arc<Class>, &[u8]),
        catalogue: &Catalogue,
        code: SqlState,
    ) {
        if !class.refuse(catalogue) {
            return;
        }
        let shown = causeway_routing::fingerprint::without_constants(sql);
        let shown = String::from_utf8_lossy(shown.get(..SHOWN_LEN).unwrap_or(&shown)).into();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.stands() && !Arc::ptr_eq(&entry.class, class));
        if entries.len() >= MOST
            && let Some(oldest) = entries.pop_front()
        {
            oldest.class.forgive();
        }
        entries.push_back(Entry {
            database: Arc::clone(database),
            class: Arc::clone(class),
            text: shown,
            code,
            since: Instant::now(),
        });
    }

    /// Whether the refusal of this class still holds; one that does not is forgotten.
    pub(crate) fn holds(&self, class: &Class) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let holds =
            entries.iter().any(|entry| std::ptr::eq(Arc::as_ptr(&entry.class), class) && entry.stands());
        if !holds {
            class.forgive();
        }
        holds
    }

    /// Forgets those of a database, of which a definition has changed.
    pub(crate) fn forget(&self, database: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| {
            let other = *entry.database != *database;
            if !other {
                entry.class.forgive();
            }
            other
        });
    }

    /// Those that hold now, the oldest first.
    pub(crate) fn all(&self) -> Vec<RefusedRead> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |entry: &Entry| RefusedRead {
            database: Arc::clone(&entry.database),
            text: entry.text.clone(),
            code: entry.code,
            age: entry.since.elapsed(),
        };
        entries.iter().filter(|entry| entry.stands()).map(shown).collect()
    }
}

// === impl Client ===

impl Client {
    /// Takes in why the running unit has to run elsewhere, if a standby said so, and what it said is about the statement.
    pub(crate) fn remember_refusal(&mut self, code: Option<SqlState>) {
        let Some(code) = code.filter(|code| is_refusal(*code)) else { return };
        self.session.belongs_to_primary();
        let database = Arc::clone(&self.home.database);
        let lookups = self.home.lookups(&self.shared, self.started, false);
        let refused = self.session.lone_text(self.inbound.filled(), &lookups);
        if let (Some((class, sql)), Some(catalogue)) = (refused, lookups.catalogue) {
            self.shared.refusals.remember(&database, (&class, &sql), catalogue, code);
        }
    }
}

// === impl Entry ===

impl Entry {
    /// A catalogue that was loaded since makes its own judgement.
    fn stands(&self) -> bool {
        self.class.is_refused() && self.since.elapsed() < KEPT
    }
}

/// Whether what a standby says is about the statement: it refuses what writes, and what it cannot do in recovery. What may only
/// not have been replayed there yet, and what recovery cancelled, says nothing of the next time.
fn is_refusal(code: SqlState) -> bool {
    matches!(
        code,
        SqlState::READ_ONLY_TRANSACTION
            | SqlState::FEATURE_NOT_SUPPORTED
            | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
            | SqlState::INTERNAL_ERROR
    )
}

#[cfg(test)]
mod tests {
    use causeway_routing::catalogue::CatalogueBuilder;
    use causeway_routing::classify::{Limits, classify};
    use causeway_routing::resolve::resolve;
    use causeway_routing::{Kind, Reason};

    use super::*;

    fn catalogue(number: u128) -> Catalogue {
        CatalogueBuilder::new().build().with_identity(number << 64)
    }

    fn class(sql: &str) -> Arc<Class> {
        Arc::new(classify(sql.as_bytes(), &Limits::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_a_while() {
        let (refusals, catalogue, class) =
            (Refusals::default(), catalogue(1), class("SELECT lower('secret')"));
        assert_eq!(resolve(&class, Some(&catalogue)).kind, Kind::Read);
        let of = (&class, &b"SELECT lower('secret')"[..]);
        refusals.remember(&"shop".into(), of, &catalogue, SqlState::READ_ONLY_TRANSACTION);
        let verdict = resolve(&class, Some(&catalogue));
        assert_eq!((verdict.kind, verdict.reason), (Kind::Write, Reason::Refused));
        assert!(refusals.holds(&class));
        let all = refusals.all();
        assert_eq!(all.len(), 1);
        assert!(all[0].text.starts_with("SELECT lower") && !all[0].text.contains("secret"), "{all:?}");
        tokio::time::advance(KEPT).await;
        assert!(refusals.all().is_empty() && !refusals.holds(&class));
        assert_eq!(resolve(&class, Some(&catalogue)).kind, Kind::Read, "tried again");
    }

    #[tokio::test]
    async fn another_catalogue_judges_anew() {
        let (refusals, class) = (Refusals::default(), class("SELECT 1"));
        let [old, new] = [1, 2].map(catalogue);
        refusals.remember(&"shop".into(), (&class, b"SELECT 1"), &old, SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(resolve(&class, Some(&new)).kind, Kind::Read);
        assert!(refusals.all().is_empty() && !refusals.holds(&class));
    }

    #[tokio::test]
    async fn definitions_and_room_make_some_be_forgotten() {
        let (refusals, catalogue) = (Refusals::default(), catalogue(1));
        let classes: Vec<_> = (0..=MOST).map(|_| class("SELECT 1")).collect();
        for class in &classes {
            let code = SqlState::READ_ONLY_TRANSACTION;
            refusals.remember(&"shop".into(), (class, b"SELECT 1"), &catalogue, code);
        }
        assert_eq!(refusals.all().len(), MOST);
        assert!(!classes[0].is_refused() && classes[MOST].is_refused());
        refusals.forget("other");
        assert_eq!(refusals.all().len(), MOST);
        refusals.forget("shop");
        assert!(refusals.all().is_empty() && classes.iter().all(|class| !class.is_refused()));
    }
}

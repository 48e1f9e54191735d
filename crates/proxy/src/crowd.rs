//! How many clients a database and a user have, against what they may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;

use crate::config::Snapshot;

/// The clients of all databases and users.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    heads: Mutex<Heads>,
}

#[derive(Debug, Default)]
struct Heads {
    of_database: HashMap<Arc<str>, usize>,
    of_user: HashMap<Arc<str>, usize>,
}

/// One client's place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    crowd: Arc<Crowd>,
    database: Arc<str>,
    user: Arc<str>,
}

// === impl Crowd ===

impl Crowd {
    /// Lets one more client in.
    ///
    /// # Errors
    ///
    /// What it is told if the database or the user has as many as it may have, in the words of PostgreSQL for its own
    /// limits (`CheckMyDatabase` and `InitializeSessionUserId` in src/backend/utils/init).
    pub(crate) fn admit(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        database: &Arc<str>,
        user: &Arc<str>,
    ) -> Result<Admission, ErrorReport> {
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let of_database = snapshot.database(database).and_then(|entry| entry.overrides.max_clients);
        let of_user = snapshot.users.get(&**user).and_then(|user| user.overrides.max_clients);
        let full = |limit: Option<usize>, heads: Option<&usize>| {
            limit.filter(|limit| heads.is_some_and(|heads| heads >= limit))
        };
        if let Some(limit) = full(of_database, heads.of_database.get(database)) {
            return Err(crowded("database", "databases", database, limit));
        }
        if let Some(limit) = full(of_user, heads.of_user.get(user)) {
            return Err(crowded("role", "users", user, limit));
        }
        *heads.of_database.entry(Arc::clone(database)).or_default() += 1;
        *heads.of_user.entry(Arc::clone(user)).or_default() += 1;
        let (database, user) = (Arc::clone(database), Arc::clone(user));
        Ok(Admission { crowd: Arc::clone(self), database, user })
    }
}

fn crowded(what: &str, section: &str, name: &str, limit: usize) -> ErrorReport {
    ErrorReport::fatal(SqlState::TOO_MANY_CONNECTIONS, format!("too many connections for {what} \"{name}\""))
        .with_detail(format!("limits.max_clients is {limit} for it."))
        .with_hint(format!("Raise it in {section} of Causeway's configuration, or connect less often."))
}

// === impl Admission ===

impl Drop for Admission {
    fn drop(&mut self) {
        let mut heads = self.crowd.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let Heads { of_database, of_user } = &mut *heads;
        for (heads, name) in [(of_database, &self.database), (of_user, &self.user)] {
            if let Some(count) = heads.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    heads.remove(name);
                }
            }
        }
    }
}

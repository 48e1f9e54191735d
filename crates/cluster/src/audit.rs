//! Whether asynchronous commit can be seen: then a flush position is no fence.

use std::sync::Arc;

use tracing::debug;

use crate::errand::Errand;
use crate::error::ProbeError;
use crate::source::FenceSource;
use crate::state::State;

/// The task that looks.
#[derive(Debug)]
pub(crate) struct Auditor {
    state: Arc<State>,
    session: Option<Errand>,
}

const OPTIONS: &str = "-c default_transaction_read_only=on -c search_path=pg_catalog";

/// The settings of the server, of roles and databases, and of the functions of the monitor's own database. What
/// sessions set for themselves, and the functions of other databases, cannot be seen from here. All spellings
/// are the server's (`synchronous_commit_options` in `guc_tables.c`).
const AUDIT: &str = "\
SELECT 'the server commits asynchronously'
  FROM pg_settings
 WHERE name = 'synchronous_commit' AND setting = 'off' AND source NOT IN ('database', 'user', 'database user')
UNION ALL
SELECT concat_ws(' ', 'asynchronous commit is set for',
                 'role ' || NULLIF(s.setrole, 0)::regrole, 'database ' || quote_ident(d.datname))
  FROM pg_db_role_setting AS s LEFT JOIN pg_database AS d ON d.oid = s.setdatabase,
       unnest(s.setconfig) AS setting
 WHERE setting ~* '^synchronous_commit=(off|false|no|0)$'
UNION ALL
SELECT 'asynchronous commit is set for function ' || p.oid::regprocedure
  FROM pg_proc AS p, unnest(p.proconfig) AS setting
 WHERE setting ~* '^synchronous_commit=(off|false|no|0)$'
UNION ALL
SELECT 'a setting of the monitor''s own role or database hides whether the server commits asynchronously'
  FROM pg_settings
 WHERE name = 'synchronous_commit' AND source IN ('database', 'user', 'database user')
 LIMIT 1";

// === impl Auditor ===

impl Auditor {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, session: None }
    }

    /// Never returns; the task ends by being aborted.
    pub(crate) async fn run(mut self) {
        let state = self.state.clone();
        loop {
            state.auditor.arm();
            let pause = match self.look().await {
                Ok(()) => state.config().catalogue_refresh,
                Err(why) => {
                    debug!(%why, "whether commits are asynchronous could not be seen");
                    self.session = None;
                    state.config().reconnect.most
                }
            };
            tokio::select! {
                () = state.auditor.rung() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&mut self) -> Result<(), ProbeError> {
        let primary = self.state.primary().filter(|_| self.state.config().fence_source == FenceSource::Flush);
        let Some(primary) = primary else {
            self.session = None;
            return Ok(());
        };
        let errand = match self.session.take().filter(|errand| errand.leads_to(&primary)) {
            Some(session) => self.session.insert(session),
            None => self.session.insert(Errand::open(&self.state, &primary, OPTIONS).await?),
        };
        let limit = self.state.config().timeout;
        let work = async |client: Arc<tokio_postgres::Client>| client.query_opt(AUDIT, &[]).await;
        let found = errand.outlast(&self.state, limit, work, || ()).await?;
        let found = found.map(|row| row.try_get::<_, String>(0)).transpose()?;
        self.state.audited(primary.instance, found.map(Arc::from));
        Ok(())
    }
}

//! Connections to the primary for what a probe's must not be used for: a commit can hang, and would take all
//! fences along.

use std::fmt;
use std::future::Future;
use std::pin::pin;

use tokio::time::timeout;
use tokio_postgres::Client;

use crate::demand::Primary;
use crate::error::ProbeError;
use crate::instance::Instance;
use crate::state::State;
use crate::wire::Wire;

/// A connection to one primary.
#[derive(Debug)]
pub(crate) struct Errand {
    primary: Primary,
    pub(crate) wire: Wire,
}

/// Who says the same again and again is heard once.
#[derive(Debug, Default)]
pub(crate) struct Complaint(Option<String>);

// === impl Errand ===

impl Errand {
    /// Logs in with these `options`, and makes sure that it is the server which the monitor watches: behind one name
    /// there may be several.
    pub(crate) async fn open(state: &State, primary: &Primary, options: &str) -> Result<Self, ProbeError> {
        let limit = state.config().timeout;
        timeout(limit, Self::connect(state, primary, options))
            .await
            .map_err(|_| ProbeError::Timeout(limit))?
    }

    async fn connect(state: &State, primary: &Primary, options: &str) -> Result<Self, ProbeError> {
        let config = state.config();
        let login = config.monitor.login(&primary.node, &config.monitor.database, config.timeout);
        let login = login.with_options(options);
        let mut wire = Wire::open(&login).await?;
        let client = wire.client();
        let row = wire.run(client.query_one(Instance::QUERY, &[])).await?;
        if Instance::read(&row)? != Some(primary.instance) {
            return Err(ProbeError::Stranger);
        }
        Ok(Self { primary: primary.clone(), wire })
    }

    pub(crate) fn leads_to(&self, primary: &Primary) -> bool {
        self.primary == *primary
    }

    pub(crate) fn instance(&self) -> Instance {
        self.primary.instance
    }

    /// Runs `work` to its end, however long that takes: a commit that waits for a lost standby goes on waiting in
    /// the server when its connection is closed, and another connection for each attempt would use up all of the
    /// server's. It is given up only together with the primary. `late` is called whenever another timeout has passed.
    pub(crate) async fn outlast<T, F>(
        &mut self,
        state: &State,
        limit: std::time::Duration,
        work: impl FnOnce(std::sync::Arc<Client>) -> F,
        mut late: impl FnMut(),
    ) -> Result<T, ProbeError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let work = work(self.wire.client());
        let mut work = pin!(self.wire.run(work));
        loop {
            match timeout(limit, work.as_mut()).await {
                Ok(outcome) => return Ok(outcome?),
                Err(_) if state.primary().as_ref() != Some(&self.primary) => {
                    return Err(ProbeError::Timeout(limit));
                }
                Err(_) => late(),
            }
        }
    }
}

// === impl Complaint ===

impl Complaint {
    /// Whether this is news. `None` takes it back.
    pub(crate) fn is_new(&mut self, why: Option<&dyn fmt::Display>) -> bool {
        let why = why.map(ToString::to_string);
        let new = why.is_some() && why != self.0;
        self.0 = why;
        new
    }
}

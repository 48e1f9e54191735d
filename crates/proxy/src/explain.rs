//! Where a statement would go, told without running it.

use std::sync::{Arc, PoisonError};

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::cache::SyntaxOptions;
use causeway_routing::resolve::resolve;
use causeway_routing::router::{Request, Requirement, Router, Target};
use causeway_routing::{Kind, Reason};

use tokio::time::Instant;

use crate::Proxy;
use crate::config::PoolMode;
use crate::home::Home;
use crate::metrics::DecisionTarget;

/// Where a statement would go, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What it is.
    pub kind: Kind,
    /// What kind of node.
    pub target: DecisionTarget,
    /// Which one, if there is one now.
    pub node: Option<Arc<str>>,
    /// Why.
    pub reason: Reason,
}

// === impl Proxy ===

impl Proxy {
    /// What a fresh session of `user` in `database` would do with `sql`.
    ///
    /// # Errors
    ///
    /// When no such database is configured.
    pub fn explain(&self, database: &str, user: &str, sql: &str) -> Result<Explanation, ErrorReport> {
        let Some(mut home) = Home::find(&self.shared, &database.into(), &user.into()) else {
            let message = format!("database \"{database}\" is not configured");
            return Err(ErrorReport::error(SqlState::INVALID_CATALOG_NAME, message));
        };
        let syntax = SyntaxOptions { standard_conforming_strings: true, utf8: true };
        let class = self
            .shared
            .classifier
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .classify(sql.as_bytes(), syntax);
        let verdict = resolve(&class, home.catalogue(Instant::now()));
        let view = home.control.view();
        let request = Request {
            verdict,
            level: home.level,
            requirement: Requirement::None,
            serializable: false,
            excluded: &[],
        };
        let decision = Router.route(&request, &view, home.loads().1, 0);
        if home.mode == PoolMode::Session {
            let node = view.primary.and_then(|id| view.node(id)).map(|node| Arc::clone(&node.name));
            let (target, reason) = (DecisionTarget::Primary, Reason::Pinned);
            return Ok(Explanation { kind: verdict.kind, target, node, reason });
        }
        let (target, id) = match decision.target {
            Target::Primary(id) => (DecisionTarget::Primary, id),
            Target::Replica(id) => (DecisionTarget::Replica, Some(id)),
            Target::Local => (DecisionTarget::Local, None),
        };
        let node = id.and_then(|id| view.node(id)).map(|node| Arc::clone(&node.name));
        Ok(Explanation { kind: verdict.kind, target, node, reason: decision.reason })
    }
}

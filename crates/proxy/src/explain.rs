//! Where a statement would go, told without running it.

use std::sync::{Arc, PoisonError};

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::cache::SyntaxOptions;
use causeway_routing::resolve::{resolve, resolve_for_replica};
use causeway_routing::router::{Request, Requirement, Router, Target};
use causeway_routing::{Fence, Kind, Level, NodeView, Observation, Reason, Role, View};
use tokio::time::{Instant, timeout};

use crate::Proxy;
use crate::config::PoolMode;
use crate::home::Home;
use crate::memory::{Memory, Must};
use crate::metrics::DecisionTarget;
use crate::session::{Hint, hint};

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
    /// Whose writes it would have to see.
    pub level: Level,
    /// The position that covers these, if it is a read that must see any and the primary has told.
    pub fence: Option<Fence>,
    /// The replicas.
    pub candidates: Vec<Candidate>,
}

/// A replica as the decision saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub node: Arc<str>,
    /// What it was last seen to have replayed.
    pub observation: Option<Observation>,
    /// Whether it serves reads at all.
    pub serves: bool,
    /// Whether it shows what the read must see.
    pub covers: bool,
}

// === impl Proxy ===

impl Proxy {
    /// What a fresh session of `user` in `database` would do with `sql`. If what it must see has to be asked for, the
    /// primary is asked, and `consistency.wait` may pass. Cancel-safe.
    ///
    /// # Errors
    ///
    /// When no such database is configured.
    pub async fn explain(&self, database: &str, user: &str, sql: &str) -> Result<Explanation, ErrorReport> {
        let Some(mut home) = Home::find(&self.shared, &database.into(), &user.into()) else {
            let message = format!("database \"{database}\" is not configured");
            return Err(ErrorReport::error(SqlState::INVALID_CATALOG_NAME, message));
        };
        let syntax = SyntaxOptions::default();
        let class = self
            .shared
            .classifier
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .classify(sql.as_bytes(), syntax);
        let now = Instant::now();
        let Hint { level, replica } = hint(sql.as_bytes()).unwrap_or_default();
        let resolve = if replica == Some(true) { resolve_for_replica } else { resolve };
        let verdict = resolve(&class, home.catalogue(now));
        let level = level.unwrap_or(home.level);
        let reads =
            matches!(verdict.kind, Kind::Read | Kind::BeginReadOnly) && home.mode != PoolMode::Session;
        let requirement = if reads { required(&home, level, now).await } else { Requirement::None };
        let view = home.control.view();
        let request = Request { verdict, level, requirement, serializable: false, excluded: &[] };
        let decision = Router.route(&request, &view, home.loads().1, 0);
        let (target, id, reason) = match decision.target {
            _ if home.mode == PoolMode::Session => (DecisionTarget::Primary, view.primary, Reason::Pinned),
            Target::Primary(id) => (DecisionTarget::Primary, id, decision.reason),
            Target::Replica(id) => (DecisionTarget::Replica, Some(id), decision.reason),
            Target::Local => (DecisionTarget::Local, None, decision.reason),
        };
        let fence = match requirement {
            Requirement::Fence(fence) => Some(fence),
            Requirement::None | Requirement::Unknown => None,
        };
        let node = id.and_then(|id| view.node(id)).map(|node| Arc::clone(&node.name));
        let candidates = if reads { candidates(&view, level, requirement) } else { Vec::new() };
        Ok(Explanation { kind: verdict.kind, target, node, reason, level, fence, candidates })
    }
}

/// What a read at this level must see, had it arrived now.
async fn required(home: &Home, level: Level, now: Instant) -> Requirement {
    let mut memory = Memory::new(home.control.era());
    let must = memory.must(level, now, &*home.control);
    let known = memory.requirement(must, &home.control.view(), &*home.control);
    let (Requirement::Unknown, Must::Since(since)) = (known, must) else { return known };
    match timeout(home.consistency.wait, home.control.fence(since)).await {
        Ok(Ok(fence)) => Requirement::Fence(fence),
        Ok(Err(_)) | Err(_) => Requirement::Unknown,
    }
}

fn candidates(view: &View, level: Level, requirement: Requirement) -> Vec<Candidate> {
    let covers = |node: &NodeView| match requirement {
        Requirement::None => true,
        Requirement::Unknown => false,
        Requirement::Fence(fence) => node.observation.is_some_and(|seen| seen.covers(&fence)),
    };
    let replicas = view.nodes.iter().filter(|node| node.role == Role::Replica);
    let candidate = |node: &NodeView| Candidate {
        node: Arc::clone(&node.name),
        observation: node.observation,
        serves: node.serves_reads_at(level),
        covers: covers(node),
    };
    replicas.map(candidate).collect()
}

// === impl Candidate ===

/// `pg-1 at 1:0/3000060: covers`.
impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at ", self.node)?;
        match self.observation {
            Some(Observation { timeline, lsn, .. }) => write!(f, "{timeline}:{lsn}: ")?,
            None => f.write_str("an unknown position: ")?,
        }
        f.write_str(match (self.serves, self.covers) {
            (false, _) => "does not serve",
            (true, true) => "covers",
            (true, false) => "is behind",
        })
    }
}

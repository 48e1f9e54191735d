//! A change of primary: what is on the former one is cut, and what a session had written there is accounted for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_pool::{CloseReason, Lease};
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{Fence, Lsn, NodeId, NodeState, Observation, PinReason, Role, View};
use tokio::time::Instant;

use crate::client::{Client, End};
use crate::config::LostWrites;
use crate::control::{ControlPlane, Need};
use crate::home::Home;
use crate::memory::Account;
use crate::{Proxy, Shared};

/// The primary of each cluster, as the pools know it.
#[derive(Debug, Default)]
pub(crate) struct Reigns {
    known: Mutex<HashMap<Arc<str>, Reign>>,
}

#[derive(Debug)]
struct Reign {
    era: u64,
    /// The node's name.
    primary: Option<Arc<str>>,
    /// The nodes that do not serve, by name.
    out: Vec<Arc<str>>,
}

// === impl Proxy ===

impl Proxy {
    /// Follows one cluster of the configuration in force: whenever its primary changes, closes what is idle on the former
    /// one and cuts the sessions that have a connection there. Returns when `control` has ended. Cancel-safe: a change in
    /// between is found by the next call.
    pub async fn follow(&self, cluster: &str, control: Arc<dyn ControlPlane>) {
        let mut changes = control.changes();
        loop {
            self.shared.follow(cluster, &*control);
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn follow(&self, cluster: &str, control: &dyn ControlPlane) {
        let (view, era) = (control.view(), control.era());
        let primary = view.primary.and_then(|id| view.node(id)).map(|node| Arc::clone(&node.name));
        let out = view.nodes.iter().filter(|node| node.state != NodeState::Serving);
        let out: Vec<Arc<str>> = out.map(|node| Arc::clone(&node.name)).collect();
        let mut known = self.reigns.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reign) = known.get_mut(cluster) else {
            known.insert(cluster.into(), Reign { era, primary, out });
            return;
        };
        let before = std::mem::replace(&mut reign.out, out.clone());
        let back: Vec<Arc<str>> = before.into_iter().filter(|node| !out.contains(node)).collect();
        self.nodes_moved(cluster, &view, &back);
        if reign.era == era {
            // The node of an unchanged primary may have been given another name.
            reign.primary = primary.or(reign.primary.take());
            return;
        }
        reign.era = era;
        let former = std::mem::replace(&mut reign.primary, primary);
        drop(known);
        self.logins.clear();
        for pool in self.pools.all() {
            if *pool.key.cluster == *cluster && Some(&pool.key.node) == former.as_ref() {
                pool.pool.recycle(CloseReason::RoleChanged);
            }
        }
        for entry in self.clients.all() {
            // Whose connection is none of the former primary's finds that out.
            entry.look();
        }
    }
}

impl Shared {
    /// Reads that wait for a node that is down are run elsewhere, and a node that is back begins slowly.
    fn nodes_moved(&self, cluster: &str, view: &View, back: &[Arc<str>]) {
        let now = Instant::now();
        for node in view.nodes.iter().filter(|node| back.contains(&node.name)) {
            self.pools.load(&cluster.into(), &node.name).serves_again(now);
        }
        let down = |name: &Arc<str>| {
            view.nodes.iter().any(|node| node.state == NodeState::Down && node.name == *name)
        };
        if view.nodes.iter().any(|node| node.state == NodeState::Down) {
            for entry in self.clients.all() {
                if entry.lease().is_some_and(|lease| down(&lease.node)) {
                    entry.look();
                }
            }
        }
    }
}

// === impl Client ===

impl Client {
    /// Whether the unit under way waits for a replica that is down, and may as well run elsewhere. A stream that only stands
    /// still does not tell that.
    pub(crate) fn waits_in_vain(&self) -> bool {
        let down = |held: &crate::lease::Held| {
            held.role == Role::Replica && state_of(&*self.home.control, held.id) == Some(NodeState::Down)
        };
        self.session.may_retry() && self.held.as_ref().is_some_and(down)
    }

    /// Whether the connection reaches the server that is the primary now: what it was when it was opened does not count.
    pub(crate) fn leads(&self, lease: &mut Lease, node: NodeId) -> bool {
        leads(&*self.home.control, lease, node)
    }

    /// Ends the session if it has a connection to what is the primary no more.
    pub(crate) fn look(&mut self) -> Result<(), End> {
        self.entry.looked();
        let stale =
            |held: &crate::lease::Held| held.role == Role::Primary && held.era != self.home.control.era();
        if !self.held.as_ref().is_some_and(stale) {
            return Ok(());
        }
        let idle = self.session.status() == TransactionStatus::Idle && self.running.is_none();
        let detail = match (idle, self.session.lost()) {
            (true, _) => "No transaction was under way.",
            (false, false) => "Nothing that writes was under way.",
            (false, true) => "Whether the statement or transaction under way has taken effect is not known.",
        };
        let hint = if self.session.pins().contains(PinReason::Listen) {
            "Connect and LISTEN again: notifications may have been missed."
        } else {
            "Connect again."
        };
        self.running = None;
        self.discard(CloseReason::RoleChanged);
        let message = "terminating connection because its server is no longer the primary";
        let report = ErrorReport::fatal(SqlState::ADMIN_SHUTDOWN, message);
        Err(End::Report(report.with_detail(detail).with_hint(hint)))
    }

    /// As [`Client::account`], which takes room that only a change of primary is worth.
    pub(crate) async fn account_if_due(&mut self) -> Result<Option<ErrorReport>, End> {
        if self.memory.era == self.home.control.era() { Ok(None) } else { Box::pin(self.account()).await }
    }

    /// After a change of primary: what has become of what this session was told. `Some` is the one error that says that
    /// some of it may be lost.
    async fn account(&mut self) -> Result<Option<ErrorReport>, End> {
        let (level, era) = (self.level(), self.home.control.era());
        let mut view = self.home.control.view();
        let mut account = self.memory.account(level, &view, &*self.home.control);
        if let Account::Ask(node, moment) = account {
            self.await_position(&view, node, moment).await?;
            view = self.home.control.view();
            account = self.memory.account(level, &view, &*self.home.control);
        }
        match account {
            // Whoever needs the primary waits for it, and what has become of the writes is known with it.
            Account::Open => return Ok(None),
            Account::Kept => {}
            Account::Carried(fence) => self.memory.carry(fence),
            Account::Ask(..) | Account::Lost => {
                self.memory.forget();
                self.memory.era = era;
                self.home.metrics.fences_lost.add(1);
                let report = self.home.consistency.lost_writes == LostWrites::Error;
                return Ok(report.then(lost_writes));
            }
        }
        self.memory.era = era;
        Ok(None)
    }

    /// Waits for a position of this replica that was asked for at or after `moment`, if it tells positions at all.
    async fn await_position(&mut self, view: &View, node: NodeId, moment: Instant) -> Result<(), End> {
        let seen = view.node(node).and_then(|node| node.observation);
        let Some(Observation { system_id, timeline, .. }) = seen else { return Ok(()) };
        let until = Instant::now() + self.home.consistency.wait;
        let fence = Fence { system_id, timeline, lsn: Lsn(0) };
        let told = self.home.control.position(&Need { fence, node: Some(node), since: Some(moment), until });
        self.wait_until(until, told).await.map(drop)
    }

    /// There was no primary for too long.
    pub(crate) fn no_primary(&self) -> ErrorReport {
        no_primary(&self.home)
    }
}

fn state_of(control: &dyn ControlPlane, id: NodeId) -> Option<NodeState> {
    control.view().node(id).map(|node| node.state)
}

/// Whether statements for a node in this role should go on waiting for it.
pub(crate) fn is_of_use(control: &dyn ControlPlane, id: NodeId, role: Role) -> bool {
    if role == Role::Replica {
        // A lagging one may have been chosen for a read that bears it.
        state_of(control, id) != Some(NodeState::Down)
    } else {
        control.view().primary == Some(id)
    }
}

/// Whether the connection reaches the primary; asked once in an era.
pub(crate) fn leads(control: &dyn ControlPlane, lease: &mut Lease, node: NodeId) -> bool {
    let era = control.era();
    if lease.verified != era {
        if !control.leads(node, lease) {
            return false;
        }
        lease.verified = era;
    }
    true
}

pub(crate) fn no_primary(home: &Home) -> ErrorReport {
    let waited = home.primary_wait.as_millis();
    let report = ErrorReport::error(SqlState::CANNOT_CONNECT_NOW, "no primary is available");
    let view: Arc<View> = home.control.view();
    match view.complaint.as_deref() {
        None => report
            .with_detail(format!("None was found within primary_wait ({waited} ms)."))
            .with_hint("SHOW NODES on the console tells what is known of each node."),
        Some(complaint) => {
            let cluster = home.cluster_name();
            report.with_detail(format!("{complaint}. Waited {waited} ms (primary_wait).")).with_hint(format!(
                "If the nodes that answer now are the right ones: EPOCH ACCEPT {cluster} on the console, or, with \
                 Causeway stopped, `causeway epoch accept {cluster}`."
            ))
        }
    }
}

fn lost_writes() -> ErrorReport {
    let message = "writes of this session may have been lost in a failover";
    ErrorReport::error(SqlState::STATEMENT_COMPLETION_UNKNOWN, message)
        .with_detail(
            "What was acknowledged to it last, or what it has read since, is not known to be part of the new primary's \
             timeline.",
        )
        .with_hint("This is said once, and nothing was run. Look at what is there before going on.")
}

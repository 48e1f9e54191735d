//! PAUSE, RESUME, DRAIN and UNDRAIN.

use std::sync::Arc;

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_proxy::console::Reply;

use super::{AdminConsole, only_word};
use crate::config::ADMIN_DATABASES;
use crate::serve::live::NamedCluster;

// === impl AdminConsole ===

impl AdminConsole {
    /// Returns when no server connection of it is in use any more. Dropping the future leaves the pause in force.
    pub(super) async fn pause(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let database = self.database(argument, "PAUSE [<database>]")?;
        let shown = database.as_deref().unwrap_or("all");
        tracing::warn!(event = "console", user, command = "PAUSE", database = shown, "clients are held back");
        if self.live.proxy.pause(database.as_deref()).await {
            return Ok(Reply::Done { tag: "PAUSE" });
        }
        let message = "the pause was ended before the last server connection was given back";
        Err(ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    }

    pub(super) fn resume(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let database = self.database(argument, "RESUME [<database>]")?;
        if !self.live.proxy.resume(database.as_deref()) {
            let message = format!("database \"{}\" is not paused by itself", database.unwrap_or_default());
            let report = ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(report.with_hint("RESUME without a name ends every pause."));
        }
        let shown = database.as_deref().unwrap_or("all");
        tracing::warn!(event = "console", user, command = "RESUME", database = shown, "clients go on");
        Ok(Reply::Done { tag: "RESUME" })
    }

    /// The database named, if one is; it need not be known yet.
    fn database(&self, argument: &str, synopsis: &str) -> Result<Option<String>, ErrorReport> {
        if argument.is_empty() {
            return Ok(None);
        }
        let name = only_word(argument, synopsis)?.written;
        let config = self.live.config.load();
        let served = config.databases.iter().any(|(own, _)| *own == name || own == "*");
        if !served || ADMIN_DATABASES.contains(&name.as_str()) {
            let message = format!("database \"{name}\" is not served");
            return Err(ErrorReport::error(SqlState::UNDEFINED_OBJECT, message));
        }
        Ok(Some(name))
    }

    /// Returns when nothing runs on the node any more. Dropping the future leaves it drained.
    pub(super) async fn drain(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let (cluster, node) = self.node(argument, "DRAIN <node>")?;
        let view = cluster.cluster.view();
        if view.primary.and_then(|id| view.node(id)).is_some_and(|primary| primary.name == node) {
            let message = format!("\"{node}\" is the primary: it cannot be drained");
            let report = ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(report
                .with_hint("PAUSE holds back all clients; promote another node and drain this one then."));
        }
        self.put(user, &cluster, &node, true);
        self.live.proxy.leave_node(&cluster.name, &node).await;
        Ok(Reply::Done { tag: "DRAIN" })
    }

    pub(super) fn undrain(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let (cluster, node) = self.node(argument, "UNDRAIN <node>")?;
        self.put(user, &cluster, &node, false);
        Ok(Reply::Done { tag: "UNDRAIN" })
    }

    fn put(&self, user: &str, cluster: &NamedCluster, node: &str, drained: bool) {
        if !self.live.drained.put(&cluster.name, node, drained) {
            return;
        }
        let command = if drained { "DRAIN" } else { "UNDRAIN" };
        tracing::warn!(event = "console", user, command, cluster = &*cluster.name, node, "a node's reads");
        let config = self.live.config.load();
        if let Some(configured) = config.clusters.iter().find(|own| *own.name == *cluster.name) {
            cluster.cluster.reconfigure(self.live.drained.cluster_config(configured));
        }
    }

    /// `<node>`, or `<cluster>/<node>` where several clusters have one of that name.
    fn node(&self, argument: &str, synopsis: &str) -> Result<(NamedCluster, Arc<str>), ErrorReport> {
        let written = only_word(argument, synopsis)?.written;
        let clusters = self.live.clusters.load();
        let (of, name) = match written.split_once('/') {
            Some((cluster, node)) => (Some(cluster), node),
            None => (None, written.as_str()),
        };
        let mut found = Vec::new();
        for named in clusters.iter().filter(|named| of.is_none_or(|of| *named.name == *of)) {
            let view = named.cluster.view();
            found.extend(
                view.nodes
                    .iter()
                    .filter(|node| *node.name == *name)
                    .map(|node| (named.clone(), Arc::clone(&node.name))),
            );
        }
        match (found.pop(), found.pop()) {
            (Some(node), None) => Ok(node),
            (None, _) => {
                let message = format!("no node is called \"{written}\"");
                Err(ErrorReport::error(SqlState::UNDEFINED_OBJECT, message)
                    .with_hint("SHOW NODES lists them."))
            }
            (Some(_), Some(_)) => {
                let message = format!("several clusters have a node \"{name}\"");
                let report = ErrorReport::error(SqlState::UNDEFINED_OBJECT, message);
                Err(report.with_hint("Write <cluster>/<node>."))
            }
        }
    }
}

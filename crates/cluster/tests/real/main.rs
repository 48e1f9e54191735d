//! The monitors on a real primary with two streaming replicas.

mod catalogues;
mod cost;
mod fences;
mod lineage;
mod nodes;
mod reads;
mod sources;

use std::time::Duration;

use causeway_cluster::{Cluster, Config, Monitor, NodeConfig};
use causeway_routing::{NodeId, NodeState, View};
use causeway_sandbox::{Node, Sandbox, SandboxConfig};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, NoTls};

const PATIENCE: Duration = Duration::from_secs(20);

/// A primary `pg-0` and replicas, watched by a role with no rights but `pg_monitor`.
pub(crate) struct Rig {
    pub(crate) sandbox: Sandbox,
    pub(crate) cluster: Cluster,
}

impl Rig {
    pub(crate) async fn start(replicas: usize) -> Self {
        let sandbox = Sandbox::start(SandboxConfig::with_replicas(replicas)).await.expect("servers start");
        let grant = "CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; CREATE TABLE kept (v bigint);";
        sandbox.primary().sql("postgres", grant).await.expect("the role is made");
        sandbox.replicas_caught_up().await.expect("replicas replay");
        let cluster = Cluster::start(config(&sandbox));
        let rig = Self { sandbox, cluster };
        rig.until("everything serves", |view| {
            view.primary == Some(NodeId(0)) && view.nodes.iter().all(|node| node.state == NodeState::Serving)
        })
        .await;
        rig
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.sandbox.node(name).expect("the node exists")
    }

    /// Waits for a view; the answer is how long that took.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&View) -> bool) -> Duration {
        let begun = Instant::now();
        let mut progress = self.cluster.progress();
        let seen = progress.wait_for(|_| holds(&self.cluster.view()));
        let seen = timeout_at(begun + PATIENCE, seen).await.map(drop);
        seen.unwrap_or_else(|_| panic!("not seen: {what}; the view is {:#?}", self.cluster.view()));
        begun.elapsed()
    }

    /// A session at a node, past any pool.
    pub(crate) async fn session(&self, name: &str) -> Client {
        let login = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.node(name).port());
        let (client, connection) = tokio_postgres::connect(&login, NoTls).await.expect("the node accepts");
        tokio::spawn(async move { drop(connection.await) });
        client
    }
}

pub(crate) fn config(sandbox: &Sandbox) -> Config {
    let node = |node: &Node| NodeConfig {
        name: node.name().into(),
        host: "127.0.0.1".to_owned(),
        port: node.port(),
        weight: 1,
        tls: None,
        levels: causeway_routing::Levels::ALL,
    };
    let monitor = Monitor { user: "watcher".to_owned(), password: None, database: "postgres".to_owned() };
    Config::new("main", sandbox.nodes().iter().map(node).collect(), monitor)
}

pub(crate) fn state(view: &View, id: u16) -> NodeState {
    view.node(NodeId(id)).map_or(NodeState::Unknown, |node| node.state)
}

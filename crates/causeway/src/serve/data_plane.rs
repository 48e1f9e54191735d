//! The thread that serves clients: one runtime for sessions and monitors.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_proxy::console::Console;
use causeway_proxy::ControlPlane;
use causeway_proxy::{Listener, Metrics, Proxy};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::epoch;
use super::listeners::{Bound, Place};
use super::live::{Live, NamedCluster, ReloadAnswer};
use crate::assemble::{self, Users};
use crate::config::Config;
use crate::console::AdminConsole;
use crate::control::ClusterControl;

/// Everything a configuration needs that takes time or can fail, made before anything is changed.
pub struct Prepared {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its users.
    pub users: Users,
    /// All its places.
    pub places: Vec<Place>,
    /// Those that were not listened on before.
    pub bound: Vec<(Place, Bound)>,
}

/// What the data plane is told.
pub enum Order {
    /// Switch to this configuration; answered when it serves.
    Apply(Box<Prepared>, oneshot::Sender<()>),
    /// Stop accepting, let transactions end until the deadline, then cut them; answered with how many were cut.
    Drain(Instant, oneshot::Sender<usize>),
}

/// One place's sockets; dropping it stops accepting there.
struct Accepting {
    _tasks: JoinSet<()>,
}

struct DataPlane {
    live: Arc<Live>,
    console: Arc<dyn Console>,
    accepting: BTreeMap<Place, Accepting>,
    generation: u64,
}

/// Serves until drained. `announce` gets what is needed to watch the process, as soon as it exists.
///
/// # Errors
///
/// When a bound socket cannot be registered with the runtime.
pub async fn run(
    prepared: Prepared,
    reload_requests: mpsc::Sender<ReloadAnswer>,
    announce: oneshot::Sender<Arc<Live>>,
    mut orders: mpsc::Receiver<Order>,
) -> io::Result<()> {
    let Prepared { config, users, bound, .. } = prepared;
    let clusters: Vec<NamedCluster> = config.clusters.iter().map(|cluster| start(cluster, &config)).collect();
    let snapshot = assemble::snapshot(&config, users, controls(&config, &clusters), 0);
    let proxy = Proxy::new(snapshot, Arc::new(Metrics::default()));
    let live = Arc::new(Live::new(proxy, Arc::clone(&config), clusters, reload_requests));
    // Nobody to announce to means that the process is ending already.
    drop(announce.send(Arc::clone(&live)));
    settle(&config, &live).await;
    let console: Arc<dyn Console> = Arc::new(AdminConsole::new(Arc::clone(&live)));
    let mut plane = DataPlane { live, console, accepting: BTreeMap::new(), generation: 0 };
    plane.accept(bound)?;
    plane.live.set_listening();
    tracing::info!(event = "started", "ready for clients");
    while let Some(order) = orders.recv().await {
        match order {
            Order::Apply(prepared, answer) => {
                plane.apply(*prepared)?;
                drop(answer.send(()));
            }
            Order::Drain(deadline, answer) => {
                plane.accepting.clear();
                drop(answer.send(plane.live.proxy.drain(deadline).await));
                break;
            }
        }
    }
    plane.live.clusters.load().iter().for_each(|named| named.cluster.shutdown());
    Ok(())
}

/// Starts a cluster's monitors with the lineage that was kept.
fn start(cluster: &crate::config::Cluster, config: &Config) -> NamedCluster {
    let running = Cluster::start(assemble::cluster_config(cluster));
    if let Some(state_dir) = &config.state_dir {
        match epoch::load(&epoch::file(state_dir, &cluster.name)) {
            Ok(Some(kept)) => running.remember(kept),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                    event = "epoch_unreadable",
                    cluster = cluster.name,
                    error = %error,
                    "the lineage that was kept cannot be read: the next one is chosen from the nodes that answer"
                );
            }
        }
    }
    NamedCluster { name: cluster.name.as_str().into(), cluster: running, kept: config.state_dir.is_some() }
}

fn controls(config: &Config, clusters: &[NamedCluster]) -> Vec<Arc<dyn ControlPlane>> {
    let control = |(cluster, named): (&crate::config::Cluster, &NamedCluster)| {
        let nodes = cluster.nodes.iter().map(|node| node.name.as_str().into()).collect();
        Arc::new(ClusterControl::new(named.cluster.clone(), nodes)) as Arc<dyn ControlPlane>
    };
    config.clusters.iter().zip(clusters).map(control).collect()
}

/// Waits until every node was tried once: a node that is down must not keep the others from serving.
async fn settle(config: &Config, live: &Live) {
    let slowest = config.clusters.iter().map(|cluster| cluster.check_timeout).max().unwrap_or_default();
    let deadline = Instant::now() + slowest + Duration::from_secs(1);
    for named in live.clusters.load().iter() {
        if !named.cluster.wait_settled(deadline).await {
            tracing::warn!(event = "not_settled", cluster = &*named.name, "not every node could be tried in time");
        }
    }
}

// === impl DataPlane ===

impl DataPlane {
    fn accept(&mut self, bound: Vec<(Place, Bound)>) -> io::Result<()> {
        for (place, bound) in bound {
            let mut tasks = JoinSet::new();
            match bound {
                Bound::Tcp(sockets) => {
                    for socket in sockets {
                        let address = socket.local_addr()?;
                        let listener = tokio::net::TcpListener::from_std(socket)?;
                        self.serve(Listener::Tcp(listener), &mut tasks);
                        tracing::info!(event = "listening", address = %address, "clients can connect");
                    }
                }
                Bound::Unix(socket, file) => {
                    let listener = tokio::net::UnixListener::from_std(socket)?;
                    self.serve(Listener::Unix(listener), &mut tasks);
                    // The file goes when accepting ends.
                    tasks.spawn(async move {
                        let _file = file;
                        std::future::pending::<()>().await;
                    });
                    tracing::info!(event = "listening", address = %place, "clients can connect");
                }
            }
            self.accepting.insert(place, Accepting { _tasks: tasks });
        }
        Ok(())
    }

    fn serve(&self, listener: Listener, tasks: &mut JoinSet<()>) {
        let (proxy, console) = (self.live.proxy.clone(), Arc::clone(&self.console));
        tasks.spawn(async move { proxy.serve(listener, console).await });
    }

    /// Switches to another configuration. No await: no session sees the one half without the other.
    fn apply(&mut self, prepared: Prepared) -> io::Result<()> {
        let Prepared { config, users, places, bound } = prepared;
        let former = self.live.clusters.load_full();
        let follow = |cluster: &crate::config::Cluster| {
            let Some(named) = former.iter().find(|named| *named.name == *cluster.name) else {
                return start(cluster, &config);
            };
            named.cluster.reconfigure(assemble::cluster_config(cluster));
            NamedCluster { kept: config.state_dir.is_some(), ..named.clone() }
        };
        let clusters: Vec<NamedCluster> = config.clusters.iter().map(follow).collect();
        self.generation += 1;
        let snapshot = assemble::snapshot(&config, users, controls(&config, &clusters), self.generation);
        self.live.proxy.apply(snapshot);
        let gone = former.iter().filter(|old| !clusters.iter().any(|new| new.name == old.name));
        gone.for_each(|old| old.cluster.shutdown());
        self.live.clusters.store(Arc::new(clusters));
        self.live.config.store(config);
        self.accepting.retain(|place, _| places.contains(place));
        self.accept(bound)
    }
}

//! The thread that serves clients: one runtime for sessions and monitors.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_proxy::ControlPlane;
use causeway_proxy::console::Console;
use causeway_proxy::{Listener, Metrics, Proxy};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::epoch;
use super::inherited::Owner;
use super::listeners::{Bound, Place, SocketFile};
use super::live::{Live, NamedCluster, ReloadAnswer};
use super::successor::Given;
use crate::assemble::{self, Users};
use crate::config::Config;
use crate::console::AdminConsole;
use crate::control::ClusterControl;

/// Everything a configuration needs that takes time or can fail, made before anything is changed.
pub(super) struct Prepared {
    /// The configuration.
    pub(super) config: Arc<Config>,
    /// Its users.
    pub(super) users: Users,
    /// All its places.
    pub(super) places: Vec<Place>,
    /// Those that were not listened on before.
    pub(super) bound: Vec<(Place, Bound)>,
}

/// What the data plane is told.
pub(super) enum Order {
    /// Switch to this configuration; answered when it serves, or when its sockets cannot be registered and nothing
    /// was changed.
    Apply(Box<Prepared>, oneshot::Sender<io::Result<()>>),
    /// Duplicate every listening socket.
    Lend(oneshot::Sender<io::Result<Vec<Given>>>),
    /// Stop accepting: another process does. Sessions go on.
    Retire(oneshot::Sender<()>),
    /// Stop accepting, let transactions end until the deadline, then cut them; answered with how many were cut.
    Drain(Instant, oneshot::Sender<usize>),
}

/// One place's sockets; dropping it stops accepting there.
struct Accepting {
    _tasks: JoinSet<()>,
    listeners: Vec<(Arc<Listener>, Owner)>,
    file: Option<SocketFile>,
}

/// One place's sockets as the runtime knows them, each with its address for the log.
struct Registered {
    place: Place,
    listeners: Vec<(Listener, String, Owner)>,
    file: Option<SocketFile>,
}

struct DataPlane {
    live: Arc<Live>,
    console: Arc<dyn Console>,
    accepting: BTreeMap<Place, Accepting>,
    /// Each follows one cluster's primary; one more minds the clients' timeouts.
    followers: JoinSet<()>,
    generation: u64,
}

/// Serves until drained. `announce` gets what is needed to watch the process, as soon as it exists.
///
/// # Errors
///
/// When a bound socket cannot be registered with the runtime.
pub(super) async fn run(
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
    let mut plane =
        DataPlane { live, console, accepting: BTreeMap::new(), followers: JoinSet::new(), generation: 0 };
    plane.follow();
    plane.accept(register(bound)?);
    plane.live.set_listening();
    tracing::info!(event = "started", "ready for clients");
    while let Some(order) = orders.recv().await {
        match order {
            Order::Apply(prepared, answer) => {
                // Whoever asked may have given up.
                answer.send(plane.apply(*prepared)).ok();
            }
            Order::Lend(answer) => {
                answer.send(plane.lend()).ok();
            }
            Order::Retire(answer) => {
                let accepting = std::mem::take(&mut plane.accepting);
                accepting.into_values().filter_map(|accepting| accepting.file).for_each(SocketFile::leave);
                answer.send(()).ok();
            }
            Order::Drain(deadline, answer) => {
                plane.accepting.clear();
                answer.send(plane.live.proxy.drain(deadline).await).ok();
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
            tracing::warn!(
                event = "not_settled",
                cluster = &*named.name,
                "not every node could be tried in time"
            );
        }
    }
}

/// Registers bound sockets with the runtime.
fn register(bound: Vec<(Place, Bound)>) -> io::Result<Vec<Registered>> {
    let tcp = |(socket, owner): (std::net::TcpListener, Owner)| {
        let address = socket.local_addr()?.to_string();
        Ok((Listener::Tcp(tokio::net::TcpListener::from_std(socket)?), address, owner))
    };
    let place = |(place, bound): (Place, Bound)| {
        let (listeners, file) = match bound {
            Bound::Tcp(sockets) => (sockets.into_iter().map(tcp).collect::<io::Result<_>>()?, None),
            Bound::Unix(socket, file) => {
                let listener = Listener::Unix(tokio::net::UnixListener::from_std(socket)?);
                (vec![(listener, place.to_string(), file.owner())], Some(file))
            }
        };
        Ok(Registered { place, listeners, file })
    };
    bound.into_iter().map(place).collect()
}

// === impl DataPlane ===

impl DataPlane {
    fn accept(&mut self, registered: Vec<Registered>) {
        for Registered { place, listeners, file } in registered {
            let mut tasks = JoinSet::new();
            let mut shared = Vec::with_capacity(listeners.len());
            for (listener, address, owner) in listeners {
                let listener = Arc::new(listener);
                shared.push((Arc::clone(&listener), owner));
                let (proxy, console) = (self.live.proxy.clone(), Arc::clone(&self.console));
                tasks.spawn(async move { proxy.serve(listener, console).await });
                tracing::info!(event = "listening", address, "clients can connect");
            }
            self.accepting.insert(place, Accepting { _tasks: tasks, listeners: shared, file });
        }
    }

    /// Every listening socket once more.
    fn lend(&self) -> io::Result<Vec<Given>> {
        let listeners = self.accepting.values().flat_map(|accepting| &accepting.listeners);
        let give = |(listener, owner): &(Arc<Listener>, Owner)| {
            Ok(Given { socket: listener.duplicate()?, owner: *owner })
        };
        listeners.map(give).collect()
    }

    /// Follows the primaries of the configuration in force.
    fn follow(&mut self) {
        self.followers = JoinSet::new();
        for cluster in self.live.proxy.snapshot().clusters.iter().cloned() {
            let proxy = self.live.proxy.clone();
            self.followers.spawn(async move { proxy.follow(&cluster.name, cluster.control).await });
        }
        let proxy = self.live.proxy.clone();
        self.followers.spawn(async move { proxy.enforce_timeouts().await });
    }

    /// Switches to another configuration. No await: no session sees the one half without the other.
    fn apply(&mut self, prepared: Prepared) -> io::Result<()> {
        let Prepared { config, users, places, bound } = prepared;
        let registered = register(bound)?;
        let former = self.live.clusters.load_full();
        let follow = |cluster: &crate::config::Cluster| {
            let Some(named) = former.iter().find(|named| *named.name == *cluster.name) else {
                return start(cluster, &config);
            };
            named.cluster.reconfigure(self.live.drained.cluster_config(cluster));
            NamedCluster { kept: config.state_dir.is_some(), ..named.clone() }
        };
        let clusters: Vec<NamedCluster> = config.clusters.iter().map(follow).collect();
        self.generation += 1;
        let mut snapshot = assemble::snapshot(&config, users, controls(&config, &clusters), self.generation);
        // Clients of the same certificate may go on resuming their TLS sessions.
        if let (Some(tls), Some(former)) = (&mut snapshot.tls, &self.live.proxy.snapshot().tls)
            && former.server.shows_same(&tls.server)
        {
            tls.server = former.server.clone();
        }
        self.live.proxy.apply(snapshot);
        let gone = former.iter().filter(|old| !clusters.iter().any(|new| new.name == old.name));
        gone.for_each(|old| old.cluster.shutdown());
        self.live.clusters.store(Arc::new(clusters));
        self.live.config.store(config);
        self.follow();
        self.accepting.retain(|place, _| places.contains(place));
        self.accept(registered);
        Ok(())
    }
}

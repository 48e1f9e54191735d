//! A running process without sockets, for tests.

use std::path::Path;
use std::sync::Arc;

use causeway_cluster::Cluster;
use causeway_proxy::{Metrics, Proxy};
use tokio::sync::mpsc;

use crate::assemble;
use crate::config::{self, Config};
use crate::control::ClusterControl;
use crate::serve::live::{Live, NamedCluster, ReloadAnswer};

/// Two nodes at which nobody listens.
pub(crate) const YAML: &str = "\
clusters:
  main:
    nodes:
      - { name: pg-0, address: \"127.0.0.1:1\", weight: 3 }
      - { name: pg-1, address: \"127.0.0.1:2\" }
    monitor: { user: causeway, password: monitor-s3cret }
databases: { \"*\": {}, app: { pool: { size: 7, mode: session }, consistency: { default: eventual } } }
users: { app: { password: app-s3cret } }
admin: { users: [operator] }
";

/// The configuration that `yaml` means.
pub(crate) fn config(yaml: &str) -> Config {
    config::parse(Path::new("c.yaml"), yaml, &|_| None).unwrap()
}

/// The process that runs on `yaml`, and the reloads that are asked of it.
pub(crate) fn live(yaml: &str) -> (Arc<Live>, mpsc::Receiver<ReloadAnswer>) {
    let config = Arc::new(config(yaml));
    let named = |cluster: &config::Cluster| NamedCluster {
        name: cluster.name.as_str().into(),
        cluster: Cluster::start(assemble::cluster_config(cluster)),
        kept: false,
    };
    let clusters: Vec<NamedCluster> = config.clusters.iter().map(named).collect();
    let control = |(configured, named): (&config::Cluster, &NamedCluster)| {
        let nodes = configured.nodes.iter().map(|node| node.name.as_str().into()).collect();
        Arc::new(ClusterControl::new(named.cluster.clone(), nodes)) as Arc<dyn causeway_proxy::ControlPlane>
    };
    let controls = config.clusters.iter().zip(&clusters).map(control).collect();
    let snapshot = assemble::snapshot(&config, assemble::users(&config), controls, 0);
    let (requests, received) = mpsc::channel(1);
    let proxy = Proxy::new(snapshot, Arc::new(Metrics::default()));
    (Arc::new(Live::new(proxy, config, clusters, requests)), received)
}

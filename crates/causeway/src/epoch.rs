//! `causeway epoch`: the kept lineage of a cluster, for an operator who knows better.

use std::path::PathBuf;
use std::time::Duration;

use causeway_cluster::{Cluster, Epoch};
use causeway_routing::Switch;
use tokio::time::Instant;

use crate::assemble;
use crate::cli::{complain, say};
use crate::config::{self, Config};
use crate::exit::Exit;
use crate::serve::epoch::{file, load, store};
use crate::serve::{self, Options};

/// How long the nodes may take to tell who is the primary, beside the time of a check.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints what is kept of the clusters.
pub fn show(options: &Options, only: Option<&str>) -> Exit {
    let (config, state_dir) = match prepared(options) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    if let Some(name) = only
        && named(&config, name).is_none()
    {
        return Exit::Usage;
    }
    let wanted = |cluster: &&config::Cluster| only.is_none_or(|name| cluster.name == name);
    for cluster in config.clusters.iter().filter(wanted) {
        match load(&file(&state_dir, &cluster.name)) {
            Ok(Some(epoch)) => say(described(&cluster.name, &epoch)),
            Ok(None) => say(format_args!("{}: nothing is kept\n", cluster.name)),
            Err(error) => {
                complain(&format_args!("{}: {error}", file(&state_dir, &cluster.name).display()));
                return Exit::Unavailable;
            }
        }
    }
    Exit::Done
}

/// Asks the nodes of a cluster and keeps the lineage of the primary that answers.
pub fn accept(options: &Options, name: &str) -> Exit {
    let (config, state_dir) = match prepared(options) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    let Some(cluster) = named(&config, name) else { return Exit::Usage };
    let epoch = match found(cluster) {
        Ok(epoch) => epoch,
        Err(why) => {
            complain(&format_args!("{name}: no primary to accept: {why}; nothing was changed"));
            return Exit::Unavailable;
        }
    };
    if let Err(error) = store(&file(&state_dir, name), &epoch) {
        complain(&format_args!("{}: {error}", file(&state_dir, name).display()));
        return Exit::Unavailable;
    }
    say(format_args!("accepted: {}", described(name, &epoch)));
    Exit::Done
}

fn prepared(options: &Options) -> Result<(Config, PathBuf), Exit> {
    let config = serve::load(&options.file).map_err(|error| {
        complain(&error);
        Exit::Config
    })?;
    let Some(state_dir) = config.state_dir.clone() else {
        complain(&format_args!("{}: without state_dir nothing is kept", options.file.display()));
        return Err(Exit::Config);
    };
    Ok((config, state_dir))
}

fn named<'a>(config: &'a Config, name: &str) -> Option<&'a config::Cluster> {
    let found = config.clusters.iter().find(|cluster| cluster.name == name);
    if found.is_none() {
        complain(&format_args!("no cluster is called \"{name}\""));
    }
    found
}

/// The lineage of the primary that answers now, whatever was kept.
fn found(cluster: &config::Cluster) -> Result<Epoch, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let deadline = Instant::now() + cluster.check_timeout + PATIENCE;
        let running = Cluster::start(assemble::cluster_config(cluster));
        running.wait_settled(deadline).await;
        let view = running.view();
        let epoch = running.epoch().filter(|_| view.primary.is_some());
        running.shutdown();
        epoch.ok_or_else(|| view.complaint.as_deref().unwrap_or("none answers").to_owned())
    })
}

/// One line.
fn described(name: &str, epoch: &Epoch) -> String {
    let Epoch { system_id, timeline, .. } = epoch;
    let writer = match &epoch.writer {
        Some(writer) => format!("written by {} ({})", writer.name, writer.address),
        None => "no primary seen on it".to_owned(),
    };
    format!("{name}: system {system_id}, timeline {timeline}, {writer}, {}\n", past(epoch))
}

/// Where a timeline comes from, in words.
pub(crate) fn past(epoch: &Epoch) -> String {
    let switch = |Switch { timeline, lsn }: &Switch| format!("{timeline} up to {lsn}");
    match epoch.ancestors.as_deref() {
        Some([]) | None if epoch.timeline > 1 => "ancestors unknown".to_owned(),
        Some([]) | None => "no ancestors".to_owned(),
        Some(list) => format!("after {}", list.iter().map(switch).collect::<Vec<_>>().join(", ")),
    }
}

//! Reading the configuration again: everything that can fail happens before anything is changed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Options;
use super::data_plane::{Order, Prepared};
use super::epoch;
use super::inherited::{Inherited, Owner};
use super::listeners::{self, BindError, Bound, Place};
use super::live::{Live, ReloadError};
use super::successor::Given;
use crate::assemble;
use crate::config::Config;
use crate::http;
use crate::logging::LevelHandle;

/// Applies configurations to the running process. Lives on the control thread.
pub(super) struct Reloader {
    live: Arc<Live>,
    orders: mpsc::Sender<Order>,
    options: Options,
    level: LevelHandle,
    places: Vec<Place>,
    http: JoinSet<()>,
    /// Those of `http` once more, to be given away.
    http_sockets: Vec<(OwnedFd, Owner)>,
    epochs: JoinSet<()>,
}

/// Makes all that `config` needs; `present` are the places that are listened on already. Slow: passwords become
/// verifiers.
pub(super) fn prepare(
    config: Config,
    present: &[Place],
    inherited: &mut Inherited,
) -> Result<Prepared, BindError> {
    let places = listeners::places(&config);
    let bound = listeners::bind_new(&places, present, inherited)?;
    Ok(Prepared { users: assemble::users(&config), config: Arc::new(config), places, bound })
}

/// Logs what an operator should know of a configuration that begins to serve.
pub(super) fn warn_about(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!(event = "config_warning", "{warning}");
    }
}

// === impl Reloader ===

impl Reloader {
    /// For a process that serves `first` already.
    pub(super) fn new(
        live: Arc<Live>,
        orders: mpsc::Sender<Order>,
        options: Options,
        level: LevelHandle,
        first: (Arc<Config>, Vec<Place>),
    ) -> Self {
        let (config, places) = first;
        let mut reloader = Self {
            live,
            orders,
            options,
            level,
            places,
            http: JoinSet::new(),
            http_sockets: Vec::new(),
            epochs: JoinSet::new(),
        };
        reloader.follow_epochs(&config);
        reloader
    }

    /// Serves metrics and health on `bound`, and no longer where they were served before.
    pub(super) fn serve_http(&mut self, bound: Bound) -> io::Result<()> {
        let mut tasks = JoinSet::new();
        let mut kept = Vec::new();
        if let Bound::Tcp(sockets) = bound {
            for (socket, owner) in sockets {
                kept.push((socket.as_fd().try_clone_to_owned()?, owner));
                let address = socket.local_addr()?;
                let listener = tokio::net::TcpListener::from_std(socket)?;
                tasks.spawn(http::serve(listener, Arc::clone(&self.live)));
                tracing::info!(event = "http_listening", address = %address, "metrics and health are served");
            }
        }
        self.http = tasks;
        self.http_sockets = kept;
        Ok(())
    }

    /// Every listening socket once more, those of HTTP among them.
    pub(super) async fn lend(&self) -> io::Result<Vec<Given>> {
        let (answer, lent) = oneshot::channel();
        let ended = || io::Error::other("the data plane has ended");
        self.orders.send(Order::Lend(answer)).await.map_err(|_gone| ended())?;
        let mut given = lent.await.map_err(|_gone| ended())??;
        for (socket, owner) in &self.http_sockets {
            given.push(Given { socket: socket.try_clone()?, owner: *owner });
        }
        Ok(given)
    }

    /// Leaves listeners, HTTP and the lineages to the process that follows; sessions go on.
    pub(super) async fn retire(&mut self) {
        let (answer, retired) = oneshot::channel();
        if self.orders.send(Order::Retire(answer)).await.is_ok() {
            // A data plane that has ended accepts nobody either.
            retired.await.ok();
        }
        self.http = JoinSet::new();
        self.http_sockets = Vec::new();
        self.epochs = JoinSet::new();
    }

    /// Reads the file and applies it, whole or not at all; the outcome is logged and counted.
    pub(super) async fn reload(&mut self) -> Result<(), ReloadError> {
        let outcome = self.try_reload().await;
        self.live.reloads.count(outcome.is_ok());
        match &outcome {
            Ok(()) => tracing::info!(event = "reloaded", "the configuration was reloaded"),
            Err(error) => tracing::error!(
                event = "reload_failed",
                error = %error,
                "the configuration was not reloaded: the old one keeps serving"
            ),
        }
        outcome
    }

    async fn try_reload(&mut self) -> Result<(), ReloadError> {
        let (file, places) = (self.options.file.clone(), self.places.clone());
        let serving = self.live.config.load_full();
        let http = (serving.http.clone(), serving.log_format);
        let read = move || -> Result<(Prepared, Option<Bound>), ReloadError> {
            let config = super::load(&file)?;
            let mut none = Inherited::default();
            let bind = || listeners::bind(&(&config.http).into(), &mut none);
            let http = (config.http != http.0).then(bind).transpose().map_err(refused)?;
            Ok((prepare(config, &places, &mut Inherited::default()).map_err(refused)?, http))
        };
        let read = tokio::task::spawn_blocking(read).await;
        let (prepared, new_http) = read.unwrap_or(Err(ReloadError::ShuttingDown))?;
        let config = Arc::clone(&prepared.config);
        let places = prepared.places.clone();
        let (answer, applied) = oneshot::channel();
        let order = Order::Apply(Box::new(prepared), answer);
        if self.orders.send(order).await.is_err() {
            return Err(ReloadError::ShuttingDown);
        }
        match applied.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(ReloadError::Sockets(Arc::new(error))),
            Err(_) => return Err(ReloadError::ShuttingDown),
        }
        self.places = places;
        self.level.set(self.options.log_level.unwrap_or(config.log_level));
        if config.log_format != http.1 {
            tracing::warn!(
                event = "needs_restart",
                key = "log.format",
                "the change takes effect after a restart"
            );
        }
        self.follow_epochs(&config);
        warn_about(&config);
        match new_http.map(|bound| self.serve_http(bound)) {
            Some(Err(error)) => {
                tracing::error!(event = "http_failed", error = %error, "metrics are no longer served");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keeps the lineages of the clusters that serve now.
    fn follow_epochs(&mut self, config: &Config) {
        self.epochs = JoinSet::new();
        let Some(state_dir) = &config.state_dir else {
            tracing::warn!(
                event = "no_state_dir",
                "without state_dir a stale primary cannot be told after a restart if it alone answers"
            );
            return;
        };
        for named in self.live.clusters.load().iter() {
            let file = epoch::file(state_dir, &named.name);
            self.epochs.spawn(epoch::follow(named.cluster.clone(), named.name.to_string(), file));
        }
    }
}

fn refused(error: BindError) -> ReloadError {
    ReloadError::Bind(Arc::new(error))
}

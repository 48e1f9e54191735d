//! `causeway run`: the data plane on a thread of its own; signals, reloads and HTTP on this one, so that a scrape or
//! the reading of a file never stalls a session.

mod data_plane;
pub(crate) mod epoch;
pub mod listeners;
pub mod live;
mod open_files;
mod reload;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use self::data_plane::{Order, Prepared};
use self::listeners::Bound;
use self::live::{Live, ReloadAnswer};
use self::reload::Reloader;
use crate::config::{Config, ConfigError, LogFormat, LogLevel};
use crate::exit::Exit;
use crate::logging::{self, LevelHandle};

/// A signal that comes again so soon is the same wish: `timeout(1)` signals its child and then the child's group.
const REPEAT: Duration = Duration::from_millis(250);

/// What the command line says about `causeway run`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The YAML file.
    pub file: PathBuf,
    /// Instead of `log.level`.
    pub log_level: Option<LogLevel>,
    /// Instead of `log.format`.
    pub log_format: Option<LogFormat>,
}

/// The signals that mean something.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Reload,
    ShutDown,
    Quit,
}

/// The data plane's thread, seen from this one.
struct Thread {
    announced: oneshot::Receiver<Arc<Live>>,
    orders: mpsc::Sender<Order>,
    reload_requests: mpsc::Receiver<ReloadAnswer>,
    ended: oneshot::Receiver<io::Result<()>>,
}

/// Serves until a signal ends it.
pub fn run(options: &Options) -> Exit {
    let config = match load(&options.file) {
        Ok(config) => config,
        Err(error) => {
            crate::cli::complain(&error);
            return Exit::Config;
        }
    };
    let format = options.log_format.unwrap_or(config.log_format);
    let level = match logging::start(options.log_level.unwrap_or(config.log_level), format) {
        Ok(level) => level,
        Err(error) => {
            crate::cli::complain(&error);
            return Exit::Panicked;
        }
    };
    logging::log_panics();
    serve(config, options, &level).unwrap_or_else(|error| {
        tracing::error!(event = "not_started", error = %error, "cannot start");
        Exit::Unavailable
    })
}

/// Reads the file with the process' environment.
///
/// # Errors
///
/// As [`crate::config::load`].
pub fn load(file: &Path) -> Result<Config, ConfigError> {
    crate::config::load(file, &|name| std::env::var(name).ok())
}

fn serve(config: Config, options: &Options, level: &LevelHandle) -> io::Result<Exit> {
    let runtime = new_runtime()?;
    let http = listeners::bind(&(&config.http).into()).map_err(io::Error::other)?;
    let prepared = reload::prepare(config, &[]).map_err(io::Error::other)?;
    reload::warn_about(&prepared.config);
    open_files::raise_limit(prepared.config.max_clients as usize);
    let signals = {
        let _guard = runtime.enter();
        Signals::new()?
    };
    let first = (Arc::clone(&prepared.config), prepared.places.clone());
    let thread = start_data_plane(prepared)?;
    runtime.block_on(control(
        thread,
        signals,
        |live, orders| Reloader::new(live, orders, options.clone(), level.clone(), first),
        http,
    ))
}

fn new_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn start_data_plane(prepared: Prepared) -> io::Result<Thread> {
    let (announce, announced) = oneshot::channel();
    let (orders, received_orders) = mpsc::channel(1);
    let (requests, reload_requests) = mpsc::channel(16);
    let (end, ended) = oneshot::channel();
    let runtime = new_runtime()?;
    let body = move || {
        let outcome = runtime.block_on(data_plane::run(prepared, requests, announce, received_orders));
        // Tasks hold what must be given back: files of sockets, connections.
        runtime.shutdown_timeout(Duration::from_secs(1));
        // Nobody listens any more when this thread was told to end.
        drop(end.send(outcome));
    };
    std::thread::Builder::new().name("data-plane".to_owned()).spawn(body)?;
    Ok(Thread { announced, orders, reload_requests, ended })
}

/// Watches over the data plane until the process shall end.
async fn control(
    mut thread: Thread,
    mut signals: Signals,
    reloader: impl FnOnce(Arc<Live>, mpsc::Sender<Order>) -> Reloader,
    http: Bound,
) -> io::Result<Exit> {
    let Ok(live) = (&mut thread.announced).await else { return thread_end(thread.ended.await) };
    let mut reloader = reloader(Arc::clone(&live), thread.orders.clone());
    reloader.serve_http(http)?;
    loop {
        tokio::select! {
            wish = signals.next() => match wish {
                Wish::Reload => {
                    // The outcome has been logged and counted.
                    drop(reloader.reload().await);
                }
                Wish::ShutDown => {
                    let exit = shut_down(&live, &thread.orders, &mut signals).await;
                    if exit != Exit::Panicked {
                        // A thread that cannot end in time goes with the process.
                        timeout(Duration::from_secs(2), thread.ended).await.ok();
                    }
                    return Ok(exit);
                }
                Wish::Quit => {
                    tracing::warn!(event = "quit", "SIGQUIT: every session is cut");
                    live.proxy.cut_all();
                    return Ok(Exit::Done);
                }
            },
            Some(answer) = thread.reload_requests.recv() => {
                // Whoever asked may have left.
                drop(answer.send(reloader.reload().await));
            }
            ended = &mut thread.ended => return thread_end(ended),
        }
    }
}

/// The data plane has ended by itself, which it never should.
fn thread_end(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> io::Result<Exit> {
    if let Ok(Err(error)) = ended {
        return Err(error);
    }
    tracing::error!(event = "data_plane_ended", "the data plane's thread has ended");
    Ok(Exit::Panicked)
}

/// Readiness off, then no more clients, then no more transactions.
async fn shut_down(live: &Live, orders: &mpsc::Sender<Order>, signals: &mut Signals) -> Exit {
    live.set_draining();
    let timeouts = live.config.load().timeouts.clone();
    tracing::info!(
        event = "draining",
        delay_ms = millis(timeouts.drain_delay),
        timeout_ms = millis(timeouts.shutdown_timeout),
        "shutting down; another signal cuts every session"
    );
    let drain = async {
        tokio::time::sleep(timeouts.drain_delay).await;
        let (answer, cut) = oneshot::channel();
        let deadline = Instant::now() + timeouts.shutdown_timeout;
        match orders.send(Order::Drain(deadline, answer)).await {
            Ok(()) => cut.await.ok(),
            Err(_) => None,
        }
    };
    tokio::select! {
        cut = drain => match cut {
            Some(0) => {
                tracing::info!(event = "stopped", "every session has ended");
                Exit::Done
            }
            Some(cut) => {
                tracing::warn!(event = "stopped", cut, "sessions were cut at the end of shutdown_timeout");
                Exit::DrainCut
            }
            None => Exit::Panicked,
        },
        () = signals.second() => {
            tracing::warn!(event = "stopped", "a second signal: every session is cut");
            live.proxy.cut_all();
            Exit::DrainCut
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Signals ===

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// The next signal. Cancel-safe.
    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.terminate.recv() => Wish::ShutDown,
            _ = self.interrupt.recv() => Wish::ShutDown,
            _ = self.quit.recv() => Wish::Quit,
        }
    }

    /// The signal that ends a shutdown under way. Cancel-safe, but a repeat is then judged anew.
    async fn second(&mut self) {
        let first = Instant::now();
        loop {
            match self.next().await {
                Wish::Quit => return,
                Wish::ShutDown if first.elapsed() > REPEAT => return,
                Wish::ShutDown | Wish::Reload => {}
            }
        }
    }
}

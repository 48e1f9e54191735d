//! `causeway run`: the data plane on a thread of its own; signals, reloads and HTTP on this one, so that a scrape or
//! the reading of a file never stalls a session.

mod data_plane;
pub(crate) mod epoch;
mod handover;
pub mod inherited;
pub mod listeners;
pub mod live;
mod notify;
mod open_files;
mod reload;
mod successor;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::data_plane::{Order, Prepared};
use self::inherited::Inherited;
use self::live::{Live, ReloadAnswer};
use self::reload::Reloader;
pub use self::successor::Program;
use self::successor::{Event, Successor};
use crate::config::{Config, ConfigError, LogFormat, LogLevel};
use crate::exit::Exit;
use crate::logging::{self, LevelHandle};
use crate::status;

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
    /// What SIGUSR2 starts in place of this process; `None`: nothing.
    pub successor: Option<Program>,
}

/// The signals that mean something.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hand_over: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Reload,
    HandOver,
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

/// Watches over the data plane until the process shall end.
struct Control {
    live: Arc<Live>,
    thread: Thread,
    signals: Signals,
    reloader: Reloader,
    program: Option<Program>,
    /// Started and not serving yet.
    successor: Option<Successor>,
}

/// Serves until a signal ends it.
pub fn run(options: &Options) -> Exit {
    // Before there is a second thread, since it changes the environment.
    let inherited = Inherited::take();
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
    let inherited = match inherited {
        Ok(inherited) => inherited,
        Err(error) => {
            tracing::error!(event = "not_started", error = %error, "a socket that was given cannot be listened on");
            return Exit::Unavailable;
        }
    };
    serve(config, options, &level, inherited).unwrap_or_else(|error| {
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

fn serve(
    config: Config,
    options: &Options,
    level: &LevelHandle,
    mut inherited: Inherited,
) -> io::Result<Exit> {
    let runtime = new_runtime()?;
    let http = listeners::bind(&(&config.http).into(), &mut inherited).map_err(io::Error::other)?;
    let prepared = reload::prepare(config, &[], &mut inherited).map_err(io::Error::other)?;
    let predecessor = inherited.finish();
    reload::warn_about(&prepared.config);
    open_files::raise_limit(prepared.config.max_clients as usize);
    let signals = {
        let _guard = runtime.enter();
        Signals::new()?
    };
    let first = (Arc::clone(&prepared.config), prepared.places.clone());
    let mut thread = start_data_plane(prepared)?;
    runtime.block_on(async move {
        let Ok(live) = (&mut thread.announced).await else { return thread_end(thread.ended.await) };
        let mut reloader =
            Reloader::new(Arc::clone(&live), thread.orders.clone(), options.clone(), level.clone(), first);
        reloader.serve_http(http)?;
        let mut recorder = JoinSet::new();
        recorder.spawn(status::record(Arc::clone(&live)));
        let announcing = tokio::spawn(handover::announce(Arc::clone(&live), predecessor));
        let control =
            Control { live, thread, signals, reloader, program: options.successor.clone(), successor: None };
        let exit = control.run().await;
        announcing.abort();
        exit
    })
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

/// The data plane has ended by itself, which it never should.
fn thread_end(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> io::Result<Exit> {
    if let Ok(Err(error)) = ended {
        return Err(error);
    }
    tracing::error!(event = "data_plane_ended", "the data plane's thread has ended");
    Ok(Exit::Panicked)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Control ===

impl Control {
    async fn run(mut self) -> io::Result<Exit> {
        loop {
            let successor = self.successor.as_mut();
            tokio::select! {
                wish = self.signals.next() => match wish {
                    Wish::Reload => {
                        // The outcome has been logged and counted.
                        drop(self.reloader.reload().await);
                    }
                    Wish::HandOver => self.start_successor().await,
                    Wish::ShutDown => {
                        if let Some(successor) = self.successor.take() {
                            successor.end().await;
                        }
                        notify::tell(notify::STOPPING);
                        let delay = self.live.config.load().timeouts.drain_delay;
                        return Ok(self.shut_down(delay).await);
                    }
                    Wish::Quit => return Ok(self.quit()),
                },
                event = handover::next(successor) => match event {
                    Event::Ready => {
                        if let Some(successor) = self.successor.take() {
                            return Ok(self.retire(successor).await);
                        }
                    }
                    Event::Cancel(key) => self.live.proxy.cancel_for_successor(&key).await,
                    Event::Failed(why) => self.forget_successor(&why).await,
                },
                Some(answer) = self.thread.reload_requests.recv() => {
                    // Whoever asked may have left.
                    drop(answer.send(self.reloader.reload().await));
                }
                ended = &mut self.thread.ended => return thread_end(ended),
            }
        }
    }

    fn quit(&self) -> Exit {
        tracing::warn!(event = "quit", "SIGQUIT: every session is cut");
        self.live.proxy.cut_all();
        Exit::Done
    }

    /// Readiness off, then no more clients, then no more transactions, then the data plane's end.
    async fn shut_down(&mut self, delay: Duration) -> Exit {
        self.live.set_draining();
        let timeout_after = self.live.config.load().timeouts.shutdown_timeout;
        tracing::info!(
            event = "draining",
            delay_ms = millis(delay),
            timeout_ms = millis(timeout_after),
            "shutting down; another signal cuts every session"
        );
        let orders = self.thread.orders.clone();
        let drain = async {
            tokio::time::sleep(delay).await;
            let (answer, cut) = oneshot::channel();
            let deadline = Instant::now() + timeout_after;
            match orders.send(Order::Drain(deadline, answer)).await {
                Ok(()) => cut.await.ok(),
                Err(_) => None,
            }
        };
        let exit = tokio::select! {
            cut = drain => match cut {
                Some(0) => {
                    tracing::info!(event = "stopped", "every session has ended");
                    Exit::Done
                }
                Some(cut) => {
                    tracing::warn!(event = "stopped", cut, "sessions were cut at the end of shutdown_timeout");
                    Exit::DrainCut
                }
                None => return Exit::Panicked,
            },
            () = self.signals.second() => {
                tracing::warn!(event = "stopped", "a second signal: every session is cut");
                self.live.proxy.cut_all();
                Exit::DrainCut
            }
        };
        // A thread that cannot end in time goes with the process.
        timeout(Duration::from_secs(2), &mut self.thread.ended).await.ok();
        exit
    }
}

// === impl Signals ===

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hand_over: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next signal. Cancel-safe.
    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.terminate.recv() => Wish::ShutDown,
            _ = self.interrupt.recv() => Wish::ShutDown,
            _ = self.quit.recv() => Wish::Quit,
            _ = self.hand_over.recv() => Wish::HandOver,
        }
    }

    /// The signal that ends a shutdown under way. Cancel-safe, but a repeat is then judged anew.
    async fn second(&mut self) {
        let first = Instant::now();
        loop {
            match self.next().await {
                Wish::Quit => return,
                Wish::ShutDown if first.elapsed() > REPEAT => return,
                Wish::ShutDown | Wish::Reload | Wish::HandOver => {}
            }
        }
    }
}

//! From one process to the next without a client that notices: the new one serves before the old one stops accepting, and
//! who is connected to the old one stays there until it leaves.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::inherited::Predecessor;
use super::live::Live;
use super::successor::{Event, LONGEST, READY, Successor};
use super::{Control, Wish, millis, notify};
use crate::exit::Exit;

/// Between two looks whether this process serves.
const PAUSE: Duration = Duration::from_millis(20);

/// How many cancel requests of the new process are worked on at once; what comes beyond waits in the socket.
const CANCELS: usize = 16;

/// What becomes of the process that was started; without one this never ends. Cancel-safe.
pub(super) async fn next(successor: Option<&mut Successor>) -> Event {
    match successor {
        Some(successor) => successor.event().await,
        None => std::future::pending().await,
    }
}

/// Tells whoever waits for it that this process serves: the one that it follows, or the service manager.
pub(super) async fn announce(live: Arc<Live>, predecessor: Option<Predecessor>) {
    let Some(Predecessor { link, was_ready }) = predecessor else {
        while !live.is_listening() {
            sleep(PAUSE).await;
        }
        return notify::tell(notify::READY);
    };
    let link = match link.try_clone() {
        Ok(asked) => {
            live.proxy.follows(asked);
            link
        }
        Err(error) => {
            tracing::warn!(event = "handover", %error, "cancel requests for the former process are not passed on");
            link
        }
    };
    while !live.is_listening() || (was_ready && live.ready().is_err()) {
        sleep(PAUSE).await;
    }
    if let Err(error) = link.send(READY) {
        tracing::error!(event = "handover", %error, "the former process has gone before this one was ready");
    }
}

// === impl Control ===

impl Control {
    /// Starts the process that shall take over.
    pub(super) async fn start_successor(&mut self) {
        let Some(program) = self.program.clone() else {
            tracing::warn!(
                event = "handover",
                "SIGUSR2: this process is not one that another one can follow"
            );
            return;
        };
        if self.successor.is_some() {
            tracing::info!(event = "handover", "SIGUSR2: a process is starting already");
            return;
        }
        let started = match self.reloader.lend().await {
            Ok(sockets) => program.start(sockets, self.live.ready().is_ok()),
            Err(error) => Err(error),
        };
        match started {
            Ok(successor) => {
                tracing::info!(
                    event = "handover",
                    pid = successor.pid(),
                    "a process has been started to take over"
                );
                self.successor = Some(successor);
            }
            Err(error) => tracing::error!(event = "handover_failed", %error, "this process keeps serving"),
        }
    }

    /// The process that was to take over does not.
    pub(super) async fn forget_successor(&mut self, why: &str) {
        if let Some(successor) = self.successor.take() {
            tracing::error!(event = "handover_failed", error = why, "this process keeps serving");
            successor.end().await;
        }
    }

    /// Another process serves: this one ends when its last client has left, or, after `handover_timeout`, drains.
    pub(super) async fn retire(&mut self, successor: Successor) -> Exit {
        let pid = successor.pid();
        notify::tell(&notify::main_pid(pid));
        self.reloader.retire().await;
        let link = successor.took_over();
        let patience = self.live.config.load().timeouts.handover_timeout;
        tracing::info!(
            event = "handed_over",
            pid,
            timeout_ms = millis(patience),
            "another process lets clients in from now on"
        );
        let deadline = Instant::now() + patience;
        let live = Arc::clone(&self.live);
        let mut deserted = std::pin::pin!(live.proxy.deserted());
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut deserted => break,
                () = sleep_until(deadline) => break,
                request = request(&link), if requests.len() < CANCELS => {
                    let proxy = live.proxy.clone();
                    requests.spawn(async move { proxy.cancel_for_successor(&request).await });
                }
                Some(_) = requests.join_next() => {}
                wish = self.signals.next() => match wish {
                    Wish::ShutDown => break,
                    Wish::Quit => return self.quit(),
                    Wish::Reload | Wish::HandOver => {
                        tracing::info!(event = "handed_over", pid, "the signal is for the process that has taken over");
                    }
                },
            }
        }
        self.shut_down(Duration::ZERO).await
    }
}

/// The next request. Once the other end has gone, there is none. Cancel-safe.
async fn request(link: &UnixDatagram) -> Vec<u8> {
    let mut datagram = vec![0; LONGEST];
    match link.recv(&mut datagram).await {
        Ok(length) => {
            datagram.truncate(length);
            datagram
        }
        Err(_) => std::future::pending().await,
    }
}

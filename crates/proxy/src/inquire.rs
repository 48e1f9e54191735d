//! What a session has left on its server connection, asked of the server before anybody else gets it.

use causeway_pool::{CloseReason, Seat};
use causeway_routing::PinReason;
use tokio::time::{Instant, timeout};

use crate::client::{Client, End};
use crate::login;
use crate::relay::{Event, server_gone};
use crate::scratch;
use crate::session::Connection;

/// How often a session looks whether the catalogue can judge what it has run.
const JUDGED_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// How long the rest of a unit may be on its way: longer than the acknowledgement that a socket of the client's may
/// wait for before it sends more (40 ms on Linux).
const UNIT_GATHERED: std::time::Duration = std::time::Duration::from_millis(60);

/// How long a server may take to reset its session, or to tell what is left in it.
const RESET_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

// === impl Client ===

impl Client {
    /// Asks what the finished transaction has left, and lets go of the connection if that is nothing.
    pub(crate) async fn inquire(&mut self) -> Result<(), End> {
        self.session.inquire(&mut self.to_server);
        self.unit_over = false;
        let Ok(asked) = timeout(RESET_TIMEOUT, self.wait_for_answer()).await else {
            self.discard(CloseReason::UnknownState);
            return Err(End::Report(server_gone(false)));
        };
        asked?;
        self.unit_over = false;
        let Some(held) = &mut self.held else { return Ok(()) };
        let settled = self.session.settle(&mut held.lease.books);
        let own = self.seat.as_ref().is_some_and(|seat| seat.is_of(&held.lease));
        if let Some(reason) = settled.pinned {
            self.home.metrics.pinned(reason);
        }
        self.show_pins();
        match settled.connection {
            Connection::Keep => {}
            // The schema is the next client's to see, unless the connection is this one's own as long as it stays.
            Connection::CheckIn if settled.had_temporary && !own => self.discard(CloseReason::UnknownState),
            Connection::CheckIn => {
                self.seat_has_schema |= settled.had_temporary;
                self.checkin(Instant::now());
            }
            Connection::Discard => self.discard(CloseReason::UnknownState),
        }
        Ok(())
    }

    async fn wait_for_answer(&mut self) -> Result<(), End> {
        loop {
            match self.event(false).await? {
                Event::Server => {
                    if self.take_server()?.is_some() {
                        return Ok(());
                    }
                }
                Event::Sent => return Ok(()),
                Event::ServerClosed => drop(self.server_lost()?),
                Event::Interrupted if self.entry.interrupts().kill => return Err(End::killed()),
                // Nothing of the client's runs that could be cancelled.
                Event::Interrupted => drop(self.entry.clear_cancel()),
                Event::Client | Event::Void => {}
            }
        }
    }

    /// Waits as an idle session does, but no longer than until the catalogue knows what this session has defined.
    pub(crate) async fn idle_unjudged(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if self.defined_until.is_some_and(|until| now < until) {
            return match timeout(JUDGED_EVERY, self.event(true)).await {
                Ok(event) => {
                    let event = event?;
                    self.happened(event)
                }
                Err(_) => Ok(()),
            };
        }
        self.session.judge_leftovers(self.home.catalogue(now));
        self.show_pins();
        if self.held.is_some() && self.session.has_questions() { self.inquire().await } else { Ok(()) }
    }

    /// Waits for the rest of a unit. A server answers each message when it has read it, so an error, or what COPY FROM STDIN
    /// asks for, must not wait for the Sync that may only come in answer to it: what there is runs after a moment.
    pub(crate) async fn idle_in_unit(&mut self) -> Result<(), End> {
        if let Ok(event) = timeout(UNIT_GATHERED, self.event(true)).await {
            let event = event?;
            return self.happened(event);
        }
        self.arrived = Instant::now();
        self.started = self.arrived;
        scratch::lend(&mut self.answer);
        scratch::lend(&mut self.to_server);
        self.session.run_open_unit();
        self.run_unit().await
    }

    /// Lets others know why the session keeps its connection.
    pub(crate) fn show_pins(&mut self) {
        let pins = self.session.pins();
        if self.pinned != pins {
            self.pinned = pins;
            self.entry.pin(pins);
        }
    }

    /// The client is gone: its own connection serves nobody else if there were temporary objects.
    pub(crate) fn close_seat_with_schema(&mut self) {
        if self.seat_has_schema
            && let Some(lease) = self.seat.as_ref().and_then(Seat::try_checkout)
        {
            lease.discard(CloseReason::ClientGone);
        }
    }

    /// Whether DISCARD ALL takes back all that the session has left: code that was loaded stays, and so does the
    /// state of `random()`.
    pub(crate) fn can_be_reset(&self) -> bool {
        let stays = [PinReason::Seed, PinReason::Load, PinReason::Procedure, PinReason::Other];
        let pins = self.session.pins();
        !stays.iter().any(|reason| pins.contains(*reason))
    }

    /// Takes back everything that a pinned session has left on its server connection, which then serves others.
    pub(crate) async fn reset(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        let reset = login::start_over(&mut held.lease);
        match tokio::time::timeout(RESET_TIMEOUT, reset).await {
            Ok(Ok(true)) => {
                held.lease.books.settings.clear();
                held.lease.books.statements.clear();
                held.lease.books.unnamed = None;
                self.held = Some(held);
                self.checkin(Instant::now());
            }
            Ok(Ok(false)) => held.lease.discard(CloseReason::ClientGone),
            Ok(Err(_)) | Err(_) => held.lease.discard(CloseReason::UnknownState),
        }
    }
}

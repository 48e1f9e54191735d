//! Cancel requests.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use tokio::time::{Instant, timeout_at};

use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::startup::CancelKey;
use causeway_tls::{Attempt, ServerStream};

use crate::address::Address;
use crate::conn::{Card, Encryption};
use crate::connect;
use crate::lease::LeaseNumber;
use crate::reason::CloseReason;
use crate::shared::Shared;

/// The means to cancel what runs under one lease, and nothing else.
///
/// Held by whoever receives cancel requests; outlives the lease without harm.
#[derive(Clone)]
pub struct CancelHandle {
    shared: Weak<Shared>,
    card: Arc<Card>,
    number: LeaseNumber,
}

/// What became of a cancel request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The server has acted on it, for what that is worth: the statement may have ended by itself.
    Delivered,
    /// The lease had ended; nothing was sent.
    LeaseOver,
}

/// A cancel request on its way; the connection is not lent to others while this exists.
struct OnItsWay {
    shared: Arc<Shared>,
    card: Arc<Card>,
    slot: usize,
    /// Sent, and its end not seen.
    doubtful: bool,
}

/// Opens a connection without TLS, sends a cancel request and waits for the other side to close it. Dropping the future
/// leaves open whether the request takes effect.
///
/// # Errors
///
/// Those of connecting and writing; `TimedOut` at `deadline`. The request may take effect even so.
pub async fn cancel(
    address: &Address,
    process_id: i32,
    secret_key: &[u8],
    deadline: Instant,
) -> io::Result<()> {
    let exchange = async {
        let stream = connect::dial(address, deadline).await?.stream;
        send(stream, process_id, secret_key).await
    };
    timeout_at(deadline, exchange).await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Sends a cancel request and waits for the server to close the connection.
///
/// The server closes only after the signal was sent (`processCancelRequest` in `src/backend/postmaster/postmaster.c`):
/// once this returns, the request can no longer hit a statement sent later. It does not tell whether the key was
/// right.
async fn send(mut stream: ServerStream, process_id: i32, secret_key: &[u8]) -> io::Result<()> {
    let mut request = Vec::with_capacity(16);
    let key = CancelKey { process_id, secret: secret_key.into() };
    encode::cancel_request(&mut request, &key);
    stream.send_all(&request).await?;
    // Nothing is ever answered; a server that does is not believed.
    match stream.fill(&mut Buffer::default()).await? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to a cancel request")),
    }
}

// === impl CancelHandle ===

impl CancelHandle {
    pub(crate) fn new(shared: &Arc<Shared>, number: LeaseNumber, card: &Arc<Card>) -> Self {
        Self { shared: Arc::downgrade(shared), card: Arc::clone(card), number }
    }

    /// Cancels what runs under the lease, if that still lasts. Meanwhile a checkin holds the connection back, so that
    /// the request cannot hit the next borrower's statement.
    ///
    /// Dropping the future after the request was sent, or a failure then, costs the connection at its checkin.
    ///
    /// # Errors
    ///
    /// Those of connecting and writing; `TimedOut` at `deadline`. The request may take effect even so.
    pub async fn cancel(&self, deadline: Instant) -> io::Result<CancelOutcome> {
        let Some(mut on_its_way) = self.begin() else { return Ok(CancelOutcome::LeaseOver) };
        let exchange = async {
            let mut stream = connect::dial(&self.card.peer, deadline).await?.stream;
            if let Some(encryption) = &self.card.encryption {
                let Encryption { client, host } = &**encryption;
                let begun = stream.negotiate(client, host, Attempt::Encrypted).await;
                begun.map_err(io::Error::other)?;
            }
            on_its_way.doubtful = true;
            send(stream, self.card.process_id, &self.card.secret_key).await
        };
        let outcome = timeout_at(deadline, exchange).await;
        outcome.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        on_its_way.doubtful = false;
        Ok(CancelOutcome::Delivered)
    }

    fn begin(&self) -> Option<OnItsWay> {
        let shared = self.shared.upgrade()?;
        {
            let mut state = shared.lock();
            let slot = state.slots().lent(self.number)?;
            slot.cancels += 1;
        }
        Some(OnItsWay { shared, card: Arc::clone(&self.card), slot: self.number.slot, doubtful: false })
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle")
            .field("peer", &self.card.peer)
            .field("process_id", &self.card.process_id)
            .field("lease", &self.number.lease)
            .finish_non_exhaustive()
    }
}

// === impl OnItsWay ===

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let freed = {
            let mut state = self.shared.lock();
            // A slot whose connection was discarded in the meantime may be another's by now.
            let Some(slot) = state.slots().slot(self.slot).filter(|slot| Arc::ptr_eq(&slot.card, &self.card))
            else {
                return;
            };
            slot.cancels -= 1;
            slot.doubtful |= self.doubtful;
            if slot.cancels == 0 { slot.parked.take().map(|conn| (conn, slot.doubtful)) } else { None }
        };
        match freed {
            Some((conn, true)) => self.shared.retire(conn, CloseReason::CancelUncertain),
            Some((conn, false)) => self.shared.place(conn, Instant::now()),
            None => {}
        }
    }
}

//! Cancel requests whose key another process holds: the one that this one has followed, or a peer behind the same
//! address.

use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

use causeway_protocol::startup::CancelKey;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::relay::CANCEL_TIMEOUT;
use crate::{Proxy, Shared};

/// Follows the key of a request that a peer has passed on, which is not passed on again: keys of our own are 4 bytes long.
const PASSED_ON: &[u8; 4] = b"peer";

/// How many requests are on their way to peers at once; what comes beyond is dropped, as a request that comes too late is.
const AT_ONCE: usize = 64;

/// Who else may hold a key.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    /// The process that this one has followed, as long as it serves clients.
    predecessor: Mutex<Option<UnixDatagram>>,
    rights: Semaphore,
}

// === impl Elsewhere ===

impl Default for Elsewhere {
    fn default() -> Self {
        Self { predecessor: Mutex::default(), rights: Semaphore::new(AT_ONCE) }
    }
}

// === impl Proxy ===

impl Proxy {
    /// Passes keys that are not known here to this process as well, one to a datagram: the process id in network order,
    /// then the secret. The socket must not block.
    pub fn follows(&self, predecessor: UnixDatagram) {
        let known = &self.shared.elsewhere.predecessor;
        *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(predecessor);
    }

    /// Does what a datagram of the process that has followed this one asks for. Others are ignored.
    pub async fn cancel_for_successor(&self, datagram: &[u8]) {
        if let Some((id, secret)) = datagram.split_first_chunk::<4>() {
            let key = CancelKey { process_id: i32::from_be_bytes(*id), secret: secret.into() };
            if !self.shared.cancel(&key).await {
                self.shared.ask_predecessor(&key);
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Carries out a cancel request wherever its key is held; counts it.
    pub(crate) async fn cancel_anywhere(&self, key: &CancelKey) {
        if self.cancel(key).await {
            return;
        }
        if let Some(secret) = key.secret.strip_suffix(PASSED_ON) {
            let key = CancelKey { process_id: key.process_id, secret: secret.into() };
            if self.cancel(&key).await || self.ask_predecessor(&key) {
                return;
            }
        } else {
            let asked = self.ask_predecessor(key);
            if self.ask_peers(key).await || asked {
                self.metrics.process.cancels_passed_on.add(1);
                return;
            }
        }
        self.metrics.process.cancels_ignored.add(1);
    }

    /// Whether there is one that may know the key.
    fn ask_predecessor(&self, key: &CancelKey) -> bool {
        let mut predecessor = self.elsewhere.predecessor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = &*predecessor else { return false };
        let datagram = [&key.process_id.to_be_bytes(), &*key.secret].concat();
        match socket.send(&datagram) {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            // It has ended.
            Err(_) => {
                *predecessor = None;
                false
            }
        }
    }

    /// Asks every peer at once; whether one of them took the question.
    async fn ask_peers(&self, key: &CancelKey) -> bool {
        let peers = self.snapshot.load().peers.clone();
        if peers.is_empty() {
            return false;
        }
        let Ok(_right) = self.elsewhere.rights.try_acquire() else { return false };
        let secret = [&*key.secret, PASSED_ON.as_slice()].concat();
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let mut asked: JoinSet<bool> = peers
            .iter()
            .map(|peer| {
                let (peer, secret, id) = (peer.clone(), secret.clone(), key.process_id);
                async move {
                    let outcome = causeway_pool::cancel(&peer, id, &secret, deadline).await;
                    if let Err(error) = &outcome {
                        tracing::debug!(%peer, %error, "a peer did not take a cancel request");
                    }
                    outcome.is_ok()
                }
            })
            .collect();
        let mut taken = false;
        while let Some(outcome) = asked.join_next().await {
            taken |= outcome.unwrap_or(false);
        }
        taken
    }
}

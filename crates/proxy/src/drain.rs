//! The end of all sessions, in good order or at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::Proxy;
use crate::registry::Interrupt;

/// How long clients that are cut off may take to be told so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often a drain looks whether it is over.
const PAUSE: Duration = Duration::from_millis(10);

/// How often a process that another one has followed looks whether its last client has left.
const LOOK: Duration = Duration::from_millis(100);

// === impl Proxy ===

impl Proxy {
    /// Ends idle sessions, and the others when their transactions are over; what is left at the deadline is cut off.
    /// Returns how many sessions that were. New clients are turned away from now on.
    ///
    /// Dropping the future leaves the sessions draining.
    pub async fn drain(&self, deadline: Instant) -> usize {
        self.shared.draining.store(true, Ordering::Release);
        for entry in self.shared.clients.all() {
            entry.interrupt(Interrupt { drain: true, ..Interrupt::default() });
        }
        while self.shared.clients.len() > 0 && Instant::now() < deadline {
            tokio::time::sleep(PAUSE).await;
        }
        let left = self.shared.clients.len();
        self.cut_all();
        let told = Instant::now() + LAST_WORDS;
        while self.shared.clients.len() > 0 && Instant::now() < told {
            tokio::time::sleep(PAUSE).await;
        }
        left
    }

    /// Resolves when there is no session and nobody is about to log in. Cancel-safe.
    pub async fn deserted(&self) {
        while self.shared.clients.len() > 0 || self.shared.arrivals.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends every session now.
    pub fn cut_all(&self) {
        self.shared.draining.store(true, Ordering::Release);
        for entry in self.shared.clients.all() {
            entry.interrupt(Interrupt { kill: true, ..Interrupt::default() });
        }
    }
}

//! A connection without a task of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tracing::debug;

use crate::error::ProbeError;
use crate::login::{Encrypted, Login};

/// A connection that moves only while its owner polls it: question and answer then take no turn through the
/// runtime's queue, which is as long as there are sessions. Dropping it closes the socket at once.
pub(crate) struct Wire {
    client: Arc<Client>,
    connection: Connection<Socket, Encrypted<Socket>>,
    ended: bool,
    warnings: u64,
}

// === impl Wire ===

impl Wire {
    pub(crate) async fn open(login: &Login) -> Result<Self, ProbeError> {
        let (client, connection) = login.connect().await?;
        Ok(Self { client: Arc::new(client), connection, ended: false, warnings: 0 })
    }

    /// What asks; the questions are sent, and their answers arrive, while the wire is polled.
    pub(crate) fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    /// How many notices and warnings the server has sent so far.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings
    }

    /// Ready once the connection has ended; whoever waits for an answer on it then gets an error.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            match self.connection.poll_message(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    self.warnings += 1;
                    debug!(severity = notice.severity(), message = notice.message(), "a server's notice");
                }
                Poll::Ready(Some(Ok(_))) => {}
                // Its own error says less than that of the query which fails with it.
                Poll::Ready(Some(Err(_)) | None) => self.ended = true,
            }
        }
        Poll::Ready(())
    }

    /// Runs `work` to its end. After giving up on it, the wire must not be used again.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let step = |cx: &mut Context<'_>| {
            // The first poll puts the question in, the connection's sends it or brings the answer, which the last
            // finds. Should the connection end here, the work fails.
            if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            let _ended = self.poll_ended(cx).is_ready();
            work.as_mut().poll(cx)
        };
        poll_fn(step).await
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("ended", &self.ended).finish_non_exhaustive()
    }
}

//! Nodes without sockets: a simulated cluster answers the monitors' questions.
//!
//! Everything behind the question is the code that runs in production, on whatever clock the runtime has.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use causeway_routing::Lsn;
use tokio::time::{Instant, timeout};

use crate::config::NodeConfig;
use crate::error::ProbeError;
pub use crate::faults::Fault;
use crate::instance::Instance;
use crate::position::Geometry;
use crate::probe::Link;
use crate::truth::{Position, Sighting};

/// What answers in place of servers, and the bug in what is made of it.
#[derive(Clone)]
pub struct Simulation {
    /// The nodes.
    pub network: Arc<dyn Network>,
    /// The bug; `None` for the code as it is.
    pub fault: Option<Fault>,
}

/// The simulated nodes.
pub trait Network: Send + Sync + 'static {
    /// Connects to the node of this name; `None` if it is out of reach.
    fn connect(&self, node: &str) -> Pending<Box<dyn Conversation>>;
}

/// A monitor's connection to a simulated node.
pub trait Conversation: Send {
    /// Asks for the node's position; `None` if the connection is lost before the answer has come.
    fn ask(&mut self) -> Pending<Answer>;

    /// Ready when the connection is lost.
    fn lost(&mut self) -> Pending<()>;
}

/// Something that comes, or never will.
pub type Pending<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// What a node says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Which server it is.
    pub instance: Instance,
    /// Its timeline.
    pub timeline: u32,
    /// Whether it is in recovery.
    pub replica: bool,
    /// The insert position as a server reports it, or what was replayed.
    pub position: u64,
    /// What was flushed, of a primary.
    pub flushed: u64,
    /// `wal_segment_size` and `wal_block_size`.
    pub sizes: (u64, u64),
}

pub(crate) struct Line {
    conversation: Box<dyn Conversation>,
    lost: Pending<()>,
    flight: VecDeque<(Instant, Pending<Answer>, Poll<Option<Answer>>)>,
    fault: Option<Fault>,
}

// === impl Simulation ===

impl Simulation {
    pub(crate) async fn connect(&self, node: &NodeConfig, limit: Duration) -> Result<Line, ProbeError> {
        let connected = timeout(limit, self.network.connect(&node.name)).await;
        let mut conversation =
            connected.map_err(|_| ProbeError::Timeout(limit))?.ok_or(ProbeError::Closed)?;
        let lost = conversation.lost();
        Ok(Line { conversation, lost, flight: VecDeque::new(), fault: self.fault })
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("fault", &self.fault).finish_non_exhaustive()
    }
}

// === impl Line ===

impl Line {
    fn sighting(&self, requested: Instant, answer: Answer) -> Result<Sighting, ProbeError> {
        let Answer { instance, timeline, position, .. } = answer;
        let position = if answer.replica {
            Position::Replayed(Lsn(position))
        } else {
            let geometry = Geometry::new(answer.sizes.0, answer.sizes.1)
                .ok_or(ProbeError::Nonsense("impossible WAL sizes"))?;
            let counted = self.fault == Some(Fault::HeadersCounted);
            let end = if counted { Lsn(position) } else { geometry.record_end(Lsn(position)) };
            Position::Inserted { end, flushed: Lsn(answer.flushed) }
        };
        Ok(Sighting { requested, instance, timeline, position })
    }
}

impl Link for Line {
    fn ask(&mut self, requested: Instant) {
        let answer = self.conversation.ask();
        self.flight.push_back((requested, answer, Poll::Pending));
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sighting, ProbeError>> {
        for (_, answer, outcome) in &mut self.flight {
            if outcome.is_pending() {
                *outcome = answer.as_mut().poll(cx);
            }
        }
        let Some((requested, _, outcome)) = self.flight.front_mut() else {
            ready!(self.lost.as_mut().poll(cx));
            return Poll::Ready(Err(ProbeError::Closed));
        };
        let (requested, outcome) = (*requested, ready!(*outcome));
        self.flight.pop_front();
        Poll::Ready(match outcome {
            Some(answer) => self.sighting(requested, answer),
            None => Err(ProbeError::Closed),
        })
    }
}

//! Known bugs, for the tests that must find them.
//!
//! Only a build with the feature `simulation` can have one; in any other nothing is done and the answers are constants.

use tokio::time::Instant;

use crate::config::Config;
use crate::election::Epoch;
use crate::truth::Sighting;

/// A bug in what is believed of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "simulation"),
    allow(dead_code, unreachable_pub, reason = "only a simulation has faults")
)]
pub enum Fault {
    /// A read takes the answer of a probe that was under way when it arrived.
    ProbeReused,
    /// The flush position is a fence though commits are asynchronous.
    FlushOfAsynchronous,
    /// Positions behind a page's header are taken as they are.
    HeadersCounted,
    /// What a replica shows counts as the newest timeline's, whatever it follows.
    TimelinesIgnored,
    /// Positions stay when the monitor's connection is lost, for whatever connections come after.
    PositionsKept,
    /// A position counts for connections that are younger than it.
    YoungConnections,
}

/// The bug of this cluster's monitors, if they have one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults(#[cfg(feature = "simulation")] pub(crate) Option<Fault>);

// === impl Faults ===

#[cfg(feature = "simulation")]
impl Faults {
    pub(crate) fn of(config: &Config) -> Self {
        Self(config.simulation.as_ref().and_then(|simulation| simulation.fault))
    }

    pub(crate) fn has(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// What is made of an answer.
    pub(crate) fn seen(self, sighting: Sighting, epoch: Option<&Epoch>, now: Instant) -> Sighting {
        use crate::truth::Position;
        // As long as any run of a simulation.
        let forever = now + std::time::Duration::from_hours(1);
        match (self.0, sighting.position, epoch) {
            (Some(Fault::ProbeReused), Position::Inserted { .. }, _) => {
                Sighting { requested: now, ..sighting }
            }
            (Some(Fault::FlushOfAsynchronous), Position::Inserted { flushed, .. }, _) => {
                Sighting { position: Position::Inserted { end: flushed, flushed }, ..sighting }
            }
            (Some(Fault::TimelinesIgnored), Position::Replayed(_), Some(epoch)) => {
                Sighting { timeline: epoch.timeline, ..sighting }
            }
            (Some(Fault::PositionsKept | Fault::YoungConnections), Position::Replayed(_), _) => {
                Sighting { requested: forever, ..sighting }
            }
            _ => sighting,
        }
    }
}

#[cfg(not(feature = "simulation"))]
#[allow(clippy::unused_self, reason = "the same calls as with faults, which cost nothing without")]
impl Faults {
    pub(crate) fn of(_config: &Config) -> Self {
        Self()
    }

    pub(crate) fn has(self, _fault: Fault) -> bool {
        false
    }

    pub(crate) fn seen(self, sighting: Sighting, _epoch: Option<&Epoch>, _now: Instant) -> Sighting {
        sighting
    }
}

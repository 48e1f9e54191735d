//! Known bugs, for the tests that must find them.
//!
//! Only a build with the feature `simulation` can have one; in any other the answer is a constant.

use tokio::time::Instant;

/// A bug in how reads are kept consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "simulation"),
    allow(dead_code, unreachable_pub, reason = "only a simulation has faults")
)]
pub enum Fault {
    /// Level `session` neither stays with the replica that answered last nor has the next one cover what that has shown.
    Forgetful,
    /// What the primary has shown a session may be missing on the replica that answers next.
    PrimaryForgotten,
    /// A write makes the session dirty as of when it was sent, so that a fence from before its acknowledgement will do.
    DirtySinceSent,
    /// A replica is read first, and held against the fence afterwards.
    CheckedAlongside,
    /// A read that ran before its fence was known is held against what the replica shows by then.
    ShownSince,
}

/// The bug of this session, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "simulation")]
    pub(crate) fault: Option<Fault>,
    #[cfg(feature = "simulation")]
    asked: Option<Instant>,
}

// === impl Faults ===

#[cfg(feature = "simulation")]
impl Faults {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// A unit has arrived.
    pub(crate) fn asked(&mut self, arrived: Instant) {
        self.asked = Some(arrived);
    }

    /// Since when a write that was acknowledged at `now` counts.
    pub(crate) fn dirty_since(&self, now: Instant) -> Instant {
        self.asked.filter(|_| self.has(Fault::DirtySinceSent)).unwrap_or(now)
    }
}

#[cfg(not(feature = "simulation"))]
#[allow(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    clippy::trivially_copy_pass_by_ref,
    reason = "the same calls as with faults, which cost nothing without"
)]
impl Faults {
    pub(crate) fn has(&self, _fault: Fault) -> bool {
        false
    }

    pub(crate) fn asked(&mut self, _arrived: Instant) {}

    pub(crate) fn dirty_since(&self, now: Instant) -> Instant {
        now
    }
}

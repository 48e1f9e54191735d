//! Why connections are closed.

/// Why a server connection was closed: a closed set, fit for a metric's label and a log's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CloseReason {
    /// A lease was dropped without a word from its borrower.
    Abandoned,
    /// The client left while its work on the connection was not over.
    ClientGone,
    /// The state of the session is not known, or cannot be undone.
    UnknownState,
    /// Nobody needed it for the idle timeout.
    IdleTimeout,
    /// It is older than the lifetime.
    Lifetime,
    /// Its address, credentials or start-up parameters are no longer the pool's.
    Reconfigured,
    /// The pool has become smaller.
    Resized,
    /// Something on the server, such as a role or a database, changed under it.
    Recycled,
    /// Its node is no longer the one to talk to.
    RoleChanged,
    /// The process is ending.
    Shutdown,
    /// The pool is no longer configured.
    PoolRemoved,
    /// A deadline passed while it was in use.
    Deadline,
    /// The server closed it.
    ServerClosed,
    /// The server ended it with a FATAL message.
    ServerFatal,
    /// Reading or writing failed.
    Io,
    /// The server sent what the protocol does not allow there.
    Protocol,
    /// A cancel request may still be on its way to it.
    CancelUncertain,
    /// Another pool under the same bound needed its place.
    Quota,
}

// === impl CloseReason ===

impl CloseReason {
    /// Every reason, in the order of [`Self::index`].
    pub const ALL: [Self; 18] = [
        Self::Abandoned,
        Self::ClientGone,
        Self::UnknownState,
        Self::IdleTimeout,
        Self::Lifetime,
        Self::Reconfigured,
        Self::Resized,
        Self::Recycled,
        Self::RoleChanged,
        Self::Shutdown,
        Self::PoolRemoved,
        Self::Deadline,
        Self::ServerClosed,
        Self::ServerFatal,
        Self::Io,
        Self::Protocol,
        Self::CancelUncertain,
        Self::Quota,
    ];

    /// The label, in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::ClientGone => "client_gone",
            Self::UnknownState => "unknown_state",
            Self::IdleTimeout => "idle_timeout",
            Self::Lifetime => "lifetime",
            Self::Reconfigured => "reconfigured",
            Self::Resized => "resized",
            Self::Recycled => "recycled",
            Self::RoleChanged => "role_changed",
            Self::Shutdown => "shutdown",
            Self::PoolRemoved => "pool_removed",
            Self::Deadline => "deadline",
            Self::ServerClosed => "server_closed",
            Self::ServerFatal => "server_fatal",
            Self::Io => "io",
            Self::Protocol => "protocol",
            Self::CancelUncertain => "cancel_uncertain",
            Self::Quota => "quota",
        }
    }

    /// The position in [`Self::ALL`].
    pub fn index(self) -> usize {
        usize::from(self as u8)
    }

    /// Whether the server can no longer be told: no Terminate is sent.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::ServerClosed | Self::ServerFatal | Self::Io | Self::Protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_position() {
        for (position, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), position, "{}", reason.as_str());
        }
    }
}

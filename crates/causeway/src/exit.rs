//! How the process ends, in the numbers of `sysexits.h` where it has one.

use std::process::ExitCode;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done,
    /// The command line is wrong (`EX_USAGE`).
    Usage,
    /// An address cannot be bound, or a server cannot be reached or started (`EX_UNAVAILABLE`).
    Unavailable,
    /// A part of the process panicked (`EX_SOFTWARE`).
    Panicked,
    /// The configuration is wrong (`EX_CONFIG`).
    Config,
    /// Transactions were cut at the end of `shutdown_timeout`; the code of `timeout(1)`.
    DrainCut,
}

impl Exit {
    /// The exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Panicked => 70,
            Self::Config => 78,
            Self::DrainCut => 124,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

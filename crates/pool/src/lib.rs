//! Authenticated PostgreSQL server connections and their lease.
//!
//! A [`Pool`] keeps the connections of one (node, database, user). It knows nothing of replicas, routing or clients: it
//! opens connections, lends them one at a time, and takes back those whose borrower vouches for them. Two promises
//! are kept here and nowhere else:
//!
//! * never more than [`Config::size`] connections are open or being opened;
//! * waiters are served in the order of their arrival, and are bounded in number and in time.
//!
//! All state of a pool stands behind one mutex that is held for short sections without input, output or await.

#![forbid(unsafe_code)]

mod address;
mod backoff;
mod books;
mod cancel;
mod config;
mod conn;
mod connect;
mod error;
mod housekeeping;
mod lease;
mod login;
mod pool;
mod quota;
mod reason;
mod seats;
mod shared;
mod slots;
mod state;
mod status;

pub use self::address::{Address, AddressError};
pub use self::books::{Books, Change, Settings, StatementId, Statements};
pub use self::cancel::{CancelHandle, CancelOutcome, cancel};
pub use self::config::{Accept, Config, Keepalive, Verification};
pub use self::conn::ServerConn;
pub use self::error::{CheckoutError, ConnectError};
pub use self::lease::{Lease, LeaseNumber};
pub use self::pool::Pool;
pub use self::quota::Quota;
pub use self::reason::CloseReason;
pub use self::seats::Seat;
pub use self::status::{ServerInfo, ServerState, Status, Totals};
pub use causeway_tls::{ServerStream, TlsClient};

#[cfg(test)]
mod fake;

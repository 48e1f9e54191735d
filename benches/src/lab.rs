//! What measurements of whole programs are made with: servers with data, the proxies before them, and what the kernel
//! and valgrind count.

pub mod callgrind;
pub mod client;
mod configuration;
pub mod distance;
pub mod fast_server;
pub mod idle;
pub mod metrics;
pub mod peer;
pub mod pgbench;
pub mod process;
pub mod stage;
pub mod syscalls;
mod tls;

use std::error::Error;
use std::time::Duration;

/// Why a measurement could not be made.
pub type Failure = Box<dyn Error>;

/// The superuser of the servers, as whom all clients come.
pub const USER: &str = "postgres";
/// The database with the data.
pub const DATABASE: &str = "bench";

/// Waits. The programs here do one thing after another: there is no runtime that this could stall.
#[expect(clippy::disallowed_methods, reason = "nothing else runs in these programs while they wait")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

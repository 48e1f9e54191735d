//! Throw-away PostgreSQL clusters: a primary with streaming replicas, made from the installed binaries.
//!
//! ```no_run
//! # async fn example() -> Result<(), causeway_sandbox::SandboxError> {
//! use causeway_sandbox::{Sandbox, SandboxConfig};
//!
//! let sandbox = Sandbox::start(SandboxConfig { replicas: 2, ..SandboxConfig::default() }).await?;
//! sandbox.primary().sql("postgres", "CREATE TABLE t (a int)").await?;
//! sandbox.replicas_caught_up().await?;
//! sandbox.stop().await
//! # }
//! ```
//!
//! The servers listen on 127.0.0.1 and on a Unix socket inside the sandbox's directory, trade durability for speed,
//! and never outlive the process that started them: see [`Watchdog`]. Linux only, since processes are looked up in
//! `/proc`.

#![forbid(unsafe_code)]

mod account;
mod binaries;
mod cluster;
mod command;
mod config;
mod error;
mod node;
mod place;
mod port;
mod process;
mod watchdog;

pub use binaries::Binaries;
pub use cluster::Sandbox;
pub use config::{Authentication, SandboxConfig};
pub use error::SandboxError;
pub use node::{Node, Role, StopMode};
pub use port::free_ports;
pub use process::{children, signal, start_time};
pub use watchdog::Watchdog;

pub use rustix::process::Signal;

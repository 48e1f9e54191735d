//! For tests only: real clusters, the built Causeway as a process, a scripted client and server, a relay that injects
//! faults, and a checker of histories.
//!
//! A test kit reports by failing the test: what goes wrong panics with all that is known about it, and every wait has
//! a limit.

#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "everything here panics when the test has failed; see above")]

mod binary;
mod causeway;
mod cluster;
pub mod fake;
pub mod history;
mod http;
mod log;
mod metrics;
pub mod relay;
pub mod tls;
pub mod wire;

pub use causeway::{Causeway, Refusal};
pub use cluster::{fresh_database, load_shop, raise_open_files, shared_cluster, yaml_for, yaml_through};
pub use http::Response;
pub use log::LogLine;
pub use metrics::Metrics;

pub use causeway_sandbox as sandbox;
pub use causeway_sandbox::{Authentication, Node, Role, Sandbox, SandboxConfig, Signal, StopMode};

//! The truth about the nodes of one PostgreSQL cluster: who is the primary, what the replicas have replayed, and what
//! the databases' catalogues say, published as snapshots that the data plane reads without waiting.
//!
//! One task a node probes it over a connection of its own. Roles are observed, never configured: the primary is the
//! one node outside recovery on the newest timeline that any node of the accepted system was seen on. What a probe
//! of the primary returns is a fence for everything acknowledged before the probe was sent; what a probe of a
//! replica returns is a lower bound of what it shows from then on, for as long as the monitor's connection lives.

#![forbid(unsafe_code)]

mod alarm;
mod audit;
mod catalogues;
mod cluster;
mod commit;
mod config;
mod crowd;
mod demand;
mod election;
mod errand;
mod error;
mod faults;
mod fences;
mod instance;
mod login;
mod monitor;
mod nudge;
mod origin;
mod position;
mod probe;
mod published;
mod replication;
mod ring;
#[cfg(feature = "simulation")]
pub mod simulation;
mod source;
mod state;
pub mod survey;
mod totals;
mod truth;
mod waiting;
mod wire;

pub use cluster::Cluster;
pub use config::{Config, Monitor, NodeConfig, Reconnect};
pub use election::{Epoch, Writer};
pub use instance::Instance;
pub use source::{FenceSource, FenceSourceError};
pub use totals::{Durations, ProbeKind, ProbeResult, Totals};
pub use truth::Observed;
pub use waiting::Need;

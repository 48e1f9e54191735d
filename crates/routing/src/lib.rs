//! Where a statement may run.
//!
//! Everything in this crate is a pure function of its arguments: no sockets, no clocks, no statics and no
//! randomness of its own, so that the same inputs always give the same decision. What is not proven to be a read
//! that a hot standby answers as the primary would goes to the primary.

#![forbid(unsafe_code)]

mod balance;
pub mod builtin;
pub mod cache;
pub mod catalogue;
pub mod class;
pub mod classify;
mod combine;
pub mod fence;
pub mod fingerprint;
pub mod leaves;
pub mod level;
pub mod lexer;
pub mod lineage;
mod measure;
pub mod memo;
pub mod overrides;
mod pieces;
pub mod reason;
pub mod resolve;
pub mod router;
pub mod symbols;
mod text;
mod translate;
mod utility;
pub mod view;
mod walk;

pub use cache::{CacheLimits, Parsed, StatementCache, SyntaxOptions, Unknown};
pub use catalogue::{Catalogue, CatalogueBuilder};
pub use class::{Class, Command, Isolation, Kind, Modes, PinReason, SettingValue};
pub use classify::{Limits, classify};
pub use fence::{Fence, FenceError, Lsn, Observation};
pub use fingerprint::{Fingerprint, Key, fingerprint};
pub use leaves::{Leaves, Left, PinSet};
pub use level::{Level, Levels};
pub use lineage::{Bound, Fate, Lineage, Switch};
pub use overrides::{Forced, Overrides, Pattern};
pub use reason::Reason;
pub use resolve::{Verdict, resolve, resolve_for_replica};
pub use router::{Decision, Request, Requirement, Router, Target};
pub use symbols::Symbols;
pub use view::{Load, NodeId, NodeState, NodeView, Role, View};

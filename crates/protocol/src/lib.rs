//! The PostgreSQL wire protocol, version 3, without input or output.
//!
//! Everything here takes bytes and returns values; sockets live elsewhere. Lengths are bounded before anything is
//! allocated, and no bytes from the network can panic: the lints below forbid what could.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::panic,
        clippy::expect_used,
    )
)]

pub mod backend;
pub mod buffer;
pub mod encode;
pub mod frame;
pub mod frontend;
pub mod handshake;
mod message;
pub mod pipeline;
pub mod report;
pub mod scram;
pub mod sqlstate;
pub mod startup;

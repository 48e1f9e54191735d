//! The `causeway` command: configuration, command line, wiring, console, metrics.

#![forbid(unsafe_code)]

pub mod assemble;
pub mod check;
pub mod cli;
pub mod config;
pub mod console;
pub mod control;
pub mod dev;
pub mod epoch;
pub mod exit;
pub mod http;
pub mod import;
pub mod logging;
pub mod metrics;
pub mod password;
pub mod route;
pub mod schema;
pub mod serve;
pub mod status;
#[cfg(test)]
mod testing;
pub mod top;
pub mod version;

//! The session machine between a scripted client and scripted servers.

mod model;
mod notation;
mod rig;

mod copy;
mod extended;
mod names;
mod properties;
mod retry;
mod settings;
mod simple;
mod transactions;

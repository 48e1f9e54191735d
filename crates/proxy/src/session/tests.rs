//! The session machine between a scripted client and scripted servers.

mod notation;
mod rig;

mod copy;
mod extended;
mod names;
mod retry;
mod settings;
mod simple;
mod transactions;

//! The scenarios of `tests/cases/scenarios.md`, at the level of messages. What PostgreSQL itself does is checked on
//! PostgreSQL itself, in the same test.

mod auth;
mod cancel;
mod copy;
mod failover;
mod failures;
mod handover;
mod leaving;
mod levels;
mod limits;
mod notices;
mod pinning;
mod pipeline;
mod prepared;
mod process_ids;
mod read_write;
mod reload;
mod resources;
mod routes;
mod secured;
mod server_tls;
mod settings;
mod soak;
mod standstill;
mod startup;
mod state;
mod texts;
mod tls;

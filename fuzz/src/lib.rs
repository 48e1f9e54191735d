//! What each fuzz target does with its input.
//!
//! The bodies are ordinary functions that panic when something is wrong, so that the corpus replays without a fuzzer:
//! `tests/tests/fuzz_corpus.rs` includes this file and gives them every file of `fuzz/corpus`, and mutations of it.

pub mod input;
pub mod login;
pub mod sql;
pub mod wire;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// The folders of `fuzz/corpus` with inputs for it; the first is its own.
    pub corpora: &'static [&'static str],
    /// What it does; it panics when something is wrong.
    pub body: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 10] = [
    Target { name: "backend_messages", corpora: &["backend_messages"], body: wire::backend_messages },
    Target { name: "classify", corpora: &["classify"], body: sql::classify },
    Target { name: "client_handshake", corpora: &["client_handshake"], body: login::client_handshake },
    Target { name: "fingerprint", corpora: &["fingerprint", "classify"], body: sql::fingerprint },
    Target { name: "frames", corpora: &["frames"], body: wire::frames },
    Target { name: "frontend_messages", corpora: &["frontend_messages"], body: wire::frontend_messages },
    Target { name: "lexer", corpora: &["lexer", "classify"], body: sql::lexer },
    Target { name: "scram", corpora: &["scram"], body: login::scram },
    Target { name: "server_handshake", corpora: &["server_handshake"], body: login::server_handshake },
    Target { name: "startup", corpora: &["startup"], body: login::startup },
];

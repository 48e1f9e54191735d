//! What the structure of the project must keep to: crate edges, purity, ceilings, documentation.

mod book;
mod crates;
mod documentation;
mod source;
mod words;

use std::path::PathBuf;

/// The root of the workspace.
fn root() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests are a folder of the workspace").to_path_buf()
}

/// Fails with one line for each finding.
fn none_found(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

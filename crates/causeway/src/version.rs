//! What is running.

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, when the build was told in `CAUSEWAY_COMMIT`.
pub const COMMIT: Option<&str> = option_env!("CAUSEWAY_COMMIT");

/// Both in one line, as `causeway --version` prints them after the name.
pub fn long() -> String {
    match COMMIT {
        Some(commit) => format!("{VERSION} ({commit})"),
        None => VERSION.to_owned(),
    }
}

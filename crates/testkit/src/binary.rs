//! The program under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::sync::OnceCell;

/// Built once for each test process.
static BUILT: OnceCell<PathBuf> = OnceCell::const_new();

/// The `causeway` program: `$CAUSEWAY_BIN` if it is set, otherwise built by cargo into the directory and profile of
/// the running test. Cargo builds no program for a test of another package, and one that happens to lie there may be
/// older than the source; a build with nothing to do takes a fraction of a second.
pub(crate) async fn causeway() -> &'static Path {
    BUILT.get_or_init(|| async { std::env::var_os("CAUSEWAY_BIN").map_or_else(build, PathBuf::from) }).await
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    // <target>/<profile>/deps/<test>
    let profile_directory =
        test.parent().and_then(Path::parent).expect("a test lies in <target>/<profile>/deps");
    let target = profile_directory.parent().expect("a test lies in <target>/<profile>/deps");
    let profile = match profile_directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        // The outer cargo's word on this package: the build of `ring` begins anew when it changes.
        let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if name.to_str().is_some_and(|name| about_us.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    let output = command
        .args(["build", "--quiet", "--package", "causeway", "--bin", "causeway", "--profile", profile])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        .output()
        .expect("running cargo");
    assert!(output.status.success(), "building causeway: {}", String::from_utf8_lossy(&output.stderr));
    profile_directory.join("causeway")
}

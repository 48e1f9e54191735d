//! On what was measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::lab::process::processors;
use crate::lab::stage::Stage;

/// The machine and the versions, a line each.
pub(super) fn describe(stage: &Stage, causeway: &Path) -> Vec<String> {
    let model = field("/proc/cpuinfo", "model name").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let version = |program: &str, option: &str| {
        let output = Command::new(program).arg(option).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
    };
    let programs = [
        (causeway.display().to_string(), "--version"),
        (stage.program("postgres").display().to_string(), "--version"),
        ("/usr/sbin/pgbouncer".to_owned(), "--version"),
        ("/usr/sbin/haproxy".to_owned(), "-v"),
        ("/usr/sbin/pgpool".to_owned(), "--version"),
    ];
    let versions = programs.iter().filter_map(|(program, option)| version(program, option));
    let machine =
        format!("{model}, {} processors, {memory} of memory, Linux {}", processors(), kernel.trim());
    std::iter::once(machine).chain(versions).collect()
}

/// Today, as `date` writes it.
pub(super) fn today() -> String {
    let output = Command::new("date").args(["-u", "+%-d %B %Y"]).env("LC_ALL", "C").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

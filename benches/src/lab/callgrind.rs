//! Instructions of a proxy, counted by valgrind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::Failure;

/// Instructions in user mode of a whole process.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// All of them.
    pub total: u64,
    /// By function, callees left out.
    pub own: BTreeMap<String, u64>,
    /// By function, callees included.
    pub inclusive: BTreeMap<String, u64>,
}

/// The words before a program that count its instructions into the file.
pub fn wrapper(file: &Path) -> Vec<String> {
    let out = format!("--callgrind-out-file={}", file.display());
    ["valgrind", "--quiet", "--tool=callgrind", &out].map(str::to_owned).to_vec()
}

impl Profile {
    /// Reads what valgrind has written; with functions if asked for, which takes seconds.
    ///
    /// # Errors
    ///
    /// When the file or `callgrind_annotate` cannot be read.
    pub fn read(file: &Path, functions: bool) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
        let total =
            line.ok_or("valgrind wrote no total: the program did not end in order")?.trim().parse()?;
        if !functions {
            return Ok(Self { total, ..Self::default() });
        }
        let (own, inclusive) = (annotate(file, "--inclusive=no")?, annotate(file, "--inclusive=yes")?);
        Ok(Self { total, own, inclusive })
    }
}

fn annotate(file: &Path, how: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let output =
        Command::new("callgrind_annotate").args([how, "--threshold=100", "--auto=no"]).arg(file).output()?;
    if !output.status.success() {
        return Err(format!("callgrind_annotate: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut found = BTreeMap::new();
    for (count, name) in String::from_utf8_lossy(&output.stdout).lines().filter_map(function) {
        let entry: &mut u64 = found.entry(name).or_default();
        // A function that calls itself, or has copies for several types, is listed more than once.
        *entry = if how.ends_with("yes") { count.max(*entry) } else { *entry + count };
    }
    Ok(found)
}

/// `1,234 ( 5.6%)  file.rs:function [object]`: the count and the function with its file.
fn function(line: &str) -> Option<(u64, String)> {
    let (count, rest) = line.trim_start().split_once(" (")?;
    let count = count.replace(',', "").parse().ok()?;
    let (_, place) = rest.split_once(')')?;
    let place = place.trim();
    let place = place.rsplit_once(" [").map_or(place, |(place, _)| place);
    let name = place.split_once(':').map_or(place, |(_, name)| name);
    // Recursion shows as f'2.
    let name =
        name.trim_end_matches(|letter: char| letter.is_ascii_digit()).strip_suffix('\'').unwrap_or(name);
    (!name.is_empty() && name != "TOTALS" && !place.starts_with("PROGRAM")).then(|| (count, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_functions_are_read() {
        let line = "1,234,567 ( 5.60%)  /src/relay.rs:causeway_proxy::relay::scan [/usr/bin/causeway]";
        assert_eq!(function(line), Some((1_234_567, "causeway_proxy::relay::scan".to_owned())));
        let line = "    42 ( 0.01%)  ???:memcpy'2 [/lib/libc.so.6]";
        assert_eq!(function(line), Some((42, "memcpy".to_owned())));
        assert_eq!(function("9,999 (100.0%)  PROGRAM TOTALS"), None);
        assert_eq!(function("Ir"), None);
    }
}

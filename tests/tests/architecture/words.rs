//! Words that no file of the project has.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{none_found, root};

/// In two parts each, so that this file does not find itself.
const WORDS: &[(&str, &str)] = &[
    ("FIX", "ME"),
    ("TO", "DO"),
    ("XX", "X:"),
    ("HA", "CK:"),
    ("todo", "!("),
    ("unimpl", "emented!("),
    ("for n", "ow"),
    ("place", "holder"),
    ("not impl", "emented"),
    ("#[ign", "ore"),
    ("../sh", "ared"),
];

const EXTENSIONS: &[&str] = &[
    "go", "java", "js", "md", "py", "rs", "service", "sh", "sql", "toml", "tsv", "yaml", "yml", "html", "css",
];

/// Files that git knows or would know: neither built nor ignored.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).expect("file names are UTF-8").lines().map(str::to_owned).collect()
}

fn checked(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    // The cases quote public reports, word by word.
    !path.starts_with("tests/cases/") && extension.is_none_or(|extension| EXTENSIONS.contains(&extension))
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = WORDS.iter().map(|(first, second)| format!("{first}{second}")).collect();
    let found = |(number, line): (usize, &str)| {
        let word = words.iter().find(|word| line.contains(word.as_str()))?;
        Some(format!("{path}:{}: {word}", number + 1))
    };
    text.lines().enumerate().filter_map(found).collect()
}

#[test]
fn nothing_is_promised_in_comments() {
    let files = files();
    assert!(files.iter().any(|path| path == "Cargo.toml"), "the list of files has the root's");
    let mut wrong = Vec::new();
    for path in files.iter().filter(|path| checked(path)) {
        // A file that git still lists may be gone.
        if let Ok(text) = fs::read_to_string(root().join(path)) {
            wrong.extend(findings(path, &text));
        }
    }
    none_found("promises, or words about the workplace", &wrong);
}

#[test]
fn the_words_are_found() {
    let text = format!("a\n// {}{}\n", WORDS[0].0, WORDS[0].1);
    assert_eq!(findings("x.rs", &text), [format!("x.rs:2: {}{}", WORDS[0].0, WORDS[0].1)]);
    assert!(
        checked("Makefile") && checked("a/b.rs") && !checked("tests/cases/README.md") && !checked("x.png")
    );
}

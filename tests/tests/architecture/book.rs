//! The documentation as a book: every page is in it, and every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{none_found, root};

fn pages(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("docs/ can be listed") {
        let path = entry.expect("docs/ can be listed").path();
        if path.is_dir() {
            pages(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The targets of links, code left out.
fn links(markdown: &str) -> Vec<String> {
    let mut code = false;
    let mut text = String::new();
    for line in markdown.lines() {
        code ^= line.starts_with("```");
        if !code && !line.starts_with("```") {
            // Between backticks nothing is a link.
            text.extend(line.split('`').step_by(2));
            text.push('\n');
        }
    }
    let parts = text.split("](").skip(1).filter_map(|part| part.split(')').next());
    parts.map(str::to_owned).collect()
}

/// The anchors of a page, as GitHub and mdBook make them of its headings.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let headings = markdown.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut files = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    pages(&root().join("docs"), &mut files);
    let mut wrong = Vec::new();
    for file in &files {
        for link in links(&read(file)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if path.is_empty() { file.clone() } else { file.parent().expect("a folder").join(path) };
            let known = target.exists()
                && (anchor.is_empty() || target.is_dir() || anchors(&read(&target)).contains(anchor));
            if !known {
                wrong.push(format!("{}: {link}", file.display()));
            }
        }
    }
    none_found("links", &wrong);
}

#[test]
fn every_page_is_in_the_book() {
    let docs = root().join("docs");
    let listed: BTreeSet<PathBuf> =
        links(&read(&docs.join("SUMMARY.md"))).iter().map(|link| docs.join(link)).collect();
    let mut files = Vec::new();
    pages(&docs, &mut files);
    let missing = files.iter().filter(|file| !listed.contains(*file) && !file.ends_with("SUMMARY.md"));
    let missing: Vec<String> =
        missing.map(|file| format!("{} is not in SUMMARY.md", file.display())).collect();
    none_found("docs/SUMMARY.md", &missing);
}

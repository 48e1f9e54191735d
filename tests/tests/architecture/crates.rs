//! Which crate may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use crate::none_found;

/// The edges between the project's own crates that leave it with the binary, exactly.
const EDGES: &[(&str, &[&str])] = &[
    ("causeway-protocol", &[]),
    ("causeway-routing", &[]),
    ("causeway-sandbox", &[]),
    ("causeway-tls", &["causeway-protocol"]),
    ("causeway-pool", &["causeway-protocol", "causeway-tls"]),
    ("causeway-cluster", &["causeway-routing", "causeway-tls"]),
    ("causeway-proxy", &["causeway-pool", "causeway-protocol", "causeway-routing", "causeway-tls"]),
    (
        "causeway",
        &[
            "causeway-cluster",
            "causeway-pool",
            "causeway-protocol",
            "causeway-proxy",
            "causeway-routing",
            "causeway-sandbox",
            "causeway-tls",
        ],
    ),
    ("causeway-testkit", &["causeway-sandbox"]),
    ("causeway-tests", &["causeway-testkit"]),
];

/// What must not be reached, directly or through others.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("causeway-protocol", &["tokio", "tokio-postgres", "mio", "socket2", "metrics", "tracing"]),
    ("causeway-routing", &["tokio", "tokio-postgres", "mio", "socket2", "metrics", "tracing", "rand"]),
    ("causeway-tls", &["tokio-postgres", "tokio-rustls", "metrics", "tracing"]),
    ("causeway-pool", &["tokio-postgres", "deadpool-postgres", "sqlparser", "causeway-routing"]),
    ("causeway-cluster", &["causeway-pool", "causeway-proxy", "sqlparser-derive"]),
    (
        "causeway-proxy",
        &["causeway-cluster", "tokio-postgres", "deadpool-postgres", "serde_yaml", "yaml_serde"],
    ),
    ("causeway", &["causeway-testkit", "openssl", "native-tls"]),
];

fn metadata() -> Metadata {
    // Without a platform, the dependencies of every other one would have to be downloaded.
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let verbose = String::from_utf8(rustc.stdout).expect("rustc prints UTF-8");
    let host = verbose.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    MetadataCommand::new()
        .manifest_path(crate::root().join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), host.to_owned()])
        .exec()
        .expect("cargo metadata")
}

/// The names of what each package needs at run time, one step.
fn normal_edges(metadata: &Metadata) -> BTreeMap<PackageId, BTreeSet<PackageId>> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves");
    let normal =
        |dep: &&cargo_metadata::NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
    let edges =
        |node: &cargo_metadata::Node| node.deps.iter().filter(normal).map(|dep| dep.pkg.clone()).collect();
    resolve.nodes.iter().map(|node| (node.id.clone(), edges(node))).collect()
}

fn closure<'a>(
    edges: &'a BTreeMap<PackageId, BTreeSet<PackageId>>,
    from: &'a PackageId,
) -> BTreeSet<&'a PackageId> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(package) = next.pop() {
        next.extend(edges[package].iter().filter(|dependency| seen.insert(*dependency)));
    }
    seen
}

#[test]
fn edges_between_crates() {
    let metadata = metadata();
    let name = |id: &PackageId| metadata[id].name.to_string();
    let members: BTreeSet<_> = metadata.workspace_members.iter().collect();
    let edges = normal_edges(&metadata);
    let found: BTreeMap<String, BTreeSet<String>> = members
        .iter()
        .map(|member| {
            (name(member), edges[*member].iter().filter(|id| members.contains(id)).map(name).collect())
        })
        .collect();
    let listed: BTreeMap<String, BTreeSet<String>> = EDGES
        .iter()
        .map(|(from, to)| ((*from).to_owned(), to.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    let wrong: Vec<_> = found
        .iter()
        .filter(|(from, _)| !from.ends_with("-benches"))
        .filter(|(from, to)| listed.get(*from) != Some(to))
        .map(|(from, to)| format!("{from} uses {to:?}, listed: {:?}", listed.get(from)))
        .chain(
            listed
                .keys()
                .filter(|from| !found.contains_key(*from))
                .map(|from| format!("{from} is not there")),
        )
        .collect();
    none_found("the project's crates use each other otherwise than listed", &wrong);
}

#[test]
fn forbidden_dependencies() {
    let metadata = metadata();
    let edges = normal_edges(&metadata);
    let mut wrong = Vec::new();
    for (from, forbidden) in FORBIDDEN {
        let member = metadata.workspace_packages().into_iter().find(|package| package.name.as_str() == *from);
        let member = member.unwrap_or_else(|| panic!("{from} is a member of the workspace"));
        for id in closure(&edges, &member.id) {
            if forbidden.contains(&metadata[id].name.as_str()) {
                wrong.push(format!("{from} reaches {}", metadata[id].name));
            }
        }
    }
    none_found("forbidden dependencies", &wrong);
}

#[test]
fn a_closure_goes_all_the_way() {
    let id = |name: &str| PackageId { repr: name.to_owned() };
    let edges = BTreeMap::from([
        (id("a"), BTreeSet::from([id("b")])),
        (id("b"), BTreeSet::from([id("c"), id("a")])),
        (id("c"), BTreeSet::new()),
    ]);
    assert_eq!(closure(&edges, &id("a")), BTreeSet::from([&id("a"), &id("b"), &id("c")]));
}

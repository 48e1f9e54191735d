//! Every metric and every key of the configuration is documented, and nothing else is.

use std::collections::BTreeSet;
use std::fs;

use quote::ToTokens;
use syn::visit::Visit;

use crate::source::sources;
use crate::{none_found, root};

const METRICS: &str = "docs/metrics.md";
const CONFIGURATION: &str = "docs/configuration.md";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What a table row documents: the text between backticks in its first cell.
fn documented(markdown: &str) -> BTreeSet<String> {
    let rows = markdown.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
}

/// Names of metrics, without the labels some rows show.
fn documented_metrics(markdown: &str) -> BTreeSet<String> {
    let name = |entry: String| entry.split('{').next().unwrap_or_default().to_owned();
    documented(markdown).into_iter().map(name).filter(|name| name.starts_with("causeway_")).collect()
}

#[test]
fn metrics_are_documented() {
    let crates = ["cluster", "pool", "protocol", "proxy", "routing", "sandbox", "testkit"];
    let is_crate = |name: &String| crates.iter().any(|known| *name == format!("causeway_{known}"));
    let in_code: BTreeSet<_> = sources()
        .iter()
        .flat_map(crate::source::Source::strings)
        .filter(|text| {
            text.starts_with("causeway_")
                && text.len() > "causeway_".len()
                && is_name(text)
                && !is_crate(text)
        })
        .collect();
    assert!(!in_code.is_empty(), "the code names metrics");
    let documented = documented_metrics(&read(METRICS));
    let wrong: Vec<_> = in_code
        .difference(&documented)
        .map(|name| format!("{name} is not documented"))
        .chain(
            documented.difference(&in_code).map(|name| format!("{name} is documented, but not in the code")),
        )
        .collect();
    none_found(METRICS, &wrong);
}

/// The names under which serde reads the fields of a struct, and the paths that the list of all keys has.
#[derive(Default)]
struct Keys {
    fields: BTreeSet<String>,
    paths: BTreeSet<String>,
}

fn serde_words(attributes: &[syn::Attribute]) -> String {
    let serde = attributes.iter().filter(|attribute| attribute.path().is_ident("serde"));
    serde.map(|attribute| attribute.meta.to_token_stream().to_string()).collect()
}

fn rename(words: &str) -> Option<String> {
    let (_, after) = words.split_once("rename = \"")?;
    Some(after.split('"').next().unwrap_or_default().to_owned())
}

impl<'ast> Visit<'ast> for Keys {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let derives = item.attrs.iter().filter(|attribute| attribute.path().is_ident("derive"));
        if !derives
            .into_iter()
            .any(|derive| derive.meta.to_token_stream().to_string().contains("Deserialize"))
        {
            return;
        }
        for field in &item.fields {
            let words = serde_words(&field.attrs);
            let skipped = words.contains("skip") || words.contains("flatten");
            if let (Some(ident), false) = (&field.ident, skipped) {
                self.fields.insert(rename(&words).unwrap_or_else(|| ident.to_string()));
            }
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if item.ident == "KEYS" {
            Entries(&mut self.paths).visit_expr(&item.expr);
        }
    }
}

/// Collects the first arguments of calls.
struct Entries<'a>(&'a mut BTreeSet<String>);

impl<'ast> Visit<'ast> for Entries<'_> {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. })) = call.args.first() {
            self.0.insert(path.value());
        }
    }
}

/// `clusters.<name>.nodes[].address` gives clusters, nodes and address.
fn segments(path: &str) -> impl Iterator<Item = String> {
    let parts = path.split('.').map(|part| part.trim_end_matches("[]"));
    parts.filter(|part| !part.starts_with('<')).map(str::to_owned)
}

#[test]
fn configuration_keys_are_documented() {
    let mut keys = Keys::default();
    let sources = sources();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/causeway/src/config")) {
        keys.visit_file(&source.production);
    }
    assert!(
        !keys.fields.is_empty() && !keys.paths.is_empty(),
        "crates/causeway/src/config has structs and KEYS"
    );
    let is_key = |entry: &String| keys.paths.contains(entry) || entry.contains('.') && !entry.contains(' ');
    let documented: BTreeSet<_> = documented(&read(CONFIGURATION)).into_iter().filter(is_key).collect();
    let known: BTreeSet<_> = keys.paths.iter().flat_map(|path| segments(path)).collect();
    let wrong: Vec<_> = (keys.paths.difference(&documented).map(|key| format!("{key} is not documented")))
        .chain(documented.difference(&keys.paths).map(|key| format!("{key} is documented, but not in KEYS")))
        .chain(
            known.symmetric_difference(&keys.fields).map(|key| format!("{key} is not both in KEYS and read")),
        )
        .collect();
    none_found(CONFIGURATION, &wrong);
}

#[test]
fn the_checks_read_what_they_should() {
    let table =
        "| `a.<name>.b[].c` | x |\n|---|\n| `causeway_up{backend}` | y |\n| plain | `causeway_no` |\n";
    assert_eq!(documented_metrics(table), BTreeSet::from(["causeway_up".to_owned()]));
    assert_eq!(segments("a.<name>.b[].c").collect::<Vec<_>>(), ["a", "b", "c"]);
    let file = syn::parse_file(
        "#[derive(Deserialize)] struct A { b: u8, #[serde(rename = \"c-d\")] c: u8, #[serde(skip)] e: u8 }\
         #[derive(Debug)] struct B { no: u8 }\
         const KEYS: &[Key] = &[key(\"a.b\", \"1\"), bare(\"c\")];",
    );
    let mut keys = Keys::default();
    keys.visit_file(&file.expect("it parses"));
    assert_eq!(keys.fields, BTreeSet::from(["b".to_owned(), "c-d".to_owned()]));
    assert_eq!(keys.paths, BTreeSet::from(["a.b".to_owned(), "c".to_owned()]));
}

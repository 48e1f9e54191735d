//! What the source files themselves must keep to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::Visit;

use crate::{none_found, root};

const FILE_CEILING: usize = 500;
const INLINE_TESTS_CEILING: usize = 300;
const FUNCTION_CEILING: usize = 70;

/// Files over the ceiling, with what they may have at most. This list may only shrink.
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions over the ceiling, with what they may have at most. This list may only shrink.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// The statics that may exist: where, which, and why it can't be a value that is handed down.
const STATICS: &[(&str, &str, &str)] = &[
    (
        "crates/proxy/src/scratch.rs",
        "thread_local!",
        "the sessions of a thread share what only a working one needs",
    ),
    (
        "crates/tls/src/buffers.rs",
        "thread_local!",
        "the connections of a thread share their unused buffers, so that an idle one holds none",
    ),
    ("crates/testkit/src/binary.rs", "BUILT", "the program under test is built once for each test process"),
    (
        "crates/testkit/src/cluster.rs",
        "SHARED",
        "the tests of a process share their servers, which are slow to start",
    ),
];

/// Nothing in the pure crates may touch the world.
const IMPURE: &[&str] =
    &["Instant", "SystemTime", "TcpListener", "TcpStream", "UnixStream", "env", "fs", "process"];

/// A source file with its tests cut out.
pub(crate) struct Source {
    /// Relative to the root of the workspace.
    pub(crate) path: String,
    /// The items that are not only there for tests.
    pub(crate) production: syn::File,
    text: String,
    /// Lines of test modules inside the file.
    test_lines: usize,
}

/// Every production source file of the crates.
pub(crate) fn sources() -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("crates/ is there") {
        let source = entry.expect("crates/ can be listed").path().join("src");
        rust_files(&source, &mut paths);
    }
    paths.sort();
    let parsed: Vec<_> = paths.iter().map(|path| Source::read(&root, path)).collect();
    let tests: BTreeSet<_> = parsed.iter().flat_map(|(_, test_modules)| test_modules.clone()).collect();
    let production =
        |path: &PathBuf| !tests.iter().any(|test| path == test || path.starts_with(test.with_extension("")));
    parsed
        .into_iter()
        .zip(&paths)
        .filter(|(_, path)| production(path))
        .map(|((source, _), _)| source)
        .collect()
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn only_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().contains("test")
    })
}

fn item_attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Source {
    /// The file, and the files of the test modules that it declares.
    fn read(root: &Path, path: &Path) -> (Self, Vec<PathBuf>) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let relative = path.strip_prefix(root).expect("inside the workspace").display().to_string();
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("lib" | "main" | "mod") | None => path.with_file_name(""),
            Some(_) => path.with_extension(""),
        };
        let (source, modules) = Self::parse(relative, text);
        let file = |name: &String| folder.join(name).with_extension("rs");
        (source, modules.iter().map(file).collect())
    }

    fn parse(path: String, text: String) -> (Self, Vec<String>) {
        let mut production = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut test_lines = 0;
        let mut modules = Vec::new();
        production.items.retain(|item| {
            let attributes = item_attributes(item);
            if !only_for_tests(attributes) {
                return true;
            }
            let first = attributes[0].span().start().line;
            test_lines += item.span().end().line + 1 - first.min(item.span().start().line);
            if let syn::Item::Mod(syn::ItemMod { ident, content: None, .. }) = item {
                modules.push(ident.to_string());
            }
            false
        });
        (Self { path, production, text, test_lines }, modules)
    }

    fn lines(&self) -> usize {
        self.text.lines().count() - self.test_lines
    }

    /// Every identifier of the production code, also inside macros.
    pub(crate) fn identifiers(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(self.production.to_token_stream(), &mut |token| {
            if let TokenTree::Ident(ident) = token {
                found.insert(ident.to_string());
            }
        });
        found
    }

    /// Every string literal of the production code, also inside macros; doc comments are not among them.
    pub(crate) fn strings(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(self.production.to_token_stream(), &mut |token| {
            if let TokenTree::Literal(literal) = token
                && let Ok(string) = syn::parse_str::<syn::LitStr>(&literal.to_string())
            {
                found.insert(string.value());
            }
        });
        found
    }

    fn in_crate(&self, name: &str) -> bool {
        self.path.starts_with(&format!("crates/{name}/"))
    }
}

fn walk(tokens: TokenStream, visit: &mut impl FnMut(&TokenTree)) {
    for token in tokens {
        visit(&token);
        if let TokenTree::Group(group) = token {
            walk(group.stream(), visit);
        }
    }
}

/// Finds functions with their lines of code, and statics.
#[derive(Default)]
struct Finder<'a> {
    lines: Vec<&'a str>,
    functions: Vec<(String, usize)>,
    statics: Vec<String>,
}

impl<'a> Finder<'a> {
    fn over(source: &'a Source) -> Self {
        let mut finder = Self { lines: source.text.lines().collect(), ..Self::default() };
        finder.visit_file(&source.production);
        finder
    }

    fn function(&mut self, name: &syn::Ident, block: &syn::Block) {
        let body =
            block.brace_token.span.open().start().line..block.brace_token.span.close().start().line - 1;
        let code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = self.lines.get(body).map_or(0, |lines| lines.iter().filter(code).count());
        self.functions.push((name.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig.ident, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig.ident, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig.ident, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.statics.push(item.ident.to_string());
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if item
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "thread_local" || last.ident == "task_local")
        {
            self.statics.push("thread_local!".to_owned());
        }
    }
}

#[test]
fn files_are_short() {
    let mut wrong = Vec::new();
    for source in sources() {
        let listed = LONG_FILES.iter().find(|(path, _)| *path == source.path).map(|(_, lines)| *lines);
        match (source.lines(), listed) {
            (lines, None) if lines > FILE_CEILING => wrong.push(format!("{}: {lines} lines", source.path)),
            (lines, Some(most)) if lines > most || lines <= FILE_CEILING => {
                wrong.push(format!("{}: {lines} lines, listed with {most}", source.path));
            }
            _ => {}
        }
        if source.test_lines > INLINE_TESTS_CEILING {
            wrong.push(format!(
                "{}: {} lines of tests belong in a file of their own",
                source.path, source.test_lines
            ));
        }
    }
    none_found("files over their ceiling, or listed without need", &wrong);
}

#[test]
fn functions_are_short() {
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for source in sources() {
        for (name, lines) in Finder::over(&source).functions {
            let exception =
                LONG_FUNCTIONS.iter().find(|(path, listed, _)| *path == source.path && *listed == name);
            if lines > exception.map_or(FUNCTION_CEILING, |(_, _, most)| *most) {
                wrong.push(format!("{}: {name}: {lines} lines of code", source.path));
            } else if lines > FUNCTION_CEILING {
                needed.insert((source.path.clone(), name));
            }
        }
    }
    let stale = LONG_FUNCTIONS
        .iter()
        .filter(|(path, name, _)| !needed.contains(&((*path).to_owned(), (*name).to_owned())));
    wrong.extend(stale.map(|(path, name, _)| format!("{path}: {name} is listed without need")));
    none_found("functions over their ceiling, or listed without need", &wrong);
}

#[test]
fn statics_are_listed() {
    let found: BTreeSet<_> = sources()
        .iter()
        .flat_map(|source| Finder::over(source).statics.into_iter().map(|name| (source.path.clone(), name)))
        .collect();
    let listed: BTreeSet<_> =
        STATICS.iter().map(|(path, name, _)| ((*path).to_owned(), (*name).to_owned())).collect();
    let wrong: Vec<_> =
        found.symmetric_difference(&listed).map(|(path, name)| format!("{path}: {name}")).collect();
    none_found("statics that are not listed, or listed and gone", &wrong);
}

#[test]
fn pure_crates_touch_nothing() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.in_crate("protocol") || source.in_crate("routing"))
    {
        let identifiers = source.identifiers();
        for word in
            IMPURE.iter().chain(&["async", "tokio", "thread"]).filter(|word| identifiers.contains(**word))
        {
            wrong.push(format!("{}: {word}", source.path));
        }
    }
    none_found("the pure crates use clocks, sockets, files or tasks", &wrong);
}

#[test]
fn the_session_machine_is_synchronous() {
    let sources = sources();
    let machine: Vec<_> = sources
        .iter()
        .filter(|source| {
            source.path.starts_with("crates/proxy/src/session/")
                || source.path == "crates/proxy/src/session.rs"
        })
        .collect();
    assert!(!machine.is_empty(), "the session machine is in crates/proxy/src/session/");
    let mut wrong = Vec::new();
    for source in machine {
        let identifiers = source.identifiers();
        for word in ["async", "await", "tokio"].iter().filter(|word| identifiers.contains(**word)) {
            wrong.push(format!("{}: {word}", source.path));
        }
    }
    none_found("the session machine waits for something", &wrong);
}

#[test]
fn the_checks_find_what_they_look_for() {
    let long = "    let x = 1;\n".repeat(71);
    let text = format!(
        "//! Docs about tokio.\nfn long() {{\n{long}\n    // no code\n}}\nimpl X {{ fn short() {{ static S: u8 = 1; }} }}\n\
         thread_local!(static T: u8 = 1);\nfn m() {{ log!(\"causeway_x\", async {{}}); }}\n\
         #[cfg(test)]\nmod tests {{\n    static U: u8 = 1;\n}}\n#[cfg(test)]\nmod far;\n"
    );
    let (source, modules) = Source::parse("x.rs".to_owned(), text);
    let finder = Finder::over(&source);
    let function = |name: &str, lines| (name.to_owned(), lines);
    assert_eq!(finder.functions, [function("long", 71), function("short", 0), function("m", 0)]);
    assert_eq!(finder.statics, ["S", "thread_local!"]);
    assert_eq!((source.test_lines, modules), (6, vec!["far".to_owned()]));
    assert!(source.strings().contains("causeway_x") && source.identifiers().contains("async"));
    assert!(!source.identifiers().contains("tokio"));
}

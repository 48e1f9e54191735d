//! What running a database's own code leaves in a session, by the names that lead to it.

use std::collections::{HashMap, HashSet};

use crate::class::Class;
use crate::leaves::{Code, Leaves, Left, Mentions, code, function_number, relation_number};
use crate::reason::Reason;

use super::Catalogue;

/// A row of `pg_proc`, for what the function does when it runs.
#[derive(Clone, Debug)]
pub struct CodeRow {
    /// `proname`.
    pub name: String,
    /// `lanname`.
    pub language: String,
    /// Its source, or what `pg_get_function_sqlbody` gives; `None` if that is too long to be looked at.
    pub source: Option<String>,
    /// `provolatile`.
    pub volatility: char,
    /// The extension that it belongs to.
    pub extension: Option<String>,
}

/// Something that whoever uses a relation runs or uses as well: a trigger, a default, a rule, a view's query, a partition, a
/// table that refers to it.
#[derive(Clone, Debug)]
pub struct ReachRow {
    /// The name of the relation; empty for what any statement may run: operators, casts, types, event triggers.
    pub relation: String,
    /// The name of a function that it runs.
    pub function: Option<String>,
    /// The name of another relation that it uses.
    pub other: Option<String>,
}

/// What leads to code that leaves something behind.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// By the number of a name.
    leaves: HashMap<u32, Leaves>,
    /// What any statement may leave.
    everywhere: Leaves,
    /// Something leaves something.
    any: bool,
    /// What is known, by the numbers of functions: tables and types among them, as parentheses may follow those.
    known: HashSet<u32>,
}

/// A name and what it leads to.
struct Node {
    number: u32,
    own: Leaves,
    mentions: Mentions,
    reaches: Vec<u32>,
}

// === impl Running ===

impl Running {
    pub(super) fn new(code_rows: &[CodeRow], reach_rows: &[ReachRow]) -> Self {
        let mut nodes: Vec<Node> = code_rows.iter().map(Node::function).collect();
        nodes.extend(reach_rows.iter().map(Node::relation));
        let mut running = Self::default();
        let mut changed = true;
        while changed {
            changed = false;
            for node in &nodes {
                let gained = running.of(node);
                if !gained.is_empty() {
                    changed |= running.leaves.entry(node.number).or_default().gain(&gained);
                }
            }
        }
        running.any = !running.leaves.is_empty();
        running.know(code_rows.iter().map(|row| &*row.name));
        running.everywhere = running.leaves.remove(&relation_number("")).unwrap_or_default();
        running
    }

    /// What has one of these names is known.
    pub(super) fn know<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.known.extend(names.map(function_number));
    }

    fn of(&self, node: &Node) -> Leaves {
        let mut gained = node.own.clone();
        let mentioned = node.mentions.all().unwrap_or_default().iter();
        for number in mentioned.chain(&node.reaches) {
            if let Some(leaves) = self.leaves.get(number).filter(|_| *number != node.number) {
                gained.join(leaves);
            }
        }
        gained
    }
}

// === impl Node ===

impl Node {
    fn function(row: &CodeRow) -> Self {
        let (own, mentions) = code(&Code {
            language: &row.language,
            source: row.source.as_deref(),
            volatility: row.volatility,
            extension: row.extension.as_deref(),
            name: &row.name,
        });
        Self { number: function_number(&row.name), own, mentions, reaches: Vec::new() }
    }

    fn relation(row: &ReachRow) -> Self {
        let function = row.function.as_deref().map(function_number);
        let reaches = function.into_iter().chain(row.other.as_deref().map(relation_number)).collect();
        Self {
            number: relation_number(&row.relation),
            own: Leaves::default(),
            mentions: Mentions::default(),
            reaches,
        }
    }
}

// === impl Catalogue ===

impl Catalogue {
    /// Whether any code of this database leaves something in the session that runs it.
    #[inline]
    pub(crate) fn leaves_anything(&self) -> bool {
        self.running.any
    }

    /// What a class may leave behind in this database.
    pub(crate) fn left(&self, class: &Class) -> Left {
        if let Some(Ok(())) = self.identity.and_then(|by| class.leaves_memo.recall(by)) {
            return Left::Nothing;
        }
        let running = &self.running;
        let mut leaves = class.leaves.clone();
        leaves.join(&running.everywhere);
        match class.mentions.all() {
            Some(numbers) => {
                for found in numbers.iter().filter_map(|number| running.leaves.get(number)) {
                    leaves.join(found);
                }
            }
            None if running.any => return Left::Unknown,
            None => {}
        }
        if !class.mentions.calls().iter().all(|number| running.known.contains(number)) {
            return Left::Unknown;
        }
        let nothing = leaves.is_empty();
        if let Some(by) = self.identity {
            class.leaves_memo.note(by, if nothing { Ok(()) } else { Err(Reason::SessionState) });
        }
        if nothing { Left::Nothing } else { Left::Something(leaves) }
    }
}

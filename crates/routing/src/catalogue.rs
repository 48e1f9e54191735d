//! What a database's users have added to it: relations, functions, operators, types and casts.
//!
//! Objects in `pg_catalog` and `information_schema` are not asked about here; rows of theirs are ignored.

mod running;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use siphasher::sip::SipHasher13;

use crate::builtin;
use crate::class::Kind;
use crate::classify::{Limits, classify};
use crate::memo::Identity;
use crate::overrides::{Forced, Overrides};
use crate::reason::Reason;
use crate::symbols::{Call, Name, Symbols};

use running::Running;
pub use running::{CodeRow, ReachRow};

/// A row of `pg_class`.
#[derive(Clone, Debug)]
pub struct RelationRow {
    /// `nspname`.
    pub schema: String,
    /// `relname`.
    pub name: String,
    /// `relkind`.
    pub kind: char,
    /// `relpersistence`.
    pub persistence: char,
    /// `relrowsecurity`.
    pub row_security: bool,
    /// `pg_get_viewdef` of a view, printed with an empty `search_path`.
    pub definition: Option<String>,
    /// A foreign table whose rows do not depend on the node that asks for them (`postgres_fdw`).
    pub foreign_safe: bool,
}

/// A row of `pg_inherits`: whoever reads the parent reads the child.
#[derive(Clone, Debug)]
pub struct InheritanceRow {
    /// Schema and name of the table that is read.
    pub parent: (String, String),
    /// Schema and name of the partition or heir.
    pub child: (String, String),
}

/// A row of `pg_proc`.
#[derive(Clone, Debug)]
pub struct FunctionRow {
    /// `nspname`.
    pub schema: String,
    /// `proname`.
    pub name: String,
    /// `pronargs`.
    pub arguments: u16,
    /// `pronargdefaults`.
    pub defaults: u16,
    /// `provariadic <> 0`.
    pub variadic: bool,
    /// `provolatile`; of an aggregate the worst of its support functions, since its own is always `i`; and `v` for a
    /// function one of whose argument defaults calls anything, since the caller evaluates those.
    pub volatility: char,
}

/// A row of `pg_operator`.
#[derive(Clone, Debug)]
pub struct OperatorRow {
    /// `nspname`.
    pub schema: String,
    /// `oprname`.
    pub name: String,
    /// `provolatile` of the function behind it.
    pub volatility: char,
}

/// A row of `pg_type`; the row types of tables may be left out.
#[derive(Clone, Debug)]
pub struct TypeRow {
    /// `nspname`.
    pub schema: String,
    /// `typname`.
    pub name: String,
    /// `pg_get_constraintdef` of each CHECK of a domain, printed with an empty `search_path`.
    pub checks: Vec<String>,
    /// Schema and name of the types it is made of: attributes of a composite type, the base type of a domain, the
    /// subtype of a range. Types in `pg_catalog` may be left out.
    pub parts: Vec<(String, String)>,
}

/// A row of `pg_cast` with a function.
#[derive(Clone, Debug)]
pub struct CastRow {
    /// Schema and name of the type it gives.
    pub target: (String, String),
    /// `castcontext = 'i'`.
    pub implicit: bool,
    /// `provolatile` of its function.
    pub volatility: char,
}

/// Gathers the rows of a [`Catalogue`].
#[derive(Clone, Debug, Default)]
pub struct CatalogueBuilder {
    relations: Vec<RelationRow>,
    inheritance: Vec<InheritanceRow>,
    functions: Vec<FunctionRow>,
    operators: Vec<OperatorRow>,
    types: Vec<TypeRow>,
    casts: Vec<CastRow>,
    code: Vec<CodeRow>,
    reach: Vec<ReachRow>,
    overrides: Overrides,
}

type Map<T> = HashMap<Box<str>, T, BuildHasherDefault<SipHasher13>>;
type Judgement = Result<(), Reason>;

/// What a database's users have added to it, judged: an immutable value, looked up without allocation.
#[derive(Debug, Default)]
pub struct Catalogue {
    relations: Map<Objects>,
    operators: Map<Objects>,
    types: Map<Objects>,
    functions: Map<Box<[Function]>>,
    /// Something reaches into statements that do not name it: an operator that shadows one of PostgreSQL's own behind
    /// `IN` or `LIKE`, or an implicit cast, runs a volatile function.
    poisoned: Option<Reason>,
    identity: Option<Identity>,
    running: Running,
}

/// The objects of one name, by schema.
type Objects = Box<[(Box<str>, Judgement)]>;

#[derive(Debug)]
struct Function {
    schema: Box<str>,
    least: u16,
    most: u16,
    judgement: Judgement,
}

/// Operators that the grammar uses without writing them: `IN`, `BETWEEN`, `LIKE`, `CASE x WHEN`, `IS DISTINCT FROM`.
const HIDDEN_OPERATORS: [&str; 13] =
    ["=", "<>", "<", "<=", ">", ">=", "~", "!~", "~~", "!~~", "~~*", "!~~*", "*"];

// === impl CatalogueBuilder ===

impl CatalogueBuilder {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a relation. Indexes and composite types may be left out.
    pub fn relation(&mut self, row: RelationRow) {
        self.relations.push(row);
    }

    /// Adds a parent and a child.
    pub fn inheritance(&mut self, row: InheritanceRow) {
        self.inheritance.push(row);
    }

    /// Adds a function, an aggregate or a procedure; extensions' own included.
    pub fn function(&mut self, row: FunctionRow) {
        self.functions.push(row);
    }

    /// Adds an operator.
    pub fn operator(&mut self, row: OperatorRow) {
        self.operators.push(row);
    }

    /// Adds a type.
    pub fn type_(&mut self, row: TypeRow) {
        self.types.push(row);
    }

    /// Adds a cast.
    pub fn cast(&mut self, row: CastRow) {
        self.casts.push(row);
    }

    /// Adds what a function does when it runs.
    pub fn code(&mut self, row: CodeRow) {
        self.code.push(row);
    }

    /// Adds what using a relation leads to.
    pub fn reach(&mut self, row: ReachRow) {
        self.reach.push(row);
    }

    /// What holds of functions and tables whatever the rows say.
    pub fn overrides(&mut self, overrides: Overrides) {
        self.overrides = overrides;
    }

    /// Judges everything. Views take a parse each.
    pub fn build(self) -> Catalogue {
        Catalogue::build(self)
    }
}

// === impl Catalogue ===

impl Catalogue {
    /// Judges everything. Views take a parse each.
    pub fn build(rows: CatalogueBuilder) -> Self {
        let mut catalogue = Self {
            operators: by_name(rows.operators.into_iter().filter(|row| !is_own(&row.schema)).map(|row| {
                let judgement = volatility(row.volatility, Reason::UnknownOperatorOrType);
                ((row.schema, row.name), judgement)
            })),
            functions: functions(rows.functions, &rows.overrides),
            running: Running::new(&rows.code, &rows.reach),
            ..Self::default()
        };
        let hidden =
            HIDDEN_OPERATORS.iter().any(|name| catalogue.operators.get(*name).is_some_and(any_harmful));
        let casts: Vec<_> = rows.casts.into_iter().filter(|cast| cast.volatility == 'v').collect();
        let everywhere = casts.iter().any(|cast| cast.implicit || is_own(&cast.target.0));
        catalogue.judge_types(rows.types, &casts);
        catalogue.poisoned = (hidden || everywhere).then_some(Reason::UnknownOperatorOrType);
        catalogue.judge_relations(rows.relations, &rows.inheritance, &rows.overrides);
        let names =
            catalogue.relations.keys().chain(catalogue.types.keys()).chain(catalogue.functions.keys());
        catalogue.running.know(names.map(|name| &**name));
        catalogue
    }

    /// The same catalogue under a number by which its judgements are remembered ([`Memo`](crate::memo::Memo)).
    ///
    /// No two catalogues of one process may have the same, nor a catalogue one that another had before: random numbers are
    /// right. Without a number nothing is remembered.
    #[must_use]
    pub fn with_identity(self, number: u128) -> Self {
        Self { identity: Identity::new(number), ..self }
    }

    #[inline]
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Whether everything named is harmless.
    pub(crate) fn judge(&self, symbols: &Symbols) -> Judgement {
        if let Some(reason) = self.poisoned {
            return Err(reason);
        }
        symbols
            .relations
            .iter()
            .try_for_each(|name| lookup(&self.relations, name, Reason::UnknownRelation))?;
        symbols.functions.iter().try_for_each(|call| self.function(call))?;
        let unknown = Reason::UnknownOperatorOrType;
        symbols.operators.iter().try_for_each(|name| lookup(&self.operators, name, unknown))?;
        symbols.types.iter().try_for_each(|name| self.named_type(name))?;
        symbols.attributes.iter().try_for_each(|name| self.attribute(name))
    }

    fn function(&self, call: &Call) -> Judgement {
        let Call { name: Name { schema, name, builtin }, arguments } = call;
        let candidates = self.functions.get(name).map_or(&[][..], |candidates| candidates);
        let mut known = *builtin;
        for candidate in candidates {
            if schema.as_ref().is_none_or(|schema| *schema == candidate.schema) && candidate.takes(*arguments)
            {
                candidate.judgement?;
                known = true;
            }
        }
        // A call that finds no function may still be a cast: `shop.logged_int(5)`.
        if let Some(types) = self.types.get(name) {
            types.iter().try_for_each(|(_, judgement)| *judgement)?;
        }
        if known { Ok(()) } else { Err(Reason::UnknownFunction) }
    }

    fn named_type(&self, name: &Name) -> Judgement {
        let unknown = Reason::UnknownOperatorOrType;
        // The name of a table is also that of its row type.
        if !self.types.contains_key(&name.name) && self.relations.contains_key(&name.name) {
            return if self.types.values().any(any_harmful) { Err(unknown) } else { Ok(()) };
        }
        lookup(&self.types, name, unknown)
    }

    /// A column, or a call of a function of that name with one argument.
    fn attribute(&self, name: &str) -> Judgement {
        let candidates = self.functions.get(name).map_or(&[][..], |candidates| candidates);
        candidates.iter().filter(|candidate| candidate.takes(Some(1))).try_for_each(|c| c.judgement)
    }

    /// A type is harmless if its constraints, the types it is made of and the casts to it are.
    fn judge_types(&mut self, rows: Vec<TypeRow>, volatile_casts: &[CastRow]) {
        let rows: Vec<_> = rows.into_iter().filter(|row| !is_own(&row.schema)).collect();
        let harmful = || Err(Reason::UnknownOperatorOrType);
        self.types = by_name(rows.iter().map(|row| ((row.schema.clone(), row.name.clone()), harmful())));
        let mut pending: Vec<_> = rows
            .into_iter()
            .filter(|row| {
                !volatile_casts.iter().any(|cast| cast.target.0 == row.schema && cast.target.1 == row.name)
            })
            .filter_map(|row| Some((checks(&row.checks)?, row)))
            .collect();
        loop {
            let before = pending.len();
            pending.retain(|(symbols, row)| {
                let parts = row.parts.iter().all(|(schema, name)| {
                    is_own(schema) || self.types.get(name.as_str()).is_none_or(|types| !harms(types, schema))
                });
                let harmless = parts && symbols.iter().all(|symbols| self.judge(symbols).is_ok());
                if harmless {
                    approve(&mut self.types, &row.schema, &row.name);
                }
                !harmless
            });
            if pending.len() == before {
                return;
            }
        }
    }

    /// Judges tables at once, then views as soon as all they read is judged, then those with heirs by their heirs.
    /// What is left over reads itself, or something unknown.
    fn judge_relations(
        &mut self,
        rows: Vec<RelationRow>,
        inheritance: &[InheritanceRow],
        overrides: &Overrides,
    ) {
        let mut judged: HashMap<(String, String), Judgement> = HashMap::new();
        let mut views = Vec::new();
        for row in rows.into_iter().filter(|row| !is_own(&row.schema)) {
            let forced = overrides.table(&row.schema, &row.name);
            let judgement = match (row.kind, row.definition) {
                _ if forced.is_some() => forced.map_or(Ok(()), |f| f.over_table(row.kind, row.persistence)),
                ('v', Some(definition)) => {
                    let class = classify(definition.as_bytes(), &Limits::default());
                    if class.kind == Kind::Read {
                        views.push(((row.schema.clone(), row.name.clone()), class.symbols));
                    }
                    Err(Reason::UnprovenView)
                }
                ('v', None) => Err(Reason::UnprovenView),
                ('S', _) => Err(Reason::NodeLocal),
                _ if row.persistence != 'p' => Err(Reason::TempOrUnlogged),
                _ if row.row_security => Err(Reason::RowSecurity),
                ('f', _) if !row.foreign_safe => Err(Reason::NodeLocal),
                ('r' | 'p' | 'm' | 'f' | 't', _) => Ok(()),
                _ => Err(Reason::UnknownRelation),
            };
            judged.insert((row.schema, row.name), judgement);
        }
        // Trees of partitions are a few levels deep; each round carries the verdicts one level up.
        loop {
            let mut changed = false;
            for row in inheritance {
                let child = judged.get(&row.child).copied().unwrap_or(Err(Reason::UnknownRelation));
                let forced = overrides.table(&row.parent.0, &row.parent.1) == Some(Forced::Read);
                if let (Err(reason), Some(parent)) = (child, judged.get_mut(&row.parent))
                    && parent.is_ok()
                    && (!forced || matches!(reason, Reason::TempOrUnlogged | Reason::Configured))
                {
                    *parent = Err(reason);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        self.relations = by_name(judged.into_iter());
        self.judge_views(views);
    }

    /// Views in the order in which they read each other.
    fn judge_views(&mut self, mut views: Vec<((String, String), Symbols)>) {
        loop {
            let before = views.len();
            views.retain(|((schema, name), symbols)| {
                if self.judge(symbols).is_err() {
                    return true;
                }
                approve(&mut self.relations, schema, name);
                false
            });
            if views.len() == before {
                return;
            }
        }
    }
}

// === impl Function ===

impl Function {
    fn takes(&self, arguments: Option<u16>) -> bool {
        arguments.is_none_or(|n| self.least <= n && n <= self.most)
    }
}

/// Whether a schema is PostgreSQL's own.
fn is_own(schema: &str) -> bool {
    matches!(schema, "pg_catalog" | "information_schema" | "pg_toast")
}

fn any_harmful(objects: &Objects) -> bool {
    objects.iter().any(|(_, judgement)| judgement.is_err())
}

fn harms(objects: &Objects, schema: &str) -> bool {
    objects.iter().any(|(owner, judgement)| **owner == *schema && judgement.is_err())
}

fn approve(map: &mut Map<Objects>, schema: &str, name: &str) {
    for (owner, judgement) in map.get_mut(name).into_iter().flatten() {
        if **owner == *schema {
            *judgement = Ok(());
        }
    }
}

/// The names in the constraints of a domain; `None` when one of them is not a read.
fn checks(checks: &[String]) -> Option<Vec<Symbols>> {
    let classes = checks.iter().map(|check| {
        let expression = check.strip_prefix("CHECK ")?.trim_end_matches(" NOT VALID");
        let class = classify(format!("SELECT {expression}").as_bytes(), &Limits::default());
        (class.kind == Kind::Read && class.symbols.relations.is_empty()).then_some(class.symbols)
    });
    classes.collect()
}

fn volatility(volatility: char, otherwise: Reason) -> Judgement {
    if matches!(volatility, 'i' | 's') { Ok(()) } else { Err(otherwise) }
}

fn lookup(map: &Map<Objects>, name: &Name, unknown: Reason) -> Judgement {
    let mut known = name.builtin;
    for (schema, judgement) in map.get(&name.name).map_or(&[][..], |objects| objects) {
        if name.schema.as_ref().is_none_or(|wanted| wanted == schema) {
            (*judgement)?;
            known = true;
        }
    }
    if known { Ok(()) } else { Err(unknown) }
}

fn by_name(rows: impl Iterator<Item = ((String, String), Judgement)>) -> Map<Objects> {
    let mut gathered: Map<Vec<(Box<str>, Judgement)>> = Map::default();
    for ((schema, name), judgement) in rows {
        gathered.entry(name.into_boxed_str()).or_default().push((schema.into_boxed_str(), judgement));
    }
    gathered.into_iter().map(|(name, objects)| (name, objects.into_boxed_slice())).collect()
}

fn functions(rows: Vec<FunctionRow>, overrides: &Overrides) -> Map<Box<[Function]>> {
    let mut gathered: Map<Vec<Function>> = Map::default();
    for row in rows.into_iter().filter(|row| !is_own(&row.schema)) {
        let judgement = match overrides.function(&row.schema, &row.name) {
            Some(Forced::Read) => Ok(()),
            Some(Forced::Primary) => Err(Reason::Configured),
            None if builtin::runs_text(&row.name) => Err(Reason::VolatileFunction),
            None if builtin::is_harmless_extension_function(&row.name) => Ok(()),
            None => volatility(row.volatility, Reason::VolatileFunction),
        };
        let function = Function {
            schema: row.schema.into_boxed_str(),
            least: row.arguments.saturating_sub(row.defaults).saturating_sub(u16::from(row.variadic)),
            most: if row.variadic { u16::MAX } else { row.arguments },
            judgement,
        };
        gathered.entry(row.name.into_boxed_str()).or_default().push(function);
    }
    gathered.into_iter().map(|(name, functions)| (name, functions.into_boxed_slice())).collect()
}

#[cfg(test)]
mod tests;

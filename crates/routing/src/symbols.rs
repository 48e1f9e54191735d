//! The names in a statement that only a catalogue can judge.

/// A name as the server folds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The schema, if one was written.
    pub schema: Option<Box<str>>,
    /// The name itself.
    pub name: Box<str>,
    /// PostgreSQL itself has a harmless object of this name, which this may mean.
    pub builtin: bool,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The function's name.
    pub name: Name,
    /// How many arguments are given; `None` when that is not known, as with VARIADIC.
    pub arguments: Option<u16>,
}

/// The names in a statement that only a catalogue can judge, each of them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Functions called by name.
    pub functions: Box<[Call]>,
    /// Relations read, names of common table expressions excluded.
    pub relations: Box<[Name]>,
    /// Operators, those of PostgreSQL itself included.
    pub operators: Box<[Name]>,
    /// Types of casts, typed literals and column definitions.
    pub types: Box<[Name]>,
    /// Last parts of qualified column references and of field selections: `i.bump` may be the call `bump(i)`.
    pub attributes: Box<[Box<str>]>,
}

// === impl Symbols ===

impl Symbols {
    /// Whether there is nothing to look up.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
            && self.relations.is_empty()
            && self.operators.is_empty()
            && self.types.is_empty()
            && self.attributes.is_empty()
    }

    /// The bytes this occupies on the heap, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let name =
            |name: &Name| size_of::<Name>() + name.name.len() + name.schema.as_deref().map_or(0, str::len);
        let names = |names: &[Name]| names.iter().map(name).sum::<usize>();
        names(&self.relations)
            + names(&self.operators)
            + names(&self.types)
            + self.functions.iter().map(|call| size_of::<Call>() + name(&call.name)).sum::<usize>()
            + self.attributes.iter().map(|text| size_of::<Box<str>>() + text.len()).sum::<usize>()
    }
}

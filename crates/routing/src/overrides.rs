//! What an operator knows of functions and tables that the catalogue cannot tell.

use std::cmp::Reverse;

use crate::reason::Reason;

/// Where whatever uses a function or a table shall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forced {
    /// On a replica, as far as this function or table is concerned: its label or definition is not looked at.
    Read,
    /// On the primary.
    Primary,
}

/// Names, `*` standing for any characters: `get_*` in any schema, `app.get_*` in one, `audit.*` for all of a schema.
///
/// They are compared as the catalogue has them, so names that were made without quotes are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    schema: Option<Box<str>>,
    name: Box<str>,
}

/// Why a text is no [`Pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A name is missing.
    #[error("expected a name or schema.name, in which * stands for any characters")]
    Empty,
    /// It names PostgreSQL's own objects.
    #[error("the functions and tables of PostgreSQL itself cannot be forced")]
    Own,
}

/// Functions and tables forced either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    functions: Vec<Rule>,
    tables: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: Pattern,
    forced: Forced,
    /// Zero for what a database says itself, one for what holds where it says nothing.
    layer: u8,
}

// === impl Pattern ===

impl Pattern {
    /// Reads `name` or `schema.name`; whatever follows the first dot is the name.
    ///
    /// # Errors
    ///
    /// When a part is missing, or the schema is one of PostgreSQL's own.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        if name.is_empty() || schema.is_some_and(str::is_empty) {
            return Err(PatternError::Empty);
        }
        if schema.is_some_and(|schema| matches!(schema, "pg_catalog" | "information_schema")) {
            return Err(PatternError::Own);
        }
        Ok(Self { schema: schema.map(Into::into), name: name.into() })
    }

    fn matches(&self, schema: &str, name: &str) -> bool {
        self.schema.as_ref().is_none_or(|pattern| fits(pattern, schema)) && fits(&self.name, name)
    }

    /// How much it says: the characters that are not left open, and a schema counts for more than any.
    fn weight(&self) -> (bool, usize) {
        let said = |text: &str| text.chars().filter(|c| *c != '*').count();
        let exact =
            !self.name.contains('*') && self.schema.as_ref().is_some_and(|schema| !schema.contains('*'));
        (exact, said(&self.name) + self.schema.as_deref().map_or(0, said))
    }
}

// === impl Overrides ===

impl Overrides {
    /// Those of one section of the configuration.
    pub fn new(functions: Vec<(Pattern, Forced)>, tables: Vec<(Pattern, Forced)>) -> Self {
        let rules = |rules: Vec<(Pattern, Forced)>| {
            rules.into_iter().map(|(pattern, forced)| Rule { pattern, forced, layer: 0 }).collect()
        };
        Self { functions: rules(functions), tables: rules(tables) }
    }

    /// These, and behind them those that hold where these say nothing.
    #[must_use]
    pub fn over(mut self, general: &Self) -> Self {
        let behind = |rule: &Rule| Rule { layer: rule.layer.saturating_add(1), ..rule.clone() };
        self.functions.extend(general.functions.iter().map(behind));
        self.tables.extend(general.tables.iter().map(behind));
        self
    }

    /// Whether nothing is forced.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.tables.is_empty()
    }

    /// What is said of a function.
    pub(crate) fn function(&self, schema: &str, name: &str) -> Option<Forced> {
        decide(&self.functions, schema, name)
    }

    /// What is said of a table or view.
    pub(crate) fn table(&self, schema: &str, name: &str) -> Option<Forced> {
        decide(&self.tables, schema, name)
    }
}

// === impl Forced ===

impl Forced {
    /// What this makes of a judgement. An unlogged table has no rows on a standby, and a sequence other ones, whatever
    /// anybody says.
    pub(crate) fn over_table(self, kind: char, persistence: char) -> Result<(), Reason> {
        match self {
            Self::Primary => Err(Reason::Configured),
            Self::Read if persistence != 'p' => Err(Reason::TempOrUnlogged),
            Self::Read if kind == 'S' => Err(Reason::NodeLocal),
            Self::Read => Ok(()),
        }
    }
}

/// The rule that says most of a name decides, those of a database itself before all others; of two alike, the primary.
fn decide(rules: &[Rule], schema: &str, name: &str) -> Option<Forced> {
    let matching = rules.iter().filter(|rule| rule.pattern.matches(schema, name));
    let rank = |rule: &&Rule| (Reverse(rule.layer), rule.pattern.weight(), rule.forced);
    matching.max_by_key(rank).map(|rule| rule.forced)
}

/// Whether `*` in a pattern can stand for what makes it this text: each piece between two of them is found at the first
/// place behind the one before, the last one at the end.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*') {
        let Some(at) = text.find(piece) else { return false };
        text = text.get(at + piece.len()..).unwrap_or_default();
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, Forced)]) -> Vec<(Pattern, Forced)> {
        rules.iter().map(|(text, forced)| (Pattern::parse(text).unwrap(), *forced)).collect()
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, fit) in [
            ("get_x", "get_x", true),
            ("get_x", "get_xy", false),
            ("get_*", "get_x", true),
            ("get_*", "get_", true),
            ("get_*", "forget_x", false),
            ("*", "", true),
            ("*_at", "made_at", true),
            ("*_at", "at", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*ab*b", "aabb", true),
            ("a*a", "a", false),
            ("**", "x", true),
            ("*é*", "été", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn what_says_most_decides() {
        use Forced::{Primary, Read};
        let general = Overrides::new(rules(&[("*", Primary), ("get_secret", Primary)]), Vec::new());
        let own = rules(&[("app.*", Read), ("app.log_*", Primary), ("app.log_x", Read), ("tie_*", Read)]);
        let overrides = Overrides::new(own, rules(&[("a*", Read), ("*a", Primary)])).over(&general);
        for (schema, name, forced) in [
            ("app", "f", Some(Read)),
            ("app", "log_y", Some(Primary)),
            ("app", "log_x", Some(Read)),
            ("app", "get_secret", Some(Read)),
            ("public", "f", Some(Primary)),
            ("public", "tie_f", Some(Read)),
        ] {
            assert_eq!(overrides.function(schema, name), forced, "{schema}.{name}");
        }
        assert_eq!(overrides.table("public", "aa"), Some(Primary), "of two alike");
        assert_eq!(overrides.table("public", "ab"), Some(Read));
        assert_eq!(overrides.table("public", "x"), None);
    }

    #[test]
    fn what_is_no_pattern() {
        for (text, error) in [
            ("", PatternError::Empty),
            ("a.", PatternError::Empty),
            (".a", PatternError::Empty),
            ("pg_catalog.now", PatternError::Own),
        ] {
            assert_eq!(Pattern::parse(text), Err(error), "{text}");
        }
        assert!(Pattern::parse("a.b.c").unwrap().matches("a", "b.c"));
    }
}

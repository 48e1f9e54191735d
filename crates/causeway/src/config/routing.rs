//! The sections `routing`: functions and tables forced either way.

use std::collections::BTreeMap;

use causeway_routing::{Forced, Overrides, Pattern};
use serde::Deserialize;

use super::problem::{KeyPath, Problem};
use super::raw;
use super::validate::Validation;

/// Where whatever uses a function or table runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedTo {
    /// On a replica, as far as this one is concerned.
    Read,
    /// On the primary.
    Primary,
}

impl Validation<'_> {
    /// The section at `path`.
    pub(super) fn routing(&mut self, section: Option<raw::Routing>, path: &KeyPath) -> Overrides {
        let section = section.unwrap_or_default();
        let functions = self.forced(section.functions, &path.key("functions"));
        let tables = self.forced(section.tables, &path.key("tables"));
        Overrides::new(functions, tables)
    }

    fn forced(
        &mut self,
        rules: Option<BTreeMap<String, ForcedTo>>,
        path: &KeyPath,
    ) -> Vec<(Pattern, Forced)> {
        let mut checked = Vec::new();
        for (text, forced) in rules.unwrap_or_default() {
            match Pattern::parse(&text) {
                Ok(pattern) => checked.push((pattern, forced.into())),
                Err(error) => self.refuse_key(Problem::key(path.key(&text), error.to_string())),
            }
        }
        checked
    }
}

// === impl ForcedTo ===

impl From<ForcedTo> for Forced {
    fn from(forced: ForcedTo) -> Self {
        match forced {
            ForcedTo::Read => Self::Read,
            ForcedTo::Primary => Self::Primary,
        }
    }
}

//! What a class means in one database.

use crate::catalogue::Catalogue;
use crate::class::{Class, Kind};
use crate::reason::Reason;
use crate::symbols::Symbols;

/// What a statement may do in one database, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What it may do.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
}

/// What a class means in the database of this catalogue, or in one whose catalogue is not known yet.
///
/// It depends on nothing else: names without a schema are harmless only if they are in every schema, so that the
/// session's search path does not matter. Temporary objects are not in any catalogue; a session that has some is
/// pinned and asks nobody.
pub fn resolve(class: &Class, catalogue: Option<&Catalogue>) -> Verdict {
    let asks = matches!(class.kind, Kind::Read | Kind::BeginReadOnly | Kind::Session | Kind::Either);
    if !asks {
        return Verdict { kind: class.kind, reason: class.reason };
    }
    match symbols(&class.symbols, catalogue) {
        Ok(()) => Verdict { kind: class.kind, reason: class.reason },
        Err(reason) => {
            let kind = match class.kind {
                Kind::BeginReadOnly => Kind::BeginReadWrite,
                Kind::Session => Kind::WriteSession,
                _ => Kind::Write,
            };
            Verdict { kind, reason }
        }
    }
}

/// Whether everything named is harmless.
pub(crate) fn symbols(symbols: &Symbols, catalogue: Option<&Catalogue>) -> Result<(), Reason> {
    if let Some(catalogue) = catalogue {
        return catalogue.judge(symbols);
    }
    // Whatever a user may have added is reached through names that are not PostgreSQL's own.
    let builtin = symbols.relations.iter().all(|name| name.builtin)
        && symbols.functions.iter().all(|call| call.name.builtin)
        && symbols.operators.iter().all(|name| name.builtin)
        && symbols.types.iter().all(|name| name.builtin);
    if builtin { Ok(()) } else { Err(Reason::NoCatalogue) }
}

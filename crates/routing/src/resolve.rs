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
#[inline]
pub fn resolve(class: &Class, catalogue: Option<&Catalogue>) -> Verdict {
    let asks = matches!(class.kind, Kind::Read | Kind::BeginReadOnly | Kind::Session | Kind::Either);
    if !asks {
        return Verdict { kind: class.kind, reason: class.reason };
    }
    let by = catalogue.and_then(Catalogue::identity);
    let judgement = by.and_then(|by| class.memo.recall(by)).unwrap_or_else(|| judge(class, catalogue));
    match judgement {
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

/// What looking the names up gives, which is remembered.
#[inline(never)]
fn judge(class: &Class, catalogue: Option<&Catalogue>) -> Result<(), Reason> {
    let judgement = symbols(&class.symbols, catalogue);
    if let Some(by) = catalogue.and_then(Catalogue::identity) {
        class.memo.note(by, judgement);
    }
    judgement
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{CatalogueBuilder, RelationRow};
    use crate::classify::{Limits, classify};

    fn catalogue(persistence: char) -> Catalogue {
        let mut builder = CatalogueBuilder::new();
        builder.relation(RelationRow {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            kind: 'r',
            persistence,
            row_security: false,
            definition: None,
            foreign_safe: false,
        });
        builder.build()
    }

    #[test]
    fn a_verdict_is_remembered_as_long_as_the_catalogue_is_the_same() {
        let class = classify(b"SELECT * FROM t", &Limits::default());
        let (logged, unlogged) =
            (catalogue('p').with_identity(7 << 64), catalogue('u').with_identity(8 << 64));
        for _ in 0..3 {
            assert_eq!(resolve(&class, None).reason, Reason::NoCatalogue);
            assert_eq!(resolve(&class, Some(&logged)).kind, Kind::Read);
            assert_eq!(resolve(&class, Some(&logged)).kind, Kind::Read);
            let verdict = Verdict { kind: Kind::Write, reason: Reason::TempOrUnlogged };
            assert_eq!(resolve(&class, Some(&unlogged)), verdict);
            assert_eq!(resolve(&class, Some(&unlogged)), verdict);
            assert_eq!(resolve(&class, Some(&catalogue('u'))), verdict, "no number");
            assert_eq!(resolve(&class, Some(&catalogue('p'))).kind, Kind::Read, "no number");
        }
    }

    #[test]
    fn sessions_that_share_a_class_get_the_verdicts_of_their_own_catalogues() {
        let class = classify(b"SELECT * FROM t", &Limits::default());
        let catalogues = [catalogue('p').with_identity(7 << 64), catalogue('u').with_identity(8 << 64)];
        std::thread::scope(|scope| {
            for (catalogue, kind) in catalogues.iter().zip([Kind::Read, Kind::Write]).cycle().take(4) {
                let class = &class;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        assert_eq!(resolve(class, Some(catalogue)).kind, kind);
                    }
                });
            }
        });
    }
}

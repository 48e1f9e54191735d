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

/// What a class means for somebody who asks for a replica: what is not proven to be a read counts as one, if it is not known to
/// write, lock or be session state either. So do questions whose answer belongs to the node that gives it.
///
/// A standby refuses what writes all the same, and that is remembered as of any other read.
pub fn resolve_for_replica(class: &Class, catalogue: Option<&Catalogue>) -> Verdict {
    let verdict = resolve(class, catalogue);
    let doubt = match class.kind {
        Kind::Read => verdict.reason,
        Kind::Write if class.asks_node => {
            let by = catalogue.and_then(Catalogue::identity);
            let judgement =
                by.and_then(|by| class.memo.recall(by)).unwrap_or_else(|| judge(class, catalogue));
            judgement.err().unwrap_or(Reason::NodeLocal)
        }
        _ => return verdict,
    };
    if is_doubt(doubt) { Verdict { kind: Kind::Read, reason: Reason::Hint } } else { verdict }
}

/// Whether a reason against a replica says that something is not known, rather than what it is.
fn is_doubt(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::VolatileFunction
            | Reason::UnknownFunction
            | Reason::UnknownRelation
            | Reason::UnknownOperatorOrType
            | Reason::UnprovenView
            | Reason::RowSecurity
            | Reason::NoCatalogue
            | Reason::NodeLocal
    )
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

    #[test]
    fn who_asks_for_a_replica_gets_the_benefit_of_the_doubt() {
        use crate::catalogue::FunctionRow;
        let mut builder = CatalogueBuilder::new();
        let row = |name: &str, volatility| FunctionRow {
            schema: "public".into(),
            name: name.into(),
            arguments: 0,
            defaults: 0,
            variadic: false,
            volatility,
        };
        builder.function(row("doubtful", 'v'));
        builder.function(row("harmless", 's'));
        let catalogue = builder.build().with_identity(9 << 64);
        for (sql, wanted) in [
            ("SELECT harmless()", Reason::Read),
            ("SELECT doubtful()", Reason::Hint),
            ("SELECT no_such()", Reason::Hint),
            ("SELECT * FROM no_such", Reason::Hint),
            ("SELECT pg_is_in_recovery()", Reason::Hint),
            ("SELECT pid, doubtful() FROM pg_stat_activity", Reason::Hint),
            ("SHOW transaction_read_only", Reason::Hint),
            ("COPY pg_stat_replication TO STDOUT", Reason::Hint),
            ("SELECT current_setting('in_hot_standby')", Reason::Hint),
            // What is known to write, to lock, to be session state or to have an effect on its node.
            ("INSERT INTO t VALUES (1)", Reason::Write),
            ("SELECT nextval('s')", Reason::VolatileFunction),
            ("SELECT * FROM t FOR SHARE", Reason::Locking),
            ("SELECT pg_is_in_recovery() FOR UPDATE", Reason::Locking),
            ("SELECT pg_promote()", Reason::NodeLocal),
            ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", Reason::NodeLocal),
            ("COPY pg_stat_replication TO '/tmp/x'", Reason::Write),
            ("SELECT pg_is_in_recovery(); SELECT 1", Reason::NodeLocal),
            ("SELECT pg_is_in_recovery(), pg_backend_pid()", Reason::NodeLocal),
            ("SELECT pg_advisory_lock(1)", Reason::VolatileFunction),
            ("SET x.y = 1", Reason::SessionState),
            ("SELECT pg_is_in_recovery() INTO t", Reason::Write),
        ] {
            let class = classify(sql.as_bytes(), &Limits::default());
            for _ in 0..2 {
                let verdict = resolve_for_replica(&class, Some(&catalogue));
                assert_eq!(verdict.reason, wanted, "{sql}");
                let reads = matches!(wanted, Reason::Read | Reason::Hint);
                assert_eq!(verdict.kind == Kind::Read, reads, "{sql}");
                assert_eq!(
                    resolve(&class, Some(&catalogue)).kind == Kind::Read,
                    wanted == Reason::Read,
                    "{sql}"
                );
            }
            if wanted == Reason::Hint {
                assert!(class.refuse(&catalogue));
                assert_ne!(
                    resolve_for_replica(&class, Some(&catalogue)).kind,
                    Kind::Read,
                    "{sql}: refused once"
                );
            }
        }
    }
}

//! The statements that the kernels work on, and where they may run.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::catalogue::RelationRow;
use causeway_routing::{
    Catalogue, CatalogueBuilder, Fence, Kind, Level, Limits, Load, Lsn, NodeId, NodeState, NodeView,
    Observation, Reason, Request, Requirement, Role, Router, Target, Verdict, View, classify, resolve,
};

use crate::Kernel;

/// What `pgbench -S` sends, 54 bytes.
pub const PGBENCH: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 1234";

/// A point read over two tables by the extended protocol, 200 bytes.
pub const POINT_READ: &str = "SELECT r.repository_id, r.virtual_storage, r.relative_path, r.generation, r.primary, \
     a.rank FROM repositories AS r JOIN assignments AS a ON a.repository_id = r.repository_id WHERE r.repository_id = $1";

/// The same with its constants inlined, 200 bytes.
pub const INLINED: &str = "SELECT r.repository_id, r.relative_path, r.generation, r.primary FROM repositories AS r \
     JOIN assignments AS a ON a.repository_id = r.repository_id WHERE a.storage = 'node-1' AND r.repository_id = 9712";

/// A read as a Git-storage cluster makes it: common table expressions, joins, aggregates, a list.
pub const LISTED: &str = "WITH up_to_date AS (SELECT repository_id, array_agg(storage) AS storages, max(generation) AS \
     generation FROM storage_repositories WHERE repository_id IN (1, 2, 3, 5, 8, 13, 21, 34) GROUP BY repository_id), \
     healthy AS (SELECT node_name FROM node_status WHERE last_contact_attempt_at >= now() - interval '60 seconds' \
     AND shard_name = 'default') SELECT r.repository_id, r.relative_path, coalesce(u.generation, -1) AS generation, \
     u.storages, count(DISTINCT h.node_name) AS healthy FROM repositories AS r LEFT JOIN up_to_date AS u USING \
     (repository_id) LEFT JOIN healthy AS h ON h.node_name = ANY (u.storages) WHERE r.virtual_storage = 'default' \
     GROUP BY 1, 2, 3, 4 ORDER BY r.relative_path LIMIT 100";

pub(crate) fn kernels() -> Vec<Kernel> {
    vec![resolution(), session_route(Requirement::None), session_route(Requirement::Fence(fence()))]
}

/// What a class means in a database of many tables.
fn resolution() -> Kernel {
    let catalogue = catalogue();
    let class = classify(INLINED.as_bytes(), &Limits::default());
    Kernel::new("resolve", "statement", 1, move || {
        let verdict = resolve(black_box(&class), Some(black_box(&catalogue)));
        assert_eq!(black_box(verdict).kind, Kind::Read);
    })
}

fn catalogue() -> Catalogue {
    let mut builder = CatalogueBuilder::new();
    let others = (0..500).map(|n| format!("table_{n}"));
    for name in ["repositories", "assignments"].map(str::to_owned).into_iter().chain(others) {
        builder.relation(RelationRow {
            schema: "public".to_owned(),
            name,
            kind: 'r',
            persistence: 'p',
            row_security: false,
            definition: None,
            foreign_safe: false,
        });
    }
    builder.build().with_identity(7 << 64 | 7)
}

fn fence() -> Fence {
    Fence { system_id: 1, timeline: 1, lsn: Lsn(1000) }
}

/// Where a read runs, with a primary and two replicas.
fn session_route(requirement: Requirement) -> Kernel {
    let node = |id: u16, role| NodeView {
        id: NodeId(id),
        name: Arc::from(format!("pg-{id}")),
        role,
        state: NodeState::Serving,
        weight: 1,
        levels: causeway_routing::Levels::ALL,
        observation: Some(Observation { system_id: 1, timeline: 1, lsn: Lsn(1000 + u64::from(id)) }),
        lag_bytes: Some(0),
        lag: Some(Duration::ZERO),
    };
    let view = View {
        nodes: vec![node(0, Role::Primary), node(1, Role::Replica), node(2, Role::Replica)],
        primary: Some(NodeId(0)),
        fence: Some(fence()),
        ..View::default()
    };
    let loads: Vec<_> = (0..3)
        .map(|n| Load { in_flight: n, latency: Duration::from_micros(200), ..Load::default() })
        .collect();
    let request = Request {
        verdict: Verdict { kind: Kind::Read, reason: Reason::Read },
        level: Level::Session,
        requirement,
        serializable: false,
        excluded: &[],
    };
    let name = if requirement == Requirement::None { "route" } else { "route/fence" };
    let mut random = 0_u64;
    Kernel::new(name, "statement", 1, move || {
        // Any sequence will do that reaches both replicas.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let decision = Router.route(black_box(&request), black_box(&view), black_box(&loads), random);
        assert!(matches!(black_box(decision).target, Target::Replica(_)), "a replica covers it");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_are_as_long_as_they_say() {
        assert_eq!((PGBENCH.len(), POINT_READ.len(), INLINED.len()), (54, 200, 200));
        assert_eq!(LISTED.len(), 695);
    }

    #[test]
    fn all_of_them_are_reads() {
        for sql in [PGBENCH, POINT_READ, INLINED, LISTED] {
            assert_eq!(classify(sql.as_bytes(), &Limits::default()).kind, Kind::Read, "{sql}");
        }
    }
}

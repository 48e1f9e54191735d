//! What a client is told whose read cannot be served.

use std::time::Duration;

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{Fence, Level, Lsn, Role, View};

pub(super) fn not_shown(level: Level, fence: Option<Fence>, view: &View, waited: Duration) -> ErrorReport {
    let replicas = view.nodes.iter().filter(|node| node.role == Role::Replica);
    let best: Option<Lsn> = replicas.filter_map(|node| Some(node.observation?.lsn)).max();
    let detail = match (fence, best) {
        (Some(fence), Some(best)) => {
            format!("It must show {fence}; the best replica has replayed up to {best}.")
        }
        (Some(fence), None) => format!("It must show {fence}; the position of no replica is known."),
        (None, _) => "The primary did not tell in time what it must show.".to_owned(),
    };
    let message = format!("no replica could serve the read at consistency level {level}");
    ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(format!("{detail} Waited {} ms.", waited.as_millis()))
        .with_hint("Raise consistency.wait, or set consistency.fallback to primary.")
}

pub(super) fn fell_behind(level: Level, node: &str, waited: Duration) -> ErrorReport {
    let message = format!("the replica does not show what a read at consistency level {level} must see");
    ErrorReport::fatal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(format!(
            "The transaction cannot leave node \"{node}\", which did not catch up within {} ms.",
            waited.as_millis()
        ))
        .with_hint("Begin the transaction again, or begin it without READ ONLY to run it on the primary.")
}

pub(super) fn too_many_fallbacks() -> ErrorReport {
    ErrorReport::error(
        SqlState::TOO_MANY_CONNECTIONS,
        "too many reads wait for the primary in place of a replica",
    )
    .with_detail(
        "No replica has replayed what they must see, and consistency.fallback_limit of them run there.",
    )
    .with_hint("SHOW NODES on the console tells how far the replicas are behind.")
}

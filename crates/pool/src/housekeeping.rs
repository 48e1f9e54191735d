//! The task that closes what nobody needs and tries again for those who wait.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::shared::Shared;

/// How often idle connections are looked at: no system call, so long as nothing happened to them.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until nothing is idle and nobody waits for a backoff to end, or until the pool is gone.
pub(crate) async fn run(shared: Weak<Shared>, bell: Arc<Notify>) {
    while let Some(look_at) = look(&shared) {
        tokio::select! {
            () = sleep_until(look_at) => {}
            () = bell.notified() => {}
        }
    }
}

/// Does what is due; when to look again.
fn look(shared: &Weak<Shared>) -> Option<Instant> {
    let shared = shared.upgrade()?;
    let now = Instant::now();
    let swept = shared.lock().sweep(now);
    for (mut conn, reason) in swept {
        match reason.map_or_else(|| conn.settle(), Err) {
            Ok(()) => shared.place(conn, now),
            Err(reason) => shared.retire(conn, reason),
        }
    }
    let mut plan = shared.lock().plan(now);
    // This task itself is what keeps house: ringing its own bell, it would never sleep.
    plan.keep = false;
    shared.carry_out(plan);
    let mut state = shared.lock();
    let next = state.next_look(now, now + INTERVAL);
    state.kept = next.is_some();
    next
}

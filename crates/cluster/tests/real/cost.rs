//! What fences cost the primary.

use std::time::Duration;

use causeway_cluster::ProbeKind;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Rig;

/// How many fences so many loops get in a second, and how many probes that takes.
async fn fences(rig: &Rig, waiters: usize) -> (u64, u64) {
    let before = rig.cluster.totals();
    let until = Instant::now() + Duration::from_secs(1);
    let mut looping = JoinSet::new();
    for _ in 0..waiters {
        let cluster = rig.cluster.clone();
        looping.spawn(async move {
            let mut fences = 0;
            while Instant::now() < until {
                cluster.fence(Instant::now()).await.expect("a fence");
                fences += 1;
            }
            fences
        });
    }
    let mut fences = 0;
    while let Some(some) = looping.join_next().await {
        fences += some.expect("no panic");
    }
    let probes = rig.cluster.totals().probes_of(ProbeKind::Fence) - before.probes_of(ProbeKind::Fence);
    (fences, probes)
}

#[tokio::test]
async fn what_the_primary_pays_is_bounded_and_shared() {
    let rig = Rig::start(1).await;
    let (alone, probes) = fences(&rig, 1).await;
    assert!(alone > 0 && probes >= alone, "{alone} fences by {probes} probes");
    let (shared, probes) = fences(&rig, 64).await;
    // At most one in 200 us, and the one that a second's end cuts.
    assert!(probes <= 5001, "{probes} probes in a second");
    assert!(shared >= 16 * probes, "{shared} fences by {probes} probes");
}

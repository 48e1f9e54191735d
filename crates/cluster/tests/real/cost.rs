//! What fences cost; measurements, to be run alone: `cargo test -p causeway-cluster --test real cost -- --ignored
//! --nocapture`.

use std::time::Duration;

use causeway_cluster::ProbeKind;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Rig;

/// How long a process has run on a processor so far.
fn processor_time(pid: i32) -> Duration {
    let statistics = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it lives");
    let nanos = statistics.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

#[tokio::test]
#[ignore = "a measurement, which says nothing beside other tests"]
async fn fences() {
    let rig = Rig::start(2).await;
    let session = rig.session("pg-0").await;
    let find = "SELECT pid FROM pg_stat_activity WHERE usename = 'watcher' ORDER BY backend_start LIMIT 1";
    let pid: i32 = session.query_one(find, &[]).await.unwrap().get(0);
    for waiters in [1, 16, 64] {
        let (before, spent) = (rig.cluster.totals(), processor_time(pid));
        let begun = Instant::now();
        let until = begun + Duration::from_secs(5);
        let mut looping = JoinSet::new();
        for _ in 0..waiters {
            let cluster = rig.cluster.clone();
            looping.spawn(async move {
                let mut waits = Vec::new();
                while Instant::now() < until {
                    let arrived = Instant::now();
                    cluster.fence(arrived).await.expect("a fence");
                    waits.push(arrived.elapsed());
                }
                waits
            });
        }
        let mut waits = Vec::new();
        while let Some(some) = looping.join_next().await {
            waits.extend(some.expect("no panic"));
        }
        waits.sort_unstable();
        let (seconds, fences) = (begun.elapsed().as_secs_f64(), waits.len());
        let probes = rig.cluster.totals().probes_of(ProbeKind::Fence) - before.probes_of(ProbeKind::Fence);
        let spent = processor_time(pid).saturating_sub(spent).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a printed measurement")]
        let (rate, per_thousand, per_probe) =
            (probes as f64 / seconds, spent * 1e6 / fences as f64, spent * 1e6 / probes as f64);
        println!(
            "{waiters} waiters: {fences} fences, p50 {:?}, p99 {:?}; {rate:.0} probes/s; backend CPU {per_thousand:.2} ms per \
             1,000 fences, {per_probe:.1} us per probe",
            waits[fences / 2],
            waits[fences * 99 / 100],
        );
    }
    println!("{:?}", rig.cluster.totals());
}

//! Whether reads are consistent, on real servers: many clients at two Causeways, several levels at once, faults, and the
//! checks of `causeway_testkit::history` over what the clients were told.
//!
//! The tests take about a minute and a half. `make consistency` gives each fault `CAUSEWAY_CHECK_SECONDS` (30) instead of
//! 3, for `CAUSEWAY_CHECK_ROUNDS` (1) seeds from `CAUSEWAY_SEED` (1).

mod client;
mod failover;
mod faults;
mod special;
mod stage;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Habits, Records};
use faults::Fault;
use stage::{KEYS, Stage};
use tokio::time::Instant;
use verdict::Figures;

const MIXED: Habits =
    Habits { writes: 35, pause: Duration::from_millis(8), cluster_only: false, asynchronous: true };

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(otherwise, |text| text.parse().unwrap_or_else(|error| panic!("{variable}: {error}")))
}

/// Clients at work under a fault, and what they say afterwards.
async fn run(stage: &Arc<Stage>, fault: Fault, time: Duration, seed: u64) -> Figures {
    stage.reset().await;
    let until = Instant::now() + time;
    let clients: Vec<_> =
        (0..KEYS).map(|id| tokio::spawn(Client::new(stage, id, MIXED, seed).work(until))).collect();
    fault.disturb(stage, until, seed).await;
    let mut records = Records::default();
    for client in clients {
        records.add(client.await.unwrap_or_else(|error| panic!("{fault:?}, seed {seed}: {error}")));
    }
    stage.recovered().await;
    verdict::judge(stage, &format!("{fault:?}"), seed, records).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_consistent_whatever_happens() {
    let time = Duration::from_secs(number("CAUSEWAY_CHECK_SECONDS", 3));
    let rounds = usize::try_from(number("CAUSEWAY_CHECK_ROUNDS", 1)).expect("a number of rounds");
    for seed in (number("CAUSEWAY_SEED", 1)..).take(rounds) {
        let stage = Stage::start("").await;
        for fault in faults::ALL {
            run(&stage, fault, time, seed).await;
        }
        stage.stop().await;
    }
}

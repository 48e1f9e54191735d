//! A bank under faults: money is neither made nor lost, what was acknowledged is there exactly once, what was refused is not
//! there, and of the rest the client was told that it is not known.
//!
//! The test takes about a minute. `make chaos` goes on for `CAUSEWAY_CHAOS_ROUNDS` (10) rounds of all faults, each of
//! `CAUSEWAY_CHAOS_SECONDS` (5), from the seed `CAUSEWAY_CHAOS_SEED` (1).
//!
//! Left out: a full disk on a replica, which needs root for a small file system of its own.

mod bank;
mod faults;
mod stage;

use std::time::Duration;

use bank::{Ledger, Teller};
use faults::Fault;
use stage::Stage;
use tokio::time::Instant;

/// Clients at work at the same time.
const TELLERS: u64 = 12;

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(otherwise, |text| text.parse().unwrap_or_else(|error| panic!("{variable}: {error}")))
}

/// A number that says what comes next (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// The tellers at work while `fault` comes and goes; returns what they were told.
async fn run(stage: &mut Stage, fault: Fault, time: Duration, seed: u64) -> Ledger {
    let until = Instant::now() + time;
    let port = stage.causeway.port();
    let tellers: Vec<_> = (0..TELLERS)
        .map(|number| {
            let token = format!("{fault:?}-{seed}-{number}");
            tokio::spawn(Teller::new(port, token, Random(seed * 1000 + number)).work(until))
        })
        .collect();
    fault.strike(stage, time, &mut Random(seed)).await;
    let mut ledger = Ledger::default();
    for teller in tellers {
        ledger.add(teller.await.unwrap_or_else(|error| panic!("{fault:?}, seed {seed}: {error}")));
    }
    ledger
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_happens_twice() {
    let time = Duration::from_secs(number("CAUSEWAY_CHAOS_SECONDS", 2));
    let rounds = usize::try_from(number("CAUSEWAY_CHAOS_ROUNDS", 1)).expect("a number of rounds");
    for seed in (number("CAUSEWAY_CHAOS_SEED", 1)..).take(rounds) {
        let mut stage = Stage::start().await;
        // Everybody has been served once: so many connections are the baseline.
        let ledger = run(&mut stage, Fault::None, time, seed).await;
        stage.audit(Fault::None, seed, &ledger).await;
        assert_eq!(
            (ledger.unknown.len(), ledger.refused.len()),
            (0, ledger.deadlocks),
            "without a fault: {ledger:?}"
        );
        let baseline = stage.at_rest().await;
        for fault in faults::in_order(&mut Random(seed)) {
            let ledger = run(&mut stage, fault, time, seed).await;
            stage.recovered(fault, seed).await;
            stage.audit(fault, seed, &ledger).await;
            assert!(!ledger.acknowledged.is_empty(), "{fault:?}, seed {seed}: nothing was done");
            if fault.spares_reads() {
                assert!(ledger.failed_reads.is_empty(), "{fault:?}, seed {seed}: {:?}", ledger.failed_reads);
            }
            stage.back_at(baseline, fault, seed).await;
        }
        stage.causeway.stop().await;
        stage.sandbox.stop().await.expect("the servers stop");
    }
}

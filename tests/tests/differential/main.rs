//! Random client programs run on PostgreSQL directly and through Causeway: every answer is the same, message by message,
//! and so is what the tables hold afterwards.
//!
//! `CAUSEWAY_DIFFERENTIAL_PROGRAMS` is the number of programs of each test, `CAUSEWAY_DIFFERENTIAL_SEED` the seed of the
//! only one to run.

mod generate;
mod program;
mod random;
mod session;
mod stage;

use std::io::Write;
use std::time::{Duration, SystemTime};

use program::{Program, Unit};
use random::Random;
use stage::{Outcome, Stage};
use tokio::time::Instant;

/// Programs that are the same in every run are as many as the fresh ones, five times over.
const FIXED_SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// So many mismatches are looked into before the test ends.
const ENOUGH: usize = 3;

/// Without a number of programs asked for, none begins after so long.
const TIME: Duration = Duration::from_secs(22);

#[tokio::test]
async fn a_client_sees_through_causeway_what_it_sees_directly() {
    let fresh = fresh_seed();
    println!("fresh seed {fresh}");
    println!("{} programs", run(1, &seeds(fresh, 190)).await);
}

#[tokio::test]
async fn two_clients_in_turn_see_through_causeway_what_they_see_directly() {
    let fresh = fresh_seed();
    println!("fresh seed {fresh}");
    println!("{} programs", run(2, &seeds(fresh, 110)).await);
}

/// Runs the programs of these seeds and returns how many there was time for.
async fn run(sessions: usize, seeds: &[u64]) -> usize {
    let mut stage = Stage::set_up(sessions).await;
    let (mut programs, mut mismatches) = (0, 0);
    let started = Instant::now();
    for seed in seeds {
        if started.elapsed() > TIME && asked_for().is_none() {
            assert!(programs > seeds.len() / 5, "only {programs} programs in {TIME:?}");
            break;
        }
        let program = generate::program(*seed, sessions);
        let (direct, through) = stage.run(&program).await;
        if direct != through {
            let text = describe(&mut stage, &program, &direct, &through).await;
            writeln!(std::io::stderr(), "{text}").expect("writing to standard error");
            mismatches += 1;
            if mismatches == ENOUGH {
                break;
            }
        }
        programs += 1;
        if programs % 50 == 0 {
            stage.is_at_rest().await;
        }
    }
    assert!(mismatches == 0, "{mismatches} programs saw something else, as printed above");
    stage.is_at_rest().await;
    stage.close().await;
    programs
}

/// The number of programs that the environment asks for.
fn asked_for() -> Option<usize> {
    let count = std::env::var("CAUSEWAY_DIFFERENTIAL_PROGRAMS").ok()?;
    Some(count.parse().expect("CAUSEWAY_DIFFERENTIAL_PROGRAMS is a number"))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    u64::from(now.subsec_nanos()) ^ now.as_secs()
}

/// The seeds of the programs: those derived from the fixed ones in turn. Long runs, for which the environment names a
/// number of programs, look for what is new by a fresh one as well.
fn seeds(fresh: u64, usual: usize) -> Vec<u64> {
    if let Ok(seed) = std::env::var("CAUSEWAY_DIFFERENTIAL_SEED") {
        return vec![seed.parse().expect("CAUSEWAY_DIFFERENTIAL_SEED is a number")];
    }
    let count = asked_for().unwrap_or(usual);
    let mut sources: Vec<Random> =
        FIXED_SEEDS.into_iter().chain(asked_for().map(|_| fresh)).map(Random::new).collect();
    let turns = sources.len();
    (0..count).map(|index| sources[index % turns].next()).collect()
}

/// What is to be known of a mismatch: the program made as small as it gets, and both answers.
async fn describe(stage: &mut Stage, program: &Program, direct: &Outcome, through: &Outcome) -> String {
    let shrunk = match shrink(stage, program).await {
        Some((smaller, direct, through)) => {
            format!("shrunk to {smaller}{}", Outcome::difference(&smaller, &direct, &through))
        }
        None => "which passes when it runs again on its own".to_owned(),
    };
    format!("{program}{}{shrunk}", Outcome::difference(program, direct, through))
}

/// Drops units, then single requests, for as long as the runs still differ; `None` if the whole program no longer does.
async fn shrink(stage: &mut Stage, program: &Program) -> Option<(Program, Outcome, Outcome)> {
    let deadline = Instant::now() + Duration::from_mins(1);
    let (direct, through) = stage.run(program).await;
    let mut best = (direct != through).then(|| (program.clone(), direct, through))?;
    'smaller: while Instant::now() < deadline {
        for candidate in smaller(&best.0) {
            let (direct, through) = stage.run(&candidate).await;
            if direct != through {
                best = (candidate, direct, through);
                continue 'smaller;
            }
            if Instant::now() > deadline {
                break 'smaller;
            }
        }
        break;
    }
    Some(best)
}

/// The program without half of its units, without each of them, without its pieces, without each request.
fn smaller(program: &Program) -> Vec<Program> {
    let with = |units: Vec<Unit>| Program { units, ..program.clone() };
    let units = &program.units;
    let mut candidates = Vec::new();
    if units.len() > 3 {
        let (front, back) = units.split_at(units.len() / 2);
        candidates.extend([with(back.to_vec()), with(front.to_vec())]);
    }
    for index in (0..units.len()).rev() {
        let mut fewer = units.clone();
        fewer.remove(index);
        candidates.push(with(fewer));
        if !units[index].pieces.is_empty() {
            let mut whole = units.clone();
            whole[index].pieces.clear();
            candidates.push(with(whole));
        }
        for step in 0..units[index].steps.len() - 1 {
            let mut fewer = units.clone();
            fewer[index].steps.remove(step);
            candidates.push(with(fewer));
        }
    }
    candidates
}

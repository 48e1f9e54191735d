//! The corpus of the fuzz targets, and mutations of it, as ordinary tests.
//!
//! The same seed gives the same inputs, whatever the machine: the runs are bounded by count, not by time.

#[allow(
    unreachable_pub,
    dead_code,
    missing_docs,
    reason = "a library of another workspace, included as it stands"
)]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::PathBuf;

use fuzz::{TARGETS, Target};

/// The seed that is always tried, beside one that is new each time.
const SEED: u64 = 20_261_130;
/// Sets the seed that is otherwise new each time.
const SEED_VARIABLE: &str = "CAUSEWAY_FUZZ_SEED";
/// Longer inputs make no other findings, only slower ones.
const LONGEST: usize = 4096;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("the target is listed")
}

/// The files for a target, in an order that does not depend on the file system.
fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    for folder in target.corpora {
        for entry in fs::read_dir(corpus().join(folder)).expect("the folder is there") {
            let path = entry.expect("the folder can be listed").path();
            inputs.push((path.display().to_string(), fs::read(&path).expect("the file can be read")));
        }
    }
    inputs.sort();
    assert!(inputs.len() > 4, "{} has a corpus", target.name);
    inputs
}

/// Says what was tried if that panicked.
struct Trial<'a> {
    target: &'a str,
    origin: String,
    input: &'a [u8],
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}: b\"{}\"", self.target, self.origin, self.input.escape_ascii());
        }
    }
}

fn attempt(target: &Target, origin: String, input: &[u8]) {
    let _trial = Trial { target: target.name, origin, input };
    (target.body)(input);
}

#[test]
fn every_target_has_a_corpus_and_the_reverse() {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let listed = |folder: &str, suffix: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(corpus().join(folder)).expect("the folder is there");
        let name = |entry: fs::DirEntry| {
            entry.file_name().into_string().expect("names are ASCII").trim_end_matches(suffix).to_owned()
        };
        entries.map(|entry| name(entry.expect("the folder can be listed"))).collect()
    };
    assert_eq!(listed(".", ""), names, "folders of the corpus");
    assert_eq!(listed("../fuzz_targets", ".rs"), names, "files of targets");
}

#[test]
fn the_corpus_replays() {
    for target in &TARGETS {
        for (origin, input) in inputs(target) {
            attempt(target, origin, &input);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let seeds = inputs(&target("frames"));
    let run = |seed| {
        let mut mutator = Mutator(seed);
        (0..100).map(|_| mutator.input(&seeds)).collect::<Vec<_>>()
    };
    assert_eq!(run(SEED), run(SEED));
    assert_ne!(run(SEED), run(SEED + 1));
}

/// `count` mutations of the corpus of the target by each of two seeds.
fn mutate(name: &str, count: usize) {
    let fresh = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => seed.parse().expect("the seed is a number"),
        Err(_) => RandomState::new().hash_one(name),
    };
    eprintln!("{name}: {SEED_VARIABLE}={fresh}");
    let target = target(name);
    let seeds = inputs(&target);
    for seed in [SEED, fresh] {
        let mut mutator = Mutator(seed);
        for number in 0..count {
            let input = mutator.input(&seeds);
            attempt(&target, format!("seed {seed}, number {number}"), &input);
        }
    }
}

macro_rules! mutations {
    ($($name:ident: $count:expr;)*) => {
        mod mutated {
            $(
                #[test]
                fn $name() {
                    super::mutate(stringify!($name), $count);
                }
            )*
        }

        #[test]
        fn every_target_is_mutated() {
            let mutated = BTreeSet::from([$(stringify!($name)),*]);
            assert_eq!(mutated, TARGETS.iter().map(|target| target.name).collect());
        }
    };
}

// Together less than a minute of unoptimised code on one core.
mutations! {
    backend_messages: 100_000;
    classify: 8_000;
    client_handshake: 30_000;
    fingerprint: 10_000;
    frames: 100_000;
    frontend_messages: 50_000;
    lexer: 50_000;
    scram: 50_000;
    server_handshake: 30_000;
    startup: 100_000;
}

/// Makes inputs from others, by a generator of its own: the same everywhere and for ever.
struct Mutator(u64);

// === impl Mutator ===

impl Mutator {
    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % limit
    }

    fn byte(&mut self) -> u8 {
        const LIKELY: [u8; 16] =
            [0, 1, 4, 5, 0x7f, 0x80, 0xff, b' ', b'\'', b'"', b'$', b'(', b')', b'-', b'/', b'\n'];
        if self.below(2) == 0 { LIKELY[self.below(LIKELY.len())] } else { self.next().to_le_bytes()[0] }
    }

    /// A place in `input` and one behind it.
    fn range(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(input.len() + 1);
        let len = self.below(32.min(input.len() - start) + 1);
        start..start + len
    }

    /// One of `seeds` with a few changes.
    fn input(&mut self, seeds: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].1.clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input, seeds);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[(String, Vec<u8>)]) {
        let range = self.range(input);
        match self.below(7) {
            0 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] ^= 1 << self.below(8);
            }
            1 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] = self.byte();
            }
            2 => drop(input.drain(range)),
            3 => {
                let byte = self.byte();
                input.insert(range.start, byte);
            }
            4 => {
                let copy = input[range.clone()].to_vec();
                input.splice(range.end..range.end, copy);
            }
            5 => {
                let other = &seeds[self.below(seeds.len())].1;
                let piece = other[self.range(other)].to_vec();
                input.splice(range, piece);
            }
            _ => {
                let other = &seeds[self.below(seeds.len())].1;
                let from = self.below(other.len() + 1);
                input.truncate(range.end);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

//! Whatever a client does, and however the bytes come in: it sees what it would see of a server of its own.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::model::Model;
use super::notation;
use super::rig::{Peer, Rig, Server};
use crate::config::PoolMode;

const READS: &[&str] = &[
    "SELECT 1",
    "SELECT 2",
    "SELECT 1",
    "SELECT lag",
    "SELECT 1/0",
    "SELECT missing",
    "SELEC",
    "SHOW work_mem",
    "SHOW timezone",
    "SELECT generate_series(1,3)",
    "",
];

const WRITES: &[&str] = &["INSERT INTO t VALUES (1)", "COPY t TO STDOUT"];

const CONTROL: &[&str] = &[
    "BEGIN",
    "BEGIN",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s1",
    "ROLLBACK TO s1",
    "RELEASE s1",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN",
];

const READ_ONLY: &[&str] =
    &["BEGIN READ ONLY", "BEGIN READ ONLY", "COMMIT", "ROLLBACK", "SELECT 1", "SHOW work_mem"];

const SETTINGS: &[&str] = &[
    "SET work_mem = '1MB'",
    "SET work_mem = '2MB'",
    "SET TimeZone = 'UTC'",
    "SET TimeZone = 'Asia/Tokyo'",
    "SET LOCAL work_mem = '3MB'",
    "SET work_mem TO DEFAULT",
    "RESET work_mem",
    "RESET ALL",
];

/// Only by simple queries that are units of their own and outside transactions: more is not followed in every order.
const NAMES: &[&str] =
    &["DEALLOCATE a", "DEALLOCATE b", "DEALLOCATE ALL", "DISCARD ALL", "DEALLOCATE ALL; SELECT 1"];

const PINS: &[&str] = &[
    "LISTEN x",
    "PREPARE q AS SELECT 5",
    "EXECUTE q",
    "DEALLOCATE q",
    "SELECT set_config('work_mem', '5MB', false)",
];

const SEVERAL: &[&str] = &[
    "SELECT 1; SELECT 2",
    "BEGIN; SELECT 1",
    "SELECT 1; SELECT 1/0; SELECT 2",
    "SELECT 1; SELEC",
    "SET work_mem = '1MB'; SELECT 1/0",
    "SET work_mem = '2MB'; SELECT 1",
    "BEGIN; SET work_mem = '2MB'; ROLLBACK",
    "BEGIN; SET work_mem = '2MB'; COMMIT; SELECT 1/0",
    "COMMIT; BEGIN",
];

/// What a client's texts are taken from.
fn sql() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => select(READS),
        2 => select(WRITES),
        3 => select(CONTROL),
        2 => select(READ_ONLY),
        3 => select(SETTINGS),
        1 => select(PINS),
    ]
}

/// Parse; what shapes transactions goes without a name: a failed transaction cannot look a shared one up.
fn parse(name: &str, sql: &str) -> (String, String) {
    let shapes = ["COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"].iter().any(|word| sql.starts_with(word));
    let name = if shapes { "" } else { name };
    (format!("P {name}: {sql}"), name.to_owned())
}

/// Queries that are units of their own: one that is skipped with the rest of an open unit has ended the unnamed
/// statement all the same.
fn simple() -> impl Strategy<Value = String> {
    prop_oneof![8 => sql(), 2 => select(SEVERAL)].prop_map(|sql| format!("S | Q {sql}"))
}

/// Single messages, in any order.
fn message() -> impl Strategy<Value = String> {
    let statement = || select(&["", "", "a", "b", "c"][..]);
    let used = || select(&["", "", "a", "a", "b", "c", "q", "nope"][..]);
    let portal = || select(&["", "", "p"][..]);
    prop_oneof![
        3 => (statement(), sql()).prop_map(|(name, sql)| parse(name, sql).0),
        4 => (portal(), used()).prop_map(|(portal, name)| format!("B {portal}:{name}")),
        1 => used().prop_map(|name| format!("D S {name}")),
        1 => portal().prop_map(|name| format!("D P {name}")),
        4 => (portal(), select(&["", "/1", "/2"][..])).prop_map(|(portal, rows)| format!("E {portal}{rows}")),
        1 => used().prop_map(|name| format!("C S {name}")),
        1 => portal().prop_map(|name| format!("C P {name}")),
        5 => Just("S".to_owned()),
        1 => Just("H".to_owned()),
        2 => simple(),
    ]
}

/// Messages that belong together.
fn phrase() -> impl Strategy<Value = String> {
    let name = || select(&["", "a", "b"][..]);
    let copy_data = |parts: &'static [&'static str]| prop::collection::vec(select(parts), 0..4);
    let (data, data_and_flush) = (&["d 1", "d 2", "d bad"][..], &["d 1", "d 2", "d bad", "H"][..]);
    let copy_end = || select(&["c", "c", "f why"][..]);
    prop_oneof![
        6 => message(),
        3 => simple(),
        2 => select(NAMES).prop_map(|sql| format!("S | Q ROLLBACK | Q {sql}")),
        4 => sql().prop_map(|sql| format!("P : {sql} | B : | D P | E | S")),
        2 => (name(), sql()).prop_map(|(name, sql)| {
            let (parse, name) = parse(name, sql);
            format!("{parse} | D S {name} | S")
        }),
        1 => (name(), sql()).prop_map(|(name, sql)| {
            let (parse, name) = parse(name, sql);
            format!("{parse} | D S {name} | H")
        }),
        3 => name().prop_map(|name| format!("B :{name} | E | S")),
        2 => (sql(), sql(), sql()).prop_map(|(one, two, three)| {
            format!("P : {one} | B : | E | P : {two} | B : | E | P : {three} | B : | E | S")
        }),
        1 => (copy_data(data), copy_end()).prop_map(|(data, end)| {
            format!("S | Q COPY t FROM STDIN | {} | {end}", data.join(" | "))
        }),
        1 => (copy_data(data_and_flush), copy_end(), select(&["", "S", "H"][..])).prop_map(|(data, end, early)| {
            format!("P z: COPY t FROM STDIN | B :z | C S z | E | {early} | {} | {end} | S", data.join(" | "))
        }),
    ]
}

fn program() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(phrase(), 0..24)
}

/// The settings a client starts with. Going back to them within a transaction shows the server's own in between.
fn start(program: &[String]) -> &'static [(&'static str, &'static str)] {
    let resets = |part: &String| ["RESET", "DEFAULT", "DISCARD"].iter().any(|word| part.contains(word));
    if program.iter().any(resets) { &[] } else { &[("work_mem", "6MB"), ("TimeZone", "Europe/Berlin")] }
}

/// What a server of its own would answer.
fn alone(program: &[u8], settings: &[(&str, &str)]) -> Vec<u8> {
    let mut model = Model::new(false, settings);
    model.feed(program);
    std::mem::take(model.output())
}

/// Clients with their programs, and servers, between which the rig stands.
struct World {
    rig: Rig,
    models: Vec<Model>,
    programs: Vec<Vec<u8>>,
    random: StdRng,
}

// === impl World ===

impl World {
    fn new(programs: Vec<Vec<u8>>, settings: &[&[(&str, &str)]], seed: u64) -> Self {
        let (mut random, flavour) = (StdRng::seed_from_u64(seed), Flavour::of(seed));
        let standbys: Vec<bool> = programs.iter().flat_map(|_| [false, false, true]).collect();
        let servers =
            standbys.iter().map(|standby| Server::new(flavour.statements(&mut random), *standby)).collect();
        let peers = settings.iter().map(|settings| Peer::new(PoolMode::Transaction, settings)).collect();
        let mut rig = Rig::of(peers, servers);
        rig.wired = Some(StdRng::seed_from_u64(seed ^ 1));
        Self {
            rig,
            models: standbys.into_iter().map(|standby| Model::new(standby, &[])).collect(),
            programs,
            random,
        }
    }

    /// Up to so many bytes of what there is, and now and then a single one.
    fn some(random: &mut StdRng, bytes: &mut Vec<u8>) -> Vec<u8> {
        let most = if random.random_ratio(1, 4) { 1 } else { random.random_range(1..200) };
        bytes.drain(..most.min(bytes.len())).collect()
    }

    /// One move of one client's bytes; says whether there was any.
    fn step(&mut self, client: usize) -> bool {
        self.rig.acting = client;
        let moves = [self.random.random_range(0..3), 0, 1, 2];
        let moved = moves.iter().any(|which| match which {
            0 if !self.programs[client].is_empty() => {
                let bytes = Self::some(&mut self.random, &mut self.programs[client]);
                self.rig.client(&bytes);
                true
            }
            1 => self.serve(),
            2 => self.answer(),
            _ => false,
        });
        for discarded in std::mem::take(&mut self.rig.discarded) {
            self.models[discarded] = Model::new(self.rig.servers[discarded].standby, &[]);
        }
        moved
    }

    fn serve(&mut self) -> bool {
        let Some(held) = self.rig.peer().held else { return false };
        let bytes = Self::some(&mut self.random, &mut self.rig.servers[held].wire);
        self.models[held].feed(&bytes);
        let known = self.models[held].settings();
        self.rig.servers[held].settings =
            known.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        !bytes.is_empty()
    }

    fn answer(&mut self) -> bool {
        let Some(held) = self.rig.peer().held else { return false };
        let bytes = Self::some(&mut self.random, self.models[held].output());
        if !bytes.is_empty() {
            self.rig.server(&bytes);
        }
        !bytes.is_empty()
    }

    fn run(&mut self) -> Result<(), TestCaseError> {
        loop {
            let first = self.random.random_range(0..self.programs.len());
            let clients: Vec<usize> = (first..self.programs.len()).chain(0..first).collect();
            if !clients.into_iter().any(|client| self.step(client)) {
                return Ok(());
            }
            for (at, model) in self.models.iter().enumerate() {
                let held = self.rig.peers.iter().any(|peer| peer.held == Some(at));
                if !held && self.rig.servers[at].wire.is_empty() {
                    prop_assert!(model.is_resting(), "given back in the middle of something: {model:?}");
                }
            }
        }
    }
}

/// Flavours, for what is known not to work together: a session that keeps its connection, pinned or in a transaction,
/// keeps books that are wrong after a skipped eviction; and one that is pinned to a standby cannot write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    /// A connection holds few statements; there are no transactions and no pins.
    FewStatements,
    /// Nothing pins.
    ReadOnly,
    /// Nothing runs on a standby for longer than a unit.
    Pins,
}

// === impl Flavour ===

impl Flavour {
    fn of(seed: u64) -> Self {
        [Self::FewStatements, Self::ReadOnly, Self::Pins][usize::try_from(seed % 3).unwrap()]
    }

    fn statements(self, random: &mut StdRng) -> usize {
        if self == Self::FewStatements { random.random_range(1..6) } else { 100 }
    }

    fn part(self, part: &str) -> String {
        if self == Self::Pins {
            return part.replace("BEGIN READ ONLY", "BEGIN");
        }
        let settings = SETTINGS.iter().chain(SEVERAL).filter(|sql| sql.contains("SET "));
        let pins = settings.chain(PINS).chain(&["SAVEPOINT s1"]);
        let part = pins.fold(part.to_owned(), |part, pins| part.replace(pins, "SELECT 2"));
        if self == Self::ReadOnly {
            return part;
        }
        part.replace("BEGIN READ ONLY", "SELECT 2").replace("BEGIN", "SELECT 2")
    }
}

/// Lets clients run their programs side by side and compares what each sees.
fn compare(programs: &[Vec<String>], seed: u64) -> Result<(), TestCaseError> {
    // Whatever is open at the end is ended, be it a COPY, a unit or a transaction.
    let flavour = Flavour::of(seed);
    let own = |program: &Vec<String>| program.iter().map(|part| flavour.part(part)).collect();
    let programs: Vec<Vec<String>> = programs.iter().map(own).collect();
    let bytes = |program: &Vec<String>| {
        notation::from_client(&format!("{} | f end | S | S | Q ROLLBACK", program.join(" | ")))
    };
    let settings: Vec<_> = programs.iter().map(|program| start(program)).collect();
    let programs: Vec<Vec<u8>> = programs.iter().map(bytes).collect();
    let own = programs.iter().zip(&settings);
    let expected: Vec<Vec<u8>> = own.map(|(program, settings)| alone(program, settings)).collect();
    let mut world = World::new(programs, &settings, seed);
    world.run()?;
    for (peer, expected) in world.rig.peers.iter().zip(expected) {
        let (seen, expected) = (notation::to_client(&peer.to_client), notation::to_client(&expected));
        prop_assert_eq!(&seen, &expected, "session over: {:?}", peer.over);
        prop_assert!(peer.over.is_none() && peer.held.is_none() || peer.session.pins().first().is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariant 2: every request gets its answers in order, exactly once, and nothing else.
    #[test]
    fn one_client_sees_a_server_of_its_own(program in program(), seed in any::<u64>()) {
        compare(&[program], seed)?;
    }

    #[test]
    fn two_clients_see_servers_of_their_own(one in program(), two in program(), seed in any::<u64>()) {
        compare(&[one, two], seed)?;
    }
}

/// Server messages, mostly in no sensible order.
fn server_message() -> impl Strategy<Value = String> {
    let words =
        ["1", "2", "3", "n", "s", "I", "t", "T", "c", "G", "H", "V", "D x", "C SELECT 1", "C SET", "d x"];
    let ends =
        ["Z I", "Z T", "Z E", "E 42601 causeway_0", "E 25006 no", "E! 57P01 bye", "N hm", "S a=b", "A x"];
    prop_oneof![2 => select(words.to_vec()), 1 => select(ends.to_vec())].prop_map(str::to_owned)
}

/// A stream that is right at the start, and somewhere may be anything.
fn spoilt(messages: &[String], spoil: &[(prop::sample::Index, u8)], bytes: fn(&str) -> Vec<u8>) -> Vec<u8> {
    let mut stream = bytes(&messages.join(" | "));
    for (at, value) in spoil {
        if !stream.is_empty() {
            let at = at.index(stream.len());
            stream[at] = *value;
        }
    }
    stream
}

fn spoil() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever either side sends: an answer, an error or the end of the session, and never a panic.
    #[test]
    fn no_bytes_bring_the_machine_down(
        program in program(),
        answers in prop::collection::vec(server_message(), 0..40),
        (of_client, of_server) in (spoil(), spoil()),
        seed in any::<u64>(),
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut program = spoilt(&program, &of_client, notation::from_client);
        let mut answers = spoilt(&answers, &of_server, notation::from_server);
        let mut rig = Rig::new();
        rig.next = random.random_range(0..3);
        while rig.peer().over.is_none() {
            let client = !program.is_empty() && (rig.peer().held.is_none() || random.random_ratio(1, 2));
            if client {
                rig.client(&World::some(&mut random, &mut program));
            } else if rig.peer().held.is_some() && !answers.is_empty() {
                rig.server(&World::some(&mut random, &mut answers));
            } else {
                break;
            }
        }
    }
}

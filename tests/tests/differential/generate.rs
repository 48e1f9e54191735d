//! Random programs.
//!
//! Left out is what `docs/pooling.md` lists under "Not followed yet", each where it would be chosen. Left out as well is
//! what differs on any two servers: process ids, transaction ids, times and random values.

use causeway_testkit::wire::request;

use crate::program::{Copy, Program, Step, Unit};
use crate::random::Random;

/// What every program draws from.
const BASE: &[&str] = &[
    "SELECT 1",
    "SELECT 2 AS b, NULL, 'text'",
    "SELECT id, name FROM item ORDER BY id",
    "TABLE item",
    "VALUES (1), (2)",
    "SELECT generate_series(1, 5)",
    "SELECT count(*) FROM log",
    "SELECT id FROM item WHERE id < 3 FOR UPDATE",
    "SELECT 1/0",
    "SELEC",
    "SELECT * FROM missing",
    "SELECT nope FROM item",
    "SELECT id, 10 / (id - 2) FROM item ORDER BY id",
    "",
    "INSERT INTO item VALUES (1, 'again')",
    "INSERT INTO item VALUES (7, 'seven')",
    "INSERT INTO item VALUES (8, 'eight') RETURNING id, name",
    "INSERT INTO log (note) VALUES ('noted') RETURNING id",
    "UPDATE item SET name = name || '+' WHERE id = 1",
    "DELETE FROM item WHERE id > 2",
    "WITH gone AS (DELETE FROM item WHERE id = 7 RETURNING id) SELECT count(*) FROM gone",
    "BEGIN",
    "BEGIN",
    "BEGIN",
    "START TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "RELEASE s",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN",
    "EXPLAIN (COSTS OFF) SELECT * FROM item WHERE name = 'x'",
];

/// What is bound with values, right after its Parse and without a name. The programs that have these bind no unnamed
/// statement otherwise: where one has to be parsed anew, a failed transaction refuses that first, and the number of
/// the values after it.
const BOUND: &[&str] = &[
    "SELECT $1::int",
    "SELECT name FROM item WHERE id = $1",
    "INSERT INTO item VALUES ($1, 'bound')",
    "SELECT $1::int + $1::int",
];

/// Queries of several statements.
const SEVERAL: &[&str] = &[
    "SELECT 1; SELECT 2",
    "SELECT 1; SELECT 1/0; SELECT 2",
    "INSERT INTO item VALUES (9, 'nine'); SELECT 1/0",
    "INSERT INTO item VALUES (5, 'five'); SELECT count(*) FROM item",
    "BEGIN; INSERT INTO item VALUES (6, 'six')",
    "BEGIN; INSERT INTO item VALUES (4, 'four'); COMMIT",
    "BEGIN; SELECT 1; ROLLBACK; SELECT 3",
    "SELECT 1; SELEC",
    ";",
    "-- only a comment",
    "COMMIT; BEGIN",
];

/// Not for interleaved sessions: a read that runs on a replica holds no lock on the primary.
const EXCLUSIVE: &[&str] =
    &["TRUNCATE log", "LOCK TABLE item", "LOCK TABLE item IN SHARE MODE", "DROP TABLE missing"];

const READ_ONLY: &[&str] = &[
    "BEGIN READ ONLY",
    "BEGIN READ ONLY",
    "START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET TRANSACTION READ ONLY",
    "SELECT id FROM item ORDER BY id",
    "SELECT count(*) FROM item",
    "COMMIT",
    "ROLLBACK",
];

const SETTINGS: &[&str] = &[
    "SET work_mem = '5MB'",
    "SET work_mem = '7MB'",
    "SET work_mem = 'much'",
    "SET LOCAL work_mem = '6MB'",
    "SHOW work_mem",
    "SHOW TimeZone",
    "SHOW search_path",
    "SET TimeZone = 'Asia/Tokyo'",
    "SET DateStyle = 'German'",
    "SELECT date '2020-01-02', timestamptz '2020-01-02 03:04:05+00'",
    "SET search_path = other, public",
    "SET application_name = 'someone'",
    "SET client_encoding = 'LATIN1'",
    "SELECT set_config('work_mem', '9MB', true)",
    "SELECT current_setting('work_mem')",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SHOW default_transaction_isolation",
    "SHOW nothing",
];

/// RESET of a start-up parameter inside a transaction is not followed, so programs with start-up parameters have none
/// of these.
const RESETS: &[&str] =
    &["RESET work_mem", "SET TimeZone TO DEFAULT", "RESET ALL", "RESET search_path", "RESET nothing"];

const COPY_OUT: &[&str] =
    &["COPY item TO STDOUT", "COPY (SELECT generate_series(1, 300)) TO STDOUT", "COPY missing TO STDOUT"];

const COPY_IN: &[&str] = &[
    "COPY item FROM STDIN",
    "COPY item FROM STDIN",
    "COPY missing FROM STDIN",
    "COPY item FROM STDIN; SELECT 1",
    "COPY item TO STDOUT; COPY item FROM STDIN",
];

const CURSORS: &[&str] = &[
    "DECLARE c CURSOR FOR SELECT generate_series(1, 3)",
    "DECLARE c CURSOR FOR SELECT id, name FROM item ORDER BY id",
    "FETCH 2 FROM c",
    "FETCH ALL FROM c",
    "MOVE 1 FROM c",
    "CLOSE c",
    "CLOSE ALL",
];

const HOLD: &[&str] =
    &["DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 4)", "FETCH 1 FROM c", "CLOSE c"];

const TEMPORARY: &[&str] = &[
    "CREATE TEMP TABLE own (a int)",
    "CREATE TEMP TABLE own (a int) ON COMMIT DROP",
    "INSERT INTO own VALUES (1) RETURNING a",
    "SELECT * FROM own",
    "DROP TABLE own",
    "SELECT 1 AS a INTO TEMP own",
    "DISCARD TEMP",
];

/// EXECUTE of what the protocol has prepared is not followed: the names differ.
const PREPARE: &[&str] = &[
    "PREPARE sql AS SELECT 99",
    "PREPARE sql (int) AS SELECT $1 + 1",
    "EXECUTE sql",
    "EXECUTE sql (4)",
    "DEALLOCATE sql",
    "DEALLOCATE PREPARE sql",
];

/// As simple queries alone: a Parse of DEALLOCATE names what there is at that time.
const DEALLOCATE: &[&str] =
    &["DEALLOCATE a", "DEALLOCATE b", "DEALLOCATE ALL", "DISCARD ALL", "DISCARD PLANS", "DISCARD SEQUENCES"];

/// `nextval` without `currval` and `lastval`, which follow only within a transaction.
const FUNCTIONS: &[&str] = &[
    "SELECT touch('called')",
    "SELECT peek()",
    "SELECT say('hello')",
    "SELECT fail('wrong')",
    "SELECT nextval('counter')",
    "SELECT touch('in a read') FROM item",
    "SELECT upper('a'), abs(-1)",
];

/// They may leave anything behind.
const PROCEDURES: &[&str] = &["DO $$BEGIN RAISE NOTICE 'done'; END$$", "CALL note('by call')"];

/// Not for interleaved sessions: when a notification of another session comes is up to chance.
const NOTIFY: &[&str] =
    &["LISTEN channel", "NOTIFY channel, 'payload'", "UNLISTEN *", "SELECT pg_notify('channel', 'called')"];

const LOCKS: &[&str] = &[
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_lock(1)",
    "SELECT pg_advisory_unlock(1)",
    "SELECT pg_advisory_xact_lock(2)",
];

const STARTUP: &[&[(&str, &str)]] = &[
    &[("application_name", "differential")],
    &[("TimeZone", "America/New_York"), ("DateStyle", "SQL, DMY")],
    &[("options", "-c work_mem=8MB"), ("client_encoding", "UTF8")],
];

const VALUES: &[&[&str]] = &[&["1"], &["1"], &["2"], &["3"], &["word"], &["1", "2"], &[]];

const ROWS: &[&str] = &["21\tcopied\n", "22\tone\n23\ttwo\n", "1\tagain\n", "no number\n", "", "\\.\n"];

/// What one program draws its statements from.
struct Grammar {
    /// For Query and Parse.
    sql: Vec<&'static str>,
    /// For Query only.
    simple: Vec<&'static str>,
    /// Whether transactions run on replicas.
    read_only: bool,
    /// Whether statements have values.
    bound: bool,
    copies: bool,
}

impl Grammar {
    fn of(random: &mut Random, sessions: usize, with_startup: bool) -> Self {
        let alone = sessions == 1;
        let (read_only, bound) = (random.percent(30), random.percent(30));
        // What only a replica refuses, or refuses in other words: COPY FROM and LOCK in a READ ONLY transaction.
        let mut grammar = Self {
            sql: BASE.to_vec(),
            simple: SEVERAL.to_vec(),
            read_only,
            bound,
            copies: random.percent(30) && !read_only,
        };
        let mut add = |when: bool, percent: usize, texts: &[&'static str]| {
            if when && random.percent(percent) {
                // Twice, for a theme to be more than one statement among many.
                grammar.sql.extend_from_slice(texts);
                grammar.sql.extend_from_slice(texts);
            }
        };
        add(read_only, 100, READ_ONLY);
        add(bound, 100, BOUND);
        add(alone && !read_only, 30, EXCLUSIVE);
        add(true, 30, CURSORS);
        add(true, 40, FUNCTIONS);
        // What stays behind in a session ends it when it is done in a READ ONLY transaction on a replica; a setting
        // made there behind a savepoint pins the session to the replica.
        let settings = !read_only;
        add(settings, 40, SETTINGS);
        add(settings && !with_startup, 40, RESETS);
        add(settings, 25, HOLD);
        add(settings, 25, TEMPORARY);
        add(settings, 25, PREPARE);
        add(settings && alone, 20, NOTIFY);
        add(settings, 20, LOCKS);
        add(settings, 25, PROCEDURES);
        if grammar.copies {
            grammar.sql.extend_from_slice(COPY_OUT);
            grammar.simple.extend_from_slice(COPY_IN);
        }
        // DISCARD ALL and RESET alike.
        if settings && !with_startup && random.percent(40) {
            grammar.simple.extend_from_slice(DEALLOCATE);
        }
        if read_only {
            // Another transaction that begins in the same request as a READ ONLY one ends would begin on the replica.
            grammar.simple.retain(|sql| !sql.contains("COMMIT; BEGIN"));
        }
        grammar
    }

    /// What may stand beside other statements in one unit.
    fn in_unit(&self, random: &mut Random, name: &str) -> &'static str {
        loop {
            let sql = random.pick(&self.sql);
            let shapes = ["BEGIN", "START", "COMMIT", "ROLLBACK"].iter().any(|word| sql.starts_with(word));
            // As above: the next transaction would begin on the replica.
            let has_values = sql.contains("$1");
            if !(self.read_only && shapes) && (name.is_empty() || !has_values) {
                return sql;
            }
        }
    }
}

/// The program of this seed.
pub(crate) fn program(seed: u64, sessions: usize) -> Program {
    let mut random = Random::new(seed);
    let startup = if random.percent(20) { random.pick(STARTUP).to_vec() } else { Vec::new() };
    let grammar = Grammar::of(&mut random, sessions, !startup.is_empty());
    let count = 3 + random.below(7 * sessions);
    let is_split = random.percent(40);
    let units = (0..count)
        .map(|_| {
            let steps = steps(&mut random, &grammar);
            let copy = if random.percent(20) { Copy::Fail } else { Copy::Row(random.pick(ROWS)) };
            let mut unit = Unit { session: random.below(sessions), steps, copy, pieces: Vec::new() };
            if is_split {
                unit.pieces = pieces(&mut random, unit.bytes().len());
            }
            unit
        })
        .collect();
    Program { seed, sessions, startup, units }
}

/// At most five pieces, most of them shorter than a message.
fn pieces(random: &mut Random, length: usize) -> Vec<usize> {
    (0..random.below(5)).map(|_| 1 + random.below((length / 3).max(9))).collect()
}

fn steps(random: &mut Random, grammar: &Grammar) -> Vec<Step> {
    if random.percent(45) {
        let texts = if random.percent(25) { &grammar.simple } else { &grammar.sql };
        let sql = random.pick(texts);
        return vec![request::query(sql).into()];
    }
    if grammar.read_only && random.percent(40) {
        // The extended protocol's transaction control, in a unit of its own.
        let sql = random.pick(&grammar.sql);
        return call(random, "", sql).into_iter().chain([request::sync().into()]).collect();
    }
    let mut steps = Vec::new();
    if grammar.copies && random.percent(20) {
        return copy_in(random);
    }
    for _ in 0..=random.below(6) {
        extended(random, grammar, &mut steps);
    }
    steps.push(request::sync().into());
    steps
}

fn name(random: &mut Random) -> &'static str {
    random.pick(&["", "", "a", "b"])
}

fn portal(random: &mut Random) -> &'static str {
    random.pick(&["", "", "", "p"])
}

/// Bind of a statement without parameters. With values, the server's error would tell the name that the server knows the
/// statement by.
fn bind(portal: &str, statement: &str) -> Step {
    request::bind(portal, statement, &[]).into()
}

/// Parse, Bind and Execute, with values if the text wants some.
fn call(random: &mut Random, statement: &str, sql: &str) -> Vec<Step> {
    let values = if sql.contains("$1") { random.pick(VALUES) } else { &[] };
    let some: Vec<Option<&str>> = values.iter().copied().map(Some).collect();
    let note = if values.is_empty() { String::new() } else { format!("{values:?}") };
    let mut steps = vec![
        request::parse(statement, sql).into(),
        Step { request: request::bind("", statement, &some), note },
    ];
    if random.percent(40) {
        steps.push(request::describe_portal("").into());
    }
    steps.push(request::execute("", 0).into());
    steps
}

fn extended(random: &mut Random, grammar: &Grammar, steps: &mut Vec<Step>) {
    let statement = name(random);
    match random.below(100) {
        0..20 => steps.push(request::parse(statement, grammar.in_unit(random, statement)).into()),
        20..45 => {
            let sql = grammar.in_unit(random, statement);
            steps.extend(call(random, statement, sql));
        }
        45..60 => {
            let portal = portal(random);
            // As said of BOUND.
            let statement = if grammar.bound && statement.is_empty() { "a" } else { statement };
            steps.push(bind(portal, statement));
        }
        60..75 => {
            let rows = *random.pick(&[&0, &0, &1, &2]);
            steps.push(request::execute(portal(random), rows).into());
        }
        75..80 => steps.push(request::describe_statement(statement).into()),
        80..84 => steps.push(request::describe_portal(portal(random)).into()),
        84..88 => steps.push(request::close_statement(statement).into()),
        88..91 => steps.push(request::close_portal(portal(random)).into()),
        91..96 => steps.push(request::flush().into()),
        _ if grammar.copies => copy_data(random, steps),
        _ => {}
    }
}

/// COPY FROM STDIN, with data that follows at once or that waits to be asked for. Nothing else follows in the unit, and
/// no other unit executes the statement: the server ends a session that says something else during a COPY, with the type
/// of that message, which may be one of Causeway's own. Data that follows at once is ended at once: whether a Sync right
/// behind data counts depends on where in the data the server finds fault.
fn copy_in(random: &mut Random) -> Vec<Step> {
    let mut steps = call(random, "", "COPY item FROM STDIN");
    if random.percent(60) {
        copy_data(random, &mut steps);
    }
    steps.push(request::sync().into());
    steps
}

/// Data that the client sends without waiting to be asked, and its end; outside a COPY the server drops both.
fn copy_data(random: &mut Random, steps: &mut Vec<Step>) {
    let rows = random.pick(ROWS);
    steps.push(Step { request: request::copy_data(rows.as_bytes()), note: format!("({rows:?})") });
    let fails = random.percent(30);
    steps.push(if fails { request::copy_fail("enough") } else { request::copy_done() }.into());
}

//! Units that a standby cannot serve, and frames too long to be looked at whole.

use super::notation;
use super::rig::{Over, Rig};

fn taken(rig: &mut Rig) -> (Vec<u8>, Vec<u8>) {
    let peer = rig.peer();
    (std::mem::take(&mut peer.to_server), std::mem::take(&mut peer.to_client))
}

/// S-SF-07: nothing of the first attempt is seen, and the next server gets the same.
#[test]
fn a_refusal_of_a_standby_is_not_seen() {
    for code in ["25006", "0A000", "55000", "40001", "42P01", "3F000"] {
        let mut rig = Rig::new();
        rig.play(&format!(
            "on 2
             > P s: SELECT 1 | B :s | D P | E | S
             = P #0: SELECT 1 | B :#0 | D P | E | S
             on 0
             < 1 | 2 | T | E {code} no
             = P #0: SELECT 1 | B :#0 | D P | E | S
             < 1 | 2 | T | D 1 | C SELECT 1 | Z I
             : 1 | 2 | T | D 1 | C SELECT 1 | Z I
             free"
        ));
        assert_eq!(rig.retries, [false], "{code}: what follows the error had not arrived");
    }
}

#[test]
fn a_simple_query_runs_again() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > Q SELECT 1
         = Q SELECT 1
         on 0
         < E 40001 canceling statement due to conflict with recovery | Z I
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
    assert_eq!(rig.retries, [true]);
}

/// S-SF-06, second part
#[test]
fn what_has_been_seen_cannot_be_taken_back() {
    for rows in ["T | D 1", "N hello | T | D 1"] {
        let mut rig = Rig::new();
        rig.play(&format!(
            "on 2
             > Q SELECT 1
             = Q SELECT 1
             < {rows}
             : {rows}
             < E 40001 conflict with recovery | Z I
             : E 40001 conflict with recovery | Z I
             free"
        ));
        assert!(rig.retries.is_empty());
    }
}

#[test]
fn an_error_of_the_statements_own_is_shown() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > Q SELECT 1/0
         = Q SELECT 1/0
         < T | E 22012 division by zero | Z I
         : T | E 22012 division by zero | Z I
         free",
    );
    assert!(rig.retries.is_empty());
}

#[test]
fn the_primary_has_the_last_word() {
    let mut rig = Rig::new();
    rig.play(
        "on 0
         > Q SELECT 1 FROM missing
         = Q SELECT 1 FROM missing
         < E 42P01 no | Z I
         : E 42P01 no | Z I",
    );
}

/// The standby stays in use, and its books must not name what it does not have.
#[test]
fn a_parse_that_failed_on_a_standby_is_not_in_its_books() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > P s: SELECT version() | S
         = P #0: SELECT version() | S
         on 0
         < E 42P01 not replayed yet | Z I
         = P #0: SELECT version() | S
         < 1 | Z I
         : 1 | Z I
         on 2
         > B :s | E | S
         = P #0: SELECT version() | B :#0 | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I",
    );
    assert_eq!(rig.retries, [true]);
}

#[test]
fn an_unseen_parse_that_failed_on_a_standby_is_not_in_its_books() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT version() | S
         = P #0: SELECT version() | S
         < 1 | Z I
         : 1 | Z I
         on 2
         > B :s | E | S
         = P #0: SELECT version() | B :#0 | E | S
         on 0
         < E 42P01 not replayed yet | Z I
         = B :#0 | E | S
         < 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I
         on 2
         > B :s | E | S
         = P #0: SELECT version() | B :#0 | E | S",
    );
}

/// A part of a unit, Parse and Describe up to Flush, may run again as well.
#[test]
fn a_part_runs_again() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > P s: SELECT 1 | D S s | H
         = P #0: SELECT 1 | D S #0 | S
         on 0
         < 1 | E 42P01 not replayed yet | Z I
         = P #0: SELECT 1 | D S #0 | S
         < 1 | t | T | Z I
         : 1 | t | T
         free",
    );
}

/// The connection's settings are not known, as the first attempt may have been cut off in the middle.
#[test]
fn a_held_begin_is_sent_again() {
    let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
    let set = "SELECT pg_catalog.set_config('work_mem', '6MB', false)";
    rig.play(&format!(
        "> Q BEGIN READ ONLY
         : C BEGIN | Z T
         on 2
         > Q SELECT 1
         = Q {set} | Q BEGIN READ ONLY | Q SELECT 1
         on 0
         < T | D 6MB | C SELECT 1 | Z I | C BEGIN | Z T | E 42P01 not replayed yet | Z E
         = Q {set} | Q BEGIN READ ONLY | Q SELECT 1
         < T | D 6MB | C SELECT 1 | Z I | C BEGIN | Z T | T | D 1 | C SELECT 1 | Z T
         : T | D 1 | C SELECT 1 | Z T
         held"
    ));
    assert_eq!(rig.retries, [false]);
}

#[test]
fn a_transaction_on_a_standby_does_not_move() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN READ ONLY
         : C BEGIN | Z T
         on 2
         > Q SELECT 1
         = Q BEGIN READ ONLY | Q SELECT 1
         < C BEGIN | Z T | T | D 1 | C SELECT 1 | Z T
         : T | D 1 | C SELECT 1 | Z T
         > Q SELECT 2 FROM missing
         = Q SELECT 2 FROM missing
         < E 42P01 no | Z E
         : E 42P01 no | Z E
         held",
    );
    assert!(rig.retries.is_empty());
}

/// The server's stream ends without a word: the same as a refusal.
#[test]
fn a_standby_that_is_lost() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > P s: SELECT 1 | B :s | E | S
         = P #0: SELECT 1 | B :#0 | E | S
         < 1 | 2
         on 0",
    );
    assert!(rig.session().may_retry());
    rig.give_up_attempt(false);
    rig.play(
        "= P #0: SELECT 1 | B :#0 | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         : 1 | 2 | D 1 | C SELECT 1 | Z I",
    );
}

#[test]
fn the_bytes_of_both_attempts_are_the_same() {
    let mut rig = Rig::new();
    rig.next = 2;
    let unit =
        notation::from_client("P : SELECT $1 | B : | D P | E /7 | P s: SELECT 2 | B p:s | E p | C P p | S");
    for part in unit.chunks(3) {
        rig.client(part);
    }
    let (first, _) = taken(&mut rig);
    rig.next = 0;
    rig.server(&notation::from_server("1 | 2 | E 25006 no"));
    let (second, client) = taken(&mut rig);
    assert_eq!(first, second);
    assert!(client.is_empty());
}

#[test]
fn a_large_query_is_sent_in_parts_and_comes_out_whole() {
    let mut rig = Rig::new();
    let query = notation::from_client(&format!("Q SELECT '{}'", "x".repeat(3 << 20)));
    let mut sent = Vec::new();
    for part in query.chunks(100_000) {
        rig.client(part);
        sent.append(&mut rig.peer().to_server);
    }
    assert!(!rig.session().demand().replica);
    assert_eq!(sent, query);
    rig.play("< T | D 1 | C SELECT 1 | Z I\n: T | D 1 | C SELECT 1 | Z I\nfree");
}

#[test]
fn a_large_bind_is_sent_in_parts() {
    let mut rig = Rig::new();
    rig.play("> P s: SELECT $1 | S\n= P #0: SELECT $1 | S\n< 1 | Z I\n: 1 | Z I");
    let value = vec![b'v'; 3 << 20];
    let bind = |statement: &[u8]| {
        let mut out = Vec::new();
        causeway_protocol::encode::bind(&mut out, (b"", statement), &[], &[Some(&value)], &[]);
        out.extend(notation::from_client("E | S"));
        out
    };
    for part_len in [100_000, 1 << 20, 10 << 20] {
        for part in bind(b"s").chunks(part_len) {
            rig.client(part);
        }
        let (sent, _) = taken(&mut rig);
        assert!(sent == bind(b"causeway_0"), "parts of {part_len}: {} bytes", sent.len());
        rig.play("< 2 | D 1 | C SELECT 1 | Z I\n: 2 | D 1 | C SELECT 1 | Z I\nfree");
    }
}

#[test]
fn a_large_unit_of_small_messages() {
    let mut rig = Rig::new();
    let one = format!("P : SELECT '{}' | B : | E", "x".repeat(200_000));
    let unit = notation::from_client(&format!("{} | S", [&*one; 9].join(" | ")));
    let mut sent = Vec::new();
    for part in unit.chunks(64 * 1024) {
        rig.client(part);
        sent.append(&mut rig.peer().to_server);
    }
    assert!(sent == unit, "{} bytes of {}", sent.len(), unit.len());
    let answer = format!("{} | Z I", ["1 | 2 | D x | C SELECT 1"; 9].join(" | "));
    rig.play(&format!("< {answer}\n: {answer}\nfree"));
}

/// A Parse of more than a megabyte under a name: the client's name is the server's, and the session stays there.
#[test]
fn a_large_parse_pins() {
    let mut rig = Rig::new();
    let sql = format!("SELECT '{}'", "x".repeat(2 << 20));
    for part in notation::from_client(&format!("P s: {sql} | B :s | E | S")).chunks(1 << 20) {
        rig.client(part);
    }
    let (sent, _) = taken(&mut rig);
    assert_eq!(notation::to_server(&sent), format!("P s: ({} bytes) | B :s | E | S", sql.len()));
    rig.play("< 1 | 2 | D 1 | C SELECT 1 | Z I\n: 1 | 2 | D 1 | C SELECT 1 | Z I\nheld");
}

/// A large unnamed Parse replaces the unnamed statement.
#[test]
fn a_large_unnamed_parse_is_the_unnamed_statement() {
    let mut rig = Rig::new();
    rig.play("> P : SELECT 7 | S\n= P : SELECT 7 | S\n< 1 | Z I\n: 1 | Z I\non 1");
    let sql = format!("SELECT '{}'", "x".repeat(2 << 20));
    for part in notation::from_client(&format!("P : {sql} | B : | E | S")).chunks(1 << 20) {
        rig.client(part);
    }
    let (sent, _) = taken(&mut rig);
    assert_eq!(notation::to_server(&sent), format!("P : ({} bytes) | B : | E | S", sql.len()));
}

/// A row may be of any length, and of no interest.
#[test]
fn large_rows_pass_through_as_they_come() {
    let mut rig = Rig::new();
    rig.play("> Q SELECT x FROM t\n= Q SELECT x FROM t");
    let answer = notation::from_server(&format!("T | D {0} | D {0} | C SELECT 2 | Z I", "r".repeat(3 << 20)));
    for part in answer.chunks(70_000) {
        let before = rig.peer().to_client.len();
        rig.server(part);
        let passed = rig.peer().to_client.len() - before;
        assert!(passed + 5 >= part.len(), "at most a header waits for its rest: {passed} of {}", part.len());
    }
    assert!(rig.peer().to_client == answer);
    assert!(rig.peer().held.is_none());
}

/// A long error, in parts.
#[test]
fn a_large_error_passes() {
    let mut rig = Rig::new();
    rig.play("> Q DO 'RAISE'\n= Q DO 'RAISE'");
    let answer = notation::from_server(&format!("E P0001 {} | Z I", "m".repeat(2 << 20)));
    for part in answer.chunks(64 * 1024) {
        rig.server(part);
        assert!(rig.peer().over.is_none(), "{:?}", rig.peer().over);
    }
    assert!(rig.peer().to_client == answer);
    assert!(!rig.is_running());
}

/// A server that does not follow the protocol is told from one that does.
#[test]
fn an_answer_to_nothing_is_a_fault() {
    for answer in ["Z I", "1", "T", "D 1", "C SELECT 1"] {
        let mut rig = Rig::new();
        rig.play("> B :x | S\n= B :x | S");
        rig.server(&notation::from_server(answer));
        let Some(Over::Fault(fault)) = &rig.peer().over else { panic!("{answer}") };
        assert!(fault.to_string().contains("while Some(Bind) was owed"), "{fault}");
    }
}

//! Transactions, held back or not, pins, and units that get no server.

use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{Kind, PinReason};

use super::notation;
use super::rig::{Over, Peer, Rig};
use crate::config::PoolMode;

#[test]
fn begin_read_only_waits_for_what_follows() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN READ ONLY
         : C BEGIN | Z T
         free
         on 2
         > Q SELECT 1
         = Q BEGIN READ ONLY | Q SELECT 1",
    );
    assert!(rig.session().demand().replica);
    rig.play(
        "< C BEGIN | Z T | T | D 1 | C SELECT 1 | Z T
         : T | D 1 | C SELECT 1 | Z T
         held
         > Q COMMIT
         = Q COMMIT
         < C COMMIT | Z I
         : C COMMIT | Z I
         free",
    );
    assert!(!rig.peer().ended.unwrap().wrote);
}

/// S-RW-04: the primary refuses it as it would without us.
#[test]
fn a_write_after_begin_read_only_goes_to_the_primary() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN READ ONLY
         : C BEGIN | Z T
         > Q INSERT INTO t VALUES (1)
         = Q BEGIN READ ONLY | Q INSERT INTO t VALUES (1)
         < C BEGIN | Z T | E 25006 cannot execute INSERT in a read-only transaction | Z E
         : E 25006 cannot execute INSERT in a read-only transaction | Z E
         held
         > Q COMMIT
         = Q COMMIT
         < C ROLLBACK | Z I
         : C ROLLBACK | Z I
         free",
    );
}

#[test]
fn an_empty_read_only_transaction_needs_no_server() {
    for (end, tag) in
        [("COMMIT", "COMMIT"), ("END", "COMMIT"), ("ROLLBACK", "ROLLBACK"), ("ABORT", "ROLLBACK")]
    {
        let mut rig = Rig::new();
        rig.play(&format!(
            "> Q BEGIN READ ONLY
             : C BEGIN | Z T
             > Q {end}
             : C {tag} | Z I
             free
             > Q SELECT 1
             = Q SELECT 1"
        ));
    }
}

#[test]
fn a_held_begin_goes_ahead_of_the_extended_protocol() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         > Q BEGIN TRANSACTION READ ONLY
         : C BEGIN | Z T
         on 1
         > B :s | E | S
         = Q BEGIN TRANSACTION READ ONLY | P #0: SELECT 1 | B :#0 | E | S
         < C BEGIN | Z T | 1 | 2 | D 1 | C SELECT 1 | Z T
         : 2 | D 1 | C SELECT 1 | Z T
         held",
    );
}

#[test]
fn settings_go_ahead_of_a_held_begin() {
    let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
    rig.play(
        "> Q BEGIN READ ONLY
         : C BEGIN | Z T
         on 2
         > Q SELECT 1
         = Q SELECT pg_catalog.set_config('work_mem', '6MB', false) | Q BEGIN READ ONLY | Q SELECT 1
         < T | D 6MB | C SELECT 1 | Z I | C BEGIN | Z T | T | D 1 | C SELECT 1 | Z T
         : T | D 1 | C SELECT 1 | Z T
         held
         > Q SELECT 2
         = Q SELECT 2
         < T | D 2 | C SELECT 1 | Z T
         : T | D 2 | C SELECT 1 | Z T",
    );
}

#[test]
fn a_plain_begin_is_not_held() {
    for begin in ["BEGIN", "START TRANSACTION", "BEGIN READ WRITE", "BEGIN; SELECT 1"] {
        let mut rig = Rig::new();
        rig.play(&format!("> Q {begin}\n= Q {begin}"));
        assert!(!rig.session().demand().replica, "{begin}");
    }
}

#[test]
fn a_pinned_session_holds_no_begin() {
    let mut rig = Rig::new();
    rig.play(
        "> Q LISTEN a
         = Q LISTEN a
         < C LISTEN | Z I
         : C LISTEN | Z I
         held
         > Q BEGIN READ ONLY
         = Q BEGIN READ ONLY",
    );
}

#[test]
fn pins_and_what_makes_them() {
    for (sql, reason) in [
        ("LISTEN a", PinReason::Listen),
        ("CREATE TEMP TABLE x (i int)", PinReason::TemporaryTable),
        ("SELECT pg_advisory_lock(7)", PinReason::AdvisoryLock),
        ("PREPARE p AS SELECT 1", PinReason::SqlPrepare),
        ("SELECT set_config($1, '1MB', false)", PinReason::Setting),
        ("SET SESSION AUTHORIZATION other", PinReason::Authorization),
        ("DO $$ BEGIN EXECUTE x; END $$", PinReason::Procedure),
    ] {
        for extended in [false, true] {
            let mut rig = Rig::new();
            let unit = if extended { format!("P : {sql} | B : | E | S") } else { format!("Q {sql}") };
            let answer = if extended { "1 | 2 | C X | Z I" } else { "C X | Z I" };
            rig.play(&format!("> {unit}\n= {unit}\n< {answer}\n: {answer}\nheld"));
            assert_eq!(rig.session().pins().first(), Some(reason), "{sql}");
            assert_eq!(rig.peer().ended.unwrap().pinned, Some(reason), "{sql}");
        }
    }
}

#[test]
fn what_fails_leaves_no_pin() {
    for (sql, kept) in [
        ("LISTEN a", false),
        ("CREATE TEMP TABLE x (i int)", false),
        // Session-level locks and SQL-level statements survive the transaction that made them.
        ("SELECT pg_advisory_lock(7), 1/0", true),
        ("PREPARE p AS SELECT 1", true),
    ] {
        let mut rig = Rig::new();
        rig.play(&format!(
            "> Q {sql}\n= Q {sql}\n< E 22012 division by zero | Z I\n: E 22012 division by zero | Z I"
        ));
        assert_eq!(rig.session().pins().first().is_some(), kept, "{sql}");
    }
}

#[test]
fn session_mode_keeps_the_server() {
    let mut rig = Rig::new();
    rig.peers[0] = Peer::new(PoolMode::Session, &[]);
    rig.play(
        "> Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         held
         > Q BEGIN READ ONLY
         = Q BEGIN READ ONLY
         < C BEGIN | Z T
         : C BEGIN | Z T",
    );
}

/// S-PL-05
#[test]
fn a_refused_unit_gets_one_error_and_one_ready() {
    let mut rig = Rig::new();
    rig.play(
        "refuse
         > Q SELECT 1
         : E 53300 refused | Z I
         refuse
         > P s: SELECT 1 | B :s | D P | E | S
         : E 53300 refused | Z I
         > B :s | S
         = B :s | S
         < E 26000 prepared statement \"s\" does not exist | Z I
         : E 26000 prepared statement \"s\" does not exist | Z I",
    );
}

#[test]
fn a_unit_refused_before_its_sync_is_skipped() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         refuse
         > C S s | P s: SELECT 2 | B :s | H
         : E 53300 refused
         > E | P t: SELECT 3 | H
         > Q SELECT 1
         > S
         : Z I
         > B :s | S
         = B :#0 | S
         < 2 | Z I
         : 2 | Z I",
    );
}

#[test]
fn a_refused_unit_changes_no_name() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | P : SELECT 7 | S
         = P #0: SELECT 1 | P : SELECT 7 | S
         < 1 | 1 | Z I
         : 1 | 1 | Z I
         refuse
         > C S s | P s: SELECT 2 | P : SELECT 8 | S
         : E 53300 refused | Z I
         > B :s | B : | S
         = B :#0 | B : | S",
    );
}

#[test]
fn a_large_unit_that_is_refused_is_thrown_away_whole() {
    let mut rig = Rig::new();
    let query = notation::from_client(&format!("Q SELECT '{}'", "x".repeat(3 << 20)));
    rig.refuse_next = true;
    rig.client(&query[..2 << 20]);
    assert_eq!(notation::to_client(&std::mem::take(&mut rig.peer().to_client)), "E 53300 refused | Z I");
    rig.client(&query[2 << 20..]);
    rig.play("> Q SELECT 1\n= Q SELECT 1");
}

#[test]
fn what_a_unit_demands() {
    for (client, replica, kind) in [
        ("Q SELECT 1", true, Kind::Read),
        ("Q INSERT INTO t VALUES (1)", false, Kind::Write),
        ("Q SELECT 1; INSERT INTO t VALUES (1)", false, Kind::Write),
        ("P : SELECT 1 | B : | E | P : INSERT INTO t VALUES (1) | B : | E | S", false, Kind::Write),
        ("P : INSERT INTO t VALUES (1) | B : | E | P : SELECT 1 | B : | E | S", false, Kind::Write),
        ("P : SELECT 1 | D S | S", true, Kind::Read),
        ("B :unknown | E | S", false, Kind::Write),
        ("F", false, Kind::Write),
        ("S", true, Kind::Either),
    ] {
        let mut rig = Rig::new();
        rig.client(&notation::from_client(client));
        let demand = rig.session().demand();
        assert_eq!((demand.replica, demand.kind), (replica, kind), "{client}");
    }
}

/// The client waits, and what follows may be a write.
#[test]
fn an_open_unit_belongs_to_the_primary() {
    let mut rig = Rig::new();
    rig.client(&notation::from_client("P : SELECT 1 | B : | E | H"));
    assert!(!rig.session().demand().replica);
}

#[test]
fn fatal_is_the_last_word() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SELECT pg_sleep(5)
         = Q SELECT pg_sleep(5)
         < E! 57P01 terminating connection due to administrator command
         : E! 57P01 terminating connection due to administrator command",
    );
    assert!(matches!(rig.peer().over, Some(Over::Told)));
}

/// S-SF-03
#[test]
fn fatal_between_two_units() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         < E! 25P03 terminating connection due to idle-in-transaction timeout
         : E! 25P03 terminating connection due to idle-in-transaction timeout",
    );
    assert!(matches!(rig.peer().over, Some(Over::Told)));
}

#[test]
fn what_comes_unasked_is_passed_on() {
    let mut rig = Rig::new();
    rig.play(
        "> Q LISTEN a
         = Q LISTEN a
         < C LISTEN | Z I
         : C LISTEN | Z I
         < A a | N hello | S TimeZone=UTC
         : A a | N hello | S TimeZone=UTC
         > Q SELECT 1
         = Q SELECT 1
         < A a | T | D 1 | N hello | C SELECT 1 | A a | Z I
         : A a | T | D 1 | N hello | C SELECT 1 | A a | Z I",
    );
}

#[test]
fn wrote_is_told_at_the_end_of_each_unit_of_a_transaction() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > Q UPDATE t SET i = 1
         = Q UPDATE t SET i = 1
         < C UPDATE 1 | Z T
         : C UPDATE 1 | Z T
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z T
         : T | D 1 | C SELECT 1 | Z T
         > Q COMMIT
         = Q COMMIT
         < C COMMIT | Z I
         : C COMMIT | Z I",
    );
    assert!(rig.peer().ended.unwrap().wrote);
    rig.play(
        "> Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
    assert!(!rig.peer().ended.unwrap().wrote);
}

#[test]
fn definitions_are_told_when_they_are_committed() {
    let mut rig = Rig::new();
    rig.play(
        "> Q CREATE TABLE x (i int)
         = Q CREATE TABLE x (i int)
         < C CREATE TABLE | Z I
         : C CREATE TABLE | Z I",
    );
    assert!(rig.peer().ended.unwrap().defined);
    for (query, answer, defined) in [
        ("BEGIN", "C BEGIN | Z T", false),
        ("ALTER TABLE x ADD y int", "C ALTER TABLE | Z T", false),
        ("COMMIT", "C COMMIT | Z I", true),
        ("SELECT 1", "T | D 1 | C SELECT 1 | Z I", false),
    ] {
        rig.play(&format!("> Q {query}\n= Q {query}\n< {answer}\n: {answer}"));
        assert_eq!(rig.peer().ended.unwrap().defined, defined, "{query}");
    }
}

#[test]
fn what_is_no_message_ends_the_session() {
    for bytes in
        [b"y\0\0\0\x04".to_vec(), b"Q\0\0\0\x03".to_vec(), b"Q\0\0\0\x06xy".to_vec(), b"E\0\0\0\x04".to_vec()]
    {
        let mut rig = Rig::new();
        rig.client(&bytes);
        assert!(
            matches!(&rig.peer().over, Some(Over::Report(report)) if report.code == SqlState::PROTOCOL_VIOLATION),
            "{bytes:?}"
        );
        assert!(rig.peer().to_server.is_empty());
    }
}

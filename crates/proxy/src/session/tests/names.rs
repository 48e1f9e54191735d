//! Which names exist, and what servers have, after errors in the middle of pipelines.

use super::rig::{Rig, Server};

const NO_S: &str = "E 26000 prepared statement \"s\" does not exist | Z I";

fn prepared(rig: &mut Rig) {
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I",
    );
}

#[test]
fn a_skipped_close_leaves_the_name() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> P : SELEC | C S s | S
         = P : SELEC | S
         < E 42601 syntax error | Z I
         : E 42601 syntax error | Z I
         > B :s | S
         = B :#0 | S
         < 2 | Z I
         : 2 | Z I",
    );
}

#[test]
fn skipped_close_and_parse_of_one_name_leave_the_old_statement() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> P : SELEC | C S s | P s: SELECT 2 | S
         = P : SELEC | P #2: SELECT 2 | S
         < E 42601 syntax error | Z I
         : E 42601 syntax error | Z I
         > B :s | S
         = B :#0 | S
         < 2 | Z I
         : 2 | Z I",
    );
}

#[test]
fn skipped_parse_close_and_parse_of_one_name_leave_none() {
    let mut rig = Rig::new();
    rig.play(&format!(
        "> P s: SELEC | C S s | P s: SELECT 2 | S
         = P #0: SELEC | P #1: SELECT 2 | S
         < E 42601 syntax error | Z I
         : E 42601 syntax error | Z I
         > B :s | S
         = B :s | S
         < {NO_S}
         : {NO_S}",
    ));
}

#[test]
fn close_then_parse_of_another_text() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> C S s | P s: SELECT 2 | B :s | E | S
         = P #1: SELECT 2 | B :#1 | E | S
         : 3
         < 1 | 2 | D 2 | C SELECT 1 | Z I
         : 1 | 2 | D 2 | C SELECT 1 | Z I",
    );
}

#[test]
fn a_taken_name_costs_nothing_else() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> P : SELECT 7 | S
         = P : SELECT 7 | S
         < 1 | Z I
         : 1 | Z I
         > P s: SELECT 2 | S
         = P #0: SELECT 2 | S
         < E 42P05 prepared statement \"causeway_0\" already exists | Z I
         : E 42P05 prepared statement \"s\" already exists | Z I
         > B : | E | S
         = B : | E | S
         < 2 | D 7 | C SELECT 1 | Z I
         : 2 | D 7 | C SELECT 1 | Z I",
    );
}

/// Two clients' names may stand for one server-side statement; each sees its own.
#[test]
fn the_name_in_an_error_is_the_one_that_was_used() {
    let mut rig = Rig::new();
    rig.play(
        "> P one: SELECT 1 | P two: SELECT 1 | P three: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | 1 | 1 | Z I
         > P two: SELECT 2 | S
         = P #0: SELECT 2 | S
         < E 42P05 prepared statement \"causeway_0\" already exists | Z I
         : E 42P05 prepared statement \"two\" already exists | Z I",
    );
}

/// Only a Parse that is executed drops what it replaces (`exec_parse_message` in src/backend/tcop/postgres.c).
#[test]
fn a_skipped_unnamed_parse_leaves_the_earlier_one() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 7 | S
         = P : SELECT 7 | S
         < 1 | Z I
         : 1 | Z I
         > P bad: SELEC | P : SELECT 8 | S
         = P #1: SELEC | P : SELECT 8 | S
         < E 42601 syntax error | Z I
         : E 42601 syntax error | Z I
         > B : | E | S
         = P : SELECT 7 | B : | E | S
         < 1 | 2 | D 7 | C SELECT 1 | Z I
         : 2 | D 7 | C SELECT 1 | Z I",
    );
}

#[test]
fn a_failed_unnamed_parse_drops_the_earlier_one() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 7 | S
         = P : SELECT 7 | S
         < 1 | Z I
         : 1 | Z I
         > P : SELEC | S
         = P : SELEC | S
         < E 42601 syntax error | Z I
         : E 42601 syntax error | Z I
         > B : | S
         = C S | B : | S
         < 3 | E 26000 unnamed prepared statement does not exist | Z I
         : E 26000 unnamed prepared statement does not exist | Z I",
    );
}

/// The same server-side statement, parsed and then answered for in one unit: what was parsed stays.
#[test]
fn a_skipped_parse_of_what_the_server_has_takes_nothing_back() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | B :nope | P t: SELECT 1 | S
         = P #0: SELECT 1 | B :nope | S
         < 1 | E 26000 prepared statement \"nope\" does not exist | Z I
         : 1 | E 26000 prepared statement \"nope\" does not exist | Z I
         > B :s | S
         = B :#0 | S
         < 2 | Z I
         : 2 | Z I",
    );
}

#[test]
fn a_statement_too_many_is_closed_on_the_server() {
    let mut rig = Rig::new();
    rig.servers = vec![Server::new(2, false)];
    rig.play(
        "> P a: SELECT 1 | P b: SELECT 2 | S
         = P #0: SELECT 1 | P #1: SELECT 2 | S
         < 1 | 1 | Z I
         : 1 | 1 | Z I
         > B :a | P c: SELECT 3 | S
         = B :#0 | C S #1 | P #2: SELECT 3 | S
         < 2 | 3 | 1 | Z I
         : 2 | 1 | Z I
         > B :b | S
         = C S #0 | P #1: SELECT 2 | B :#1 | S
         < 3 | 1 | 2 | Z I
         : 2 | Z I",
    );
}

/// The server did not get to close it: parsing it again would be an error.
#[test]
fn a_skipped_eviction_is_no_eviction() {
    for pinned in [false, true] {
        skip_an_eviction(pinned);
    }
}

fn skip_an_eviction(pinned: bool) {
    let mut rig = Rig::new();
    rig.servers = vec![Server::new(2, false)];
    if pinned {
        rig.play("> Q LISTEN a\n= Q LISTEN a\n< C LISTEN | Z I\n: C LISTEN | Z I\nheld");
    }
    rig.play(
        "> P a: SELECT 1/0 | P b: SELECT 2 | S
         = P #0: SELECT 1/0 | P #1: SELECT 2 | S
         < 1 | 1 | Z I
         : 1 | 1 | Z I
         > B :a | E | P c: SELECT 3 | S
         = B :#0 | E | C S #1 | P #2: SELECT 3 | S
         < 2 | E 22012 division by zero | Z I
         : 2 | E 22012 division by zero | Z I",
    );
    rig.play(
        "> B :b | S
         = B :#1 | S",
    );
}

/// The statement exists no more on the server, although its transaction has failed.
#[test]
fn an_unseen_parse_that_fails_is_the_answer_to_what_needed_it() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 FROM gone | S
         = P #0: SELECT 1 FROM gone | S
         < 1 | Z I
         : 1 | Z I
         on 1
         > B :s | E | S
         = P #0: SELECT 1 FROM gone | B :#0 | E | S
         < E 42P01 relation \"gone\" does not exist | Z I
         : E 42P01 relation \"gone\" does not exist | Z I
         > D S s | S
         = P #0: SELECT 1 FROM gone | D S #0 | S
         < 1 | t | T | Z I
         : t | T | Z I",
    );
}

#[test]
fn a_query_that_is_skipped_ends_nothing() {
    let mut rig = Rig::new();
    rig.play(
        "> P x: SELEC | Q SELECT 1
         = P #0: SELEC | Q SELECT 1
         < E 42601 syntax error
         : E 42601 syntax error
         > S
         = S
         < Z I
         : Z I
         free",
    );
}

/// The server skips what reaches it after the error, up to Sync.
#[test]
fn what_comes_after_the_error_leaves_no_name() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> B :nope | E | H
         = B :nope | E | H
         < E 26000 prepared statement \"nope\" does not exist
         : E 26000 prepared statement \"nope\" does not exist",
    );
    for part in ["P t: SELECT 2 | C S s | H", "P u: SELECT 2 | S"] {
        rig.client(&super::notation::from_client(part));
        // What of it gets there at all is of no account.
        rig.peer().to_server.clear();
    }
    rig.play(
        "< Z I
         : Z I
         free
         > B :s | S
         = B :#0 | S
         < 2 | Z I
         : 2 | Z I
         > B :t | S
         = B :t | S
         < E 26000 prepared statement \"t\" does not exist | Z I
         : E 26000 prepared statement \"t\" does not exist | Z I
         > B :u | S
         = B :u | S
         < E 26000 prepared statement \"u\" does not exist | Z I
         : E 26000 prepared statement \"u\" does not exist | Z I",
    );
}

#[test]
fn a_query_ends_an_open_unit() {
    let mut rig = Rig::new();
    rig.play(
        "> P x: SELECT 1 | Q SELECT 2
         = P #0: SELECT 1 | Q SELECT 2
         < 1 | T | D 2 | C SELECT 1 | Z I
         : 1 | T | D 2 | C SELECT 1 | Z I
         free",
    );
}

/// DEALLOCATE is not undone by the failure of what follows it.
#[test]
fn deallocate_all_before_an_error() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "as 1
         > Q DEALLOCATE ALL; SELECT 1/0
         = Q DEALLOCATE ALL; SELECT 1/0
         < C DEALLOCATE ALL | E 22012 division by zero | Z I
         : C DEALLOCATE ALL | E 22012 division by zero | Z I",
    );
    // Whoever gets the connection next must not be told that the server has the statement.
    if rig.peer().held.is_none() {
        rig.play(
            "as 0
             > B :s | S
             = P #0: SELECT 1 | B :#0 | S
             < 1 | 2 | Z I
             : 2 | Z I",
        );
    }
}

#[test]
fn deallocate_all_in_the_extended_protocol() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(&format!(
        "> P : DEALLOCATE ALL | B : | E | S
         = P : DEALLOCATE ALL | B : | E | S
         < 1 | 2 | C DEALLOCATE ALL | Z I
         : 1 | 2 | C DEALLOCATE ALL | Z I
         > B :s | S
         = B :s | S
         < {NO_S}
         : {NO_S}"
    ));
}

#[test]
fn discard_all_forgets_everything_and_unpins() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    rig.play(
        "> Q LISTEN a
         = Q LISTEN a
         < C LISTEN | Z I
         : C LISTEN | Z I
         held
         > Q DISCARD ALL
         = Q DISCARD ALL
         < C DISCARD ALL | Z I
         : C DISCARD ALL | Z I
         free
         > P s: SELECT 1 | S
         = P #1: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I",
    );
    assert!(rig.session().pins().is_empty());
}

/// Names of server-side statements are no client's to use.
#[test]
fn server_side_names_are_refused() {
    for message in ["B :causeway_0 | S", "D S causeway_0 | S"] {
        let mut rig = Rig::new();
        prepared(&mut rig);
        rig.client(&super::notation::from_client(message));
        assert!(matches!(&rig.peer().over, Some(super::rig::Over::Report(report))
            if report.code == causeway_protocol::sqlstate::SqlState::INVALID_STATEMENT_NAME));
    }
}

#[test]
fn a_failed_transaction_refuses_what_the_proxy_would_answer() {
    let mut rig = Rig::new();
    prepared(&mut rig);
    let refused = "E 25P02 current transaction is aborted | Z E";
    rig.play(&format!(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > Q SELEC
         = Q SELEC
         < E 42601 syntax error | Z E
         : E 42601 syntax error | Z E
         > P t: SELECT 1 | S
         = P #0: SELECT 1 | S
         < {refused}
         : {refused}
         > Q DEALLOCATE s
         = Q DEALLOCATE s
         < {refused}
         : {refused}
         > P : SELECT 2 | S
         = P : SELECT 2 | S
         < {refused}
         : {refused}
         > C S s | S
         = S
         : 3
         < Z E
         : Z E
         > Q ROLLBACK
         = Q ROLLBACK
         < C ROLLBACK | Z I
         : C ROLLBACK | Z I
         free
         > B :t | S
         = B :t | S
         < E 26000 prepared statement \"t\" does not exist | Z I
         : E 26000 prepared statement \"t\" does not exist | Z I"
    ));
}

/// PostgreSQL accepts a Parse of what ends a failed transaction; that another client has prepared the same is no
/// reason to refuse it.
#[test]
fn rollback_is_prepared_in_a_failed_transaction() {
    let mut rig = Rig::new();
    rig.play(
        "as 1
         > P r: ROLLBACK | S
         = P #0: ROLLBACK | S
         < 1 | Z I
         : 1 | Z I
         as 0
         > Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > Q SELEC
         = Q SELEC
         < E 42601 syntax error | Z E
         : E 42601 syntax error | Z E
         > P mine: ROLLBACK | B :mine | E | S
         = B :#0 | E | S
         : 1
         < 2 | C ROLLBACK | Z I
         : 2 | C ROLLBACK | Z I
         free",
    );
}

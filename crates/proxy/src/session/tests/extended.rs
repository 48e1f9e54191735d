//! The extended protocol: statements under names of their own on each server connection.

use super::notation;
use super::rig::Rig;

#[test]
fn a_named_statement_gets_a_server_side_name() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | D S s | B :s | D P | E | S
         = P #0: SELECT 1 | D S #0 | B :#0 | D P | E | S
         < 1 | t | T | 2 | T | D 1 | C SELECT 1 | Z I
         : 1 | t | T | 2 | T | D 1 | C SELECT 1 | Z I
         free",
    );
}

#[test]
fn a_statement_follows_its_client_to_another_server() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         on 1
         > B :s | E | S
         = P #0: SELECT 1 | B :#0 | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I
         > B :s | E | S
         = B :#0 | E | S
         < 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I
         on 0
         > D S s | S
         = D S #0 | S
         < t | T | Z I
         : t | T | Z I",
    );
}

/// S-PS-01
#[test]
fn names_are_private_and_texts_are_shared() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         as 1
         > P s: SELECT 'b' | P t: SELECT 1 | S
         = P #1: SELECT 'b' | S
         < 1 | Z I
         : 1 | 1 | Z I
         as 0
         > B :s | E | S
         = B :#0 | E | S
         < 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I
         as 1
         > B :s | E | S
         = B :#1 | E | S
         < 2 | D b | C SELECT 1 | Z I
         : 2 | D b | C SELECT 1 | Z I",
    );
}

#[test]
fn a_name_that_is_taken_is_refused_in_the_clients_words() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         on 1
         > P s: SELECT 2 | B :s | E | S
         = P #0: SELECT 1 | P #0: SELECT 2 | B :#0 | E | S
         < 1 | E 42P05 prepared statement \"causeway_0\" already exists | Z I
         : E 42P05 prepared statement \"s\" already exists | Z I
         > B :s | E | S
         = B :#0 | E | S
         < 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I",
    );
}

/// ParseComplete of what the server has is given between the server's own answers.
#[test]
fn own_answers_come_in_their_turn() {
    let mut rig = Rig::new();
    rig.play(
        "> P a: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         > P b: SELECT 2 | P c: SELECT 1 | B :b | C S b | E | P d: SELECT 1 | C S zz | S
         = P #1: SELECT 2 | B :#1 | E | S
         < 1
         : 1 | 1
         < 2
         : 2 | 3
         < D 2
         : D 2
         < C SELECT 1
         : C SELECT 1 | 1 | 3
         < Z I
         : Z I",
    );
}

/// A server's message may come in parts, and what is given here must not get between them.
#[test]
fn own_answers_wait_for_the_end_of_a_frame() {
    let expected = "t | T | 3 | 3 | Z I";
    let answer = notation::from_server("t | T | Z I");
    for at in 1..answer.len() {
        let mut rig = Rig::new();
        rig.play("> P a: SELECT 1 | S\n= P #0: SELECT 1 | S\n< 1 | Z I\n: 1 | Z I");
        rig.play("> D S a | C S x | C S y | S\n= D S #0 | S");
        rig.server(&answer[..at]);
        rig.server(&answer[at..]);
        assert_eq!(notation::to_client(&rig.peer().to_client), expected, "split at {at}");
        let mut rig = Rig::new();
        rig.play("> P a: SELECT 1 | S\n= P #0: SELECT 1 | S\n< 1 | Z I\n: 1 | Z I");
        rig.play("> D S a | B :a | H\n= D S #0 | B :#0 | H");
        let first = at.min(notation::from_server("t | T").len());
        rig.server(&answer[..first]);
        rig.client(&notation::from_client("C S x | S"));
        rig.server(&answer[first..answer.len() - 6]);
        rig.server(&notation::from_server("2 | Z I"));
        assert_eq!(notation::to_client(&rig.peer().to_client), "t | T | 2 | 3 | Z I", "split at {first}");
    }
}

#[test]
fn the_unnamed_statement_is_parsed_again_where_it_is_missing() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 1 | D S | S
         = P : SELECT 1 | D S | S
         < 1 | t | T | Z I
         : 1 | t | T | Z I
         as 1
         > P : SELECT 'other' | S
         = P : SELECT 'other' | S
         < 1 | Z I
         : 1 | Z I
         as 0
         > B : | E | S
         = P : SELECT 1 | B : | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I
         on 1
         > B : | E | S
         = P : SELECT 1 | B : | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I",
    );
}

/// S-PS-09
#[test]
fn a_query_ends_the_unnamed_statement_and_nobody_elses_is_used() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 7 | S
         = P : SELECT 7 | S
         < 1 | Z I
         : 1 | Z I
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         as 1
         > P : SELECT 'other' | S
         = P : SELECT 'other' | S
         < 1 | Z I
         : 1 | Z I
         as 0
         > B : | E | S
         = C S | B : | E | S
         < 3 | E 26000 unnamed prepared statement does not exist | Z I
         : E 26000 unnamed prepared statement does not exist | Z I
         as 1
         > B : | E | S
         = P : SELECT 'other' | B : | E | S
         < 1 | 2 | D other | C SELECT 1 | Z I
         : 2 | D other | C SELECT 1 | Z I",
    );
}

#[test]
fn close_is_answered_here() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         > C S s | C S never | S
         : 3 | 3 | Z I
         > B :s | E | S
         = B :s | E | S
         < E 26000 prepared statement \"s\" does not exist | Z I
         : E 26000 prepared statement \"s\" does not exist | Z I
         > P s: SELECT 2 | S
         = P #1: SELECT 2 | S
         < 1 | Z I
         : 1 | Z I",
    );
}

/// S-PS-05
#[test]
fn deallocate_of_a_protocol_level_statement() {
    let mut rig = Rig::new();
    rig.play(
        "> P Pdo_1: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         > Q DEALLOCATE \"Pdo_1\"
         : C DEALLOCATE | Z I
         > B :Pdo_1 | S
         = B :Pdo_1 | S
         < E 26000 prepared statement \"Pdo_1\" does not exist | Z I
         : E 26000 prepared statement \"Pdo_1\" does not exist | Z I
         > Q DEALLOCATE pdo_1
         = Q DEALLOCATE pdo_1
         < E 26000 prepared statement \"pdo_1\" does not exist | Z I
         : E 26000 prepared statement \"pdo_1\" does not exist | Z I",
    );
}

/// S-PS-04: the server really drops all it has, which the books know.
#[test]
fn deallocate_all_leaves_others_theirs() {
    let mut rig = Rig::new();
    rig.play(
        "> P a: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         as 1
         > P b: SELECT 2 | S
         = P #1: SELECT 2 | S
         < 1 | Z I
         : 1 | Z I
         as 0
         > Q DEALLOCATE ALL
         = Q DEALLOCATE ALL
         < C DEALLOCATE ALL | Z I
         : C DEALLOCATE ALL | Z I
         free
         as 1
         > B :b | E | S
         = P #1: SELECT 2 | B :#1 | E | S
         < 1 | 2 | D 2 | C SELECT 1 | Z I
         : 2 | D 2 | C SELECT 1 | Z I
         as 0
         > B :a | S
         = B :a | S
         < E 26000 prepared statement \"a\" does not exist | Z I
         : E 26000 prepared statement \"a\" does not exist | Z I
         > P a: SELECT 3 | S
         = P #2: SELECT 3 | S
         < 1 | Z I
         : 1 | Z I",
    );
}

/// S-PL-01
#[test]
fn an_error_skips_the_rest_and_its_names() {
    let mut rig = Rig::new();
    rig.play(
        "> P a: SELECT 1 | B :a | E | P b: SELECT 1/0 | B :b | E | P c: SELECT 3 | C S a | B :c | E | S
         = P #0: SELECT 1 | B :#0 | E | P #1: SELECT 1/0 | B :#1 | E | P #2: SELECT 3 | B :#2 | E | S
         < 1 | 2 | D 1 | C SELECT 1 | 1 | 2 | E 22012 division by zero | Z I
         : 1 | 2 | D 1 | C SELECT 1 | 1 | 2 | E 22012 division by zero | Z I
         > B :a | B :b | S
         = B :#0 | B :#1 | S
         < 2 | 2 | Z I
         : 2 | 2 | Z I
         > B :c | S
         = B :c | S
         < E 26000 prepared statement \"c\" does not exist | Z I
         : E 26000 prepared statement \"c\" does not exist | Z I
         > P c: SELECT 3 | S
         = P #3: SELECT 3 | S
         < 1 | Z I
         : 1 | Z I",
    );
}

/// S-PS-07
#[test]
fn a_parse_that_fails_leaves_no_name() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT nothing | D S s | S
         = P #0: SELECT nothing | D S #0 | S
         < E 42703 column \"nothing\" does not exist | Z I
         : E 42703 column \"nothing\" does not exist | Z I
         > C S s | S
         : 3 | Z I
         > P s: SELECT nothing | S
         = P #1: SELECT nothing | S
         < E 42703 column \"nothing\" does not exist | Z I
         : E 42703 column \"nothing\" does not exist | Z I",
    );
}

/// S-PL-04: as many ReadyForQuery as Sync, each to its unit.
#[test]
fn a_second_unit_waits_for_the_first() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 1 | B : | E | S | P : SELECT 2 | B : | E | S
         = P : SELECT 1 | B : | E | S
         < 1 | 2 | D 1 | C SELECT 1 | Z I
         = P : SELECT 2 | B : | E | S
         : 1 | 2 | D 1 | C SELECT 1 | Z I
         < 1 | 2 | D 2 | C SELECT 1 | Z I
         : 1 | 2 | D 2 | C SELECT 1 | Z I
         free",
    );
}

/// S-PL-03: what was only prepared binds the client to no server; the rest keeps its server until Sync.
#[test]
fn flush_brings_answers_before_sync() {
    let mut rig = Rig::new();
    rig.play(
        "> P f: SELECT 3 | D S f | H
         = P #0: SELECT 3 | D S #0 | S
         < 1 | t | T | Z I
         : 1 | t | T
         free
         > B :f | E | H
         = B :#0 | E | H
         < 2 | D 3 | C SELECT 1
         : 2 | D 3 | C SELECT 1
         > S
         = S
         < Z I
         : Z I
         free",
    );
}

/// What the first Flush has kept open is not ended by what comes after it.
#[test]
fn an_open_unit_stays_open_until_its_sync() {
    let mut rig = Rig::new();
    rig.play(
        "> P : SELECT 3 | B : | H
         = P : SELECT 3 | B : | H
         < 1 | 2
         : 1 | 2
         > P t: SELECT 4 | D S t | H
         = P #1: SELECT 4 | D S #1 | H
         < 1 | t | T
         : 1 | t | T
         > E | H
         = E | H
         < D 3 | C SELECT 1
         : D 3 | C SELECT 1
         > C S t | S
         = S
         : 3
         < Z I
         : Z I
         free",
    );
}

#[test]
fn an_open_unit_is_not_answered_here() {
    for message in ["Q DEALLOCATE t", "Q BEGIN READ ONLY"] {
        let mut rig = Rig::new();
        rig.play(&format!(
            "> P t: SELECT 3 | S
             = P #0: SELECT 3 | S
             < 1 | Z I
             : 1 | Z I
             > B :t | E | H
             = B :#0 | E | H
             > {message}
             = {message}
             < 2 | D 3 | C SELECT 1
             : 2 | D 3 | C SELECT 1"
        ));
    }
}

#[test]
fn a_part_that_fails_skips_up_to_sync() {
    let mut rig = Rig::new();
    rig.play(
        "> P f: SELECT nothing | D S f | H
         = P #0: SELECT nothing | D S #0 | S
         < E 42703 no | Z I
         : E 42703 no
         free
         > B :f | E | H | P g: SELECT 1 | S
         : Z I
         > B :g | S
         = B :g | S
         < E 26000 prepared statement \"g\" does not exist | Z I
         : E 26000 prepared statement \"g\" does not exist | Z I",
    );
}

/// S-PL-08
#[test]
fn a_portal_with_a_row_limit() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > P : SELECT generate_series(1,3) | B p: | E p/2 | S
         = P : SELECT generate_series(1,3) | B p: | E p/2 | S
         < 1 | 2 | D 1 | D 2 | s | Z T
         : 1 | 2 | D 1 | D 2 | s | Z T
         held
         > E p/2 | C P p | S
         = E p/2 | C P p | S
         < D 3 | C SELECT 1 | 3 | Z T
         : D 3 | C SELECT 1 | 3 | Z T",
    );
}

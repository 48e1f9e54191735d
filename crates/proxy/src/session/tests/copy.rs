//! COPY from and to the client.

use super::notation;
use super::rig::Rig;

/// S-CP-01
#[test]
fn copy_in_by_a_query() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t FROM STDIN
         = Q COPY t FROM STDIN
         < G
         : G
         > d 1 | d 2
         = d 1 | d 2
         > d 3 | c
         = d 3 | c
         < C COPY 3 | Z I
         : C COPY 3 | Z I
         free",
    );
}

#[test]
fn copy_in_without_waiting_for_the_server() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t FROM STDIN | d 1 | c | Q SELECT 1
         = Q COPY t FROM STDIN | d 1 | c
         < G | C COPY 1 | Z I
         = Q SELECT 1
         : G | C COPY 1 | Z I
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         free",
    );
}

/// S-CP-03
#[test]
fn sync_before_the_data() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | S
         = P : COPY t FROM STDIN | B : | E | S
         < 1 | 2 | G
         : 1 | 2 | G
         > d 1 | c | S
         = d 1 | c | S
         < C COPY 1 | Z I
         : C COPY 1 | Z I
         free",
    );
}

#[test]
fn sync_before_the_data_and_none_waited_for() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | S | d 1 | c | S | Q SELECT 1
         = P : COPY t FROM STDIN | B : | E | S | d 1 | c
         < 1 | 2 | G
         : 1 | 2 | G
         = S
         < C COPY 1 | Z I
         : C COPY 1 | Z I
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         free",
    );
}

/// What is sent ahead of the unit has an end of its own.
#[test]
fn copy_data_ahead_of_injected_settings() {
    let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
    let set = "SELECT pg_catalog.set_config('work_mem', '6MB', false)";
    rig.play(&format!(
        "> P : COPY t FROM STDIN | B : | E | S | d 1 | c | S
         = Q {set} | P : COPY t FROM STDIN | B : | E | S | d 1 | c
         < T | D 6MB | C SELECT 1 | Z I | 1 | 2 | G
         : 1 | 2 | G
         = S
         < C COPY 1 | Z I
         : C COPY 1 | Z I
         free"
    ));
}

#[test]
fn copy_data_and_its_end_in_one_unit() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | d 1 | c | S | Q SELECT 1
         = P : COPY t FROM STDIN | B : | E | d 1 | c | S
         < 1 | 2 | G | C COPY 1 | Z I
         = Q SELECT 1
         : 1 | 2 | G | C COPY 1 | Z I
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
}

#[test]
fn several_syncs_before_and_in_the_data() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | S
         = P : COPY t FROM STDIN | B : | E | S
         < 1 | 2 | G
         : 1 | 2 | G
         > S | H | d 1 | S
         = S | H | d 1 | S
         > c
         = c
         > S
         = S
         < C COPY 1 | Z I
         : C COPY 1 | Z I
         free",
    );
}

#[test]
fn copy_in_after_a_flush() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | H
         = P : COPY t FROM STDIN | B : | E | H
         < 1 | 2 | G
         : 1 | 2 | G
         > d 1 | d 2 | c | S
         = d 1 | d 2 | c | S
         < C COPY 2 | Z I
         : C COPY 2 | Z I
         free",
    );
}

/// S-CP-02
#[test]
fn copy_that_fails_while_the_client_still_sends() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t FROM STDIN
         = Q COPY t FROM STDIN
         < G
         : G
         > d 1 | d 1
         = d 1 | d 1
         < E 23505 duplicate key | Z I
         : E 23505 duplicate key | Z I
         free
         > d 1 | d 1 | c | Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
}

#[test]
fn copy_that_fails_in_the_extended_protocol() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | S
         = P : COPY t FROM STDIN | B : | E | S
         < 1 | 2 | G
         : 1 | 2 | G
         > d 1 | d 1
         = d 1 | d 1
         < E 23505 duplicate key
         : E 23505 duplicate key
         > d 1 | c | S
         = d 1 | c | S
         < Z I
         : Z I
         free",
    );
}

/// The Sync reached the server after its error: it answers it, and the later one as well.
#[test]
fn copy_that_fails_before_the_first_sync_is_read() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY t FROM STDIN | B : | E | S
         = P : COPY t FROM STDIN | B : | E | S
         < 1 | 2 | G | E 57014 canceled | Z I
         : 1 | 2 | G | E 57014 canceled | Z I
         free
         > d 1 | c | S
         = S
         < Z I
         : Z I
         free",
    );
}

/// A message of which the server has the beginning is completed, although its COPY has failed.
#[test]
fn copy_that_fails_in_the_middle_of_a_message() {
    let mut rig = Rig::new();
    rig.play("> Q COPY t FROM STDIN\n= Q COPY t FROM STDIN\n< G\n: G");
    let data = notation::from_client(&format!("d {}", "x".repeat(300)));
    rig.client(&data[..100]);
    rig.server(&notation::from_server("E 23505 duplicate key | Z I"));
    assert!(rig.is_running());
    rig.client(&data[100..]);
    assert!(!rig.is_running());
    assert!(std::mem::take(&mut rig.peer().to_server) == data);
    rig.play(": E 23505 duplicate key | Z I\nfree\n> d 1 | c | Q SELECT 1\n= Q SELECT 1");
}

#[test]
fn copy_that_is_refused() {
    let mut rig = Rig::new();
    rig.play(
        "> P : COPY nothing FROM STDIN | B : | E | S
         = P : COPY nothing FROM STDIN | B : | E | S
         < 1 | 2 | E 42P01 no | Z I
         : 1 | 2 | E 42P01 no | Z I
         free
         > d 1 | c | S
         = S
         < Z I
         : Z I",
    );
}

/// S-CP-05
#[test]
fn copy_fail() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t FROM STDIN
         = Q COPY t FROM STDIN
         < G
         : G
         > d 1 | f gave up
         = d 1 | f gave up
         < E 57014 COPY from stdin failed: gave up | Z I
         : E 57014 COPY from stdin failed: gave up | Z I
         free
         > P : COPY t FROM STDIN | B : | E | S
         = P : COPY t FROM STDIN | B : | E | S
         < 1 | 2 | G
         : 1 | 2 | G
         > f gave up | S
         = f gave up | S
         < E 57014 COPY from stdin failed: gave up | Z I
         : E 57014 COPY from stdin failed: gave up | Z I
         free",
    );
}

#[test]
fn copy_out() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t TO STDOUT
         = Q COPY t TO STDOUT
         < H | d 1 | d 2
         : H | d 1 | d 2
         < c | C COPY 2 | Z I
         : c | C COPY 2 | Z I
         free
         > P : COPY t TO STDOUT | B : | E | S
         = P : COPY t TO STDOUT | B : | E | S
         < 1 | 2 | H | d 1 | c | C COPY 1 | Z I
         : 1 | 2 | H | d 1 | c | C COPY 1 | Z I
         free",
    );
}

#[test]
fn two_copies_in_one_query() {
    let mut rig = Rig::new();
    rig.play(
        "> Q COPY t FROM STDIN; COPY u FROM STDIN
         = Q COPY t FROM STDIN; COPY u FROM STDIN
         < G
         : G
         > d 1 | c
         = d 1 | c
         < C COPY 1 | G
         : C COPY 1 | G
         > d 2 | c
         = d 2 | c
         < C COPY 1 | Z I
         : C COPY 1 | Z I",
    );
}

#[test]
fn stray_copy_data_is_thrown_away() {
    let mut rig = Rig::new();
    rig.play(
        "> d 1 | c | f why | Q SELECT 1
         = Q SELECT 1",
    );
}

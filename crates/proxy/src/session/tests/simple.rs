//! Simple queries.

use super::rig::Rig;

#[test]
fn a_query_goes_through_as_it_is() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         free",
    );
    let ended = rig.peer().ended.unwrap();
    assert!(ended.transaction && !ended.wrote && !ended.defined && ended.pinned.is_none());
}

#[test]
fn a_transaction_keeps_its_server() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         held
         on 1
         > Q INSERT INTO t VALUES (1)
         = Q INSERT INTO t VALUES (1)
         < C INSERT 0 1 | Z T
         : C INSERT 0 1 | Z T
         held
         > Q COMMIT
         = Q COMMIT
         < C COMMIT | Z I
         : C COMMIT | Z I
         free",
    );
    assert!(rig.peer().ended.unwrap().wrote);
}

#[test]
fn several_statements_in_one_query() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SELECT 1; INSERT INTO t VALUES (1); SELECT 1/0; SELECT 3
         = Q SELECT 1; INSERT INTO t VALUES (1); SELECT 1/0; SELECT 3
         < T | D 1 | C SELECT 1 | C INSERT 0 1 | E 22012 division by zero | Z I
         : T | D 1 | C SELECT 1 | C INSERT 0 1 | E 22012 division by zero | Z I
         free",
    );
}

#[test]
fn an_empty_query() {
    let mut rig = Rig::new();
    rig.play(
        "> Q
         : I | Z I
         free",
    );
}

#[test]
fn what_an_answer_counts_does_not_depend_on_how_it_arrives() {
    let whole = "< T | D 1 | D 2 | C SELECT 2 | Z I\n: T | D 1 | D 2 | C SELECT 2 | Z I";
    let pieces = "< T\n: T\n< D 1 | D 2\n: D 1 | D 2\n< C SELECT 2 | Z I\n: C SELECT 2 | Z I";
    let counts = [whole, pieces].map(|answer| {
        let mut rig = Rig::new();
        rig.play(&format!("> Q SELECT 1\n= Q SELECT 1\n{answer}\nfree"));
        let counts = rig.peer().session.take_counts();
        assert_eq!((counts.messages, counts.rows, counts.simple_queries), (5, 2, 1));
        format!("{counts:?}")
    });
    assert_eq!(counts[0], counts[1]);
}

//! The session's settings on whichever server connection it gets.

use super::rig::{Over, Rig};

#[test]
fn a_setting_follows_its_client() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SET work_mem = '9MB'
         = Q SET work_mem = '9MB'
         < C SET | Z I
         : C SET | Z I
         free
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         on 1
         > P : SELECT 2 | B : | E | S
         = Q SET \"work_mem\" TO '9MB' | P : SELECT 2 | B : | E | S
         < C SET | Z I | 1 | 2 | D 2 | C SELECT 1 | Z I
         : 1 | 2 | D 2 | C SELECT 1 | Z I
         as 1
         on 0
         > Q SELECT 1
         = Q RESET \"work_mem\" | Q SELECT 1
         < C RESET | Z I | T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
}

#[test]
fn start_up_settings_are_given_to_each_server() {
    let mut rig = Rig::with_settings(&[("application_name", "it's")]);
    rig.play(
        "> Q SELECT 1
         = Q SELECT pg_catalog.set_config('application_name', 'it''s', false) | Q SELECT 1
         < T | D it's | C SELECT 1 | S application_name=it's | Z I
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
}

/// S-SE-07
#[test]
fn reset_goes_back_to_the_start() {
    for reset in ["RESET ALL", "RESET work_mem", "SET work_mem TO DEFAULT", "DISCARD ALL"] {
        let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
        let set = "SELECT pg_catalog.set_config('work_mem', '6MB', false)";
        rig.play(&format!(
            "> Q SET work_mem = '9MB'
             = Q {set} | Q SET work_mem = '9MB'
             < T | D 6MB | C SELECT 1 | Z I | C SET | Z I
             : C SET | Z I
             > Q {reset}
             = Q {reset}
             < C RESET | Z I
             : C RESET | Z I
             > Q SELECT 1
             = Q {set} | Q SELECT 1"
        ));
    }
}

#[test]
fn settings_that_are_refused_end_the_session() {
    let mut rig = Rig::with_settings(&[("work_mem", "lots")]);
    rig.play(
        "> Q INSERT INTO t VALUES (1)
         = Q SELECT pg_catalog.set_config('work_mem', 'lots', false) | Q INSERT INTO t VALUES (1)
         < E 22023 invalid value for parameter \"work_mem\": \"lots\"
         < Z I",
    );
    assert!(matches!(rig.peer().over, Some(Over::SettingsRefused)));
    let body = rig.session().take_injection_failure().unwrap();
    let fields = causeway_protocol::backend::error_fields(&body).unwrap();
    assert_eq!(fields.code(), causeway_protocol::sqlstate::SqlState::INVALID_PARAMETER_VALUE);
    assert!(rig.servers[0].books.settings.is_empty(), "the books change only when the server has agreed");
}

/// S-SE-02, first part
#[test]
fn rollback_takes_a_setting_back() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > Q SET work_mem = '9MB'
         = Q SET work_mem = '9MB'
         < C SET | Z T
         : C SET | Z T
         > Q ROLLBACK
         = Q ROLLBACK
         < C ROLLBACK | Z I
         : C ROLLBACK | Z I
         free
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I
         on 1
         > Q SELECT 1
         = Q SELECT 1",
    );
}

#[test]
fn commit_keeps_a_setting_and_a_failed_transaction_does_not() {
    for (end, status, tag, wanted) in [
        ("COMMIT", 'T', "COMMIT", "= Q SET \"work_mem\" TO '9MB' | Q SELECT 1"),
        ("COMMIT", 'E', "ROLLBACK", "= Q SELECT 1"),
        ("END", 'T', "COMMIT", "= Q SET \"work_mem\" TO '9MB' | Q SELECT 1"),
        ("ABORT", 'T', "ROLLBACK", "= Q SELECT 1"),
    ] {
        let mut rig = Rig::new();
        let answer = if status == 'E' { "E 22012 division by zero" } else { "C SELECT 1" };
        rig.play(&format!(
            "> Q BEGIN
             = Q BEGIN
             < C BEGIN | Z T
             : C BEGIN | Z T
             > P : SET work_mem = '9MB' | B : | E | S
             = P : SET work_mem = '9MB' | B : | E | S
             < 1 | 2 | C SET | Z T
             : 1 | 2 | C SET | Z T
             > Q SELECT 1/i FROM t
             = Q SELECT 1/i FROM t
             < {answer} | Z {status}
             : {answer} | Z {status}
             > Q {end}
             = Q {end}
             < C {tag} | Z I
             : C {tag} | Z I
             on 1
             > Q SELECT 1
             {wanted}"
        ));
    }
}

/// A chain goes on in a transaction of its own.
#[test]
fn rollback_and_chain_takes_a_setting_back() {
    for (end, tag, wanted) in [
        ("ROLLBACK AND CHAIN", "ROLLBACK", "= Q SELECT 1"),
        ("COMMIT AND CHAIN", "COMMIT", "= Q SET \"work_mem\" TO '9MB' | Q SELECT 1"),
    ] {
        let last = if tag == "COMMIT" { "ROLLBACK" } else { "COMMIT" };
        let mut rig = Rig::new();
        rig.play(&format!(
            "> Q BEGIN
             = Q BEGIN
             < C BEGIN | Z T
             : C BEGIN | Z T
             > Q SET work_mem = '9MB'
             = Q SET work_mem = '9MB'
             < C SET | Z T
             : C SET | Z T
             > Q {end}
             = Q {end}
             < C {tag} | Z T
             : C {tag} | Z T
             > Q {last}
             = Q {last}
             < C {last} | Z I
             : C {last} | Z I
             on 1
             > Q SELECT 1
             {wanted}"
        ));
    }
}

/// A whole transaction, or more, in one unit: BEGIN, SET and what follows each by Bind and Execute.
#[test]
fn transactions_inside_a_unit() {
    const KEPT: &str = "= Q SET \"work_mem\" TO '9MB' | Q SELECT 1";
    const ASKED: &str = "= Q SELECT pg_catalog.set_config('work_mem', '9MB', false) | Q SELECT 1";
    for (statements, answers, wanted) in [
        ("BEGIN/SET/COMMIT", "C BEGIN/C SET/C COMMIT", KEPT),
        ("BEGIN/SET/ROLLBACK", "C BEGIN/C SET/C ROLLBACK", "= Q SELECT 1"),
        ("BEGIN/SET/COMMIT/SELECT 1/0", "C BEGIN/C SET/C COMMIT/E 22012 division by zero", KEPT),
        ("SET/SELECT 1/0", "C SET/E 22012 division by zero", "= Q SELECT 1"),
        ("BEGIN/SET/ROLLBACK/BEGIN/COMMIT", "C BEGIN/C SET/C ROLLBACK/C BEGIN/C COMMIT", "= Q SELECT 1"),
    ] {
        let mut rig = Rig::new();
        let statements = statements.replace("1/0", "1%0").replace("SET", "SET work_mem = '9MB'");
        let unit: Vec<_> =
            statements.split('/').map(|sql| format!("P : {} | B : | E", sql.replace('%', "/"))).collect();
        let unit = unit.join(" | ");
        let answers: Vec<_> = answers.split('/').map(|answer| format!("1 | 2 | {answer}")).collect();
        let answers = answers.join(" | ");
        // Where some of such a unit has stayed and some has not, the server is asked.
        rig.servers[0].settings = [("work_mem".to_owned(), "9MB".to_owned())].into();
        let asks = statements.ends_with("COMMIT/SELECT 1%0");
        let wanted = if asks { ASKED } else { wanted };
        rig.play(&format!(
            "> {unit} | S
             = {unit} | S
             < {answers} | Z I
             : {answers} | Z I"
        ));
        rig.play(&format!(
            "free
             on 1
             > Q SELECT 1
             {wanted}"
        ));
    }
}

/// S-SE-02, second part: what savepoints do to settings is not followed; the server is asked.
#[test]
fn settings_and_savepoints_are_asked_for() {
    for (first, second) in [("SAVEPOINT a", "SET work_mem = '8MB'"), ("SET work_mem = '8MB'", "SAVEPOINT a")]
    {
        let mut rig = Rig::new();
        rig.servers[0].settings = [("work_mem".to_owned(), "5MB".to_owned())].into();
        for query in ["BEGIN", first, second, "ROLLBACK TO a"] {
            let tag = query.split(' ').next().unwrap();
            rig.play(&format!(
                "> Q {query}
                 = Q {query}
                 < C {tag} | Z T
                 : C {tag} | Z T"
            ));
        }
        rig.play(
            "> Q COMMIT
             = Q COMMIT
             < C COMMIT | Z I
             : C COMMIT | Z I
             free
             on 1
             > Q SELECT 1
             = Q SELECT pg_catalog.set_config('work_mem', '5MB', false) | Q SELECT 1",
        );
    }
}

/// S-SE-02, third part
#[test]
fn set_local_is_nobodys_business() {
    let mut rig = Rig::new();
    for query in ["BEGIN", "SET LOCAL work_mem = '7MB'"] {
        rig.play(&format!("> Q {query}\n= Q {query}\n< C {0} | Z T\n: C {0} | Z T", &query[..3]));
    }
    rig.play(
        "> Q COMMIT
         = Q COMMIT
         < C COMMIT | Z I
         : C COMMIT | Z I
         free
         on 1
         > Q SELECT 1
         = Q SELECT 1",
    );
}

/// A portal lives as long as its transaction, which may be longer than its unit.
#[test]
fn a_set_bound_in_one_unit_and_executed_in_another() {
    let mut rig = Rig::new();
    rig.play(
        "> Q BEGIN
         = Q BEGIN
         < C BEGIN | Z T
         : C BEGIN | Z T
         > P s: SET work_mem = '9MB' | B p:s | S
         = P #0: SET work_mem = '9MB' | B p:#0 | S
         < 1 | 2 | Z T
         : 1 | 2 | Z T
         > E p | S
         = E p | S
         < C SET | Z T
         : C SET | Z T
         > Q COMMIT
         = Q COMMIT
         < C COMMIT | Z I
         : C COMMIT | Z I
         on 1
         > Q SELECT 1
         = Q SET \"work_mem\" TO '9MB' | Q SELECT 1",
    );
}

#[test]
fn a_set_that_fails_is_none() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SET work_mem = 'lots'
         = Q SET work_mem = 'lots'
         < E 22023 invalid value | Z I
         : E 22023 invalid value | Z I
         on 1
         > Q SELECT 1
         = Q SELECT 1",
    );
}

/// S-RT-03, third part
#[test]
fn a_set_undone_with_its_query() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SET work_mem = '6MB'; SELECT 1; SELECT 1/0; SELECT 3
         = Q SET work_mem = '6MB'; SELECT 1; SELECT 1/0; SELECT 3
         < C SET | T | D 1 | C SELECT 1 | E 22012 division by zero | Z I
         : C SET | T | D 1 | C SELECT 1 | E 22012 division by zero | Z I
         free
         on 1
         > Q SELECT 1
         = Q SELECT 1",
    );
}

/// Settings that Parse consults separate statements of the same text.
#[test]
fn statements_are_not_shared_between_time_zones() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT timestamptz '2024-01-01' | S
         = P #0: SELECT timestamptz '2024-01-01' | S
         < 1 | Z I
         : 1 | Z I
         > Q SET TimeZone = 'Asia/Tokyo'
         = Q SET TimeZone = 'Asia/Tokyo'
         < C SET | S TimeZone=Asia/Tokyo | Z I
         : C SET | S TimeZone=Asia/Tokyo | Z I
         > P t: SELECT timestamptz '2024-01-01' | B :s | S
         = P #1: SELECT timestamptz '2024-01-01' | B :#0 | S
         < 1 | 2 | Z I
         : 1 | 2 | Z I",
    );
}

/// A text under `standard_conforming_strings` off is not judged.
#[test]
fn what_the_server_reports_decides_how_texts_are_read() {
    let mut rig = Rig::new();
    rig.play(
        "> Q SET standard_conforming_strings = off
         = Q SET standard_conforming_strings = off
         < C SET | S standard_conforming_strings=off | Z I
         : C SET | S standard_conforming_strings=off | Z I
         > Q SELECT 1
         = Q SELECT 1",
    );
    assert!(!rig.session().demand().replica);
}

/// S-SE-06
#[test]
fn a_standby_does_not_tell_what_it_is() {
    let mut rig = Rig::new();
    rig.play(
        "on 2
         > Q SELECT 1
         = Q SELECT 1
         < T | D 1 | C SELECT 1 | S in_hot_standby=off | Z I
         : T | D 1 | C SELECT 1 | Z I",
    );
}

/// S-AS-03: a notification is the client's, whatever is being answered.
#[test]
fn a_notification_during_injected_settings() {
    let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
    let set = "SELECT pg_catalog.set_config('work_mem', '6MB', false)";
    rig.play(&format!(
        "> Q LISTEN a
         = Q {set} | Q LISTEN a
         < T | D 6MB | C SELECT 1 | Z I | C LISTEN | Z I
         : C LISTEN | Z I
         held
         > Q RESET work_mem
         = Q RESET work_mem
         < C RESET | Z I
         : C RESET | Z I
         > Q SELECT 1
         = Q {set} | Q SELECT 1
         < T | D 6MB | C SELECT 1 | A a | Z I
         : A a
         < T | D 1 | C SELECT 1 | Z I
         : T | D 1 | C SELECT 1 | Z I"
    ));
}

/// What is injected is a simple Query, and ends the server's unnamed statement.
#[test]
fn injected_settings_end_the_unnamed_statement() {
    let mut rig = Rig::with_settings(&[("work_mem", "6MB")]);
    let set = "SELECT pg_catalog.set_config('work_mem', '6MB', false)";
    rig.play(&format!(
        "as 1
         > P : SELECT 1 | S
         = P : SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         as 0
         > P s: SELECT 2 | S
         = Q {set} | P #1: SELECT 2 | S
         < T | D 6MB | C SELECT 1 | Z I | 1 | Z I
         : 1 | Z I
         as 1
         > B : | E | S
         = Q RESET \"work_mem\" | P : SELECT 1 | B : | E | S
         < C RESET | Z I | 1 | 2 | D 1 | C SELECT 1 | Z I
         : 2 | D 1 | C SELECT 1 | Z I"
    ));
}

/// So is a BEGIN that was held back.
#[test]
fn a_held_begin_ends_the_unnamed_statement() {
    let mut rig = Rig::new();
    rig.play(
        "> P s: SELECT 1 | S
         = P #0: SELECT 1 | S
         < 1 | Z I
         : 1 | Z I
         > Q BEGIN READ ONLY
         : C BEGIN | Z T
         > P : SELECT 2 | B :s | E | S
         = Q BEGIN READ ONLY | P : SELECT 2 | B :#0 | E | S
         < C BEGIN | Z T | 1 | 2 | D 1 | C SELECT 1 | Z T
         : 1 | 2 | D 1 | C SELECT 1 | Z T
         > B : | E | S
         = B : | E | S
         < 2 | D 2 | C SELECT 1 | Z T
         : 2 | D 2 | C SELECT 1 | Z T",
    );
}

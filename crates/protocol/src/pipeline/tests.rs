use super::*;

fn pipeline(requests: &[Request]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    for (token, request) in (0..).zip(requests) {
        pipeline.push(*request, Origin::Client, token);
    }
    pipeline
}

fn answers(pipeline: &mut Pipeline, tags: &[u8]) -> Vec<Answer> {
    tags.iter().map(|tag| pipeline.answer(*tag).expect("an expected message")).collect()
}

use Request::{Bind, Close, DescribePortal, DescribeStatement, Execute, Parse, Query, Sync};

#[test]
fn simple_query_ends_at_ready() {
    let mut pipeline = pipeline(&[Query]);
    answers(&mut pipeline, b"TDDCTDCEZ");
    assert!(pipeline.is_quiescent());
    assert!(pipeline.answer(b'Z').is_err());
}

#[test]
fn extended_unit_is_quiescent_only_after_ready() {
    let mut pipeline = pipeline(&[Parse, DescribeStatement, Bind, DescribePortal, Execute, Close]);
    answers(&mut pipeline, b"1tT2nDDC3");
    assert!(!pipeline.is_quiescent(), "no Sync yet");
    pipeline.push(Sync, Origin::Client, 9);
    assert_eq!(
        pipeline.answer(b'Z'),
        Ok(Answer::Final(Owed { request: Sync, origin: Origin::Client, token: 9 }))
    );
    assert!(pipeline.is_quiescent());
}

#[test]
fn error_skips_to_sync() {
    let mut pipeline = pipeline(&[Parse, Bind, Execute, Parse, Bind, Execute, Sync]);
    answers(&mut pipeline, b"12C1");
    assert!(matches!(pipeline.answer(b'E'), Ok(Answer::Failed(Owed { request: Bind, token: 4, .. }))));
    assert_eq!(pipeline.take_skipped().iter().map(|owed| owed.token).collect::<Vec<_>>(), [5]);
    answers(&mut pipeline, b"Z");
    assert!(pipeline.is_quiescent());
}

#[test]
fn after_an_error_requests_are_skipped_until_sync() {
    let mut pipeline = pipeline(&[Parse]);
    answers(&mut pipeline, b"E");
    assert!(!pipeline.is_quiescent());
    pipeline.push(Bind, Origin::Client, 7);
    assert_eq!(pipeline.take_skipped().len(), 1);
    assert!(pipeline.answer(b'2').is_err());
    pipeline.push(Sync, Origin::Client, 8);
    answers(&mut pipeline, b"Z");
    assert!(pipeline.is_quiescent());
}

#[test]
fn injected_answers_are_hidden_and_own_answers_wait_their_turn() {
    let mut pipeline = Pipeline::default();
    pipeline.push(Query, Origin::Injected, 0);
    pipeline.push(Parse, Origin::Injected, 1);
    pipeline.push(Parse, Origin::Answered, 2);
    pipeline.push(Bind, Origin::Client, 3);
    pipeline.push(Sync, Origin::Client, 4);
    assert!(!pipeline.visible());
    assert_eq!(pipeline.answer(b'N'), Ok(Answer::Asynchronous { visible: false }));
    assert_eq!(pipeline.answer(b'C'), Ok(Answer::Part { visible: false }));
    assert!(pipeline.take_answered().is_none());
    answers(&mut pipeline, b"Z1");
    assert_eq!(pipeline.take_answered().map(|owed| owed.token), Some(2));
    assert!(pipeline.visible());
    answers(&mut pipeline, b"2Z");
    assert!(pipeline.is_quiescent());
}

#[test]
fn error_skips_what_the_proxy_would_have_answered() {
    let mut pipeline = Pipeline::default();
    pipeline.push(Bind, Origin::Client, 0);
    pipeline.push(Close, Origin::Answered, 1);
    pipeline.push(Sync, Origin::Client, 2);
    answers(&mut pipeline, b"E");
    assert!(pipeline.take_answered().is_none());
    assert_eq!(pipeline.take_skipped().len(), 1);
}

#[test]
fn sync_before_the_copy_data_is_ignored_by_the_server() {
    let mut pipeline = pipeline(&[Parse, Bind, Execute, Sync]);
    answers(&mut pipeline, b"12G");
    assert!(pipeline.in_copy() && pipeline.is_open());
    pipeline.copy_ended();
    pipeline.push(Sync, Origin::Client, 9);
    assert!(matches!(answers(&mut pipeline, b"CZ")[..], [_, Answer::Final(Owed { token: 9, .. })]));
    assert!(pipeline.is_quiescent());
}

#[test]
fn copy_data_sent_ahead_of_the_servers_request() {
    let mut pipeline = pipeline(&[Parse, Bind, Execute]);
    pipeline.copy_ended();
    pipeline.push(Sync, Origin::Client, 9);
    answers(&mut pipeline, b"12GCZ");
    assert!(pipeline.is_quiescent());
}

#[test]
fn sync_and_data_sent_ahead_of_the_servers_request() {
    let mut pipeline = pipeline(&[Parse, Bind, Execute, Sync]);
    pipeline.copy_ended();
    answers(&mut pipeline, b"12G");
    assert!(pipeline.is_open(), "the first Sync is ignored");
    pipeline.push(Sync, Origin::Client, 9);
    answers(&mut pipeline, b"CZ");
    assert!(pipeline.is_quiescent());
}

#[test]
fn copy_that_fails_at_once_answers_the_doubtful_sync() {
    let mut pipeline = pipeline(&[Parse, Bind, Execute, Sync]);
    answers(&mut pipeline, b"12GE");
    assert!(!pipeline.is_quiescent());
    answers(&mut pipeline, b"Z");
    assert!(pipeline.is_quiescent());
    assert!(pipeline.answer(b'Z').is_err());
}

#[test]
fn copy_in_by_simple_query() {
    let mut copied = pipeline(&[Query]);
    answers(&mut copied, b"G");
    assert!(copied.in_copy());
    copied.copy_ended();
    answers(&mut copied, b"CZ");
    assert!(copied.is_quiescent());

    let mut failed = pipeline(&[Query]);
    answers(&mut failed, b"GEZ");
    assert!(failed.is_quiescent() && !failed.in_copy());
}

#[test]
fn a_deferred_constraint_fails_at_sync() {
    let mut pipeline = pipeline(&[Bind, Execute, Sync]);
    answers(&mut pipeline, b"2CEZ");
    assert!(pipeline.is_quiescent());
}

#[test]
fn fatal_error_out_of_the_blue() {
    assert_eq!(Pipeline::default().answer(b'E'), Ok(Answer::Unsolicited));
}

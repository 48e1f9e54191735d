//! For each invariant a history that keeps it and one that breaks it.

use std::time::Duration;

use super::*;

const PRIMARY: Option<Served> = Some(Served { node: 0, replica: false });
const REPLICA: Option<Served> = Some(Served { node: 1, replica: true });

fn event(op: Op, level: Level, (invoked, completed): (Moment, Moment)) -> Event {
    Event {
        session: 1,
        router: 1,
        key: 7,
        op,
        level,
        invoked,
        completed,
        outcome: Outcome::Done,
        served: REPLICA,
        proof: None,
    }
}

/// By session 9 through router 1.
fn write(value: u64, invoked: Moment, completed: Moment) -> Event {
    let write = event(Op::Write(value), Level::Cluster, (invoked, completed));
    Event { session: 9, served: PRIMARY, ..write }
}

fn read(level: Level, value: u64, invoked: Moment) -> Event {
    event(Op::Read(value), level, (invoked, invoked + 5))
}

#[track_caller]
fn breaks(invariant: u8, violations: &[Violation]) {
    let numbers: Vec<u8> = violations.iter().map(|violation| violation.invariant).collect();
    assert_eq!(numbers, [invariant], "{violations:?}");
    assert!(violations[0].to_string().starts_with(&format!("I{invariant}: ")));
}

#[track_caller]
fn holds(violations: &[Violation]) {
    assert_eq!(violations, []);
}

fn check(events: &[Event]) -> Vec<Violation> {
    registers(events).violations
}

#[test]
fn i1_cluster_sees_what_anybody_was_told() {
    let writes = [write(1, 10, 20), write(2, 30, 40), write(3, 60, 70)];
    let with = |read: Event| check(&[writes.as_slice(), &[read]].concat());
    for level in [Level::Cluster, Level::Primary] {
        holds(&with(read(level, 2, 50)));
        holds(&with(Event { completed: 65, ..read(level, 3, 50) }));
        breaks(1, &with(read(level, 1, 50)));
        breaks(1, &with(read(level, 0, 50)));
    }
    // Acknowledged while it was under way, or at the same moment.
    holds(&with(read(Level::Cluster, 1, 40)));
    breaks(1, &with(read(Level::Cluster, 1, 41)));
    // From the future, and from nowhere.
    breaks(1, &with(read(Level::Eventual, 3, 50)));
    breaks(1, &with(read(Level::Eventual, 4, 90)));
    holds(&with(read(Level::Eventual, 0, 90)));
    let other_key = Event { key: 8, ..read(Level::Cluster, 0, 50) };
    holds(&with(other_key));
}

#[test]
fn i1_what_nobody_was_told_may_be_seen_or_not() {
    for outcome in [Outcome::Unknown, Outcome::Lost] {
        let maybe = Event { completed: NEVER, outcome, ..write(2, 30, 40) };
        for value in [1, 2] {
            holds(&check(&[write(1, 10, 20), maybe, read(Level::Cluster, value, 50)]));
        }
    }
    let failed = Event { outcome: Outcome::Failed, ..write(2, 30, 40) };
    breaks(1, &check(&[write(1, 10, 20), failed, read(Level::Cluster, 2, 50)]));
    let unanswered = Event { outcome: Outcome::Unknown, ..read(Level::Cluster, 0, 50) };
    holds(&check(&[write(1, 10, 20), unanswered]));
}

#[test]
fn i2_a_session_does_not_go_back() {
    let session = |value, invoked| read(Level::Session, value, invoked);
    let own = Event { session: 1, ..write(2, 30, 40) };
    holds(&check(&[write(1, 10, 20), own, session(2, 50), session(2, 60)]));
    breaks(2, &check(&[write(1, 10, 20), own, session(1, 50)]));
    // Another's write need not be seen, until it was.
    let others = [write(1, 10, 20), write(2, 30, 40)];
    holds(&check(&[&others[..], &[session(0, 50), session(1, 60), session(2, 70)]].concat()));
    breaks(2, &check(&[&others[..], &[session(2, 50), session(1, 60)]].concat()));
    holds(&check(&[&others[..], &[session(2, 50), Event { session: 2, ..session(1, 60) }]].concat()));
    // Reads at other levels are earlier reads too.
    breaks(2, &check(&[&others[..], &[read(Level::Eventual, 2, 50), session(1, 60)]].concat()));
    // Whoever was told of a loss begins anew.
    let told = event(Op::Told, Level::Session, (56, 57));
    holds(&check(&[&others[..], &[session(2, 50), told, session(1, 60)]].concat()));
}

#[test]
fn i2_what_was_not_acknowledged_may_vanish_on_the_way_to_the_primary() {
    let unacknowledged = Event { completed: NEVER, outcome: Outcome::Unknown, ..write(2, 30, 40) };
    let from = |served| Event { served, ..read(Level::Session, 1, 60) };
    let history = |served| [write(1, 10, 20), unacknowledged, read(Level::Session, 2, 50), from(served)];
    let findings = registers(&history(PRIMARY));
    assert_eq!((findings.violations.len(), findings.inversions, findings.reads), (0, 1, 2));
    breaks(2, &check(&history(REPLICA)));
    let acknowledged = [write(1, 10, 20), write(2, 30, 40), read(Level::Session, 2, 50), from(PRIMARY)];
    breaks(2, &check(&acknowledged));
}

#[test]
fn i3_a_router_sees_what_went_through_it() {
    let other = Event { router: 2, ..write(2, 30, 40) };
    let history = |value| [write(1, 10, 20), other, read(Level::Router, value, 50)];
    holds(&check(&history(1)));
    holds(&check(&history(2)));
    breaks(3, &check(&history(0)));
}

#[test]
fn i4_a_token_covers_what_was_acknowledged_before_it_was_asked_for() {
    let history = |value| [write(1, 10, 20), write(2, 30, 40), read(Level::After(35), value, 50)];
    holds(&check(&history(1)));
    holds(&check(&history(2)));
    breaks(4, &check(&history(0)));
}

#[test]
fn i5_reads_that_follow_each_other_do_not_go_back() {
    let reads = |first, second, at| [read(Level::Cluster, first, 50), read(Level::Cluster, second, at)];
    holds(&going_back(reads(1, 2, 60).iter()));
    holds(&going_back(reads(2, 1, 54).iter()));
    breaks(5, &going_back(reads(2, 1, 56).iter()));
    holds(&going_back(reads(2, 1, 56).iter().filter(|read| read.invoked > 50)));
}

#[test]
fn i6_replicas_agree_on_an_order() {
    let lists = |a: &[u64], b: &[u64]| Snapshot { lists: vec![a.to_vec(), b.to_vec()], replica: true };
    holds(&prefixes(&[lists(&[1, 2], &[5]), lists(&[1], &[5]), lists(&[], &[]), lists(&[1, 2], &[5, 6])]));
    breaks(6, &prefixes(&[lists(&[1, 2], &[5]), lists(&[2], &[5])]));
    breaks(6, &prefixes(&[lists(&[1, 2], &[5]), lists(&[1], &[5, 6])]));
    // A long fork in which the primary takes part is PostgreSQL's own.
    let primary = Snapshot { replica: false, ..lists(&[1], &[5, 6]) };
    holds(&prefixes(&[lists(&[1, 2], &[5]), primary]));
}

#[test]
fn i7_a_transaction_stays_where_it_is() {
    let reads = |reads: &[(u16, u32, u64)], one_snapshot| {
        transactions(&[Transaction { reads: reads.to_vec(), one_snapshot }])
    };
    holds(&reads(&[(1, 7, 1), (1, 8, 4), (1, 7, 2)], false));
    breaks(7, &reads(&[(1, 7, 1), (2, 7, 1)], false));
    holds(&reads(&[(1, 7, 1), (1, 8, 4), (1, 7, 1)], true));
    breaks(7, &reads(&[(1, 7, 1), (1, 7, 2)], true));
}

#[test]
fn i8_nothing_happens_twice() {
    let ended = |outcome, effects| executed(&[Execution { id: 3, outcome, effects }]);
    holds(&ended(Outcome::Done, 1));
    holds(&ended(Outcome::Failed, 0));
    holds(&ended(Outcome::Unknown, 0));
    holds(&ended(Outcome::Unknown, 1));
    for (outcome, effects) in [
        (Outcome::Done, 0),
        (Outcome::Done, 2),
        (Outcome::Failed, 1),
        (Outcome::Unknown, 2),
        (Outcome::Lost, 2),
    ] {
        breaks(8, &ended(outcome, effects));
    }
}

#[test]
fn i9_and_i12_a_replica_answers_for_a_reason() {
    let right = Proof { fence: (1, 90), probed: 51, observed: (1, 90), requested: 52, opened: 10 };
    let with = |proof| proven(&[Event { proof: Some(proof), ..read(Level::Cluster, 1, 50) }]);
    holds(&with(right));
    holds(&with(Proof { requested: 12, probed: 50, ..right }));
    breaks(9, &with(Proof { observed: (2, 90), ..right }));
    breaks(9, &with(Proof { observed: (1, 89), ..right }));
    breaks(9, &with(Proof { opened: 53, ..right }));
    breaks(12, &with(Proof { probed: 49, ..right }));
    let session = Event { proof: Some(Proof { probed: 49, ..right }), ..read(Level::Session, 1, 50) };
    holds(&proven(&[session]));
}

#[test]
fn i9_what_is_published_does_not_fall() {
    let shown = |continuity, position| Publication { router: 1, node: 2, continuity, position };
    holds(&published(&[shown(1, 10), shown(1, 10), shown(1, 12), shown(2, 5)]));
    breaks(9, &published(&[shown(1, 10), shown(1, 9)]));
    holds(&published(&[shown(1, 10), Publication { node: 1, ..shown(1, 9) }]));
}

#[test]
fn i10_no_way_back() {
    let reign = |router, at, timeline, primary| Reign { router, at, timeline, primary };
    let right =
        [reign(1, 1, 1, Some(0)), reign(1, 2, 2, None), reign(1, 3, 2, Some(1)), reign(2, 9, 1, Some(0))];
    holds(&reigns(&right));
    breaks(10, &reigns(&[reign(1, 1, 2, Some(1)), reign(1, 2, 1, None)]));
    breaks(10, &reigns(&[reign(1, 1, 2, Some(1)), reign(2, 2, 2, Some(0))]));
}

#[test]
fn i11_a_loss_is_told_once() {
    let told = |beyond, told| lost_once(&[Loss { session: 4, beyond, told }]);
    holds(&told(true, 1));
    holds(&told(false, 0));
    for (beyond, times) in [(true, 0), (true, 2), (false, 1)] {
        breaks(11, &told(beyond, times));
    }
}

#[test]
fn i12_probes_do_not_grow_with_the_reads() {
    let right = Spending {
        elapsed: Duration::from_secs(1),
        probes: 1000,
        pipeline: 1,
        round_trip: Duration::from_millis(1),
        nudges: 20,
        nudge_interval: Duration::from_millis(50),
    };
    holds(&spent(&right));
    breaks(12, &spent(&Spending { probes: 1010, ..right }));
    holds(&spent(&Spending { probes: 1010, pipeline: 2, ..right }));
    breaks(12, &spent(&Spending { nudges: 30, ..right }));
}

#[test]
fn i13_reads_end() {
    let limit = Duration::from_micros(5);
    holds(&waited(
        &[read(Level::Cluster, 1, 50), Event { completed: 99, ..read(Level::Session, 1, 50) }],
        limit,
    ));
    breaks(13, &waited(&[Event { completed: 56, ..read(Level::Cluster, 1, 50) }], limit));
    breaks(13, &waited(&[Event { outcome: Outcome::Failed, ..read(Level::Cluster, 1, 50) }], limit));
}

#[test]
fn i14_who_needs_nothing_asks_for_nothing() {
    holds(&idle(Level::Session, 1000, 0));
    breaks(14, &idle(Level::Router, 1000, 1));
}

#[test]
fn i15_some_statements_are_the_primarys() {
    let placement =
        |on_replicas| placed(&[Placement { sql: "SELECT pg_advisory_lock(1)".into(), on_replicas }]);
    holds(&placement(0));
    breaks(15, &placement(1));
}

#[test]
fn i16_bounded_sees_what_is_old_enough() {
    let history = |value| [write(1, 10, 20), write(2, 30, 40), read(Level::Bounded(25), value, 60)];
    holds(&check(&history(1)));
    holds(&check(&history(2)));
    breaks(16, &check(&history(0)));
}

#[test]
fn a_million_events_are_no_matter() {
    let events: Vec<_> = (1..200_000)
        .flat_map(|n| [write(n, n * 10, n * 10 + 2), read(Level::Cluster, n, n * 10 + 3)])
        .collect();
    let begun = tokio::time::Instant::now();
    holds(&check(&events));
    holds(&going_back(events.iter()));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

use super::*;
use crate::class::{Command, Kind, PinReason};

fn cache(entries: usize, bytes: usize) -> StatementCache {
    StatementCache::new(CacheLimits { entries, bytes }, Limits::default(), Key([1; 16]))
}

#[test]
fn literals_share_an_entry() {
    let mut cache = cache(8, 1 << 20);
    let one = cache.classify(b"SELECT a FROM t WHERE b = 1", SyntaxOptions::default());
    let two = cache.classify(b"select a from t where b = 22", SyntaxOptions::default());
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!((cache.hits(), cache.misses(), cache.len()), (1, 1, 1));
}

#[test]
fn it_stays_within_its_bounds_and_keeps_what_is_used() {
    let mut cache = cache(16, 1 << 20);
    for n in 0..1000 {
        cache.classify(b"SELECT hot", SyntaxOptions::default());
        cache.classify(format!("SELECT column_{n}").as_bytes(), SyntaxOptions::default());
        assert!(cache.len() <= 16);
    }
    assert_eq!(cache.misses(), 1001);
    assert_eq!(cache.hits(), 999);
    assert_eq!(cache.places.len(), cache.entries.len());
    assert_eq!(cache.bytes, cache.entries.iter().map(|entry| entry.bytes).sum::<usize>());
}

#[test]
fn bytes_are_bounded_too() {
    let mut cache = cache(1000, 4000);
    for n in 0..100 {
        cache.classify(format!("SELECT * FROM table_{n}").as_bytes(), SyntaxOptions::default());
        assert!(cache.bytes() <= 4000);
    }
    assert!(cache.len() > 1);
}

#[test]
fn what_the_session_reads_differently_is_not_judged() {
    let mut cache = cache(8, 1 << 20);
    let backslash = SyntaxOptions { standard_conforming_strings: false, utf8: true, ascii_inside: false };
    assert_eq!(cache.classify(b"SELECT 1", backslash).reason, Reason::Encoding);
    let inside = SyntaxOptions { standard_conforming_strings: true, utf8: false, ascii_inside: true };
    assert_eq!(cache.classify(b"SELECT '\xe4'", inside).reason, Reason::Encoding);
    assert_eq!(cache.classify(b"SELECT 1", inside).kind, Kind::Read);
    assert!(matches!(*cache.classify(b"SELECT '\xe4'", inside).commands, [Command::Pin(PinReason::Other)]));
    // Where ASCII is what it seems, the names alone are unknown.
    let apart = SyntaxOptions { ascii_inside: false, ..inside };
    for (sql, kind, command) in [
        (&b"SELECT '\xe4'"[..], Kind::Write, Command::Plain),
        (b"INSERT INTO t VALUES ('\xe4')", Kind::Write, Command::Plain),
        (b"LISTEN \xe4", Kind::WriteSession, Command::Pin(PinReason::Listen)),
        (b"SET a.b = '\xe4'", Kind::WriteSession, Command::Pin(PinReason::Setting)),
        (b"DEALLOCATE \xe4", Kind::WriteSession, Command::Pin(PinReason::SqlPrepare)),
    ] {
        let class = cache.classify(sql, apart);
        assert_eq!((class.kind, &class.commands[0]), (kind, &command), "{sql:?}");
    }
}

#[test]
fn what_was_seen_before_is_found_by_its_bytes_or_its_skeleton() {
    let mut cache = cache(64, 1 << 20);
    let text = |n: u32| format!("SELECT a FROM t WHERE b = {n} AND c = 'x{n}'");
    let class = cache.classify(text(0).as_bytes(), SyntaxOptions::default());
    for n in 0..100 {
        for _ in 0..3 {
            assert!(Arc::ptr_eq(&class, &cache.classify(text(n).as_bytes(), SyntaxOptions::default())));
        }
        let other = format!("select a /* {n} */ from T where B = {n} and C = $1");
        cache.classify(other.as_bytes(), SyntaxOptions::default());
    }
    assert_eq!((cache.misses(), cache.len()), (2, 2));
    assert!(cache.skeletons.bytes() > 0 && cache.texts.bytes() > 0);
    assert!(cache.bytes() <= 1 << 20);
}

#[test]
fn constants_that_decide_are_told_apart_in_front_too() {
    let mut cache = cache(64, 1 << 20);
    for _ in 0..5 {
        for (sql, kind) in [
            ("SELECT set_config('a', 'b', true)", Kind::Write),
            ("EXPLAIN (ANALYZE 0) SELECT 1", Kind::Read),
            ("EXPLAIN (ANALYZE 1) SELECT 1", Kind::Read),
            ("EXPLAIN (ANALYZE 0) DELETE FROM t", Kind::Read),
            ("EXPLAIN (ANALYZE 1) DELETE FROM t", Kind::Write),
        ] {
            let found = cache.classify(sql.as_bytes(), SyntaxOptions::default());
            assert_eq!(*found, classify(sql.as_bytes(), &Limits::default()), "{sql}");
            assert!(found.kind == kind || found.kind != Kind::Read, "{sql}: {}", found.kind);
        }
    }
}

#[test]
fn a_constant_that_nobody_can_read_spoils_no_other_text() {
    let mut cache = cache(64, 1 << 20);
    let mut kind = |sql: &[u8]| cache.classify(sql, SyntaxOptions::default()).kind;
    for (odd, plain) in [
        (&b"SELECT 'a\xff'"[..], &b"SELECT 'a'"[..]),
        (b"SELECT a::varchar(99999999999999999999) FROM t", b"SELECT a::varchar(9) FROM t"),
    ] {
        for _ in 0..3 {
            assert_eq!(kind(odd), Kind::Write);
        }
        assert_eq!(kind(plain), Kind::Read);
    }
    // What cannot be read whatever its constants is known as such.
    for n in 0..5 {
        kind(format!("SELECT FROM WHERE 1 1 {n}").as_bytes());
    }
    assert_eq!(cache.misses(), 2 * (3 + 1) + 1);
}

#[test]
fn parsing_needs_no_cache() {
    let mut cache = cache(64, 1 << 20);
    let options = SyntaxOptions::default();
    let unknown = cache.find(b"SELECT 1", options).unwrap_err();
    let again = cache.find(b"SELECT 1", options).unwrap_err();
    let class = cache.add(unknown.parse(b"SELECT 1"));
    assert!(Arc::ptr_eq(&class, &cache.find(b"SELECT 2", options).unwrap()));
    // Somebody else was faster.
    cache.add(again.parse(b"SELECT 1"));
    assert_eq!((cache.len(), cache.places.len()), (1, 1));
    assert_eq!((cache.hits(), cache.misses()), (1, 2));
}

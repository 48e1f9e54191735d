//! What is done for the text of a statement.

use std::hint::black_box;

use causeway_routing::lexer::Lexer;
use causeway_routing::{
    CacheLimits, Key, Kind, Limits, StatementCache, SyntaxOptions, classify, fingerprint,
};

use crate::Kernel;
use crate::statements::{INLINED, LISTED, PGBENCH, POINT_READ};

const STATEMENTS: [(&str, &str); 4] =
    [("pgbench", PGBENCH), ("point_read", POINT_READ), ("inlined", INLINED), ("listed", LISTED)];

pub(crate) fn kernels() -> Vec<Kernel> {
    let all = |kernel: fn(&str, &'static str) -> Kernel| {
        STATEMENTS.into_iter().map(move |(name, sql)| kernel(name, sql))
    };
    all(lex).chain(all(print)).chain(all(hit)).chain(all(miss)).collect()
}

fn lex(name: &str, sql: &'static str) -> Kernel {
    Kernel::new(format!("lexer/{name}"), "statement", 1, move || {
        assert!(black_box(Lexer::new(black_box(sql).as_bytes()).count()) > 5);
    })
}

fn print(name: &str, sql: &'static str) -> Kernel {
    let key = key();
    Kernel::new(format!("fingerprint/{name}"), "statement", 1, move || {
        black_box(fingerprint(black_box(sql).as_bytes(), &key));
    })
}

/// A statement whose class is known, among others that are.
fn hit(name: &str, sql: &'static str) -> Kernel {
    let mut cache = StatementCache::new(CacheLimits::default(), Limits::default(), key());
    for n in 0..1000 {
        cache.classify(format!("SELECT column_{n}").as_bytes(), SyntaxOptions::default());
    }
    cache.classify(sql.as_bytes(), SyntaxOptions::default());
    Kernel::new(format!("classify/hit/{name}"), "statement", 1, move || {
        let class = cache.classify(black_box(sql).as_bytes(), SyntaxOptions::default());
        assert_eq!(black_box(class).kind, Kind::Read);
    })
}

fn miss(name: &str, sql: &'static str) -> Kernel {
    Kernel::new(format!("classify/miss/{name}"), "statement", 1, move || {
        let class = classify(black_box(sql).as_bytes(), &Limits::default());
        assert_eq!(black_box(class).kind, Kind::Read);
    })
}

fn key() -> Key {
    Key(*b"0123456789abcdef")
}

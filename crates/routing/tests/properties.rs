//! What holds for every text, tried on random bytes and on mutations of the corpus.

use std::path::Path;

use causeway_routing::lexer::{Lexer, TokenKind};
use causeway_routing::{
    CacheLimits, Class, Key, Kind, Limits, Reason, StatementCache, SyntaxOptions, classify, fingerprint,
};
use proptest::prelude::*;
use proptest::sample::Index;

const KEY: Key = Key([9; 16]);

/// The statements of the corpus, their escapes left as they are: they are only raw material.
fn statements() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/classify.tsv");
    let text = std::fs::read_to_string(path).expect("the corpus is there");
    text.lines()
        .skip(1)
        .filter_map(|line| line.split('\t').nth(1))
        .map(|sql| sql.replace("\\n", "\n"))
        .collect()
}

/// A statement made of pieces of several, cut at tokens.
fn spliced() -> impl Strategy<Value = String> {
    let statements = statements();
    let piece = (any::<Index>(), any::<Index>(), 1..12_usize);
    proptest::collection::vec(piece, 1..5).prop_map(move |pieces| {
        let mut out = String::from("SELECT ");
        for (statement, start, length) in pieces {
            let sql = statement.get(&statements);
            let tokens: Vec<_> = Lexer::new(sql.as_bytes()).collect();
            if tokens.is_empty() {
                continue;
            }
            let start = start.index(tokens.len());
            let end = (start + length).min(tokens.len()) - 1;
            out.push_str(&sql[tokens[start].start..tokens[end].end]);
            out.push(' ');
        }
        out
    })
}

fn class(sql: &str) -> Class {
    classify(sql.as_bytes(), &Limits::default())
}

/// The same statement with other literals, other comments and whitespace, and words in another case.
fn rewritten(sql: &str, seed: u64) -> String {
    let mut out = String::new();
    let mut state = seed;
    let mut chance = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for token in Lexer::new(sql.as_bytes()) {
        let text = &sql[token.start..token.end];
        out.push_str(
            ["\n", "/* FOR UPDATE */ ", " \t ", " -- ; DELETE\n "][usize::try_from(chance(4)).unwrap_or(0)],
        );
        match token.kind {
            TokenKind::String => out.extend(["'literal ", &chance(100).to_string(), "'"]),
            TokenKind::Integer => out.push_str(&chance(100).to_string()),
            TokenKind::Numeric => out.extend([&chance(100).to_string(), ".5"]),
            TokenKind::DollarString => out.extend(["$x$ ", &chance(100).to_string(), " $x$"]),
            TokenKind::Word if chance(2) == 0 => out.push_str(&text.to_ascii_uppercase()),
            TokenKind::Word => out.push_str(&text.to_ascii_lowercase()),
            _ => out.push_str(text),
        }
    }
    out
}

/// The same text, byte for byte, but for other numbers.
fn renumbered(sql: &str, seed: u64) -> String {
    let mut out = String::new();
    let mut end = 0;
    for token in Lexer::new(sql.as_bytes()).filter(|token| token.kind == TokenKind::Integer) {
        out.extend([&sql[end..token.start], &(seed % 1000).to_string()]);
        end = token.end;
    }
    out + &sql[end..]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(sql in proptest::collection::vec(any::<u8>(), 0..200)) {
        let class = classify(&sql, &Limits::default());
        fingerprint(&sql, &KEY);
        prop_assert!(class.kind != Kind::Read || std::str::from_utf8(&sql).is_ok());
    }

    #[test]
    fn no_splice_panics(sql in spliced()) {
        class(&sql);
    }

    /// A fingerprint stands for one class: what it leaves out decides nothing.
    #[test]
    fn literals_comments_and_case_decide_nothing_that_a_fingerprint_hides(sql in spliced(), seed in any::<u64>()) {
        let other = rewritten(&sql, seed);
        if fingerprint(sql.as_bytes(), &KEY) == fingerprint(other.as_bytes(), &KEY) {
            // The server folds unquoted words too, also where they are the value of a setting.
            let folded = |sql: &str| format!("{:?}", class(sql)).to_ascii_lowercase();
            prop_assert_eq!(folded(&sql), folded(&other), "{}", other);
        } else {
            // Only where literals stay in, or where a token was one that the rewriting cannot keep (two literals that
            // became one over a newline, `a"b"`).
            let keeps = Lexer::new(sql.as_bytes()).map(|token| token.kind).ne(Lexer::new(other.as_bytes()).map(|t| t.kind));
            let lower = sql.to_ascii_lowercase();
            // In a text with a byte that begins no token literals stay in as well.
            let decides = ["set_config", "current_setting", "uescape", "u&", ";", "\\", "\u{feff}", "$"].iter().any(|word| lower.contains(word));
            prop_assert!(keeps || decides, "{} / {}", sql, other);
        }
    }

    /// Whatever a text is found by, its class is the one that parsing gives.
    #[test]
    fn a_cache_gives_what_parsing_gives(
        texts in proptest::collection::vec((spliced(), any::<u64>()), 1..6),
        order in proptest::collection::vec(any::<Index>(), 30),
    ) {
        let texts: Vec<_> =
            texts.iter().flat_map(|(sql, seed)| [sql.clone(), renumbered(sql, *seed), rewritten(sql, *seed)]).collect();
        // With room in front, and without.
        let mut caches = [64, 4].map(|entries| {
            StatementCache::new(CacheLimits { entries, bytes: 1 << 20 }, Limits::default(), KEY)
        });
        let unread = |class: &Class| matches!(class.reason, Reason::Unparsable | Reason::Encoding);
        // The server folds unquoted words too, also where they are the value of a setting.
        let folded = |class: &Class| format!("{class:?}").to_ascii_lowercase();
        for index in order {
            let sql = index.get(&texts);
            let parsed = class(sql);
            for cache in &mut caches {
                let found = cache.classify(sql.as_bytes(), SyntaxOptions::default());
                if !unread(&parsed) && !unread(&found) {
                    prop_assert_eq!(folded(&found), folded(&parsed), "{}", sql);
                }
            }
        }
    }

    /// Taking a statement apart at its semicolons never makes the whole look more harmless than a part.
    #[test]
    fn a_text_is_no_more_harmless_than_its_statements(one in spliced(), two in spliced()) {
        let both = class(&format!("{one};{two}"));
        if both.kind == Kind::Read {
            for part in [one, two] {
                let kind = class(&part).kind;
                prop_assert!(matches!(kind, Kind::Read | Kind::TransactionControl | Kind::Either), "{}: {}", kind, part);
            }
        }
    }
}

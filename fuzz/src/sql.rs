//! The text of statements: tokens, fingerprints, classes.

use causeway_routing::catalogue::{CatalogueBuilder, FunctionRow, RelationRow};
use causeway_routing::lexer::{Lexer, Token, TokenKind};
use causeway_routing::{
    CacheLimits, Catalogue, Class, Command, Fingerprint, Key, Kind, Limits, Reason, SettingValue,
    StatementCache, Symbols, SyntaxOptions, resolve,
};

use super::input::Input;

/// Longer texts teach nothing that shorter ones do not.
const LONGEST: usize = 16 << 10;
const KEY: Key = Key(*b"0123456789abcdef");

/// The text in an input: the input itself, or, behind a byte of value 1, one word of [`WORDS`] for each byte.
pub fn text(data: &[u8]) -> Vec<u8> {
    let [1, choices @ ..] = data else { return data.to_vec() };
    let mut text = Vec::new();
    let mut input = Input::new(choices);
    while !input.is_empty() {
        let word = input.pick(&WORDS);
        if word.is_empty() {
            // Takes the space before it away.
            text.truncate(text.len().saturating_sub(1));
        } else {
            text.extend_from_slice(word.as_bytes());
            text.push(b' ');
        }
    }
    text
}

/// What statements are made of, and what has fooled one tokenizer or another.
#[rustfmt::skip]
const WORDS: [&str; 177] = [
    "", "SELECT", "FROM", "WHERE", "t", "a", "b", "1", "'x'", ",", "(", ")", "*", "=", ".", ";", "WITH", "AS", "UNION",
    "ALL", "JOIN", "ON", "LEFT", "ORDER", "BY", "GROUP", "HAVING", "LIMIT", "OFFSET", "FETCH", "FIRST", "ROWS", "ONLY",
    "TIES", "FOR", "UPDATE", "SHARE", "NO", "KEY", "OF", "NOWAIT", "SKIP", "LOCKED", "INTO", "TEMP", "INSERT", "DELETE",
    "MERGE", "VALUES", "TABLE", "SET", "RETURNING", "USING", "WHEN", "MATCHED", "THEN", "DO", "CASE", "ELSE", "END",
    "NOT", "NULL", "IN", "EXISTS", "BETWEEN", "AND", "OR", "LIKE", "IS", "DISTINCT", "CAST", "::", "int", "text",
    "numeric(10,2)", "interval", "'1 day'", "YEAR", "TO", "EXTRACT", "epoch", "substring", "position", "OVERLAY",
    "PLACING", "TRIM", "BOTH", "ROW", "ARRAY", "[", "]", ":", "WINDOW", "OVER", "PARTITION", "RECURSIVE", "LATERAL",
    "TABLESAMPLE", "BERNOULLI", "GROUPING", "SETS", "CUBE", "ROLLUP", "FILTER", "WITHIN", "COLLATE", "\"C\"", "OPERATOR",
    "pg_catalog", "public", "now()", "random()", "nextval('s')", "set_config('a', 'b', false)", "pg_sleep(1)",
    "current_setting('a')", "pg_advisory_lock(1)", "txid_current()", "lower(", "count(*)", "+", "-", "/", "%", "||", "->",
    "->>", "@>", "?", "?|", "<", ">", "<>", "!=", "~", "!~", "<->", "--", "\n", "/*", "*/", "\r", "\t", "'", "''", "\"",
    "$$", "$a$", "$1", "E'\\''", "e'", "U&'\\0061'", "U&\"d!0061ta\"", "UESCAPE", "'!'", "B'01'", "X'1F'", "N'x'", "1.5",
    "1e10", ".5", "0x1F", "EXPLAIN", "ANALYZE", "true", "BEGIN", "READ", "ISOLATION", "LEVEL", "SERIALIZABLE", "COMMIT",
    "SHOW", "COPY", "STDOUT", "CALL", "é", "NATURAL",
];

/// The tokens follow each other with nothing but whitespace and comments between them, each of them by itself is the
/// same token, since what surrounds a token does not change it, and strings go on over line breaks only.
pub fn lexer(data: &[u8]) {
    let sql = &text(data)[..];
    let mut position = 0;
    let mut after_string = false;
    for Token { kind, start, end } in Lexer::new(sql) {
        assert!(position <= start && start < end && end <= sql.len(), "{kind:?} {start}..{end}");
        assert!(is_blank(&sql[position..start]), "{:?} is no space", &sql[position..start]);
        if after_string {
            assert_eq!(next_part(&sql[position..]), None, "a string was cut: {}", sql.escape_ascii());
        }
        position = end;
        let alone = &sql[start..end];
        after_string = match kind {
            TokenKind::String
            | TokenKind::BitString
            | TokenKind::HexString
            | TokenKind::NationalString
            | TokenKind::UnicodeString => is_string(alone, false),
            TokenKind::EscapeString => is_string(alone, true),
            _ => false,
        };
        let again: Vec<_> = Lexer::new(alone).collect();
        assert_eq!(
            again,
            [Token { kind, start: 0, end: alone.len() }],
            "{:?}",
            alone.escape_ascii().to_string()
        );
    }
    assert!(is_blank(&sql[position..]), "{:?} is no space", &sql[position..]);
}

/// Says yes if this is one string, of one part or several; panics if not.
fn is_string(token: &[u8], backslash: bool) -> bool {
    let mut rest = &token[token.iter().position(|b| *b == b'\'').expect("it begins with a quote") + 1..];
    loop {
        rest = match rest {
            [b'\\', _, tail @ ..] if backslash => tail,
            [b'\'', b'\'', tail @ ..] => tail,
            [b'\''] => return true,
            [b'\'', tail @ ..] => next_part(tail).expect("a part behind a line break"),
            [_, tail @ ..] => tail,
            [] => panic!("{} does not end", token.escape_ascii()),
        }
    }
}

/// What follows the opening quote of the next part of a string, if whitespace with a line break and line comments are
/// all that comes before it.
fn next_part(mut rest: &[u8]) -> Option<&[u8]> {
    let mut broken = false;
    loop {
        rest = match rest {
            [b'\n' | b'\r', tail @ ..] => {
                broken = true;
                tail
            }
            [b' ' | b'\t' | 0x0b | 0x0c, tail @ ..] => tail,
            [b'-', b'-', tail @ ..] => {
                let end = tail.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(tail.len());
                &tail[end..]
            }
            [b'\'', tail @ ..] if broken => return Some(tail),
            _ => return None,
        }
    }
}

/// Whether there is nothing but whitespace and comments, found out the slow way.
fn is_blank(mut gap: &[u8]) -> bool {
    loop {
        gap = match gap {
            [] => return true,
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, rest @ ..] => rest,
            [b'-', b'-', rest @ ..] => {
                let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
                &rest[end..]
            }
            [b'/', b'*', rest @ ..] => match after_comment(rest) {
                Some(rest) => rest,
                None => return false,
            },
            _ => return false,
        }
    }
}

fn after_comment(mut rest: &[u8]) -> Option<&[u8]> {
    let mut depth = 1;
    while depth > 0 {
        rest = match rest {
            [b'/', b'*', tail @ ..] => {
                depth += 1;
                tail
            }
            [b'*', b'/', tail @ ..] => {
                depth -= 1;
                tail
            }
            [_, tail @ ..] => tail,
            [] => return None,
        }
    }
    Some(rest)
}

/// Nothing panics; a write before or behind a text is always seen; what is called a read begins like one; and the cache
/// and the catalogue change nothing but towards the primary.
pub fn classify(data: &[u8]) {
    let sql = text(data);
    if sql.len() > LONGEST {
        return;
    }
    let limits = Limits::default();
    let class = causeway_routing::classify(&sql, &limits);
    if may_leave(class.kind) {
        begins_as_a_read(&sql);
    }
    let closing = b")".repeat(open_parentheses(&sql));
    let behind = [&sql, &b"\n"[..], &closing, b"; DELETE FROM t"].concat();
    for write in [behind, [b"DELETE FROM t;", &sql[..]].concat()] {
        let hidden = causeway_routing::classify(&write, &limits);
        assert!(!may_leave(hidden.kind), "{:?} for {}", hidden.kind, write.escape_ascii());
    }

    let mut cache = StatementCache::new(CacheLimits { entries: 2, bytes: 1 << 20 }, limits, KEY);
    for _ in 0..2 {
        assert_eq!(*cache.classify(&sql, SyntaxOptions::default()), class);
    }
    let sjis =
        cache.classify(&sql, SyntaxOptions { utf8: false, ascii_inside: true, ..SyntaxOptions::default() });
    assert!(sql.is_ascii() || sjis.reason == Reason::Encoding);
    let backslashes = SyntaxOptions { standard_conforming_strings: false, ..SyntaxOptions::default() };
    assert_eq!(cache.classify(&sql, backslashes).reason, Reason::Encoding);

    for catalogue in [None, Some(&catalogue())] {
        let verdict = resolve(&class, catalogue);
        assert!(!may_leave(verdict.kind) || may_leave(class.kind), "{verdict:?}");
    }
}

/// Whether a text of this kind may run on a replica, or nowhere in particular.
fn may_leave(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::BeginReadOnly | Kind::Either)
}

/// How many parentheses are still open at the end of a text.
fn open_parentheses(sql: &[u8]) -> usize {
    Lexer::new(sql).fold(0_usize, |depth, token| match token.kind {
        TokenKind::LeftParen => depth + 1,
        TokenKind::RightParen => depth.saturating_sub(1),
        _ => depth,
    })
}

/// A semicolon in parentheses ends no statement: with one there, the server refuses the whole text.
fn begins_as_a_read(sql: &[u8]) {
    const READS: [&[u8]; 9] =
        [b"select", b"with", b"values", b"table", b"explain", b"show", b"copy", b"begin", b"start"];
    // A COMMIT without a transaction, and the like, is a warning wherever it is given.
    const NOTHING: [&[u8]; 4] = [b"commit", b"end", b"rollback", b"abort"];
    let (mut begins, mut depth) = (true, 0_usize);
    for token in Lexer::new(sql) {
        match token.kind {
            TokenKind::Semicolon if depth == 0 => begins = true,
            TokenKind::LeftParen => depth += 1,
            TokenKind::RightParen => depth = depth.saturating_sub(1),
            _ if begins => {
                let word = token.text(sql).to_ascii_lowercase();
                let known = READS.iter().chain(&NOTHING).any(|known| **known == *word);
                assert!(known, "{} in {}", word.escape_ascii(), sql.escape_ascii());
                begins = false;
            }
            _ => {}
        }
    }
}

/// A database with a table `t` that may be read and one, `b`, that may not.
fn catalogue() -> Catalogue {
    let mut builder = CatalogueBuilder::new();
    for (name, persistence) in [("t", 'p'), ("b", 'u')] {
        builder.relation(RelationRow {
            schema: "public".to_owned(),
            name: name.to_owned(),
            kind: 'r',
            persistence,
            row_security: false,
            definition: None,
            foreign_safe: false,
        });
    }
    builder.function(FunctionRow {
        schema: "public".to_owned(),
        name: "lower".to_owned(),
        arguments: 1,
        defaults: 0,
        variadic: false,
        volatility: 'v',
    });
    builder.build()
}

/// Case, space and comments never change a fingerprint, a literal changes it only where it may decide, any other token
/// always does; and texts that share a fingerprint share their class.
pub fn fingerprint(data: &[u8]) {
    let sql = text(data);
    if sql.len() > LONGEST {
        return;
    }
    let tokens: Vec<_> = Lexer::new(&sql).collect();
    let print = causeway_routing::fingerprint(&sql, &KEY);
    let mut dice = Dice::new(&sql);

    let spaced = variant(&sql, &tokens, &mut dice, false);
    assert_eq!(causeway_routing::fingerprint(&spaced, &KEY), print, "{}", pair(&sql, &spaced));
    same_class(&sql, &spaced);

    let literals = tokens.iter().any(|token| token.kind.is_literal());
    if literals {
        let other = variant(&sql, &tokens, &mut dice, true);
        let folded = causeway_routing::fingerprint(&other, &KEY) == print;
        let unchanged = words(&sql).eq(words(&other));
        assert_eq!(folded, unchanged || !literals_decide(&sql, &tokens), "{}", pair(&sql, &other));
        if folded {
            same_class(&sql, &other);
        }
    }

    let named: Vec<_> = tokens.iter().filter(|token| token.kind == TokenKind::Word).collect();
    if !named.is_empty() {
        let token = named[dice.below(named.len())];
        let renamed = [&sql[..token.end], b"_", &sql[token.end..]].concat();
        assert_ne!(causeway_routing::fingerprint(&renamed, &KEY), print, "{}", pair(&sql, &renamed));
    }
    assert_ne!(print, Fingerprint(0), "{}", sql.escape_ascii());
}

fn pair(one: &[u8], other: &[u8]) -> String {
    format!("\n  {}\n  {}", one.escape_ascii(), other.escape_ascii())
}

/// Whether literals stay in the fingerprint, as its documentation has it.
fn literals_decide(sql: &[u8], tokens: &[Token]) -> bool {
    let mut begins = true;
    for token in tokens {
        let word = token.text(sql).to_ascii_lowercase();
        if begins && !matches!(token.kind, TokenKind::LeftParen | TokenKind::Semicolon) {
            const FOLDING: [&[u8]; 8] =
                [b"select", b"values", b"table", b"with", b"insert", b"update", b"delete", b"merge"];
            if !FOLDING.contains(&&word[..]) {
                return true;
            }
            begins = false;
        }
        match token.kind {
            TokenKind::Semicolon => begins = true,
            TokenKind::UnicodeWord | TokenKind::Invalid | TokenKind::Unterminated => return true,
            TokenKind::Word | TokenKind::QuotedWord => {
                let name =
                    word.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(&word);
                if [&b"set_config"[..], b"current_setting", b"uescape"].contains(&name) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// Each token as the server reads it.
fn words(sql: &[u8]) -> impl Iterator<Item = (TokenKind, Vec<u8>)> {
    Lexer::new(sql).map(|token| {
        let text = token.text(sql);
        let folded = token.kind == TokenKind::Word;
        (token.kind, if folded { text.to_ascii_lowercase() } else { text.to_vec() })
    })
}

/// The same statement in another spelling, and if `literals` with other constants.
fn variant(sql: &[u8], tokens: &[Token], dice: &mut Dice, literals: bool) -> Vec<u8> {
    const SPACE: [&[u8]; 7] =
        [b" ", b"  ", b"\t", b" /* c */", b" /* ' /* n */ \" */ ", b"\n", b" -- ; '\r\n"];
    /// The first of [`SPACE`] that have no line break.
    const ON_ONE_LINE: usize = 5;

    let mut out = Vec::new();
    let mut end = 0;
    let mut after_literal = false;
    for token in tokens {
        let replaced = literals && token.kind.is_literal();
        // Over a line break a string literal goes on after a quote.
        let choices = if sql[token.start] == b'\'' { ON_ONE_LINE } else { SPACE.len() };
        if token.start > end || after_literal || replaced || dice.below(4) == 0 {
            out.extend_from_slice(SPACE[dice.below(choices)]);
        }
        match token.kind {
            TokenKind::Word => {
                let upper = dice.below(2) == 0;
                let cased = |b: &u8| if upper { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() };
                out.extend(token.text(sql).iter().map(cased));
            }
            kind if replaced => out.extend_from_slice(literal(kind, dice)),
            _ => out.extend_from_slice(token.text(sql)),
        }
        end = token.end;
        after_literal = replaced;
    }
    let kinds = |sql: &[u8]| Lexer::new(sql).map(|token| token.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&out), kinds(sql), "{}", pair(sql, &out));
    out
}

/// A constant of this kind.
fn literal(kind: TokenKind, dice: &mut Dice) -> &'static [u8] {
    let choices: &[&[u8]] = match kind {
        TokenKind::String => {
            &[b"'a'", b"''", b"'it''s'", b"'now'", b"'; DELETE FROM t; --'", b"'b'\n'c'", b"'\\'"]
        }
        TokenKind::EscapeString => &[b"E''", b"e'\\''", b"E'a\\\\'"],
        TokenKind::UnicodeString => &[b"U&''", b"u&'\\0061'"],
        TokenKind::NationalString => &[b"N''", b"n'a'"],
        TokenKind::BitString => &[b"B''", b"b'0101'"],
        TokenKind::HexString => &[b"X''", b"x'1F'"],
        TokenKind::DollarString => &[b"$$$$", b"$$a$$", b"$b$ ' -- $$ $b$"],
        TokenKind::Numeric => &[b"1.5", b".5", b"1.", b"1e10", b"2.5e-3"],
        _ => &[b"0", b"1", b"42", b"0x1F", b"1_000", b"9223372036854775808", b"99999999999999999999999"],
    };
    choices[dice.below(choices.len())]
}

/// Texts of one fingerprint have one class. A class that says no more than that a text could not be read is the exception:
/// the server refuses some constants, and then it does not matter who says so.
fn same_class(one: &[u8], other: &[u8]) {
    let limits = Limits::default();
    let classes = [one, other].map(|sql| causeway_routing::classify(sql, &limits));
    if classes.iter().any(|class| matches!(class.reason, Reason::Unparsable | Reason::Encoding)) {
        return;
    }
    assert_eq!(gist(&classes[0]), gist(&classes[1]), "{}", pair(one, other));
}

type Words = Vec<(TokenKind, Vec<u8>)>;

/// A class, with the values of settings as the server reads them.
fn gist(class: &Class) -> (Kind, Reason, &Symbols, Vec<(Command, Words)>) {
    let command = |command: &Command| match command {
        Command::Set { name, value: SettingValue::Text(text), local } => {
            let set = Command::Set { name: name.clone(), value: SettingValue::Default, local: *local };
            (set, words(text.as_bytes()).collect())
        }
        other => (other.clone(), Vec::new()),
    };
    (class.kind, class.reason, &class.symbols, class.commands.iter().map(command).collect())
}

/// Chance that is the same for the same text.
struct Dice(u64);

// === impl Dice ===

impl Dice {
    fn new(text: &[u8]) -> Self {
        // FNV-1a.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(text.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        // The generator of Knuth's MMIX, of which the upper bits are good.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}
